/* SPDX-License-Identifier: MIT */
#include "target/cache.h"

#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"

#define PAGE 4096ull
/* The fuzzers have few: sanitizers touch all of them. */
#ifndef MSP_CACHE_SLOTS
#define MSP_CACHE_SLOTS 1024 /* 4 MiB, touched as needed */
#endif
#define SLOTS MSP_CACHE_SLOTS
#define EMPTY UINT64_MAX

struct msp_memory_cache {
	const struct msp_memory *under;
	struct msp_memory memory;
	uint64_t page[SLOTS]; /* number of the page in each slot */
	char *bytes;	      /* SLOTS pages */
};

/* Neighbours get neighbouring slots: a stack of a few hundred pages never collides with itself. */
static size_t slot_of(uint64_t page)
{
	return (page ^ page >> 10 ^ page >> 20) % SLOTS;
}

/* The bytes of a page; NULL if it cannot be read. */
static const char *get_page(struct msp_memory_cache *cache, uint64_t page, int *error)
{
	size_t slot = slot_of(page);
	char *bytes = cache->bytes + slot * PAGE;

	if (cache->page[slot] == page)
		return bytes;
	cache->page[slot] = EMPTY;
	*error = msp_read(cache->under, page * PAGE, bytes, PAGE);
	if (*error < 0)
		return NULL;
	cache->page[slot] = page;
	return bytes;
}

static int read_cached(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct msp_memory_cache *cache = ctx;
	const char *bytes;
	size_t part;
	int error = 0;

	if (addr + size < addr)
		return MSP_E_FAULT;
	/* Something big would only push out everything else. */
	if (size > 16 * PAGE)
		return msp_read(cache->under, addr, buf, size);
	while (size) {
		bytes = get_page(cache, addr / PAGE, &error);
		if (!bytes)
			return error;
		part = PAGE - addr % PAGE;
		if (part > size)
			part = size;
		memcpy(buf, bytes + addr % PAGE, part);
		buf = (char *)buf + part;
		addr += part;
		size -= part;
	}
	return 0;
}

int msp_memory_cache_new(const struct msp_memory *under, struct msp_memory_cache **out)
{
	struct msp_memory_cache *cache = malloc(sizeof(*cache));

	if (!cache)
		return MSP_E_NOMEM;
	cache->bytes = malloc(SLOTS * PAGE);
	if (!cache->bytes) {
		free(cache);
		return MSP_E_NOMEM;
	}
	cache->under = under;
	cache->memory = (struct msp_memory){.read = read_cached, .ctx = cache};
	msp_memory_cache_clear(cache);
	*out = cache;
	return 0;
}

void msp_memory_cache_free(struct msp_memory_cache *cache)
{
	if (!cache)
		return;
	free(cache->bytes);
	free(cache);
}

const struct msp_memory *msp_memory_cache_memory(struct msp_memory_cache *cache)
{
	return &cache->memory;
}

void msp_memory_cache_clear(struct msp_memory_cache *cache)
{
	memset(cache->page, 0xff, sizeof(cache->page));
}

/* SPDX-License-Identifier: MIT */
/* A hash table from raw frames to frames of the profile: most samples repeat what was seen before. */
#include <stdlib.h>
#include <string.h>

#include "recorder/internal.h"

/* A program that makes functions without end must not fill the memory: start again then. */
#define MAX_ENTRIES (1u << 15)

static uint32_t hash(const struct msp_raw_frame *f)
{
	uint64_t h = f->addr * 0x9e3779b97f4a7c15ull;

	h = (h ^ h >> 32 ^ f->ident) * 0x9e3779b97f4a7c15ull;
	h = (h ^ h >> 32 ^ ((uint64_t)f->pos << 32 | f->trace)) * 0x9e3779b97f4a7c15ull;
	h ^= (uint64_t)f->image << 16 | f->kind << 8 | f->flags;
	return h ^ h >> 32;
}

static bool same(const struct msp_raw_frame *a, const struct msp_raw_frame *b)
{
	return a->addr == b->addr && a->ident == b->ident && a->pos == b->pos &&
	       a->trace == b->trace && a->image == b->image && a->kind == b->kind &&
	       a->flags == b->flags;
}

static struct frame_cache_entry *place(const struct frame_cache *cache,
				       const struct msp_raw_frame *key)
{
	uint32_t at = hash(key) & (cache->room - 1);

	while (cache->entry[at].key.kind != MSP_RAW_KIND_COUNT && !same(&cache->entry[at].key, key))
		at = (at + 1) & (cache->room - 1);
	return &cache->entry[at];
}

bool frame_cache_get(const struct frame_cache *cache, const struct msp_raw_frame *key, uint32_t *id)
{
	struct frame_cache_entry *e;

	if (!cache->room)
		return false;
	e = place(cache, key);
	*id = e->id;
	return e->key.kind != MSP_RAW_KIND_COUNT;
}

static bool grow(struct frame_cache *cache)
{
	struct frame_cache bigger = {.room = cache->room ? 2 * cache->room : 1024};

	bigger.entry = malloc(bigger.room * sizeof(*bigger.entry));
	if (!bigger.entry)
		return false;
	for (uint32_t i = 0; i < bigger.room; i++)
		bigger.entry[i].key.kind = MSP_RAW_KIND_COUNT;
	for (uint32_t i = 0; i < cache->room; i++)
		if (cache->entry[i].key.kind != MSP_RAW_KIND_COUNT)
			*place(&bigger, &cache->entry[i].key) = cache->entry[i];
	bigger.count = cache->count;
	free(cache->entry);
	*cache = bigger;
	return true;
}

void frame_cache_put(struct frame_cache *cache, const struct msp_raw_frame *key, uint32_t id)
{
	struct frame_cache_entry *e;

	if (cache->count >= MAX_ENTRIES)
		frame_cache_clear(cache);
	if (4 * cache->count >= 3 * cache->room && !grow(cache))
		return; /* only slower */
	e = place(cache, key);
	if (e->key.kind == MSP_RAW_KIND_COUNT)
		cache->count++;
	e->key = *key;
	e->id = id;
}

void frame_cache_clear(struct frame_cache *cache)
{
	free(cache->entry);
	memset(cache, 0, sizeof(*cache));
}

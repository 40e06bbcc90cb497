/* SPDX-License-Identifier: MIT */
/* Blocks of the target's memory, kept until they are written. */
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "moonspy/moonspy.h"
#include "oracle.h"

#define BLOCK 256
#define PLACES 16384

struct block {
	uint64_t addr; /* 1: empty */
	uint8_t data[BLOCK];
};

struct oracle_memory {
	pid_t pid;
	struct msp_memory reader;
	struct block *block;
};

static struct block *place_of(struct oracle_memory *m, uint64_t addr)
{
	return &m->block[(addr / BLOCK * 0x9e3779b97f4a7c15ull) >> 50];
}

static bool read_target(struct oracle_memory *m, uint64_t addr, void *buf, size_t size)
{
	struct iovec local = {buf, size}, remote = {(void *)(uintptr_t)addr, size};

	return process_vm_readv(m->pid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static int read_cached(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct oracle_memory *m = ctx;
	uint8_t *to = buf;

	while (size) {
		uint64_t at = addr & ~(uint64_t)(BLOCK - 1);
		size_t ofs = addr - at, n = BLOCK - ofs < size ? BLOCK - ofs : size;
		struct block *b = place_of(m, at);

		if (b->addr != at) {
			b->addr = 1;
			if (!read_target(m, at, b->data, BLOCK))
				return MSP_E_FAULT;
			b->addr = at;
		}
		memcpy(to, b->data + ofs, n);
		to += n;
		addr += n;
		size -= n;
	}
	return 0;
}

struct oracle_memory *oracle_memory_new(pid_t pid)
{
	struct oracle_memory *m = calloc(1, sizeof(*m));

	if (m)
		m->block = calloc(PLACES, sizeof(*m->block));
	if (!m || !m->block) {
		free(m);
		return NULL;
	}
	m->pid = pid;
	m->reader = (struct msp_memory){.read = read_cached, .ctx = m};
	oracle_memory_flush(m);
	return m;
}

void oracle_memory_free(struct oracle_memory *m)
{
	if (m)
		free(m->block);
	free(m);
}

void oracle_memory_of(struct oracle_memory *m, pid_t pid)
{
	m->pid = pid;
	oracle_memory_flush(m);
}

const struct msp_memory *oracle_memory_reader(struct oracle_memory *m)
{
	return &m->reader;
}

void oracle_memory_written(struct oracle_memory *m, uint64_t addr, uint64_t size)
{
	uint64_t at = addr & ~(uint64_t)(BLOCK - 1);

	for (; at < addr + size; at += BLOCK) {
		struct block *b = place_of(m, at);

		if (b->addr == at)
			b->addr = 1;
	}
}

void oracle_memory_flush(struct oracle_memory *m)
{
	for (uint32_t i = 0; i < PLACES; i++)
		m->block[i].addr = 1;
}

bool oracle_memory_verify(struct oracle_memory *m)
{
	uint8_t data[BLOCK];

	for (uint32_t i = 0; i < PLACES; i++) {
		struct block *b = &m->block[i];

		if (b->addr == 1 || !read_target(m, b->addr, data, BLOCK))
			continue;
		if (memcmp(data, b->data, BLOCK) != 0)
			return false;
	}
	return true;
}

/* SPDX-License-Identifier: MIT */
/* A real process's memory with some of its words replaced: nothing that is read of it may do harm. */
#ifndef LUAJIT_MUTATOR_H
#define LUAJIT_MUTATOR_H

#include <stdint.h>
#include <string.h>

#include "unwind/memory.h"

struct mutator {
	const struct msp_memory *mem;
	uint64_t seed;
	unsigned int one_in;
};

/* xorshift64 */
static inline uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* Garbage in one of so many words of four bytes, in half of them in two bytes only. For struct msp_memory. */
static inline int mutate(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct mutator *m = ctx;
	int rc = msp_read(m->mem, addr, buf, size);

	for (size_t i = 0; rc == 0 && i + 4 <= size; i += 4) {
		uint32_t r = next_random(&m->seed);

		if (r % m->one_in)
			continue;
		r = next_random(&m->seed);
		memcpy((uint8_t *)buf + i, &r, r & 1 ? 4 : 2);
	}
	return rc;
}

#endif

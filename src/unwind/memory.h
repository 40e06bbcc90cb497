/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A way to read a target's memory: the only thing that differs between the user-space hosts. */
#ifndef MSP_UNWIND_MEMORY_H
#define MSP_UNWIND_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * read() copies all of [addr, addr + size) and returns 0, or a negative error
 * code of moonspy/moonspy.h and leaves the buffer undefined. It never copies
 * a part and calls that success.
 */
struct msp_memory {
	int (*read)(void *ctx, uint64_t addr, void *buf, size_t size);
	void *ctx;
	bool running; /* the target runs: what was read may read differently a moment later */
};

static inline int msp_read(const struct msp_memory *mem, uint64_t addr, void *buf, size_t size)
{
	return mem->read(mem->ctx, addr, buf, size);
}

#endif

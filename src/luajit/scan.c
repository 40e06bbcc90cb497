/* SPDX-License-Identifier: MIT */
/*
 * Finds VMs in a target's memory. A GG_State holds the dispatch table: a run
 * of a hundred and more pointers into the VM block, at a known distance from
 * the global state. Nothing else in a process looks like that.
 */
#include <stdlib.h>
#include <string.h>

#include "luajit/build.h"
#include "moonspy/moonspy.h"

#define CHUNK (256 * 1024)
#define PAGE 4096

struct scan {
	const struct msp_lj_build *build;
	uint64_t block_start, block_end; /* in the target */
	unsigned int run;		 /* pointers into the block right before the current word */
	unsigned int need;
	uint64_t *g;
	int max, count;
};

/* A run has reached the length of the table: it starts there. */
static void found(struct scan *scan, uint64_t table)
{
	uint64_t g = table - (uint64_t)scan->build->layout.dispatch_to_g;

	for (int i = 0; i < scan->count; i++) {
		if (scan->g[i] == g)
			return;
	}
	if (scan->count < scan->max)
		scan->g[scan->count++] = g;
}

static void scan_words(struct scan *scan, uint64_t addr, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i + 8 <= size; i += 8) {
		uint64_t word;

		memcpy(&word, bytes + i, sizeof(word));
		if (word < scan->block_start || word >= scan->block_end)
			scan->run = 0;
		else if (++scan->run == scan->need)
			found(scan, addr + i - (uint64_t)(scan->need - 1) * 8);
	}
}

/* A chunk that is not readable as a whole is read page by page. */
static void scan_chunk(struct scan *scan, const struct msp_memory *mem, uint64_t addr, uint8_t *buf,
		       size_t size)
{
	if (msp_read(mem, addr, buf, size) == 0) {
		scan_words(scan, addr, buf, size);
		return;
	}
	for (size_t done = 0; done < size;) {
		size_t n = PAGE - (size_t)((addr + done) % PAGE);

		if (n > size - done)
			n = size - done;
		if (msp_read(mem, addr + done, buf, n) == 0)
			scan_words(scan, addr + done, buf, n);
		else
			scan->run = 0;
		done += n;
	}
}

int msp_lj_scan(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t image_base,
		uint64_t start, uint64_t end, uint64_t *g, int max)
{
	struct scan scan = {
		.build = build,
		.block_start = image_base + build->layout.vm_start,
		.block_end = image_base + build->layout.vm_end,
		/* Opcodes, then fast functions, then the opcodes without headers once more. */
		.need = build->layout.bc_funccw + 1U,
		.g = g,
		.max = max};
	uint8_t *buf;

	if (max <= 0 || !build->has[MSP_LJ_FIELD_bc_funccw] ||
	    !build->has[MSP_LJ_FIELD_dispatch_to_g])
		return 0;
	buf = malloc(CHUNK);
	if (!buf)
		return MSP_E_NOMEM;
	start = (start + 7) & ~7ULL;
	while (start < end && end - start >= 8 && scan.count < max) {
		size_t n = end - start < CHUNK ? (size_t)(end - start) & ~(size_t)7 : CHUNK;

		scan_chunk(&scan, mem, start, buf, n);
		start += n;
	}
	free(buf);
	return scan.count;
}

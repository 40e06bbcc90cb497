/* SPDX-License-Identifier: MIT */
/* Memory of a core file. */
#include "target/core_internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

const struct core_segment *core_segment_at(struct msp_core *core, uint64_t addr)
{
	size_t low = 0, high = core->segments, mid;

	if (core->last_segment < core->segments) {
		const struct core_segment *last = &core->segment[core->last_segment];

		if (addr >= last->start && addr < last->end)
			return last;
	}
	while (low < high) {
		mid = low + (high - low) / 2;
		if (addr < core->segment[mid].start) {
			high = mid;
		} else if (addr >= core->segment[mid].end) {
			low = mid + 1;
		} else {
			core->last_segment = mid;
			return &core->segment[mid];
		}
	}
	return NULL;
}

const struct core_line *core_line_at(const struct msp_core *core, uint64_t addr)
{
	size_t low = 0, high = core->lines, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (addr < core->line[mid].start)
			high = mid;
		else if (addr >= core->line[mid].end)
			low = mid + 1;
		else
			return &core->line[mid];
	}
	return NULL;
}

/*
 * Text that the core does not have, from the file it was mapped from; how much of
 * size could be read, or an error. Only what nobody can have changed: the linker
 * writes into other parts before it makes them read-only.
 */
static int64_t read_text(struct msp_core *core, const struct core_segment *segment, uint64_t addr,
			 void *buf, size_t size)
{
	const struct core_line *line = core_line_at(core, addr);
	const struct core_file *file;

	if (!line || !(file = &core->file[line->file])->looked || file->fd < 0)
		return MSP_E_FAULT;
	if (segment ? (segment->prot & PROT_WRITE) || !(segment->prot & PROT_EXEC)
		    : !core_file_executable(file, line->offset, line->end - line->start))
		return MSP_E_FAULT;
	if (size > line->end - addr)
		size = line->end - addr;
	return core_pread(file->fd, line->offset + (addr - line->start), buf, size) ? MSP_E_FAULT
										    : (int64_t)size;
}

int core_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct msp_core *core = ctx;
	char *to = buf;

	if (addr + size < addr)
		return MSP_E_FAULT;
	while (size) {
		const struct core_segment *segment = core_segment_at(core, addr);
		int64_t n;

		if (segment && addr < segment->filled) {
			n = size < segment->filled - addr ? size : segment->filled - addr;
			if (core_read_file(core, segment->offset + (addr - segment->start), to, n))
				return MSP_E_FAULT;
		} else {
			n = read_text(core, segment, addr, to, size);
		}
		if (n <= 0)
			return MSP_E_FAULT;
		to += n;
		addr += n;
		size -= n;
	}
	return 0;
}

/* The parts of a segment that are no holes in the core file. */
static void present_in(struct msp_core *core, const struct core_segment *segment, uint64_t start,
		       uint64_t end, void (*each)(void *arg, uint64_t start, uint64_t end),
		       void *arg)
{
	uint64_t delta = segment->offset - segment->start; /* from an address to an offset */

	while (start < end) {
		off_t data = lseek(core->fd, (off_t)(start + delta), SEEK_DATA), hole;

		if (data < 0 && errno != ENXIO) /* a file system that cannot tell */
			data = (off_t)(start + delta);
		if (data < 0 || (uint64_t)data >= end + delta)
			return;
		hole = lseek(core->fd, data, SEEK_HOLE);
		if (hole < 0 || (uint64_t)hole > end + delta)
			hole = (off_t)(end + delta);
		/* Whole pages: the file's blocks need not be the memory's. */
		each(arg, (data - delta) & -4096ull, hole - delta);
		start = hole - delta;
	}
}

void core_present(void *ctx, uint64_t start, uint64_t end,
		  void (*each)(void *arg, uint64_t start, uint64_t end), void *arg)
{
	struct msp_core *core = ctx;

	while (start < end) {
		const struct core_segment *segment = core_segment_at(core, start);
		uint64_t stop;

		if (!segment)
			return;
		stop = segment->filled < end ? segment->filled : end;
		if (start < stop)
			present_in(core, segment, start, stop, each, arg);
		start = segment->end;
	}
}

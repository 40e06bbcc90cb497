/* SPDX-License-Identifier: MIT */
/*
 * A mapped file that is not to be found: what the core has of it, put together at the
 * places where it was in the file. With all of its pages dumped that is as good as the
 * file; with the first one only, its frames have at least an object and an offset.
 */
#include "target/core_internal.h"

#include <unistd.h>

#include "moonspy/moonspy.h"

#define CHUNK (64 << 10)
#define PARTIAL_MAX (256u << 20) /* of one file this much is written */
#define OFFSET_MAX (16ull << 30)

static int write_all(int fd, uint64_t offset, const char *bytes, size_t size)
{
	while (size) {
		ssize_t n = pwrite(fd, bytes, size, (off_t)offset);

		if (n <= 0)
			return MSP_E_IO;
		bytes += n;
		offset += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

/* Copies the part of a line that is in the core; *left is how much may still be written. */
static int copy_line(struct msp_core *core, int fd, const struct core_line *line, uint64_t *left)
{
	char bytes[CHUNK];
	uint64_t at = line->start;
	int r;

	while (at < line->end && *left) {
		const struct core_segment *segment = core_segment_at(core, at);
		uint64_t size = CHUNK;

		if (!segment || segment->filled <= at)
			return 0;
		if (size > segment->filled - at)
			size = segment->filled - at;
		if (size > line->end - at)
			size = line->end - at;
		if (size > *left)
			size = *left;
		if (line->offset + (at - line->start) > OFFSET_MAX ||
		    core_read(core, at, bytes, size))
			return 0;
		r = write_all(fd, line->offset + (at - line->start), bytes, size);
		if (r)
			return r;
		at += size;
		*left -= size;
	}
	return 0;
}

int core_partial_file(struct msp_core *core, uint32_t file)
{
	uint64_t left = PARTIAL_MAX;
	int fd, r = 0;

	if (!core->file[file].head)
		return MSP_E_NOT_FOUND;
	fd = core_temporary();
	if (fd < 0)
		return fd;
	for (size_t i = 0; !r && i < core->lines; i++)
		if (core->line[i].file == file)
			r = copy_line(core, fd, &core->line[i], &left);
	if (!r)
		return fd;
	close(fd);
	return r;
}

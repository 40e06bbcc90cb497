/* SPDX-License-Identifier: MIT */
/* A host whose memory and mappings come from functions of the caller's. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "library/internal.h"
#include "unwind/tables.h"

/* No real process comes near; a reader that never ends must not cost all memory. */
#define REGIONS_MAX (1u << 17)
#define NAMES_MAX (64u << 20)
/* VMs are looked for in so much of the memory, a region after the other. */
#define SEARCH_MAX (64ull << 30)

struct lib_reader {
	struct msp_reader given;
	struct msp_memory memory;
	struct msp_host host;
	uint64_t searched;
};

static int read_given(void *ctx, uint64_t addr, void *buf, size_t size)
{
	const struct lib_reader *reader = ctx;

	if (!size)
		return 0;
	if (addr + size < addr)
		return MSP_E_FAULT;
	return reader->given.read(reader->given.ctx, addr, buf, size) ? MSP_E_FAULT : 0;
}

/* Lines that grow. */
struct lines {
	struct msp_maps maps;
	size_t room, names_size, names_room;
	size_t *name; /* of each line: where it is in names */
};

static bool grow(struct lines *lines, size_t name)
{
	size_t room = lines->room ? 2 * lines->room : 64, names = lines->names_room;
	void *bigger;

	if (lines->maps.count == lines->room) {
		bigger = reallocarray(lines->maps.map, room, sizeof(*lines->maps.map));
		if (!bigger)
			return false;
		lines->maps.map = bigger;
		bigger = reallocarray(lines->name, room, sizeof(*lines->name));
		if (!bigger)
			return false;
		lines->name = bigger;
		lines->room = room;
	}
	while (names - lines->names_size < name)
		names = names ? 2 * names : 4096;
	if (names == lines->names_room)
		return true;
	bigger = realloc(lines->maps.names, names);
	if (!bigger)
		return false;
	lines->maps.names = bigger;
	lines->names_room = names;
	return true;
}

static int add_line(struct lines *lines, const struct msp_region *region)
{
	const char *name = region->name ? region->name : "";
	size_t size = strlen(name) + 1, n = lines->maps.count;

	if (lines->names_size + size > NAMES_MAX)
		return MSP_E_LIMIT;
	if (!grow(lines, size))
		return MSP_E_NOMEM;
	memcpy(lines->maps.names + lines->names_size, name, size);
	lines->name[n] = lines->names_size;
	lines->names_size += size;
	lines->maps.map[n] = (struct msp_map){.start = region->start,
					      .end = region->end,
					      .offset = region->offset,
					      .inode = region->file,
					      .prot = (uint8_t)region->prot};
	lines->maps.count++;
	return 0;
}

/* What is not ascending, or empty, is left out: everything above takes the order for granted. */
static int maps_given(void *ctx, struct msp_maps *out)
{
	struct lib_reader *reader = ctx;
	struct lines lines = {.maps.count = 0};
	struct msp_region region;
	uint64_t end = 0;
	int err = 0;

	reader->searched = 0;
	for (size_t n = 0; !err && n < REGIONS_MAX; n++) {
		memset(&region, 0, sizeof(region));
		if (reader->given.region(reader->given.ctx, n, &region))
			break;
		if (region.start < end || region.end <= region.start)
			continue;
		end = region.end;
		err = add_line(&lines, &region);
	}
	for (size_t i = 0; i < lines.maps.count; i++)
		lines.maps.map[i].name = lines.maps.names + lines.name[i];
	free(lines.name);
	if (err)
		msp_maps_free(&lines.maps);
	else
		*out = lines.maps;
	return err;
}

static int open_given(void *ctx, const struct msp_map *map, bool *partial)
{
	const struct lib_reader *reader = ctx;
	struct msp_region region = {.start = map->start,
				    .end = map->end,
				    .offset = map->offset,
				    .prot = map->prot,
				    .file = (uint32_t)map->inode,
				    .name = map->name};
	int fd;

	*partial = false;
	if (reader->given.open)
		fd = reader->given.open(reader->given.ctx, &region);
	else
		fd = map->name[0] == '/' ? open(map->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	return fd < 0 ? MSP_E_NOT_FOUND : fd;
}

/* Nobody says what is there: all of it is asked for, within bounds. */
static void present_given(void *ctx, uint64_t start, uint64_t end,
			  void (*each)(void *arg, uint64_t start, uint64_t end), void *arg)
{
	struct lib_reader *reader = ctx;
	uint64_t left = SEARCH_MAX - reader->searched;

	if (end - start > left)
		end = start + left;
	reader->searched += end - start;
	if (end > start)
		each(arg, start, end);
}

int lib_reader_new(const struct msp_reader *from, struct lib_reader **out)
{
	struct lib_reader *reader;
	struct msp_reader given;

	if (!from || !lib_take(&given, sizeof(given), from) || !given.read || !given.region)
		return MSP_E_INVALID;
	if (!given.arch)
#if defined(__aarch64__)
		given.arch = MSP_ARCH_ARM64;
#else
		given.arch = MSP_ARCH_X86_64;
#endif
	reader = calloc(1, sizeof(*reader));
	if (!reader)
		return MSP_E_NOMEM;
	reader->given = given;
	reader->memory = (struct msp_memory){.read = read_given, .ctx = reader, .running = true};
	reader->host = (struct msp_host){.ctx = reader,
					 .arch = given.arch,
					 .memory = &reader->memory,
					 .root = "/",
					 .maps = maps_given,
					 .open_map = open_given,
					 .present = present_given};
	*out = reader;
	return 0;
}

void lib_reader_free(struct lib_reader *reader)
{
	free(reader);
}

const struct msp_host *lib_reader_host(const struct lib_reader *reader)
{
	return &reader->host;
}

/* SPDX-License-Identifier: MIT */
/* The address space of a process: mappings, and the images behind them. */
#include "target/space_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "target/images.h"

#define MAX_VDSO (1 << 20)

int msp_space_new_host(struct msp_images *images, const struct msp_host *host,
		       struct msp_space **out)
{
	struct msp_space *space = calloc(1, sizeof(*space));

	if (!space)
		return MSP_E_NOMEM;
	space->images = images;
	space->host = host;
	*out = space;
	return 0;
}

int msp_space_new(struct msp_images *images, struct msp_process *process, struct msp_space **out)
{
	int r = msp_space_new_host(images, msp_process_host(process), out);

	if (r == 0)
		(*out)->process = process;
	return r;
}

void msp_space_free(struct msp_space *space)
{
	if (!space)
		return;
	msp_space_forget_vms(space);
	for (size_t i = 0; i < space->held_count; i++)
		msp_images_release(space->images, space->held[i]);
	free(space->held);
	msp_maps_free(&space->maps);
	free(space->mapping);
	free(space->map_index);
	free(space);
}

/* ---- Which lines matter ---- */

static bool is_vdso(const struct msp_map *map)
{
	return !strcmp(map->name, "[vdso]");
}

/* The kernel's own pages: nobody's program counter stays there. */
static bool is_kernel_page(const struct msp_map *map)
{
	return !strcmp(map->name, "[vsyscall]") || !strcmp(map->name, "[uprobes]");
}

static bool is_code(const struct msp_map *map)
{
	return (map->prot & PROT_EXEC) && !is_kernel_page(map);
}

static bool same_object(const struct msp_map *a, const struct msp_map *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major &&
	       a->dev_minor == b->dev_minor && !strcmp(a->name, b->name);
}

/* ---- A refresh ---- */

struct refresh {
	struct msp_space *space;
	struct msp_maps maps;
	struct msp_mapping *mapping;
	uint32_t *map_index; /* of each mapping, in maps */
	int32_t *request_of; /* of each mapping: who answers for it; -1: nobody, or it is known */
	size_t count;
	struct msp_image_request *request;
	void **bytes; /* of each request */
	size_t requests;
	uint32_t *held; /* see struct msp_space */
	size_t held_count;
};

/* The same line in the last refresh, if it had an image. Both are sorted: *at only moves on. */
static const struct msp_mapping *known_before(const struct msp_space *space,
					      const struct msp_map *map, size_t *at)
{
	const struct msp_mapping *old;
	const struct msp_map *line;

	while (*at < space->count && space->mapping[*at].start < map->start)
		++*at;
	if (*at == space->count || space->mapping[*at].start != map->start)
		return NULL;
	old = &space->mapping[*at];
	line = &space->maps.map[space->map_index[*at]];
	if (old->image && old->end == map->end && line->offset == map->offset &&
	    same_object(line, map))
		return old;
	return NULL;
}

static int32_t earlier_request(const struct refresh *refresh, const struct msp_map *map)
{
	for (size_t i = refresh->count; i-- > 0;) {
		const struct msp_map *other = &refresh->maps.map[refresh->map_index[i]];

		if (refresh->request_of[i] >= 0 && same_object(other, map))
			return refresh->request_of[i];
	}
	return -1;
}

static void *read_vdso(struct msp_space *space, const struct msp_map *map, size_t *size)
{
	void *bytes;

	*size = map->end - map->start;
	if (*size > MAX_VDSO || !(bytes = malloc(*size)))
		return NULL;
	if (msp_read(space->host->memory, map->start, bytes, *size) == 0)
		return bytes;
	free(bytes);
	return NULL;
}

/* Number of the request for a line's image; -1: it has none. */
static int32_t request_image(struct refresh *refresh, const struct msp_map *map)
{
	struct msp_space *space = refresh->space;
	struct msp_image_request *request = &refresh->request[refresh->requests];
	int32_t earlier;

	if (!map->inode && !is_vdso(map))
		return -1;
	earlier = earlier_request(refresh, map);
	if (earlier >= 0)
		return earlier;
	*request =
		(struct msp_image_request){.fd = -1, .name = map->name, .root = space->host->root};
	if (is_vdso(map)) {
		request->bytes = read_vdso(space, map, &request->size);
		refresh->bytes[refresh->requests] = (void *)request->bytes;
		if (!request->bytes)
			return -1;
	} else {
		request->fd = space->host->open_map(space->host->ctx, map, &request->partial);
		if (request->fd < 0)
			return -1;
	}
	return refresh->requests++;
}

static void take_lines(struct refresh *refresh)
{
	const struct msp_mapping *old;
	size_t at = 0;

	for (size_t i = 0; i < refresh->maps.count; i++) {
		const struct msp_map *map = &refresh->maps.map[i];
		struct msp_mapping *mapping = &refresh->mapping[refresh->count];

		if (!is_code(map))
			continue;
		*mapping = (struct msp_mapping){.start = map->start, .end = map->end};
		old = known_before(refresh->space, map, &at);
		if (old)
			*mapping = *old;
		refresh->map_index[refresh->count] = i;
		refresh->request_of[refresh->count] = old ? -1 : request_image(refresh, map);
		refresh->count++;
	}
}

/*
 * Where the image-relative address 0 is. An offset near the edge of a segment
 * may belong to two (page-rounded) segments: the middle of the mapping is
 * asked first, then others.
 */
static bool find_base(const struct msp_image *image, const struct msp_map *map, uint64_t *base)
{
	uint64_t size = map->end - map->start, addr;

	for (uint64_t part = 2; part <= 4096 && size / part; part *= 2) {
		uint64_t in = size / part;

		if (msp_image_offset_to_addr(image, map->offset + in, &addr)) {
			*base = map->start + in - addr;
			return true;
		}
	}
	if (!msp_image_offset_to_addr(image, map->offset, &addr))
		return false;
	*base = map->start - addr;
	return true;
}

static void answer_lines(struct refresh *refresh)
{
	for (size_t i = 0; i < refresh->count; i++) {
		const struct msp_map *map = &refresh->maps.map[refresh->map_index[i]];
		struct msp_mapping *mapping = &refresh->mapping[i];
		const struct msp_image_entry *entry;

		if (!mapping->image && map->name[0] == '/')
			mapping->flags = MSP_MAP_UNREAD;
		if (refresh->request_of[i] < 0)
			continue;
		entry = refresh->request[refresh->request_of[i]].entry;
		if (!entry || !find_base(entry->image, map, &mapping->base))
			continue;
		mapping->image = entry->index;
		mapping->flags = MSP_MAP_FILE | (is_vdso(map) ? MSP_MAP_VDSO : 0);
	}
}

static bool changed(const struct msp_space *space, const struct refresh *refresh)
{
	return space->count != refresh->count ||
	       (refresh->count && memcmp(space->mapping, refresh->mapping,
					 refresh->count * sizeof(*space->mapping)) != 0);
}

static int prepare(struct refresh *refresh)
{
	size_t count = 0, room;

	for (size_t i = 0; i < refresh->maps.count; i++)
		count += is_code(&refresh->maps.map[i]);
	room = count + 1;
	refresh->mapping = calloc(room, sizeof(*refresh->mapping));
	refresh->map_index = calloc(room, sizeof(*refresh->map_index));
	refresh->request_of = calloc(room, sizeof(*refresh->request_of));
	refresh->request = calloc(room, sizeof(*refresh->request));
	refresh->bytes = calloc(room, sizeof(*refresh->bytes));
	refresh->held = calloc(room + refresh->space->held_count, sizeof(*refresh->held));
	if (!refresh->mapping || !refresh->map_index || !refresh->request_of || !refresh->request ||
	    !refresh->bytes || !refresh->held)
		return MSP_E_NOMEM;
	return 0;
}

static void hold(struct refresh *refresh, uint32_t image)
{
	for (size_t i = 0; i < refresh->held_count; i++)
		if (refresh->held[i] == image)
			return;
	refresh->held[refresh->held_count++] = image;
	msp_images_hold(refresh->space->images, image);
}

/* VMs that are gone, and what was named of them, still refer to their LuaJIT. */
static void hold_images(struct msp_space *space, struct refresh *refresh)
{
	for (size_t i = 0; i < refresh->count; i++)
		if (refresh->mapping[i].image)
			hold(refresh, refresh->mapping[i].image);
	for (size_t i = 0; i < space->held_count; i++)
		if (msp_images_get(space->images, space->held[i])->build)
			hold(refresh, space->held[i]);
	for (size_t i = 0; i < space->held_count; i++)
		msp_images_release(space->images, space->held[i]);
	free(space->held);
	space->held = refresh->held;
	space->held_count = refresh->held_count;
	refresh->held = NULL;
}

static void accept(struct msp_space *space, struct refresh *refresh)
{
	hold_images(space, refresh);
	msp_maps_free(&space->maps);
	free(space->mapping);
	free(space->map_index);
	space->maps = refresh->maps;
	space->mapping = refresh->mapping;
	space->map_index = refresh->map_index;
	space->count = refresh->count;
	space->generation++;
	refresh->maps = (struct msp_maps){0};
	refresh->mapping = NULL;
	refresh->map_index = NULL;
}

int msp_space_refresh(struct msp_space *space)
{
	struct refresh refresh = {.space = space};
	int r;

	r = space->host->maps(space->host->ctx, &refresh.maps);
	if (r < 0)
		return r;
	r = prepare(&refresh);
	if (r < 0)
		goto out;
	take_lines(&refresh);
	r = msp_images_load(space->images, refresh.request, refresh.requests);
	if (r < 0)
		goto out;
	answer_lines(&refresh);
	r = changed(space, &refresh);
	accept(space, &refresh);
out:
	for (size_t i = 0; refresh.bytes && i < refresh.requests; i++)
		free(refresh.bytes[i]);
	msp_maps_free(&refresh.maps);
	free(refresh.mapping);
	free(refresh.map_index);
	free(refresh.held);
	free(refresh.request_of);
	free(refresh.request);
	free(refresh.bytes);
	return r;
}

/* ---- Lookups ---- */

const struct msp_mapping *msp_space_mappings(const struct msp_space *space, size_t *count)
{
	*count = space->count;
	return space->mapping;
}

const struct msp_mapping *msp_mapping_find(const struct msp_mapping *mapping, size_t count,
					   uint64_t pc)
{
	size_t low = 0, high = count, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (pc < mapping[mid].start)
			high = mid;
		else if (pc >= mapping[mid].end)
			low = mid + 1;
		else
			return &mapping[mid];
	}
	return NULL;
}

const struct msp_mapping *msp_space_find(const struct msp_space *space, uint64_t pc)
{
	return msp_mapping_find(space->mapping, space->count, pc);
}

const char *msp_space_mapping_name(const struct msp_space *space, const struct msp_mapping *mapping)
{
	size_t i = mapping - space->mapping;

	return i < space->count ? space->maps.map[space->map_index[i]].name : "";
}

size_t msp_space_image_bases(const struct msp_space *space, uint32_t image,
			     uint64_t base[MSP_MAX_BASES])
{
	size_t n = 0;

	for (size_t i = 0; i < space->count && n < MSP_MAX_BASES; i++) {
		const struct msp_mapping *map = &space->mapping[i];

		if (map->image == image && (map->flags & MSP_MAP_FILE) &&
		    (!n || base[n - 1] != map->base))
			base[n++] = map->base;
	}
	return n;
}

const struct msp_maps *msp_space_maps(const struct msp_space *space)
{
	return &space->maps;
}

struct msp_images *msp_space_images(const struct msp_space *space)
{
	return space->images;
}

const struct msp_host *msp_space_host(const struct msp_space *space)
{
	return space->host;
}

struct msp_process *msp_space_process(const struct msp_space *space)
{
	return space->process;
}

/* SPDX-License-Identifier: MIT */
/* Who has which range of a store. */
#include <stdlib.h>
#include <string.h>

#include "bpf/tables.h"

static bool insert(struct msp_ranges *r, uint32_t at, struct msp_extent extent)
{
	struct msp_extent *bigger;
	uint32_t room;

	if (r->count == r->room) {
		room = r->room ? 2 * r->room : 16;
		bigger = realloc(r->extent, room * sizeof(*bigger));
		if (!bigger)
			return false;
		r->extent = bigger;
		r->room = room;
	}
	memmove(r->extent + at + 1, r->extent + at, (r->count - at) * sizeof(*r->extent));
	r->extent[at] = extent;
	r->count++;
	return true;
}

bool ranges_init(struct msp_ranges *r, uint32_t size)
{
	memset(r, 0, sizeof(*r));
	return insert(r, 0, (struct msp_extent){.count = size});
}

static bool is_free(const struct msp_extent *e, uint64_t now)
{
	return !e->owner && (!e->free_ns || e->free_ns <= now);
}

/* Joins neighbours that are free. */
static void join_free(struct msp_ranges *r, uint64_t now)
{
	uint32_t to = 0;
	struct msp_extent *e = r->extent;

	for (uint32_t i = 1; i < r->count; i++) {
		if (is_free(&e[to], now) && is_free(&e[i], now))
			e[to].count += e[i].count;
		else
			e[++to] = e[i];
	}
	if (r->count)
		r->count = to + 1;
}

int64_t ranges_take(struct msp_ranges *r, uint32_t owner, uint32_t count, uint64_t now)
{
	struct msp_extent rest;

	join_free(r, now);
	for (uint32_t i = 0; i < r->count; i++) {
		struct msp_extent *e = &r->extent[i];

		if (!is_free(e, now) || e->count < count)
			continue;
		rest = (struct msp_extent){.first = e->first + count, .count = e->count - count};
		if (rest.count && !insert(r, i + 1, rest))
			return -1;
		e = &r->extent[i];
		e->count = count;
		e->owner = owner;
		return e->first;
	}
	return -1;
}

void ranges_release(struct msp_ranges *r, uint32_t owner, uint32_t keep_first, uint64_t free_ns)
{
	for (uint32_t i = 0; i < r->count; i++) {
		if (r->extent[i].owner != owner || r->extent[i].first == keep_first)
			continue;
		r->extent[i].owner = 0;
		r->extent[i].free_ns = free_ns;
	}
}

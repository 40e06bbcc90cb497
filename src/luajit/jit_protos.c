/* SPDX-License-Identifier: MIT */
/* All prototypes of a VM, from the collector's list of all objects. */
#include "luajit/jit_protos.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/objects.h"
#include "luajit/proto.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

#define OBJECTS_MAX (1u << 26) /* a list without end takes half a minute */
#define PROTOS_MAX (1u << 22)
#define WALKS 5

/*
 * Objects were allocated one after the other, mostly: the list stays in a few
 * blocks for long. With them it is walked ten times as fast, and so changes less under the walk.
 */
#define BLOCK 4096u
#define BLOCKS 512

struct cache {
	const struct msp_memory *mem;
	uint64_t addr[BLOCKS]; /* 0: empty */
	uint8_t bytes[BLOCKS][BLOCK];
};

static int read_cached(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct cache *c = ctx;
	uint64_t start = addr & ~(uint64_t)(BLOCK - 1);
	uint32_t i = start / BLOCK % BLOCKS;

	if (addr - start + size > BLOCK)
		return msp_read(c->mem, addr, buf, size);
	if (c->addr[i] != start) {
		c->addr[i] = 0;
		if (msp_read(c->mem, start, c->bytes[i], BLOCK))
			return msp_read(c->mem, addr, buf, size);
		c->addr[i] = start;
	}
	memcpy(buf, c->bytes[i] + (addr - start), size);
	return 0;
}

static int add(struct msp_lj_protos *protos, const struct msp_proto *pt)
{
	struct msp_lj_proto_ref *grown;

	if (protos->count == PROTOS_MAX)
		return MSP_E_LIMIT;
	if (protos->count == protos->room) {
		protos->room = protos->room ? 2 * protos->room : 1024;
		grown = reallocarray(protos->proto, protos->room, sizeof(*grown));
		if (!grown)
			return MSP_E_NOMEM;
		protos->proto = grown;
	}
	protos->proto[protos->count++] = (struct msp_lj_proto_ref){
		.addr = pt->addr, .ident = pt->ident, .sizebc = pt->sizebc, .flags = pt->flags};
	return 0;
}

static int add_at(const struct msp_lj_layout *layout, const struct msp_memory *mem, uint64_t obj,
		  struct msp_lj_protos *protos)
{
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX];
	struct msp_proto pt;

	if (msp_proto_read_header(layout, mem, obj, header) ||
	    msp_proto_parse(layout, header, obj, &pt))
		return MSP_E_FORMAT;
	return add(protos, &pt);
}

/* The list once. MSP_E_FORMAT: it broke. */
static int walk(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g,
		struct msp_lj_protos *protos)
{
	const struct msp_lj_layout *layout = &build->layout;
	uint64_t obj = msp_lj_gc_root(build, mem, g), mark = 0;
	uint32_t marked = 1;
	int type, r = obj ? 0 : MSP_E_FORMAT;

	for (uint32_t n = 1; !r && obj; n++) {
		if (n == OBJECTS_MAX)
			return MSP_E_LIMIT;
		type = msp_lj_object_type(layout, mem, obj);
		/* Brent: an object that was met before, at a power of two. */
		if (obj == mark || type < MSP_GCT_UPVAL || type > MSP_GCT_LAST)
			return MSP_E_FORMAT;
		if (n == marked) {
			mark = obj;
			marked *= 2;
		}
		if (type == MSP_GCT_PROTO)
			r = add_at(layout, mem, obj, protos);
		if (!r && !msp_lj_read_ref(layout, mem, obj, &obj))
			r = MSP_E_FORMAT;
	}
	return r;
}

static int by_address(const void *a, const void *b)
{
	const struct msp_lj_proto_ref *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

/* Sorts, and leaves each once: as it was read last. */
static void sort(struct msp_lj_protos *protos)
{
	size_t kept = 0;

	if (protos->count)
		qsort(protos->proto, protos->count, sizeof(*protos->proto), by_address);
	for (size_t i = 0; i < protos->count; i++)
		if (!kept || protos->proto[kept - 1].addr != protos->proto[i].addr)
			protos->proto[kept++] = protos->proto[i];
	protos->count = kept;
}

int msp_lj_protos_read(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g,
		       struct msp_lj_protos *out)
{
	struct cache *cache = malloc(sizeof(*cache));
	struct msp_memory cached = {.read = read_cached, .ctx = cache};
	int r = MSP_E_FORMAT;

	*out = (struct msp_lj_protos){0};
	if (!cache)
		return MSP_E_NOMEM;
	for (int i = 0; i < WALKS && r == MSP_E_FORMAT; i++) {
		memset(cache->addr, 0, sizeof(cache->addr));
		cache->mem = mem;
		r = walk(build, &cached, g, out);
		sort(out); /* what an earlier walk saw is there or was: looked at again when it is used */
	}
	free(cache);
	out->complete = r == 0;
	if (r == MSP_E_NOMEM)
		msp_lj_protos_free(out);
	return r == MSP_E_NOMEM ? r : 0;
}

void msp_lj_protos_free(struct msp_lj_protos *protos)
{
	free(protos->proto);
	*protos = (struct msp_lj_protos){0};
}

const struct msp_lj_proto_ref *msp_lj_protos_at(const struct msp_lj_protos *protos,
						const struct msp_lj_layout *layout, uint64_t pc)
{
	size_t lo = 0, hi = protos->count, mid;
	uint64_t bc;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (protos->proto[mid].addr <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return NULL;
	bc = protos->proto[lo - 1].addr + (uint64_t)layout->pt_size;
	if (pc < bc || pc - bc >= protos->proto[lo - 1].sizebc * 4ull)
		return NULL;
	return &protos->proto[lo - 1];
}

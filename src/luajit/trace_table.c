/* SPDX-License-Identifier: MIT */
/*
 * The table that a LuaJIT with the VM descriptor makes of a trace while tables are on (moonspy/vm_descriptor.h): for each
 * piece of its code the bytecode it comes from, and the calls around that. With it nothing is left to estimate. Here it
 * is read and checked for being one of this trace; where it contradicts the snapshots, trace_place.c does not use it.
 */
#include <stdlib.h>

#include "luajit/told_vms.h"
#include "luajit/trace_proof.h"
#include "luajit/trace_reader.h"
#include "moonspy/vm_descriptor.h"

#define MAX_SIZE (1u << 20)
#define MAX_PLACES (1u << 15)
#define MAX_WORK 20000000 /* nodes that are looked at: what a table that lies can cost */

struct table {
	struct msp_trace_reader *r;
	struct ljvm_table head;
	uint8_t *bytes; /* all of it */
	const struct ljvm_place *place;
	const struct ljvm_piece *piece;
	uint16_t *call; /* by place: its node as one that calls; 0: none */
	int64_t work;
};

static uint32_t sum_of(const uint8_t *bytes, uint32_t size)
{
	uint32_t sum = 0;

	for (uint32_t at = 0; at < size; at += 4)
		if (at != offsetof(struct ljvm_table, sum))
			sum = (sum << 1 | sum >> 31) + msp_get32(bytes + at);
	return sum;
}

/* Where the table of the trace is. 0: there is none. */
static uint64_t address_of(const struct msp_trace_reader *r)
{
	struct ljvm_table_list list;
	struct msp_lj_told_vm vm;
	uint64_t at = 0;

	if (!msp_lj_told_find(r->mem, r->descriptor, r->g, &vm) || !vm.tables ||
	    msp_read(r->mem, vm.tables, &list, sizeof(list)) || r->image->number >= list.count ||
	    msp_read(r->mem, vm.tables + sizeof(list) + r->image->number * sizeof(at), &at,
		     sizeof(at)))
		return 0;
	return at;
}

static bool head_fits(const struct table *t)
{
	const struct ljvm_table *h = &t->head;
	uint64_t need = sizeof(*h) + (uint64_t)h->places * sizeof(*t->place) +
			(uint64_t)h->pieces * sizeof(*t->piece);

	return h->magic == LJVM_TABLE_MAGIC && h->mcode == t->r->mcode &&
	       h->szmcode == t->r->image->szmcode && h->traceno == t->r->image->number &&
	       h->size <= MAX_SIZE && !(h->size & 3) && h->places && h->places <= MAX_PLACES &&
	       h->pieces && need <= h->size;
}

/* Pieces are in order from the first byte on; a place is called from one before it. */
static bool parts_fit(const struct table *t)
{
	for (uint32_t i = 0; i < t->head.places; i++)
		if (t->place[i].outer != LJVM_NO_PLACE && t->place[i].outer >= i)
			return false;
	for (uint32_t i = 0; i < t->head.pieces; i++)
		if ((i ? t->piece[i].offset <= t->piece[i - 1].offset : t->piece[i].offset != 0) ||
		    t->piece[i].offset >= t->head.szmcode ||
		    (t->piece[i].place != LJVM_NO_PLACE && t->piece[i].place >= t->head.places))
			return false;
	return true;
}

static bool read_table(struct table *t)
{
	uint64_t at = address_of(t->r);

	if (!at || msp_read(t->r->mem, at, &t->head, sizeof(t->head)) || !head_fits(t))
		return false;
	t->bytes = malloc(t->head.size);
	if (!t->bytes || msp_read(t->r->mem, at, t->bytes, t->head.size) ||
	    memcmp(t->bytes, &t->head, sizeof(t->head)) != 0 ||
	    sum_of(t->bytes, t->head.size) != t->head.sum)
		return false;
	t->place = (const void *)(t->bytes + sizeof(t->head));
	t->piece = (const void *)(t->place + t->head.places);
	return parts_fit(t);
}

/*
 * A table has Lua functions only. Where a snapshot shows that a function is called through one of the VM's own, such as
 * pcall, that one; else the caller.
 */
static uint16_t called_by(const struct msp_trace_image *image, uint16_t caller, uint64_t addr)
{
	uint16_t at;

	for (uint32_t i = 1; caller && i < image->node_count; i++) {
		if (image->node[i].kind != MSP_RAW_LUA || image->node[i].addr != addr)
			continue;
		at = image->node[i].parent;
		while (at && image->node[at].kind != MSP_RAW_LUA)
			at = image->node[at].parent;
		if (at == caller)
			return image->node[i].parent;
	}
	return caller;
}

/* The node of a place, with a position of its own. 0: none can be made. */
static uint16_t node_of(struct table *t, const struct ljvm_place *place, uint32_t pos)
{
	struct msp_trace_image *image = t->r->image;
	const struct msp_trace_proto *p = msp_trace_proto_at(t->r, place->pt);
	struct msp_trace_node node = {.kind = MSP_RAW_LUA, .pos = pos};

	t->work -= 2 * image->node_count;
	if (!p)
		t->work -= MSP_TRACE_READ; /* it is looked for again */
	if (!p || place->pos >= msp_trace_proto_size(p) || t->work < 0)
		return 0;
	if (place->outer != LJVM_NO_PLACE) {
		if (!t->call[place->outer])
			return 0;
		node.parent = called_by(image, t->call[place->outer], place->pt);
	}
	node.addr = p->addr;
	node.ident = p->ident;
	return msp_trace_add_node(t->r, &node);
}

static void make_calls(struct table *t)
{
	for (uint32_t i = 0; i < t->head.places; i++)
		if (t->place[i].outer != LJVM_NO_PLACE)
			t->call[t->place[i].outer] = 1;
	/* each is called from one before it */
	for (uint32_t i = 0; i < t->head.places; i++)
		if (t->call[i])
			t->call[i] = node_of(t, &t->place[i], t->place[i].pos);
}

static bool make_proofs(struct table *t)
{
	struct msp_trace_image *image = t->r->image;

	t->call = calloc(t->head.places, sizeof(*t->call));
	image->proof = calloc(t->head.pieces, sizeof(*image->proof));
	if (!t->call || !image->proof) {
		free(image->proof);
		image->proof = NULL;
		return false;
	}
	make_calls(t);
	for (uint32_t i = 0; i < t->head.pieces; i++) {
		struct msp_trace_piece *proof = &image->proof[i];

		proof->code = t->piece[i].offset;
		if (t->piece[i].place == LJVM_NO_PLACE)
			continue;
		proof->pos = t->place[t->piece[i].place].pos;
		proof->node = node_of(t, &t->place[t->piece[i].place], 0);
		proof->whole = proof->node;
	}
	image->proofs = t->head.pieces;
	image->exact = true;
	return true;
}

bool msp_trace_read_table(struct msp_trace_reader *r)
{
	struct table t = {.r = r, .work = MAX_WORK};
	bool done = r->descriptor && read_table(&t) && make_proofs(&t);

	free(t.bytes);
	free(t.call);
	return done;
}

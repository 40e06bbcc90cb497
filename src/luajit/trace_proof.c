/* SPDX-License-Identifier: MIT */
#include "luajit/trace_proof.h"

#include <stdlib.h>

#define WORDS MSP_STEP_WORDS

struct proof {
	struct msp_trace_reader *r;
	struct msp_trace_facts facts;
	struct msp_steps steps;
	struct msp_trace_proof *proof; /* of each instruction */
	uint64_t (*left)[WORDS];       /* of each instruction: the steps that are left */
};

/* Steps that an instruction may be of: all, or some only as long as they have not made theirs. */
struct left {
	uint64_t all[WORDS], fresh[WORDS];
	bool moved; /* what comes next may be of later steps */
};

static void begin(struct left *left, const uint64_t *set)
{
	memcpy(left->all, set, sizeof(left->all));
	memcpy(left->fresh, set, sizeof(left->fresh));
	left->moved = true;
}

/* Adds all that comes behind the steps of a set, or before them. */
static void spread(const struct msp_steps *s, struct left *left, bool back)
{
	uint16_t list[2 * MSP_STEPS], to;
	uint32_t n = 0, first, count;

	for (uint32_t i = 0; i < s->steps; i++)
		if (msp_step_in(left->all, i))
			list[n++] = i;
	while (n) {
		const struct msp_step *step = &s->step[list[--n]];

		first = back ? s->back_from[list[n]] : step->edge;
		count = back ? s->back_from[list[n] + 1] - first : step->edges;
		for (uint32_t k = 0; k < count; k++) {
			to = back ? s->back[first + k] : s->edge[first + k];
			if (msp_step_in(left->fresh, to))
				continue;
			if (!msp_step_in(left->all, to))
				list[n++] = to;
			msp_step_add(left->all, to);
			msp_step_add(left->fresh, to);
		}
	}
}

/* Goes on to the steps that are next, and leaves those that can make an instruction. False: none. */
static bool advance(const struct msp_steps *s, struct left *left, uint32_t need, uint64_t key,
		    bool back)
{
	uint64_t any = 0;

	if (left->moved)
		spread(s, left, back);
	left->moved = need;
	for (uint32_t i = 0; need && i < s->steps; i++) {
		uint64_t bit = 1ull << i % 64;

		if (!(left->all[i / 64] & bit))
			continue;
		if (need & ~s->step[i].makes || (key && s->step[i].key && s->step[i].key != key) ||
		    (need & s->step[i].once && !(left->fresh[i / 64] & bit))) {
			left->all[i / 64] &= ~bit;
			left->fresh[i / 64] &= ~bit;
		} else if (need & s->step[i].once) {
			left->fresh[i / 64] &= ~bit;
		}
	}
	for (uint32_t i = 0; i < WORDS; i++)
		any |= left->all[i];
	return any;
}

/* Which steps ins[from, to) can be of. False: of none, which can not be. */
static bool narrow(struct proof *p, uint32_t from, uint32_t to)
{
	const struct msp_steps *s = &p->steps;
	struct left left;

	begin(&left, s->start);
	for (uint32_t i = from; i < to; i++) {
		if (!msp_trace_work(s->facts, s->steps + s->edges) ||
		    !advance(s, &left, msp_makes_of_ins(&p->r->ins[i]), p->r->ins[i].key, false))
			return false;
		memcpy(p->left[i], left.all, sizeof(left.all));
	}
	begin(&left, s->end);
	for (uint32_t i = to; i-- > from;) {
		uint64_t any = 0;

		if (!advance(s, &left, msp_makes_of_ins(&p->r->ins[i]), p->r->ins[i].key, true))
			return false;
		for (uint32_t k = 0; k < WORDS; k++)
			any |= p->left[i][k] &= left.all[k];
		if (!any)
			return false;
	}
	return true;
}

/* The innermost frame that all steps of a set have; MSP_PATH_NONE: none. */
static uint32_t common_frame(const struct msp_steps *s, const uint64_t *set)
{
	uint32_t f = MSP_PATH_NONE, g;

	for (uint32_t i = 0; i < s->steps; i++) {
		if (!msp_step_in(set, i))
			continue;
		g = s->step[i].frame;
		f = f == MSP_PATH_NONE ? g : f;
		while (f != g) {
			if (s->frame[f].depth > s->frame[g].depth)
				f = s->frame[f].parent;
			else if (s->frame[g].depth)
				g = s->frame[g].parent;
			else
				return MSP_PATH_NONE;
		}
	}
	while (f != MSP_PATH_NONE && !s->frame[f].proto && s->frame[f].depth)
		f = s->frame[f].parent;
	return f;
}

static uint16_t node_of(struct proof *p, uint16_t frame, uint32_t pos)
{
	const struct msp_path_frame *f = &p->steps.frame[frame];
	struct msp_trace_node node = {.kind = MSP_RAW_LUA, .pos = pos};

	if (f->depth) {
		node.parent = node_of(p, f->parent, f->call);
		if (!node.parent)
			return 0;
	}
	if (!f->proto) {
		for (uint32_t i = 1; i < p->r->image->node_count; i++)
			if (p->r->image->node[i].addr == f->addr &&
			    p->r->image->node[i].parent == node.parent)
				return i;
		return 0;
	}
	node.addr = f->proto->addr;
	node.ident = f->proto->ident;
	return msp_trace_add_node(p->r, &node);
}

/* What the steps that are left for an instruction have in common. */
static void conclude(struct proof *p, uint32_t i)
{
	const struct msp_steps *s = &p->steps;
	uint32_t f = common_frame(s, p->left[i]);
	struct msp_trace_proof *proof = &p->proof[i];

	proof->node = f == MSP_PATH_NONE ? 0 : node_of(p, f, 0);
	proof->whole = proof->node;
	for (uint32_t k = s->steps; proof->node && k-- > 0;) {
		if (!msp_step_in(p->left[i], k))
			continue;
		if (s->step[k].frame != f || s->step[k].unknown)
			proof->whole = false;
		if (s->step[k].frame == f)
			proof->pos = s->step[k].pos;
	}
}

/*
 * What is made where the trace or its loop begins: the check whether it is time to collect, which
 * has the snapshot of that place (lj_asm.c: asm_gc_check()), the integers of the loop
 * around, and whether the stack has room.
 */
static void place_head(struct msp_steps *s, int begin)
{
	for (uint32_t i = 0; i < s->steps; i++) {
		if (begin > 0 || msp_step_in(s->start, i))
			s->step[i].makes |= MSP_MAKES_CHECK;
		if (begin == 0 && msp_step_in(s->start, i))
			s->step[i].makes |= MSP_MAKES_INT | MSP_MAKES_BOUND;
	}
}

/* Of ins[from, to), which lie on the way from a place to another. */
static void prove(struct proof *p, uint32_t from, uint32_t to, int begin, int end)
{
	struct msp_steps *s = &p->steps;

	if (from >= to)
		return;
	if (!msp_steps_find(p->r, &p->facts, begin, end, s))
		return;
	place_head(s, begin);
	if (!narrow(p, from, to))
		return;
	for (uint32_t i = from; i < to; i++)
		conclude(p, i);
}

static uint32_t ins_from(const struct msp_trace_reader *r, uint32_t code)
{
	uint32_t i = 0;

	while (i < r->ins_count && r->ins[i].code < code)
		i++;
	return i;
}

/* The code of a snapshot, in two parts if the loop begins in it. */
static void prove_snap(struct proof *p, uint32_t i)
{
	const struct msp_trace_image *image = p->r->image;
	bool last = i + 1 == image->snap_count;
	uint32_t begin = i ? image->snap[i].code : 0,
		 end = last ? image->szmcode : image->snap[i + 1].code;
	uint32_t from = ins_from(p->r, begin), to = ins_from(p->r, end), loop = image->mcloop;
	int next = last ? MSP_AT_LOOP : (int)i + 1;

	if (loop && begin < loop && loop <= end) {
		loop = ins_from(p->r, loop);
		prove(p, from, loop, i, MSP_AT_LOOP);
		prove(p, loop, to, MSP_AT_LOOP, next);
	} else if (!last || (loop && loop <= begin)) {
		prove(p, from, to, i, next);
	}
}

static bool same(const struct msp_trace_proof *a, const struct msp_trace_proof *b)
{
	return a->node == b->node && a->pos == b->pos && a->whole == b->whole;
}

static void keep(struct proof *p)
{
	struct msp_trace_image *image = p->r->image;
	struct msp_trace_proof *fit;
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->r->ins_count; i++) {
		if (n && same(&p->proof[i], &p->proof[n - 1]))
			continue;
		p->proof[n] = p->proof[i];
		p->proof[n++].code = i ? p->r->ins[i].code : 0;
	}
	fit = realloc(p->proof, n * sizeof(*p->proof));
	image->proof = fit ? fit : p->proof;
	image->proofs = n;
	p->proof = NULL;
}

/* Any step that accesses a table can look for a metamethod. */
static void forget_meta_names(struct msp_trace_reader *r)
{
	for (uint32_t i = 0; i < r->ins_count; i++)
		if (r->ins[i].key && msp_trace_is_meta_name(r, r->ins[i].key))
			r->ins[i].key = 0;
}

void msp_trace_prove(struct msp_trace_reader *r)
{
	struct proof *p;

	if (!r->ins_count || !r->ins_all || !r->set || !r->image->by_offset)
		return;
	p = calloc(1, sizeof(*p));
	if (!p)
		return;
	p->r = r;
	p->proof = calloc(r->ins_count, sizeof(*p->proof));
	p->left = malloc(r->ins_count * sizeof(*p->left));
	msp_trace_facts_read(r, &p->facts);
	forget_meta_names(r);
	if (p->proof && p->left && p->facts.known) {
		for (uint32_t i = 0; i < r->image->snap_count; i++)
			prove_snap(p, i);
		keep(p);
	}
	free(p->proof);
	free(p->left);
	free(p);
}

/* SPDX-License-Identifier: MIT */
/* Loops on the ways of a trace that can not be passed. */
#include "luajit/trace_ir.h"
#include "luajit/trace_proof.h"

#define COMPARISONS 10 /* opcodes below are: LT GE LE GT ULT UGE ULE UGT EQ NE (lj_ir.h) */
#define SNAP_FRAME 0x10000u

static struct msp_bc_ins ins_at(const struct msp_steps *s, const struct msp_trace_proto *p,
				uint32_t pos)
{
	return msp_bc_decode(s->r->set, p->ins[pos]);
}

void msp_steps_find_loop(struct msp_steps *s)
{
	const struct msp_trace_image *image = s->r->image;
	const struct msp_trace_node *first = &image->node[image->snap[0].leaf];
	struct msp_trace_proto *p;
	struct msp_bc_ins ins;

	s->loop_end = MSP_PATH_NONE;
	if (!s->facts->root || s->facts->lowers || image->linktype != MSP_LINK_LOOP ||
	    !image->snap[0].leaf || first->kind != MSP_RAW_LUA || first->parent || first->pos < 2)
		return;
	p = msp_trace_proto_at(s->r, first->addr);
	if (!p || !msp_trace_need_bytecode(s->r, p) || first->pos >= msp_trace_proto_size(p))
		return;
	s->loop_proto = p;
	s->loop_begin = first->pos;
	ins = ins_at(s, p, first->pos - 1);
	if (ins.op >= MSP_BC_LOOP && ins.op <= MSP_BC_JLOOP)
		s->loop_end = first->pos - 1;
	for (uint32_t q = first->pos; q < msp_trace_proto_size(p); q++) {
		ins = ins_at(s, p, q);
		if (ins.op >= MSP_BC_FORL && ins.op <= MSP_BC_JITERL &&
		    msp_trace_work(s->facts, q) && msp_trace_loop_start(s->r, p, q) == first->pos)
			s->loop_end = q;
	}
}

bool msp_steps_comes_round(const struct msp_steps *s, const struct msp_step *step)
{
	return step->pos == s->loop_end && !s->frame[step->frame].depth &&
	       s->frame[step->frame].proto == s->loop_proto;
}

bool msp_steps_leaves_loop(const struct msp_steps *s, uint16_t frame, uint32_t pos)
{
	return s->loop_end != MSP_PATH_NONE && s->loop_end >= s->loop_begin &&
	       !s->frame[frame].depth &&
	       (s->frame[frame].proto != s->loop_proto || pos < s->loop_begin || pos > s->loop_end);
}

/* ---- Loops that count ---- */

static const uint8_t *snap_at(const struct msp_trace_reader *r, uint32_t snap)
{
	return r->data + r->ir_size + (size_t)snap * (uint32_t)r->layout->snap_size;
}

static uint32_t snap_ref(const struct msp_trace_reader *r, uint32_t snap)
{
	return msp_get16(snap_at(r, snap) + (r->layout->snap_size == 8 ? 2 : 4));
}

static const uint8_t *map_of(const struct msp_trace_reader *r, uint32_t snap, uint32_t *n)
{
	const uint8_t *s = snap_at(r, snap);
	uint32_t ofs = r->layout->snap_size == 8 ? msp_get16(s + r->layout->snap_mapofs)
						 : msp_get32(s + r->layout->snap_mapofs);

	*n = s[r->layout->snap_nent];
	if (((uint64_t)ofs + *n) * MSP_SNAP_ENTRY > r->map_size)
		*n = 0;
	return r->data + r->ir_size + r->snaps_size + (size_t)ofs * MSP_SNAP_ENTRY;
}

/* First slot of the frame at a depth of a snapshot's chain; 0: not known, as there are others between. */
static uint32_t base_slot(const struct msp_trace_reader *r, uint32_t snap, uint32_t depth,
			  uint32_t depths)
{
	uint32_t n, entry, found = 0, slot = 0, fr2 = r->layout->fr2;
	const uint8_t *map = map_of(r, snap, &n);

	for (uint32_t i = 0; i < n; i++) {
		entry = msp_get32(map + (size_t)i * MSP_SNAP_ENTRY);
		if (!(entry & SNAP_FRAME) || entry >> 24 <= fr2)
			continue;
		if (++found == depth)
			slot = (entry >> 24) + 1;
	}
	if (found != depths)
		return 0;
	return depth ? slot : 1 + fr2;
}

static bool is_comparison(const struct msp_trace_reader *r, uint32_t ref)
{
	return msp_ir_is_ins(r, ref) && msp_ir_guard(r, ref) && msp_ir_at(r, ref)[5] < COMPARISONS;
}

uint32_t msp_trace_slot_ref(const struct msp_trace_reader *r, uint32_t snap, uint32_t slot)
{
	uint32_t n, entry;
	const uint8_t *map = map_of(r, snap, &n);

	for (uint32_t i = 0; i < n; i++) {
		entry = msp_get32(map + (size_t)i * MSP_SNAP_ENTRY);
		if (entry >> 24 == slot)
			return entry & 0xffff;
	}
	return 0;
}

/* Can it be the counter: what reads its slot, perhaps as another kind of number, if the trace has not changed it? */
static bool may_be(const struct msp_trace_reader *r, uint32_t ref, uint32_t counter, uint32_t slot)
{
	uint32_t from;

	if (counter)
		return ref == counter;
	if (!msp_ir_is_ins(r, ref))
		return false;
	from = msp_ir_a(r, ref);
	return from == slot || (msp_ir_is_ins(r, from) && msp_ir_a(r, from) == slot);
}

static bool is_integer(const struct msp_trace_reader *r, uint32_t ref, int32_t *value)
{
	if (!msp_ir_is_constant(r, ref) || msp_ir_type(r, ref) != MSP_IR_INT)
		return false;
	*value = (int32_t)msp_get32(msp_ir_at(r, ref));
	return true;
}

/*
 * Can an instruction be the counter and its step added? An integer that is a sum itself becomes a
 * sum with another constant.
 */
static bool may_be_next(const struct msp_trace_reader *r, uint32_t ref, uint32_t counter,
			uint32_t slot, const int32_t *step)
{
	int32_t have, is;

	if (!msp_ir_is_ins(r, ref))
		return false;
	if (may_be(r, msp_ir_a(r, ref), counter, slot))
		return true;
	if (!msp_ir_is_ins(r, counter) || msp_ir_a(r, ref) != msp_ir_a(r, counter) ||
	    !is_integer(r, msp_ir_b(r, counter), &have))
		return false;
	return !step || !is_integer(r, msp_ir_b(r, ref), &is) ||
	       (uint32_t)is == (uint32_t)have + (uint32_t)*step;
}

/*
 * Could the next comparison of a counter be known: as it is constant, or as the same has been
 * compared before? Else each time around there is a guard, with a snapshot.
 */
static bool counts_unseen(const struct msp_trace_reader *r, uint32_t counter, uint32_t slot,
			  const int32_t *step, uint32_t before)
{
	if (counter && counter < MSP_REF_BIAS)
		return true;
	for (uint32_t ref = MSP_REF_BIAS + 1; ref < before && ref < r->nins; ref++)
		for (int k = 0; is_comparison(r, ref) && k < 2; k++)
			if (may_be_next(r, msp_get16(msp_ir_at(r, ref) + 2 * k), counter, slot,
					step))
				return true;
	return false;
}

/* The same where the snapshot is of the loop's own comparison, of which one side is the counter. */
static bool guard_unseen(const struct msp_trace_reader *r, uint32_t guard, const int32_t *step,
			 uint32_t before)
{
	uint32_t a, b;

	if (!is_comparison(r, guard))
		return true;
	a = msp_ir_a(r, guard);
	b = msp_ir_b(r, guard);
	if (!msp_ir_is_ins(r, a) || counts_unseen(r, a, 0, step, before))
		return true;
	if (msp_ir_is_ins(r, b))
		return counts_unseen(r, b, 0, step, before);
	/* if the other side is a constant counter: has that side been compared with another one? */
	for (uint32_t ref = MSP_REF_BIAS + 1; ref < before && ref < r->nins; ref++)
		if (ref != guard && is_comparison(r, ref) && msp_ir_a(r, ref) == a &&
		    msp_ir_b(r, ref) < MSP_REF_BIAS)
			return true;
	return false;
}

/* The step of a loop, if it stands before its beginning as a number. */
static bool step_of(const struct msp_steps *s, const struct msp_trace_proto *p, uint32_t fori,
		    int32_t *step)
{
	struct msp_bc_ins loop = ins_at(s, p, fori), ins = ins_at(s, p, fori - 1);

	*step = (int16_t)ins.d;
	return ins.op == MSP_BC_KSHORT && ins.a == loop.a + 2;
}

static void add_wall(struct msp_steps *s, uint16_t frame, uint32_t begin, uint32_t end)
{
	if (s->walls == MSP_STEP_WALLS)
		return;
	s->wall[s->walls].frame = frame;
	s->wall[s->walls].begin = begin;
	s->wall[s->walls++].end = end;
}

/* The loops of a frame around a position, or whose own guard the snapshot is for. */
static void add_walls(struct msp_steps *s, uint32_t snap, uint16_t frame, uint32_t pos,
		      uint32_t depths, uint32_t before)
{
	const struct msp_trace_reader *r = s->r;
	const struct msp_trace_proto *p = s->frame[frame].proto;
	uint32_t base = base_slot(r, snap, s->frame[frame].depth, depths), start;
	struct msp_bc_ins ins;
	bool has_step, unseen;
	int32_t step;

	for (uint32_t q = 1; q < msp_trace_proto_size(p); q++) {
		ins = ins_at(s, p, q);
		if (ins.op < MSP_BC_FORL || ins.op > MSP_BC_JFORL || !msp_trace_work(s->facts, q))
			continue;
		start = msp_trace_loop_start(r, p, q);
		if (start < 2 || start > q)
			continue;
		has_step = step_of(s, p, start - 1, &step);
		if (base && start <= pos && pos <= q)
			unseen = counts_unseen(r, msp_trace_slot_ref(r, snap, base + ins.a),
					       base + ins.a, has_step ? &step : NULL, before);
		else if (frame == s->first && pos == q + 1)
			unseen =
				guard_unseen(r, snap_ref(r, snap), has_step ? &step : NULL, before);
		else
			continue;
		if (msp_trace_work(s->facts, 2 * (r->nins - MSP_REF_BIAS)) && !unseen)
			add_wall(s, frame, start - 1, q);
	}
}

void msp_steps_find_walls(struct msp_steps *s, uint32_t snap, int to)
{
	const struct msp_trace_node *nodes = s->r->image->node;
	uint32_t before = to == MSP_AT_LOOP ? s->r->nins : snap_ref(s->r, to), depths;
	uint16_t leaf = s->r->image->snap[snap].leaf, frame = s->first;

	if (nodes[leaf].kind != MSP_RAW_LUA)
		return;
	depths = s->frame[frame].depth;
	for (;; leaf = nodes[leaf].parent, frame = s->frame[frame].parent) {
		if (s->frame[frame].proto)
			add_walls(s, snap, frame, nodes[leaf].pos, depths, before);
		if (!s->frame[frame].depth)
			return;
	}
}

bool msp_steps_is_wall(const struct msp_steps *s, const struct msp_step *step)
{
	for (uint32_t i = 0; i < s->walls; i++)
		if (s->wall[i].frame == step->frame && s->wall[i].end == step->pos)
			return true;
	return false;
}

bool msp_steps_drop_walls(struct msp_steps *s)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < s->walls; k++) {
		uint32_t i = 0;

		while (i < s->steps &&
		       (s->step[i].frame != s->wall[k].frame ||
			s->step[i].pos != s->wall[k].begin || s->step[i].not_to != MSP_PATH_NONE))
			i++;
		if (i == s->steps)
			s->wall[n++] = s->wall[k];
	}
	if (n == s->walls)
		return false;
	s->walls = n;
	return true;
}

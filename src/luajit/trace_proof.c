/* SPDX-License-Identifier: MIT */
#include "luajit/trace_proof.h"

#include <stdlib.h>

#define WORDS MSP_STEP_WORDS

struct proof {
	struct msp_trace_reader *r;
	struct msp_trace_facts facts;
	struct msp_steps steps;
	struct msp_trace_piece *proof; /* of each instruction */
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

/* What is known of an instruction, or some that are of the same step. */
struct wanted {
	uint32_t makes;
	uint64_t key;
	int32_t slot;	  /* of the base, that is read; -1: none */
	uint64_t upvalue; /* that is read or written; 0: none */
	bool returns;	  /* below the trace's base */
	bool variables;	  /* it computes with numbers of which none is constant */
};

/* Adds all that comes behind the steps of a set, or before them, but not below the trace's base. */
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
			if (to & MSP_EDGE_RETURNS || msp_step_in(left->fresh, to))
				continue;
			if (!msp_step_in(left->all, to))
				list[n++] = to;
			msp_step_add(left->all, to);
			msp_step_add(left->fresh, to);
		}
	}
}

static bool is_empty(const uint64_t *set)
{
	uint64_t any = 0;

	for (uint32_t i = 0; i < WORDS; i++)
		any |= set[i];
	return !any;
}

static bool can_be(const struct msp_steps *s, const struct msp_step *step,
		   const struct wanted *want)
{
	return !(want->makes & ~step->makes) &&
	       (!want->key || !step->key || step->key == want->key) &&
	       (want->slot < 0 || msp_step_reads_slot(s, step, want->slot)) &&
	       (!want->variables || msp_step_has_variables(s, step, want->makes)) &&
	       (!want->upvalue || msp_step_has_upvalue(s, step, want->upvalue));
}

/* Goes on to the steps that are next, and leaves those that can make an instruction. False: none. */
static bool advance(const struct msp_steps *s, struct left *left, const struct wanted *want,
		    bool back)
{
	bool tells = want->makes || want->slot >= 0 || want->upvalue;

	if (left->moved)
		spread(s, left, back);
	left->moved = tells;
	for (uint32_t i = 0; tells && i < s->steps; i++) {
		uint64_t bit = 1ull << i % 64;
		bool once = want->makes & s->step[i].once;

		if (!(left->all[i / 64] & bit))
			continue;
		if (!can_be(s, &s->step[i], want) || (once && !(left->fresh[i / 64] & bit))) {
			left->all[i / 64] &= ~bit;
			left->fresh[i / 64] &= ~bit;
		} else if (once) {
			left->fresh[i / 64] &= ~bit;
		}
	}
	return !is_empty(left->all);
}

/*
 * A return below the trace's base is made where it is: what comes behind it is of the steps there. So
 * the instruction is of a step with such a way, to one of those that come next. False: there is none.
 */
static bool cross(const struct msp_steps *s, struct left *left, bool back, uint64_t *made)
{
	struct left there = {.moved = true};

	spread(s, left, back);
	memset(made, 0, sizeof(there.all));
	for (uint32_t i = 0; i < s->steps; i++)
		for (uint32_t k = 0; k < s->step[i].edges; k++) {
			uint16_t edge = s->edge[s->step[i].edge + k], to = edge & ~MSP_EDGE_RETURNS;

			if (edge == to || !msp_step_in(left->all, back ? to : i))
				continue;
			msp_step_add(made, i);
			msp_step_add(there.all, back ? i : to);
		}
	memcpy(there.fresh, there.all, sizeof(there.fresh));
	*left = there;
	return !is_empty(made);
}

/* Is a store to the C stack not an argument, behind which others and the call would come? */
static bool is_spill(const struct proof *p, uint32_t i)
{
	const struct msp_trace_ins *ins = p->r->ins;

	if (!p->facts.ctypes)
		return true;
	while (++i < p->r->ins_count && (!ins[i].does || ins[i].does & MSP_DOES_COPY))
		;
	return i < p->r->ins_count && !(ins[i].does & MSP_DOES_CALL);
}

/* Is it of the same instruction of the compiler as the one before? */
static bool is_joined(const struct proof *p, uint32_t i)
{
	uint8_t joined = p->r->ins[i].joined;

	return joined == MSP_JOINED || (joined == MSP_JOINED_NUMBERS && !p->facts.ctypes) ||
	       (joined == MSP_JOINED_ROOT && p->facts.root) ||
	       (joined == MSP_JOINED_SPILL && is_spill(p, i));
}

/* Slots are those of the base that the trace has begun with. */
static bool has_slot(const struct proof *p, const struct msp_trace_ins *ins)
{
	return ins->tells & MSP_TELLS_SLOT && !p->facts.lowers &&
	       (p->facts.root || !(ins->tells & MSP_TELLS_ENTRY));
}

static uint64_t upvalue_of(const struct proof *p, const struct msp_trace_ins *ins)
{
	return msp_trace_upvalue_at(p->r, &p->facts, ins->place);
}

/* Goes on over ins[from, to), which are of one step: of those in made. */
static bool advance_over(struct proof *p, struct left *left, uint32_t from, uint32_t to, bool back,
			 uint64_t *made)
{
	struct wanted want = {.slot = -1};

	for (uint32_t i = from; i < to; i++) {
		const struct msp_trace_ins *ins = &p->r->ins[i];

		want.makes |= msp_makes_of_ins(ins);
		want.key = want.key ? want.key : ins->key;
		want.slot = has_slot(p, ins) ? ins->slot : want.slot;
		want.upvalue = want.upvalue ? want.upvalue : upvalue_of(p, ins);
		want.returns |= ins->tells & MSP_TELLS_RETURN;
		want.variables |= ins->tells & MSP_TELLS_VARIABLES;
	}
	if (!msp_trace_work(&p->facts, p->steps.steps + p->steps.edges))
		return false;
	if (want.returns)
		return cross(&p->steps, left, back, made);
	if (!advance(&p->steps, left, &want, back))
		return false;
	memcpy(made, left->all, sizeof(left->all));
	return true;
}

/* Behind a return below the trace's base constants may still be loaded for it. */
static void keep_returns(struct proof *p, uint32_t from, uint32_t to)
{
	const struct msp_trace_ins *ins = p->r->ins;

	for (uint32_t i = from + 1; i < to; i++)
		if (ins[i - 1].tells & MSP_TELLS_RETURN)
			for (uint32_t k = i; k < to && !msp_makes_of_ins(&ins[k]) &&
					     !has_slot(p, &ins[k]) && !upvalue_of(p, &ins[k]);
			     k++)
				for (uint32_t w = 0; w < WORDS; w++)
					p->left[k][w] |= p->left[i - 1][w];
}

/* Which steps ins[from, to) can be of. False: of none, which can not be. */
static bool narrow(struct proof *p, uint32_t from, uint32_t to)
{
	uint64_t made[WORDS];
	struct left left;
	uint32_t next;

	begin(&left, p->steps.start);
	for (uint32_t i = from; i < to; i = next) {
		for (next = i + 1; next < to && is_joined(p, next);)
			next++;
		if (!advance_over(p, &left, i, next, false, made))
			return false;
		for (uint32_t k = i; k < next; k++)
			memcpy(p->left[k], made, sizeof(made));
	}
	begin(&left, p->steps.end);
	for (uint32_t i = to; i > from;) {
		for (next = i--; i > from && is_joined(p, i);)
			i--;
		if (!advance_over(p, &left, i, next, true, made))
			return false;
		for (uint32_t k = 0; k < WORDS; k++)
			p->left[i][k] &= made[k];
		for (uint32_t k = i + 1; k < next; k++)
			memcpy(p->left[k], p->left[i], sizeof(p->left[k]));
		if (is_empty(p->left[i]))
			return false;
	}
	keep_returns(p, from, to);
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
	struct msp_trace_piece *proof = &p->proof[i];

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
			s->step[i].makes |= MSP_MAKES_INT | MSP_MAKES_BOUND | MSP_MAKES_HEAD;
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

static bool same(const struct msp_trace_piece *a, const struct msp_trace_piece *b)
{
	return a->node == b->node && a->pos == b->pos && a->whole == b->whole;
}

static void keep(struct proof *p)
{
	struct msp_trace_image *image = p->r->image;
	struct msp_trace_piece *fit;
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

/* All that is before the head's end is of it, too. */
static void place_start(struct msp_trace_reader *r, const struct msp_trace_facts *facts)
{
	uint32_t tells = MSP_TELLS_HEAD | (facts->ctypes ? 0 : MSP_TELLS_MOVED), end = 0;

	while (end < r->ins_count && !(r->ins[end].tells & MSP_TELLS_HEAD))
		end++;
	while (end < r->ins_count && r->ins[end].tells & tells)
		end++;
	for (uint32_t i = 0; end < r->ins_count && i < end; i++)
		r->ins[i].tells |= MSP_TELLS_HEAD;
}

/* Where the trace or its loop begins registers are moved about, for no step. */
static void forget_joined(struct msp_trace_reader *r, uint32_t code)
{
	for (uint32_t i = ins_from(r, code); i < r->ins_count; i++) {
		r->ins[i].joined = MSP_JOINED_NOT;
		if (r->ins[i].does && !(r->ins[i].does & MSP_DOES_COPY))
			return;
	}
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
	place_start(r, &p->facts);
	forget_joined(r, 0);
	forget_joined(r, r->image->mcloop);
	if (p->proof && p->left && p->facts.known) {
		for (uint32_t i = 0; i < r->image->snap_count; i++)
			prove_snap(p, i);
		keep(p);
	}
	free(p->proof);
	free(p->left);
	free(p);
}

/* SPDX-License-Identifier: MIT */
/*
 * Which bytecode a piece of machine code is for. Between two snapshots the way
 * through the bytecode is known, and the code is in its order. Instructions and
 * steps are matched so that what each does fits best: an estimate.
 */
#include <stdlib.h>

#include "luajit/trace_align.h"
#include "luajit/trace_path.h"

#define ARITHMETIC (MSP_DOES_ADD | MSP_DOES_SUB | MSP_DOES_MUL)
#define SLOTS 256
#define LEFT_OUT 3	     /* what it costs to have no code for a step that should have some */
#define MAX_CELLS (4u << 20) /* of one table: instructions by steps */

struct align {
	struct msp_trace_reader *r;
	const struct msp_trace_path *path;
	const struct msp_trace_ins *ins;
	uint32_t count;
	uint32_t *step;	     /* of each instruction; MSP_PATH_NONE: not known */
	uint32_t begin, end; /* the steps being matched */
	uint32_t first_use[SLOTS], first_upvalue;
	uint64_t *key; /* of each step that has a string for it; 0 else */
};

/* Conditions that are known when the trace is made have no code; the others have a snapshot each. */
static bool has_snapshot(const struct align *a, uint32_t step)
{
	for (uint32_t i = 0; i < a->path->snaps; i++)
		if (a->path->snap[i] == step)
			return true;
	return false;
}

static struct msp_bc_ins ins_at(const struct align *a, uint32_t step)
{
	const struct msp_path_step *s = &a->path->step[step];

	return msp_bc_decode(a->r->set, a->path->frame[s->frame].proto->ins[s->pos]);
}

static struct msp_expected expected_at(const struct align *a, uint32_t step)
{
	uint8_t op = ins_at(a, step).op;

	/* Its frame is not the next one's parent: nothing of it was inlined. */
	if (msp_bc_is_call(op) && (step + 1 == a->path->steps ||
				   a->path->step[step + 1].frame == a->path->step[step].frame))
		return msp_expected_builtin;
	if (op >= MSP_BC_ISTC && op <= MSP_BC_ISF)
		return (struct msp_expected){0};
	/* The code of a condition comes behind its snapshot; what it compares, before. */
	if (op <= MSP_BC_ISNEP && (step != a->begin || !has_snapshot(a, step)))
		return (struct msp_expected){0, MSP_DOES_LOAD | MSP_DOES_CONVERT};
	if (op >= MSP_BC_FORI && op <= MSP_BC_JFORL && step != a->begin)
		return (struct msp_expected){MSP_DOES_ADD, MSP_DOES_LOAD | MSP_DOES_CONVERT};
	return msp_expected[op];
}

/* First step that has to do with a slot, counted from the trace's base; MSP_PATH_NONE: none. */
static uint32_t first_use(struct align *a, int32_t slot)
{
	if (slot < 0) /* the frame's function */
		return a->first_upvalue;
	return slot < SLOTS ? a->first_use[slot] : MSP_PATH_NONE;
}

/* Loops count in integers, arithmetic is done with floating point numbers: mostly. */
static bool counts(const struct align *a, uint32_t step)
{
	return ins_at(a, step).op >= MSP_BC_FORI;
}

/* Whose key is it: of this step, of another one, or of none? */
static int by_key(const struct align *a, uint64_t imm, uint32_t step)
{
	if (a->key[step] == imm)
		return 12;
	for (uint32_t i = a->begin; i <= a->end; i++)
		if (a->key[i] == imm)
			return -6;
	return 0;
}

static int score(struct align *a, const struct msp_trace_ins *ins, uint32_t step)
{
	uint32_t what = ins->does & ~(uint32_t)(MSP_DOES_FLOAT | MSP_DOES_COPY | MSP_DOES_BRANCH |
						MSP_DOES_TYPE),
		 use;
	struct msp_expected e;
	int key;

	if (what & MSP_DOES_CHECK)
		return step == a->begin ? 6 : -6;
	if (what & MSP_DOES_SLOT) {
		use = first_use(a, ins->slot);
		return use == MSP_PATH_NONE ? 0 : use == step ? 6 : -2;
	}
	if (ins->imm && (key = by_key(a, ins->imm, step)))
		return key;
	if (!what)
		return 0;
	e = expected_at(a, step);
	if (what & e.strong && what & ARITHMETIC &&
	    (ins->does & MSP_DOES_FLOAT || ins->tells & MSP_TELLS_OVERFLOW) == counts(a, step))
		return a->r->layout->arch == MSP_ARCH_ARM64 ? 0
							    : 3; /* integers are checked there */
	if (what & e.strong) /* some divisions are multiplications */
		return what & MSP_DOES_MUL && e.strong & MSP_DOES_DIV ? 5 : 6;
	if (what & e.weak) /* what is computed with was checked before, mostly */
		return what & MSP_DOES_COMPARE && e.strong & ARITHMETIC ? 1 : 2;
	return -4;
}

/* Is it for the same as the one before: a comparison's jump, a value's type, what was copied for it? */
static bool belongs(const struct align *a, uint32_t i)
{
	uint32_t before = a->ins[i - 1].does;

	return a->ins[i].does == MSP_DOES_BRANCH || a->ins[i].does == MSP_DOES_TYPE ||
	       !(before & ~(uint32_t)(MSP_DOES_FLOAT | MSP_DOES_COPY));
}

/* Instructions by steps, while they are being matched. */
struct table {
	uint32_t from, first; /* the first instruction, the first step */
	uint32_t n, m;	      /* how many of each */
	uint16_t *came;	      /* for an instruction at a step: the step of the one before */
	int32_t *best;	      /* for each step: the best sum with the last instruction there */
	int32_t *cost;	      /* of leaving out all steps before one */
};

/* Does that step have code of its own, as a rule? What is read was often read before. */
static bool has_code(const struct align *a, uint32_t step)
{
	uint8_t op = ins_at(a, step).op;

	return (op >= MSP_BC_ADDVN && op <= MSP_BC_CAT) ||
	       (op >= MSP_BC_TSETV && op <= MSP_BC_TSETR);
}

static bool new_table(struct align *a, struct table *t)
{
	t->came = malloc((size_t)t->n * t->m * sizeof(*t->came));
	t->best = malloc(t->m * sizeof(*t->best));
	t->cost = malloc((t->m + 1) * sizeof(*t->cost));
	if (!t->came || !t->best || !t->cost)
		return false;
	t->cost[0] = 0;
	for (uint32_t s = 0; s < t->m; s++) {
		t->best[s] = -t->cost[s];
		t->cost[s + 1] = t->cost[s] + (has_code(a, t->first + s) ? LEFT_OUT : 0);
	}
	return true;
}

/* Adds instruction i: at the step of the one before, or at a later one. */
static void add_row(struct align *a, struct table *t, uint32_t i)
{
	bool stays = i && belongs(a, t->from + i);
	int32_t best = INT32_MIN / 2, before;
	uint32_t at = 0;

	for (uint32_t s = 0; s < t->m; s++) {
		before = t->best[s];
		t->came[(size_t)i * t->m + s] = s;
		if (i && !stays && best - t->cost[s] > before) {
			t->came[(size_t)i * t->m + s] = at;
			before = best - t->cost[s];
		}
		if (t->best[s] + t->cost[s + 1] > best) {
			best = t->best[s] + t->cost[s + 1];
			at = s;
		}
		t->best[s] = before + score(a, &a->ins[t->from + i], t->first + s);
	}
}

/* Matches ins[from, to) to step[first, last], in order, so that the sum is the best. */
static void match(struct align *a, uint32_t from, uint32_t to, uint32_t first, uint32_t last)
{
	struct table t = {.from = from, .first = first, .n = to - from, .m = last - first + 1};
	uint32_t at = 0;

	if ((uint64_t)t.n * t.m > MAX_CELLS || t.m > UINT16_MAX)
		return;
	if (new_table(a, &t)) {
		for (uint32_t i = 0; i < t.n; i++)
			add_row(a, &t, i);
		for (uint32_t s = 1; s < t.m; s++)
			if (t.best[s] + t.cost[s + 1] > t.best[at] + t.cost[at + 1])
				at = s;
		for (uint32_t i = t.n; i-- > 0;) {
			a->step[from + i] = first + at;
			at = t.came[(size_t)i * t.m + at];
		}
	}
	free(t.came);
	free(t.best);
	free(t.cost);
}

static uint32_t ins_from(const struct align *a, uint32_t code)
{
	uint32_t i = 0;

	while (i < a->count && a->ins[i].code < code)
		i++;
	return i;
}

static void match_part(struct align *a, uint32_t from, uint32_t to, uint32_t first, uint32_t last)
{
	if (first > last || last >= a->path->steps || from >= to)
		return;
	a->begin = first;
	a->end = last;
	match(a, from, to, first, last);
}

/* What is moved where the trace begins is of its first step: but not if it may be a call's arguments. */
static uint32_t match_head(struct align *a, uint32_t to, uint32_t step)
{
	uint32_t n = 0;

	while (n < to && a->ins[n].does & MSP_DOES_COPY)
		n++;
	if (n == to || a->ins[n].does & MSP_DOES_CALL)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		a->step[i] = step;
	return n;
}

/* The code of a snapshot, in two parts if the loop begins in it. */
static void match_snap(struct align *a, uint32_t i)
{
	const struct msp_trace_path *path = a->path;
	const struct msp_trace_image *image = a->r->image;
	bool last = i + 1 == image->snap_count;
	uint32_t from = i ? ins_from(a, image->snap[i].begin) : 0,
		 to = last ? a->count : ins_from(a, image->snap[i + 1].begin);
	uint32_t first = path->snap[i], end = last ? path->steps - 1 : path->snap[i + 1];
	uint32_t loop = image->mcloop ? ins_from(a, image->mcloop) : a->count;

	if (!last && i + 1 >= path->snaps)
		return;
	if (!i)
		from = match_head(a, to, first);
	if (path->second != MSP_PATH_NONE && first < path->second && end >= path->second &&
	    loop > from && loop < to) {
		match_part(a, from, loop, first, path->second - 1);
		match_part(a, loop, to, path->second, end);
	} else {
		match_part(a, from, to, first, end);
	}
}

static uint16_t node_of(struct align *a, uint16_t frame, uint32_t pos)
{
	const struct msp_path_frame *f = &a->path->frame[frame];
	struct msp_trace_node node = {.kind = MSP_RAW_LUA, .pos = pos};

	if (f->depth) {
		node.parent = node_of(a, f->parent, f->call);
		if (!node.parent)
			return 0;
	}
	if (!f->proto) {
		for (uint32_t i = 1; i < a->r->image->node_count; i++)
			if (a->r->image->node[i].addr == f->addr &&
			    a->r->image->node[i].parent == node.parent)
				return i;
		return 0;
	}
	node.addr = f->proto->addr;
	node.ident = f->proto->ident;
	return msp_trace_add_node(a->r, &node);
}

static void keep(struct align *a)
{
	struct msp_trace_image *image = a->r->image;
	struct msp_trace_piece *guess = calloc(a->count + 1, sizeof(*guess)), *fit;
	uint32_t last = MSP_PATH_NONE - 1, n = 0;

	for (uint32_t i = 0; guess && i < a->count; i++) {
		if (a->step[i] == last)
			continue;
		last = a->step[i];
		guess[n].code = i ? a->ins[i].code : 0;
		if (last != MSP_PATH_NONE) {
			guess[n].node = node_of(a, a->path->step[last].frame, 0);
			guess[n].pos = a->path->step[last].pos;
		}
		n++;
	}
	fit = guess ? realloc(guess, (n + 1) * sizeof(*guess)) : NULL;
	image->guess = fit ? fit : guess;
	image->guesses = guess ? n : 0;
}

/* How far the frame's slots are above the trace's base. */
static int32_t base_of(const struct align *a, uint16_t frame)
{
	const struct msp_path_frame *f = &a->path->frame[frame], *parent;
	int32_t base = 0;

	for (; f->depth; f = parent) {
		parent = &a->path->frame[f->parent];
		if (!parent->proto)
			return SLOTS;
		base += (int32_t)(parent->proto->ins[f->call] >> 8 & 0xff) + 1 + a->r->layout->fr2;
	}
	return base;
}

static void use_slot(struct align *a, int32_t slot, uint32_t step)
{
	if (slot < SLOTS && a->first_use[slot] == MSP_PATH_NONE)
		a->first_use[slot] = step;
}

/* A value is read from the stack where it is used first; a loop's own ones where the loop begins. */
static void find_uses(struct align *a)
{
	struct msp_bc_ins ins;
	uint8_t reads;
	int32_t base;

	memset(a->first_use, 0xff, sizeof(a->first_use));
	a->first_upvalue = MSP_PATH_NONE;
	for (uint32_t i = 0; i < a->path->steps && i < a->path->second; i++) {
		ins = ins_at(a, i);
		base = base_of(a, a->path->step[i].frame);
		if (ins.op >= MSP_BC_FORL && ins.op <= MSP_BC_JFORL && i + 1 == a->path->second)
			for (int32_t k = 0; k < 4; k++)
				a->first_use[(base + ins.a + k) % SLOTS] = 0;
		if (ins.op == MSP_BC_UGET && !base && a->first_upvalue == MSP_PATH_NONE)
			a->first_upvalue = i;
		reads = msp_bc_reads(ins.op);
		if (reads & MSP_BC_A)
			use_slot(a, base + ins.a, i);
		if (reads & MSP_BC_B)
			use_slot(a, base + ins.b, i);
		if (reads & MSP_BC_C)
			use_slot(a, base + ins.c, i);
		if (reads & MSP_BC_D)
			use_slot(a, base + ins.d, i);
	}
}

/* The string that a table is asked for. */
static uint64_t key_of(const struct align *a, const struct msp_path_step *step)
{
	const struct msp_trace_proto *p = a->path->frame[step->frame].proto;
	struct msp_bc_ins ins = msp_bc_decode(a->r->set, p->ins[step->pos]);

	if (ins.op == MSP_BC_TGETS || ins.op == MSP_BC_TSETS)
		return msp_trace_object(a->r, p, ins.c);
	if (ins.op == MSP_BC_GGET || ins.op == MSP_BC_GSET)
		return msp_trace_object(a->r, p, ins.d);
	return 0;
}

static void align(struct align *a)
{
	a->step = malloc(a->count * sizeof(*a->step));
	a->key = malloc((a->path->steps + 1) * sizeof(*a->key));
	if (a->step && a->key) {
		memset(a->step, 0xff, a->count * sizeof(*a->step));
		find_uses(a);
		for (uint32_t i = 0; i < a->path->steps; i++)
			a->key[i] = key_of(a, &a->path->step[i]);
		for (uint32_t i = 0; i < a->path->snaps; i++)
			match_snap(a, i);
		keep(a);
	}
	free(a->step);
	free(a->key);
}

void msp_trace_align(struct msp_trace_reader *r)
{
	struct align a = {.r = r, .ins = r->ins, .count = r->ins_count};
	struct msp_trace_path *path;

	if (!r->ins_count || !r->set || !r->image->placed)
		return;
	path = msp_trace_path_find(r);
	a.path = path;
	if (path)
		align(&a);
	msp_trace_path_free(path);
}

/* SPDX-License-Identifier: MIT */
/*
 * All ways through the bytecode from one place of a trace to another: the steps, and which can come
 * after which. What is not known for certain - which way a condition goes that has no snapshot of
 * its own, what is called - goes all ways. Two things end a way: the root trace's own loop comes
 * round, where recording ends; and a return from the trace's base, if it has none.
 */
#include "luajit/trace_proof.h"

#define MAX_RECURSION 2 /* a function that is active is followed so many times more */

/* ---- Which step comes next ---- */

static struct msp_bc_ins ins_at(const struct msp_steps *s, uint16_t frame, uint32_t pos)
{
	return msp_bc_decode(s->r->set, s->frame[frame].proto->ins[pos]);
}

struct at {
	uint32_t step; /* from which */
	bool ends;     /* the way may end behind it: the loop comes round */
};

static void go_by(struct msp_steps *s, const struct at *at, uint16_t frame, uint32_t pos,
		  uint16_t flags)
{
	uint32_t to;

	if ((frame == s->step[at->step].frame && pos == s->step[at->step].not_to) ||
	    msp_steps_leaves_loop(s, frame, pos))
		return;
	to = msp_steps_add(s, frame, pos, MSP_PATH_NONE);
	if (s->edges == MSP_STEP_EDGES)
		s->too_many = true;
	if (s->too_many)
		return;
	s->edge[s->edges++] = to | flags;
	s->step[at->step].edges++;
}

static void go(struct msp_steps *s, const struct at *at, uint16_t frame, uint32_t pos)
{
	go_by(s, at, frame, pos, 0);
}

/* Both ways of a condition, or of a loop instruction. 0: it is none; else how many. */
static int branches(const struct msp_steps *s, uint16_t frame, uint32_t pos, int64_t to[2])
{
	const struct msp_trace_proto *p = s->frame[frame].proto;
	struct msp_bc_ins ins = ins_at(s, frame, pos), jump;

	if (ins.op <= MSP_BC_ISF && pos + 1 < msp_trace_proto_size(p)) {
		jump = ins_at(s, frame, pos + 1);
		to[0] = pos + 2;
		to[1] = msp_bc_target(&jump, pos + 1);
		return 2;
	}
	if (ins.op == MSP_BC_FORI || ins.op == MSP_BC_JFORI) {
		to[0] = pos + 1;
		to[1] = msp_bc_target(&ins, pos);
		return 2;
	}
	if (ins.op >= MSP_BC_FORL && ins.op <= MSP_BC_JITERL && msp_trace_work(s->facts, pos)) {
		to[0] = pos + 1;
		to[1] = msp_trace_loop_start(s->r, p, pos);
		return 2;
	}
	return 0;
}

/* Behind a call, or what a metamethod was called for. */
static void go_behind(struct msp_steps *s, const struct at *at, uint16_t frame, uint32_t pos)
{
	int64_t to[2];

	if (branches(s, frame, pos, to)) {
		go(s, at, frame, to[0]);
		go(s, at, frame, to[1]);
		return;
	}
	go(s, at, frame, pos + 1);
	if (ins_at(s, frame, pos).op == MSP_BC_CAT) /* may have more to concatenate */
		go(s, at, frame, pos);
}

static void leave(struct msp_steps *s, const struct at *at, uint16_t frame)
{
	const struct msp_trace_facts *facts = s->facts;
	uint32_t call;

	while (s->frame[frame].depth) {
		call = s->frame[frame].call;
		frame = s->frame[frame].parent;
		if (s->frame[frame].proto) {
			go_behind(s, at, frame, call);
			return;
		}
	}
	for (uint32_t i = 0; i < facts->lowers; i++) {
		struct msp_path_frame f = {.proto = facts->lower[i].proto};

		frame = msp_steps_add_frame(s, &f);
		go_by(s, at, frame, facts->lower[i].pos, MSP_EDGE_RETURNS);
	}
}

static bool is_tail_call(uint8_t op)
{
	return op == MSP_BC_CALLT || op == MSP_BC_CALLMT;
}

static void enter(struct msp_steps *s, const struct at *at, struct msp_path_frame *f)
{
	uint16_t frame = msp_steps_add_frame(s, f);

	if (!s->too_many)
		go(s, at, frame, 0);
}

/* What a step calls makes this frame; a tail call, one in the place of its own. */
static struct msp_path_frame callee_frame(const struct msp_steps *s, const struct msp_step *step,
					  struct msp_trace_proto *proto)
{
	struct msp_path_frame f = {
		.parent = step->frame, .depth = s->frame[step->frame].depth + 1, .call = step->pos};

	if (is_tail_call(step->op))
		f = s->frame[step->frame];
	f.proto = proto;
	f.addr = 0;
	return f;
}

/* Into what has been called at the end of the way, if it may be from this step. */
static void enter_last(struct msp_steps *s, const struct at *at)
{
	struct msp_path_frame f = callee_frame(s, &s->step[at->step], NULL);
	uint16_t frame = s->last, parent;

	for (; !s->too_many; frame = parent) {
		const struct msp_path_frame *have = &s->frame[frame];

		parent = have->parent;
		while (s->frame[parent].depth && !s->frame[parent].proto) {
			have = &s->frame[parent];
			parent = have->parent;
		}
		if (have->depth == f.depth &&
		    (!f.depth || (have->parent == f.parent && have->call == f.call)) &&
		    s->frame[frame].proto && frame != s->step[at->step].frame)
			go(s, at, frame, 0);
		if (!s->frame[frame].depth)
			return;
	}
}

/* How many times a function is active. */
static uint32_t active(const struct msp_steps *s, uint16_t frame,
		       const struct msp_trace_proto *proto)
{
	uint32_t n = s->frame[frame].proto == proto;

	while (s->frame[frame].depth) {
		frame = s->frame[frame].parent;
		n += s->frame[frame].proto == proto;
	}
	return n;
}

/* Into the metamethods that a step may call, where they are known. */
static void go_metas(struct msp_steps *s, const struct at *at)
{
	struct msp_step *step = &s->step[at->step];
	const struct msp_trace_facts *facts = s->facts;
	struct msp_path_frame f;

	if (!msp_has_metamethods(step->op))
		return;
	step->unknown |= facts->any_meta;
	for (uint32_t i = 0; i < facts->metas; i++) {
		if (!msp_meta_called_by(facts, i, step->op))
			continue;
		if (!s->metas || step->calls == MSP_CALLEE_BUILTIN ||
		    active(s, step->frame, facts->meta[i].proto)) {
			step->unknown = true;
			continue;
		}
		f = callee_frame(s, step, facts->meta[i].proto);
		enter(s, at, &f);
	}
}

/* Is it active, and not to be followed again? */
static bool recurses(struct msp_steps *s, uint16_t frame, const struct msp_trace_proto *proto)
{
	uint32_t n = active(s, frame, proto);

	s->recurses |= n > 0;
	return n > s->deep;
}

/*
 * Into a function that is known, but not too often into one that is active. What is called else is not
 * followed: the call may be, and make, all that it does.
 */
static void go_call(struct msp_steps *s, const struct at *at)
{
	struct msp_step *step = &s->step[at->step];
	const struct msp_trace_proto *p = s->frame[step->frame].proto;
	uint16_t frame = step->frame;
	uint32_t index = 0;
	struct msp_path_frame f;

	step->calls = msp_trace_callee(s->r, s->facts, p, step->pos, &index);
	if (step->calls == MSP_CALLEE_ANY)
		step->calls = msp_steps_param(s, frame, step->pos, &index);
	if (step->calls == MSP_CALLEE_LUA && recurses(s, frame, s->facts->proto[index]))
		step->calls = MSP_CALLEE_ANY;
	if (step->calls == MSP_CALLEE_LUA) {
		f = callee_frame(s, step, s->facts->proto[index]);
		enter(s, at, &f);
		return;
	}
	if (step->calls == MSP_CALLEE_BUILTIN) {
		step->builtin = s->facts->callees.of[index].ffid;
		if (msp_builtin_calls(s->r, step->builtin))
			step->calls = MSP_CALLEE_ANY;
	}
	go_metas(s, at);
	step->unknown |= step->calls == MSP_CALLEE_ANY;
	if (is_tail_call(step->op))
		leave(s, at, frame);
	else
		go(s, at, frame, step->pos + 1);
}

static void go_on(struct msp_steps *s, struct at *at)
{
	const struct msp_step step = s->step[at->step];
	struct msp_bc_ins ins = ins_at(s, step.frame, step.pos);
	int64_t to[2] = {step.pos + 1, step.pos + 1};

	if (msp_steps_comes_round(s, &step)) {
		at->ends = true;
		return;
	}
	if (msp_steps_is_wall(s, &step))
		return;
	enter_last(s, at);
	switch (step.op) {
	case MSP_BC_UNKNOWN:
		s->too_many = true;
		return;
	case MSP_BC_JMP:
	case MSP_BC_UCLO:
	case MSP_BC_ISNEXT:
		go(s, at, step.frame, msp_bc_target(&ins, step.pos));
		return;
	case MSP_BC_RET:
	case MSP_BC_RET0:
	case MSP_BC_RET1:
	case MSP_BC_RETM:
		leave(s, at, step.frame);
		return;
	case MSP_BC_CALL:
	case MSP_BC_CALLM:
	case MSP_BC_CALLT:
	case MSP_BC_CALLMT:
	case MSP_BC_ITERC:
		go_call(s, at);
		return;
	case MSP_BC_JLOOP: /* a return can be behind that */
		leave(s, at, step.frame);
		if (step.pos + 1 == msp_trace_proto_size(s->frame[step.frame].proto))
			return;
		break;
	default:
		go_metas(s, at);
		break;
	}
	for (int i = branches(s, step.frame, step.pos, to) ? 2 : 1; i-- > 0;) {
		go(s, at, step.frame, to[i]);
	}
}

/* ---- From where to where ---- */

/*
 * The steps at which a snapshot can have been taken: the one at its position; or a condition, whose
 * snapshot has the position of the way not taken. Where a function of the VM's own had been called,
 * that call.
 */
static void add_snap(struct msp_steps *s, uint32_t snap, bool starts, uint64_t *set)
{
	const struct msp_trace_node *nodes = s->r->image->node;
	uint16_t leaf = s->r->image->snap[snap].leaf, frame;
	int64_t to[2];

	while (leaf && nodes[leaf].kind != MSP_RAW_LUA)
		leaf = nodes[leaf].parent;
	if (!leaf) {
		s->too_many = true;
		return;
	}
	frame = msp_steps_frame_of(s, leaf);
	if (s->too_many)
		return;
	*(starts ? &s->first : &s->last) = frame;
	msp_step_add(set, msp_steps_add(s, frame, nodes[leaf].pos, MSP_PATH_NONE));
	s->too_many |= !msp_trace_work(s->facts, msp_trace_proto_size(s->frame[frame].proto));
	for (uint32_t pos = 1; pos < msp_trace_proto_size(s->frame[frame].proto) && !s->too_many;
	     pos++)
		if (branches(s, frame, pos, to) &&
		    (to[0] == nodes[leaf].pos || to[1] == nodes[leaf].pos))
			msp_step_add(set, msp_steps_add(s, frame, pos,
							starts ? nodes[leaf].pos : MSP_PATH_NONE));
}

/* All steps on the way, and those at which the loop comes round. */
static void follow(struct msp_steps *s, int from, uint64_t *round)
{
	s->steps = s->edges = 0;
	memset(round, 0, MSP_STEP_WORDS * sizeof(*round));
	memset(s->start, 0, sizeof(s->start));
	add_snap(s, from == MSP_AT_LOOP ? 0 : from, true, s->start);
	for (uint32_t i = 0; i < s->steps && !s->too_many; i++) {
		struct at at = {.step = i};

		s->too_many |= !msp_trace_work(s->facts, s->steps);
		s->step[i].edge = s->edges;
		go_on(s, &at);
		s->step[i].makes = msp_makes_of_step(s, &s->step[i]);
		s->step[i].once = msp_makes_once(s, &s->step[i]);
		s->step[i].key = msp_key_of_step(s, &s->step[i]);
		if (at.ends)
			msp_step_add(round, i);
	}
}

static bool find_steps(struct msp_steps *s, int from, int to)
{
	uint64_t round[MSP_STEP_WORDS], any = 0;

	msp_steps_find_loop(s);
	add_snap(s, from == MSP_AT_LOOP ? 0 : from, true, s->start);
	add_snap(s, to == MSP_AT_LOOP ? 0 : to, false, s->end);
	if (s->too_many)
		return false;
	if (from != MSP_AT_LOOP)
		msp_steps_find_walls(s, from, to);
	do
		follow(s, from, round);
	while (!s->too_many && msp_steps_drop_walls(s));
	memset(s->end, 0, sizeof(s->end));
	if (to == MSP_AT_LOOP)
		memcpy(s->end, round, sizeof(s->end));
	else
		add_snap(s, to, false, s->end);
	for (uint32_t i = 0; i < MSP_STEP_WORDS; i++) {
		if (from == MSP_AT_LOOP)
			s->start[i] |= round[i];
		any |= s->end[i];
	}
	if (s->too_many || !any)
		return false;
	msp_steps_find_back(s);
	return true;
}

/*
 * With recursion and the metamethods if that is not too much; else each step that can call so can be all
 * that it does.
 */
bool msp_steps_find(struct msp_trace_reader *r, struct msp_trace_facts *facts, int from, int to,
		    struct msp_steps *s)
{
	static const struct {
		uint8_t deep;
		bool metas;
	} try[] = {{MAX_RECURSION, true}, {0, true}, {0, false}};

	for (size_t i = 0; i < sizeof(try) / sizeof(try[0]); i++) {
		if (!try[i].metas && !facts->metas)
			break;
		if (i == 1 && !s->recurses)
			continue;
		memset(s, 0, sizeof(*s));
		s->r = r;
		s->facts = facts;
		s->metas = try[i].metas;
		s->deep = try[i].deep;
		s->from = from;
		if (find_steps(s, from, to))
			return true;
		if (!s->too_many)
			break;
	}
	return false;
}

/* SPDX-License-Identifier: MIT */
/* Which way a trace goes on from an instruction. */
#include "luajit/trace_walk.h"

#define MAX_BACK 100 /* steps back to where a value comes from */

/* Notes that there is another option here, to be tried if the one taken leads nowhere. */
static void keep_choice(struct msp_walk *w, const struct msp_walk_place *place, uint32_t steps,
			uint32_t option)
{
	if (w->choices < MSP_WALK_CHOICES)
		w->choice[w->choices++] = (struct msp_walk_choice){.place = *place,
								   .steps = steps,
								   .frames = w->path->frames,
								   .second = w->path->second,
								   .keys = w->keys,
								   .option = option};
}

bool msp_walk_step_back(struct msp_walk *w)
{
	const struct msp_walk_choice *c;

	if (!w->choices)
		return false;
	c = &w->choice[--w->choices];
	w->at = c->place;
	w->path->steps = c->steps;
	w->path->frames = c->frames;
	w->path->second = c->second;
	w->keys = c->keys;
	w->option = c->option;
	return true;
}

/* What a slot holds as a condition, by what was put into it on the way: 1 true, 0 false, -1 not known. */
static int truth_of(const struct msp_walk *w, uint16_t frame, uint32_t slot)
{
	const struct msp_trace_path *path = w->path;
	struct msp_bc_ins ins;
	uint16_t at;

	for (uint32_t i = path->steps - 1, n = 0; i-- > 0 && n < MAX_BACK; n++) {
		at = path->step[i].frame;
		ins = msp_walk_ins(w, path->frame[at].proto, path->step[i].pos);
		/* what a function returned that was called from here */
		if (at != frame) {
			if (ins.op == MSP_BC_RET1 && path->frame[at].depth &&
			    path->frame[at].parent == frame &&
			    ((path->frame[frame].proto->ins[path->frame[at].call] >> 8) & 0xff) ==
				    slot) {
				frame = at;
				slot = ins.a;
			}
			continue;
		}
		if (ins.a != slot || msp_bc_mode(ins.op) == MSP_BC_NONE)
			continue;
		if (ins.op == MSP_BC_KPRI)
			return ins.d > 1;
		if (ins.op == MSP_BC_MOV)
			slot = ins.d;
		else
			return (ins.op >= MSP_BC_ADDVN && ins.op <= MSP_BC_KNUM) ||
					       (ins.op >= MSP_BC_FNEW && ins.op <= MSP_BC_TDUP)
				       ? 1
				       : -1;
	}
	return -1;
}

/*
 * A condition with two ways on. The snapshot of its guard has the position of the way not taken:
 * option 0. Or it has none (it is known before), or another one comes first: options 1 and 2.
 */
static bool branch(struct msp_walk *w, uint32_t a, uint32_t b)
{
	uint32_t next = msp_walk_next_pos(w), first = next == b ? b : a, option = w->option;
	struct msp_walk_place here = w->at;

	w->option = 0;
	if (option == 0 && next != a && next != b)
		option = 1;
	if (option < 2)
		keep_choice(w, &here, w->path->steps - 1, option + 1);
	if (option == 0) {
		w->path->steps--;
		msp_walk_meet(w);
		w->path->steps++;
		w->at.pos = next == a ? b : a;
	} else {
		w->at.pos = option == 1 ? first : first == a ? b : a;
	}
	return true;
}

static bool is_active(const struct msp_walk *w, const struct msp_trace_proto *proto)
{
	for (const struct msp_path_frame *f = &w->path->frame[w->at.frame];;
	     f = &w->path->frame[f->parent]) {
		if (f->proto == proto)
			return true;
		if (!f->depth)
			return false;
	}
}

static bool enter(struct msp_walk *w, uint32_t callee)
{
	w->at.used = callee + 1 > w->at.used ? callee + 1 : w->at.used;
	return msp_walk_push(w, w->callees.of[callee].proto, w->callees.of[callee].fn, 0);
}

static uint32_t *known_key(struct msp_walk *w, uint64_t key)
{
	for (uint32_t i = 0; key && i < w->keys; i++)
		if (w->key[i].key == key)
			return &w->key[i].callee;
	return NULL;
}

static void learn(struct msp_walk *w, uint64_t key, uint32_t callee)
{
	if (key && !known_key(w, key) && w->keys < MSP_WALK_KEYS) {
		w->key[w->keys].key = key;
		w->key[w->keys++].callee = callee;
	}
}

static bool call_it(struct msp_walk *w, uint32_t callee, bool tail)
{
	struct msp_path_step *step = &w->path->step[w->path->steps - 1];

	if (callee == MSP_PATH_NONE || !w->callees.of[callee].proto) {
		if (callee != MSP_PATH_NONE) {
			step->ffid = w->callees.of[callee].ffid;
			step->callee = 1;
			w->at.used = callee + 1 > w->at.used ? callee + 1 : w->at.used;
		}
		if (tail)
			return msp_walk_pop(w);
		w->at.pos++;
		return true;
	}
	if (tail) {
		const struct msp_path_frame *f = &w->path->frame[w->at.frame];

		if (!f->depth) {
			w->at.used = callee + 1 > w->at.used ? callee + 1 : w->at.used;
			return msp_walk_new_base(w, w->callees.of[callee].proto,
						 w->callees.of[callee].fn, 1);
		}
		w->at.pos = f->call;
		w->at.frame = f->parent;
	}
	return enter(w, callee);
}

/* Options of a call that is not known: the next function not met yet, those met, none with a frame. */
static bool call_unknown(struct msp_walk *w, uint64_t key, bool tail)
{
	uint32_t option = w->option, count = w->callees.count, callee, tries = 0;
	uint32_t *known = known_key(w, key);

	w->option = 0;
	if (known)
		return call_it(w, *known, tail);
	for (uint32_t i = 0; i <= count; i++) {
		/* from the first unmet one on, round, then none */
		callee = i == count ? MSP_PATH_NONE : (w->at.used + i) % count;
		/* what calls itself shows in the snapshots */
		if (i < count && w->callees.of[callee].proto &&
		    is_active(w, w->callees.of[callee].proto))
			continue;
		if (tries++ < option)
			continue;
		if (i < count)
			keep_choice(w, &w->at, w->path->steps - 1, option + 1);
		learn(w, key, callee);
		return call_it(w, callee, tail);
	}
	return false;
}

/* As msp_path_resolve(), which reads the target: each call once. */
static enum msp_path_resolved resolve(struct msp_walk *w, uint32_t *callee, uint64_t *key)
{
	const struct msp_path_frame *f = &w->path->frame[w->at.frame];
	uint32_t i = 0;

	while (i < w->calls && i < MSP_WALK_CALLS &&
	       (w->call[i].proto != f->proto || w->call[i].pos != w->at.pos ||
		w->call[i].closure != f->closure))
		i++;
	if (i == w->calls || i == MSP_WALK_CALLS) {
		i = w->calls++ % MSP_WALK_CALLS;
		w->call[i].proto = f->proto;
		w->call[i].closure = f->closure;
		w->call[i].pos = w->at.pos;
		w->call[i].resolved = msp_path_resolve(w->r, &w->callees, f, w->at.pos,
						       &w->call[i].callee, &w->call[i].key);
	}
	*callee = w->call[i].callee;
	*key = w->call[i].key;
	return (enum msp_path_resolved)w->call[i].resolved;
}

static bool call(struct msp_walk *w, bool tail)
{
	uint32_t callee;
	uint64_t key;

	if (resolve(w, &callee, &key) == MSP_PATH_KNOWN)
		return call_it(w, callee, tail);
	return call_unknown(w, key, tail);
}

/* The next snapshot is in something that is called here: goes there. */
bool msp_walk_enter_next(struct msp_walk *w)
{
	const struct msp_trace_node *nodes = w->r->image->node;
	uint32_t below;
	uint16_t leaf = msp_walk_next_leaf(w), at = leaf ? msp_walk_ancestor(w, leaf, &below) : 0,
		 child;
	struct msp_trace_proto *proto;
	struct msp_walk_place here = w->at;

	if (!at || !below || nodes[at].pos != w->at.pos)
		return false;
	do {
		for (child = leaf; nodes[child].parent != at; child = nodes[child].parent)
			;
		proto = nodes[child].kind == MSP_RAW_LUA
				? msp_trace_proto_at(w->r, nodes[child].addr)
				: NULL;
		if (!msp_walk_push(w, proto, 0, proto ? 0 : nodes[child].addr))
			break;
		at = child;
	} while (!proto && child != leaf);
	if (!w->path->frame[w->at.frame].proto)
		w->at = here;
	return w->at.frame != here.frame;
}

/* A return from the trace's base: the next snapshot says where to. */
static bool leave_base(struct msp_walk *w)
{
	const struct msp_trace_node *nodes = w->r->image->node;
	uint16_t at = msp_walk_next_leaf(w);

	while (at && nodes[at].parent)
		at = nodes[at].parent;
	if (!at || nodes[at].kind != MSP_RAW_LUA)
		return false;
	return msp_walk_new_base(w, msp_trace_proto_at(w->r, nodes[at].addr), 0, nodes[at].pos);
}

/* One instruction on. False: it is no way. */
bool msp_walk_go_on(struct msp_walk *w)
{
	const struct msp_trace_proto *p = w->path->frame[w->at.frame].proto;
	uint32_t pos = w->at.pos, start;
	struct msp_bc_ins ins = msp_walk_ins(w, p, pos), jump;
	int truth;

	if (ins.op <= MSP_BC_ISF && ins.op != MSP_BC_ISTYPE && ins.op != MSP_BC_ISNUM) {
		if (pos + 1 >= msp_trace_proto_size(p))
			return false;
		jump = msp_walk_ins(w, p, pos + 1);
		if (ins.op >= MSP_BC_ISTC) {
			truth = truth_of(w, w->at.frame, ins.d);
			if (truth >= 0) {
				w->at.pos = truth == !(ins.op & 1)
						    ? (uint32_t)msp_bc_target(&jump, pos + 1)
						    : pos + 2;
				return true;
			}
		}
		return branch(w, pos + 2, msp_bc_target(&jump, pos + 1));
	}
	switch (ins.op) {
	case MSP_BC_JMP:
	case MSP_BC_UCLO:
	case MSP_BC_ISNEXT:
		w->at.pos = msp_bc_target(&ins, pos);
		return true;
	case MSP_BC_FORI:
	case MSP_BC_JFORI:
		return branch(w, pos + 1, msp_bc_target(&ins, pos));
	case MSP_BC_FORL:
	case MSP_BC_IFORL:
	case MSP_BC_JFORL:
	case MSP_BC_ITERL:
	case MSP_BC_IITERL:
	case MSP_BC_JITERL:
		start = msp_trace_loop_start(w->r, p, pos);
		return start && branch(w, start, pos + 1);
	case MSP_BC_RET:
	case MSP_BC_RET0:
	case MSP_BC_RET1:
	case MSP_BC_RETM:
		return w->path->frame[w->at.frame].depth ? msp_walk_pop(w) : leave_base(w);
	case MSP_BC_CALLT:
	case MSP_BC_CALLMT:
		return call(w, true);
	case MSP_BC_CALL:
	case MSP_BC_CALLM:
		return call(w, false);
	default:
		w->at.pos++;
		return true;
	}
}

/* SPDX-License-Identifier: MIT */
/*
 * A forward analysis over the block follows BASE and PC from where they are
 * certain (a handler starts with both) through what the instructions do to
 * them; a backward one tells calls, which will store PC as the new frame's
 * link, from returns. No instruction is known by its place.
 */
#include "luajit/vmstate_internal.h"

#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"

static int64_t link_disp(const struct msp_lj_layout *y)
{
	return y->fr2 ? -8 : -4;
}

bool msp_vm_loads_link(const struct msp_lj_layout *y, const struct msp_insn *insn)
{
	/* arm64 loads function and link in one. */
	if (insn->op == MSP_OP_MOV && insn->second == y->reg_pc)
		return is_mem(&insn->operand[1], y->reg_base, 2 * link_disp(y));
	return insn->op == MSP_OP_MOV && is_reg(&insn->operand[0], y->reg_pc) &&
	       is_mem(&insn->operand[1], y->reg_base, link_disp(y));
}

bool msp_vm_stores_link(const struct msp_lj_layout *y, const struct msp_insn *insn)
{
	return insn->op == MSP_OP_MOV && is_reg(&insn->operand[1], y->reg_pc) &&
	       is_mem(&insn->operand[0], y->reg_base, link_disp(y));
}

/* A field of lua_State, not of the C frame or of GG_State. */
static bool is_L_base(const struct msp_lj_layout *y, const struct msp_operand *o)
{
	return o->kind == MSP_OPND_MEM && o->index == MSP_REG_NONE && o->value == y->L_base &&
	       o->base != MSP_X64_RSP && o->base != y->reg_dispatch && o->base != MSP_REG_NONE;
}

/* ---- Backward: what will be done with the frame at BASE ---- */

static enum next next_here(const struct msp_vm_states *s, int32_t i)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];

	if (msp_vm_stores_link(s->y, insn))
		return NEXT_STORE;
	if (msp_vm_loads_link(s->y, insn))
		return NEXT_LOAD;
	if (writes(insn, s->y->reg_base) || insn->op == MSP_OP_CALL ||
	    msp_vm_is_dispatch(s->flow, insn))
		return NEXT_OTHER;
	return NEXT_ANY;
}

enum next msp_vm_next_behind(const struct msp_vm_states *s, int32_t i)
{
	int32_t to[2];
	unsigned int n = msp_vm_successors(s->flow, i, to);
	enum next all = NEXT_ANY;

	if (!n)
		return NEXT_OTHER;
	while (n--) {
		enum next one = s->next[to[n]];

		if (one == NEXT_ANY || one == all)
			continue;
		all = all == NEXT_ANY ? one : NEXT_OTHER;
	}
	return all;
}

static void find_next(struct msp_vm_states *s)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (int32_t i = (int32_t)s->count - 1; i >= 0; i--) {
			enum next now = s->flow->abi->arch == MSP_ARCH_ARM64
						? msp_vm_next_arm64(s, i)
						: next_here(s, i);

			if (now == NEXT_ANY)
				now = msp_vm_next_behind(s, i);
			changed |= now != s->next[i];
			s->next[i] = (uint8_t)now;
		}
	}
}

/* `sub BASE, PC` before anything else with them: the distance leads to a frame of this C frame. */
static bool distance_stays(const struct msp_vm_states *s, int32_t i)
{
	const struct msp_insn *insn = s->flow->build->insn;

	for (int32_t k = i + 1; k < i + 8 && (uint32_t)k < s->count; k++) {
		if (insn[k].op != MSP_OP_SUB)
			continue;
		if (is_reg(&insn[k].operand[0], s->y->reg_base))
			return true;
		if (is_reg(&insn[k].operand[0], s->y->reg_pc))
			return false;
	}
	return false;
}

/* ---- Forward: one instruction ---- */

void msp_vm_new_base(struct state *st, enum base_place place)
{
	st->base = (uint8_t)place;
	st->stored = place == BASE_STORED;
	st->copy_1 = st->copy_2 = false;
	st->over = st->link_gone = st->saved = st->passed = st->cont = st->result = false;
	st->outer = false;
	st->built = MSP_REG_NONE;
}

void msp_vm_lose_base(struct state *st)
{
	if (st->base != BASE_REG)
		return;
	st->base = st->stored	? BASE_STORED
		   : st->copy_1 ? BASE_COPY_1
		   : st->copy_2 ? BASE_COPY_2
				: BASE_UNKNOWN;
}

/* By a distance: to the caller's frame, or to the callee's. */
static void move_base(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	enum next next = msp_vm_next_behind(s, i);

	msp_vm_new_base(st, BASE_REG);
	st->passed = next == NEXT_LOAD;
	st->pc = PC_NEXT;
}

/*
 * `lea BASE, [BASE+reg*8-16]`, reg negative: a call's slots down, and the two of a frame. Without
 * GC64 a frame takes one, and reg is the complement: `not reg; lea BASE, [BASE+reg*8]`.
 */
static bool is_call_down(const struct msp_vm_states *s, int32_t i)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	const struct msp_operand *from = &insn->operand[1];

	if (from->kind != MSP_OPND_MEM || from->index == MSP_REG_NONE)
		return false;
	if (s->y->fr2)
		return from->value == 2 * link_disp(s->y);
	return from->value == 0 && i > 0 && insn[-1].op == MSP_OP_NOT &&
	       is_reg(&insn[-1].operand[0], from->index);
}

static void write_base(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	const struct msp_operand *from = &insn->operand[1];
	bool own = st->base == BASE_REG;

	if (insn->op == MSP_OP_MOV && is_L_base(s->y, from)) {
		bool same = st->base == BASE_STORED || st->stored;

		if (!same)
			msp_vm_new_base(st, BASE_REG);
		st->base = BASE_REG;
		st->stored = true;
	} else if (insn->op == MSP_OP_MOV && from->kind == MSP_OPND_REG &&
		   ((from->reg == MSP_X64_RBP && st->copy_1) ||
		    (from->reg == MSP_X64_R15 && st->copy_2))) {
		st->base = BASE_REG;
	} else if (own && ((insn->op == MSP_OP_LEA && from->base == s->y->reg_base &&
			    from->index != MSP_REG_NONE &&
			    (is_call_down(s, i) || msp_vm_next_behind(s, i) == NEXT_STORE)) ||
			   (insn->op == MSP_OP_SUB && from->kind == MSP_OPND_REG))) {
		move_base(s, i, st);
	} else if (insn->op == MSP_OP_MOV && from->kind == MSP_OPND_REG &&
		   msp_vm_next_behind(s, i) == NEXT_STORE) {
		move_base(s, i, st);
	} else if (insn->op == MSP_OP_MOV && from->kind == MSP_OPND_REG && from->reg == st->built) {
		msp_vm_new_base(st, BASE_REG);
	} else {
		msp_vm_lose_base(st);
	}
}

static void write_pc(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	const struct msp_operand *from = &insn->operand[1];
	bool imm = from->kind == MSP_OPND_IMM, was_link = st->pc >= PC_LINK;

	if (msp_vm_loads_link(s->y, insn) && st->base == BASE_REG) {
		st->pc = PC_LINK;
		st->passed = false;
		st->over |= st->result;
	} else if (insn->op == MSP_OP_MOV && is_mem(from, MSP_X64_RSP, s->y->cf_PC)) {
		st->pc = st->saved ? PC_LINK : PC_OWN;
	} else if (insn->op == MSP_OP_XOR && imm && from->value == MSP_FT_C && st->pc == PC_LINK) {
		st->pc = PC_LINK_XOR;
	} else if (insn->op == MSP_OP_SUB && imm && from->value == MSP_FT_VARG &&
		   st->pc == PC_LINK) {
		st->pc = PC_LINK_SUB;
	} else if (insn->op == MSP_OP_ADD && imm && from->value == MSP_FT_VARG &&
		   st->pc == PC_LINK_SUB) {
		st->pc = PC_LINK;
	} else if (insn->op == MSP_OP_AND && imm && was_link) {
		st->pc = distance_stays(s, i) ? PC_DISTANCE : PC_OUTER;
	} else if (insn->op == MSP_OP_MOV && st->pc == PC_NEXT && from->kind == MSP_OPND_MEM &&
		   from->value == 3 * link_disp(s->y)) {
		st->pc = PC_CONT;
		st->cont = true;
	} else if (insn->op == MSP_OP_SUB && is_reg(from, s->y->reg_base) && !was_link) {
		st->pc = PC_NEXT;
	} else if (st->pc != PC_OUTER || insn->op == MSP_OP_MOV) {
		/* A function was put where the old one was, by a tail call. */
		if (was_link && insn->op == MSP_OP_MOV && !st->link_gone)
			st->over = false;
		st->pc = PC_OWN;
	}
}

static void store(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	const struct msp_operand *to = &insn->operand[0];
	bool link = st->pc == PC_LINK || st->pc == PC_LINK_XOR, is_pc;

	if (to->kind != MSP_OPND_MEM || insn->op == MSP_OP_CMP || insn->op == MSP_OP_TEST ||
	    insn->op == MSP_OP_CALL || insn->op == MSP_OP_JMP || insn->op == MSP_OP_PUSH)
		return;
	is_pc = insn->operand[1].kind == MSP_OPND_REG && insn->operand[1].reg == s->y->reg_pc;
	if (is_L_base(s->y, to) && to->size >= 4) {
		st->stored = is_reg(&insn->operand[1], s->y->reg_base) && st->base == BASE_REG;
		return;
	}
	if (is_mem(to, MSP_X64_RSP, s->y->cf_PC))
		st->saved = is_pc && st->pc == PC_LINK;
	if (to->base == MSP_X64_RSP || to->base == s->y->reg_dispatch || to->base == MSP_REG_NONE)
		return;
	if (msp_vm_stores_link(s->y, insn)) {
		st->link_gone = st->over = false;
		st->pc = PC_OWN;
		return;
	}
	if (to->base != s->y->reg_base && is_mem(to, to->base, link_disp(s->y)) && !link)
		st->built = to->base;
	if (is_mem(to, s->y->reg_base, link_disp(s->y)) && st->base == BASE_REG)
		st->link_gone = st->over = true;
	if (link && (to->index != MSP_REG_NONE || (to->value >= -16 && to->value < 0)))
		st->over = true;
}

static void call(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	int32_t to = insn->has_target && msp_lj_in_block(s->flow->build, insn->target)
			     ? msp_lj_insn_at(s->flow->build, insn->target)
			     : -1;

	/* The block's own small routines leave BASE alone. */
	if (to >= 0 && (msp_vm_callee(s->flow, i) >= 0 || msp_vm_kind(s->flow, to) == MSP_VM_LEAF))
		return;
	msp_vm_lose_base(st);
}

/* A result's address is handed on: `lea reg, [BASE-16]`. */
static bool takes_result(const struct msp_vm_states *s, const struct msp_insn *insn)
{
	return insn->op == MSP_OP_LEA && insn->operand[0].reg != s->y->reg_base &&
	       is_mem(&insn->operand[1], s->y->reg_base, s->y->fr2 ? -16 : -8);
}

/*
 * Where the stack pointer is put back, BASE is either loaded anew, or it came
 * along: out of compiled code.
 */
static enum base_place base_behind_reset(const struct msp_vm_states *s, int32_t i)
{
	const struct msp_insn *insn = s->flow->build->insn;

	for (int32_t k = i + 1; k < i + 8 && (uint32_t)k < s->count; k++) {
		if (writes(&insn[k], s->y->reg_base))
			return BASE_STORED;
		for (unsigned int o = 0; o < insn[k].operand_count; o++)
			if (insn[k].operand[o].kind == MSP_OPND_MEM &&
			    insn[k].operand[o].base == s->y->reg_base)
				return BASE_REG;
	}
	return BASE_STORED;
}

static void run(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	bool copies = insn->op == MSP_OP_MOV && st->base == BASE_REG &&
		      is_reg(&insn->operand[1], s->y->reg_base);

	if (msp_vm_is_reset(s->flow, insn)) {
		msp_vm_new_base(st, base_behind_reset(s, i));
		st->pc = PC_OWN;
		return;
	}
	if (takes_result(s, insn)) {
		st->result = true;
		st->over |= st->pc == PC_LINK;
	}
	store(s, i, st);
	if (insn->op == MSP_OP_CALL) {
		call(s, i, st);
		return;
	}
	if (writes(insn, MSP_X64_RBP))
		st->copy_1 = copies && is_reg(&insn->operand[0], MSP_X64_RBP);
	if (writes(insn, MSP_X64_R15))
		st->copy_2 = copies && is_reg(&insn->operand[0], MSP_X64_R15);
	if (st->base == BASE_COPY_1 && !st->copy_1)
		st->base = BASE_UNKNOWN;
	if (st->base == BASE_COPY_2 && !st->copy_2)
		st->base = BASE_UNKNOWN;
	if (st->built != MSP_REG_NONE && writes(insn, st->built))
		st->built = MSP_REG_NONE;
	if (writes(insn, s->y->reg_pc))
		write_pc(s, i, st);
	if (writes(insn, s->y->reg_base))
		write_base(s, i, st);
}

/* ---- Forward: all of them ---- */

static uint8_t join_base(const struct msp_vm_states *s, const struct state *a,
			 const struct state *b)
{
	if (a->base == b->base)
		return a->base;
	if ((a->base == BASE_STORED && b->stored) || (b->base == BASE_STORED && a->stored))
		return BASE_STORED;
	/* One way has lost the register, both have the same copy. */
	if (a->base != BASE_UNKNOWN && b->base != BASE_UNKNOWN && a->copy_1 && b->copy_1)
		return BASE_COPY_1;
	if (a->base != BASE_UNKNOWN && b->base != BASE_UNKNOWN && a->copy_2 && b->copy_2)
		return BASE_COPY_2;
	/* xpcall of bullseye's arm64 goes to its fallback with BASE moved already: that takes it for its own. */
	if (s->flow->abi->arch == MSP_ARCH_ARM64 &&
	    ((a->base == BASE_REG && b->base == BASE_COPY_1) ||
	     (b->base == BASE_REG && a->base == BASE_COPY_1)))
		return BASE_REG;
	return BASE_UNKNOWN;
}

static bool complete(const struct state *st)
{
	return st->pc <= PC_LINK && !st->over && !st->link_gone && !st->passed && !st->result;
}

/* A frame that is left, and still has its link. */
static bool is_left(const struct state *st)
{
	return !st->link_gone && ((st->pc >= PC_LINK && st->pc <= PC_LINK_SUB) || st->passed);
}

/*
 * PC from two ways. What is a link on one and none on the other is of no
 * meaning as long as the frame is complete; else the state is not known.
 */
static uint8_t join_pc(const struct msp_vm_states *s, struct state *to, const struct state *from)
{
	bool arm64 = s->flow->abi->arch == MSP_ARCH_ARM64;

	if (to->pc == from->pc)
		return to->pc;
	/* The link itself and changed: it is in its place, too. */
	if (arm64 && is_left(to) && is_left(from)) {
		to->passed = true;
		return PC_OWN;
	}
	/* A result that a C function has put over the function, or not, having failed. */
	if (arm64 && to->result != from->result && !to->link_gone && !from->link_gone) {
		to->result = to->over = false;
		return PC_OWN;
	}
	if (to->pc < PC_LINK && from->pc < PC_LINK)
		return to->pc == PC_CONT || from->pc == PC_CONT ? PC_CONT : PC_NEXT;
	if (complete(to) && complete(from))
		return PC_OWN;
	to->base = BASE_UNKNOWN;
	return PC_OWN;
}

static bool join(const struct msp_vm_states *s, struct state *to, const struct state *from)
{
	struct state old = *to;

	if (!to->reached) {
		*to = *from;
		to->reached = true;
		return true;
	}
	to->base = join_base(s, to, from);
	to->pc = join_pc(s, to, from);
	to->stored &= from->stored;
	if (to->built != from->built)
		to->built = MSP_REG_NONE;
	to->copy_1 &= from->copy_1;
	to->copy_2 &= from->copy_2;
	to->saved &= from->saved;
	to->over |= from->over;
	to->link_gone |= from->link_gone;
	to->passed |= from->passed;
	to->cont &= from->cont;
	to->result |= from->result;
	to->outer &= from->outer;
	if (to->others_top != from->others_top)
		to->others_top = MSP_REG_NONE;
	return memcmp(&old, to, sizeof(old)) != 0;
}

static void spread(struct msp_vm_states *s, int32_t to, const struct state *from, uint32_t *queued)
{
	if (!join(s, &s->at[to], from) || s->queued[to])
		return;
	s->queued[to] = true;
	s->queue[(*queued)++] = to;
}

/* A function for C code. What is deeper than the frame is for compiled code, which hands BASE over. */
static bool enters_from_c(const struct msp_vm_states *s, int32_t i)
{
	return (s->flow->node[i].flags & MSP_VM_CALLED) ||
	       msp_vm_kind(s->flow, i) != MSP_VM_FRAME ||
	       msp_vm_height(s->flow, i) < s->y->cframe_size;
}

/* arm64: where an error lands, BASE is loaded first; whoever continues brings it along. */
static bool lands(const struct msp_vm_states *s, int32_t i)
{
	return s->flow->abi->arch == MSP_ARCH_ARM64 && msp_vm_reloads_base_arm64(s, i - 1);
}

static void seed(struct msp_vm_states *s, uint32_t *queued)
{
	for (uint32_t i = 0; i < s->count; i++) {
		uint16_t flags = s->flow->node[i].flags;
		struct state st;

		if (!(flags & MSP_VM_ROOT))
			continue;
		memset(&st, 0, sizeof(st));
		st.built = st.others_top = MSP_REG_NONE;
		/* Dispatched to, or continued at; when C code enters, its L->base counts. */
		st.base = BASE_REG;
		if (i && msp_vm_is_reset(s->flow, &s->flow->build->insn[i - 1]))
			msp_vm_new_base(&st, base_behind_reset(s, (int32_t)i - 1));
		else if (!(flags & MSP_VM_HANDLER) &&
			 (enters_from_c(s, (int32_t)i) || lands(s, (int32_t)i)))
			msp_vm_new_base(&st, BASE_STORED);
		spread(s, (int32_t)i, &st, queued);
	}
}

static void flow_forward(struct msp_vm_states *s)
{
	uint32_t queued = 0;

	seed(s, &queued);
	while (queued) {
		int32_t i = s->queue[--queued], to[2], callee = msp_vm_callee(s->flow, i);
		struct state st = s->at[i];
		unsigned int n = msp_vm_successors(s->flow, i, to);

		s->queued[i] = false;
		if (callee >= 0)
			spread(s, callee, &st, &queued);
		if (s->flow->abi->arch == MSP_ARCH_ARM64)
			msp_vm_run_arm64(s, i, &st);
		else
			run(s, i, &st);
		while (n--)
			spread(s, to[n], &st, &queued);
	}
}

int msp_vm_states_new(struct msp_vm_flow *flow, struct msp_vm_states **out)
{
	struct msp_vm_states *s = calloc(1, sizeof(*s));
	uint32_t n = flow->build->insn_count;

	*out = s;
	if (!s)
		return MSP_E_NOMEM;
	s->flow = flow;
	s->y = &flow->build->layout;
	s->count = n;
	s->at = calloc(n + 1, sizeof(*s->at));
	s->next = calloc(n + 1, sizeof(*s->next));
	s->queue = calloc(n + 1, sizeof(*s->queue));
	s->queued = calloc(n + 1, sizeof(*s->queued));
	if (!s->at || !s->next || !s->queue || !s->queued)
		return MSP_E_NOMEM;
	find_next(s);
	flow_forward(s);
	return 0;
}

void msp_vm_states_free(struct msp_vm_states *s)
{
	if (!s)
		return;
	free(s->at);
	free(s->next);
	free(s->queue);
	free(s->queued);
	free(s);
}

static uint8_t link_of(const struct state *st)
{
	switch (st->pc) {
	case PC_LINK:
		return MSP_LEAF_LINK_PC;
	case PC_LINK_XOR:
		return MSP_LEAF_LINK_XOR;
	case PC_LINK_SUB:
		return MSP_LEAF_LINK_SUB;
	case PC_DISTANCE:
		return MSP_LEAF_LINK_DISTANCE;
	case PC_OUTER:
		return MSP_LEAF_LINK_OUTER;
	default:
		if (st->link_gone && st->saved)
			return MSP_LEAF_LINK_SAVED;
		return st->passed || st->result ? MSP_LEAF_LINK_LEFT : MSP_LEAF_LINK_PLACE;
	}
}

static uint8_t over_of(const struct state *st, uint8_t link)
{
	if (link == MSP_LEAF_LINK_PLACE)
		return st->pc == PC_NEXT ? MSP_LEAF_NEXT : 0;
	if (link == MSP_LEAF_LINK_OUTER || link == MSP_LEAF_LINK_LEFT)
		return 0;
	return st->over ? MSP_LEAF_OVER : 0;
}

uint8_t msp_vm_state_at(const struct msp_vm_states *s, int32_t i)
{
	static const uint8_t place[] = {[BASE_REG] = MSP_LEAF_BASE_REG,
					[BASE_STORED] = MSP_LEAF_BASE_STORED,
					[BASE_COPY_1] = MSP_LEAF_BASE_COPY_1,
					[BASE_COPY_2] = MSP_LEAF_BASE_COPY_2};
	struct state st = s->at[i];
	bool arm64 = s->flow->abi->arch == MSP_ARCH_ARM64;
	uint8_t bits = MSP_LEAF_KNOWN;

	if (arm64 && st.reached && s->next[i] == NEXT_STORE)
		return bits | MSP_LEAF_CALL | MSP_LEAF_BASE_REG;
	if (arm64 && st.outer)
		return bits | MSP_LEAF_OUTER_BASE | MSP_LEAF_BASE_STORED;
	if (!st.reached || (st.base == BASE_UNKNOWN && st.pc != PC_OUTER))
		return 0;
	if (st.base == BASE_REG && st.pc <= PC_NEXT && s->next[i] == NEXT_STORE)
		return bits | MSP_LEAF_CALL | MSP_LEAF_BASE_REG;
	/* The row of a call is also that of the time while the callee runs. */
	if (s->flow->build->insn[i].op == MSP_OP_CALL && arm64)
		msp_vm_call_arm64(s, i, &st);
	else if (s->flow->build->insn[i].op == MSP_OP_CALL)
		call(s, i, &st);
	if (st.base == BASE_UNKNOWN)
		st.base = BASE_REG;
	bits |= place[st.base];
	if (st.cont && (s->flow->node[i].flags & MSP_VM_LEAVES))
		return bits | MSP_LEAF_OUTER_BASE;
	if (st.pc == PC_CONT)
		return bits | MSP_LEAF_CONT;
	return bits | link_of(&st) | over_of(&st, link_of(&st));
}

/* SPDX-License-Identifier: MIT */
/*
 * What instructions of the arm64 interpreter do to BASE and PC. Both are callee-saved: C code leaves
 * them alone. A call moves BASE in two steps, with its old value in RB, and checks the function then;
 * a return adds up results with BASE itself as the pointer, and its old value, 16 lower, in CARG3.
 */
#include "luajit/vmstate_internal.h"

#define FRAME_SLOTS 16 /* bytes of a frame's function and link */
#define COPY_1 17
#define COPY_2 2
#define MAX_TYPE 7

static bool is_call(const struct msp_insn *insn)
{
	return insn->op == MSP_OP_CALL;
}

/* reg += imm */
static bool adds_to(const struct msp_insn *insn, uint8_t reg)
{
	return insn->op == MSP_OP_ADD && insn->operand_count == 3 &&
	       is_reg(&insn->operand[0], reg) && is_reg(&insn->operand[1], reg) &&
	       insn->operand[2].kind == MSP_OPND_IMM;
}

/* Up to where PC becomes the link of the frame at BASE, neither changes. */
enum next msp_vm_next_arm64(const struct msp_vm_states *s, int32_t i)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];

	if (msp_vm_stores_link(s->y, insn))
		return NEXT_STORE;
	if (msp_vm_loads_link(s->y, insn))
		return NEXT_LOAD;
	if (writes(insn, s->y->reg_base) || writes(insn, s->y->reg_pc) ||
	    msp_vm_is_dispatch(s->flow, insn))
		return NEXT_OTHER;
	return NEXT_ANY;
}

/* L->base as memory, through any register that can hold L. */
static bool is_L_base(const struct msp_vm_states *s, const struct msp_operand *o)
{
	return o->kind == MSP_OPND_MEM && o->index == MSP_REG_NONE && o->value == s->y->L_base &&
	       o->base != s->flow->abi->sp && o->base != s->y->reg_dispatch &&
	       o->base != s->y->reg_base && o->base != MSP_REG_NONE;
}

/* To the caller's frame: minus the slots of a call's A operand; or, of a vararg function, a distance. */
static void move_down(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	bool call = insn->operand[2].shift_op == MSP_OP_SHL;

	msp_vm_new_base(st, BASE_REG);
	st->passed = !call && msp_vm_next_behind(s, i) == NEXT_LOAD;
	st->pc = call ? PC_OWN : PC_NEXT;
}

static void write_base(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	const struct msp_operand *from = &insn->operand[1];
	uint8_t pc = st->pc;

	if (insn->second == s->y->reg_base) {
		msp_vm_lose_base(st);
	} else if (insn->op == MSP_OP_MOV && is_L_base(s, from)) {
		if (st->base != BASE_STORED && !st->stored)
			msp_vm_new_base(st, BASE_REG);
		st->base = BASE_REG;
		st->stored = true;
	} else if (insn->op == MSP_OP_SUB && insn->operand[2].kind == MSP_OPND_REG) {
		move_down(s, i, st);
	} else if (insn->op == MSP_OP_MOV && is_reg(from, COPY_1) && st->copy_1) {
		st->base = BASE_REG;
	} else if (insn->op == MSP_OP_MOV && is_reg(from, COPY_1) && st->base == BASE_COPY_1) {
		bool over = st->over;

		msp_vm_new_base(st, BASE_REG);
		st->over = over;
	} else if (insn->op == MSP_OP_MOV && from->kind == MSP_OPND_REG) {
		/* Back from a continuation frame, PC is what was between them. */
		msp_vm_new_base(st, BASE_REG);
		st->pc = pc >= PC_LINK ? PC_NEXT : pc;
	} else {
		msp_vm_lose_base(st);
	}
}

/* The link of the frame that RB was brought down to. */
static bool loads_lower_link(const struct msp_vm_states *s, const struct msp_insn *insn)
{
	return insn->op == MSP_OP_MOV && is_reg(&insn->operand[0], s->y->reg_pc) &&
	       is_mem(&insn->operand[1], COPY_1, -8);
}

static void write_pc(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	const struct msp_operand *from = &insn->operand[1], *imm = &insn->operand[2];
	bool was_link = st->pc >= PC_LINK;

	if (msp_vm_loads_link(s->y, insn) && (st->base == BASE_REG || st->base == BASE_STORED)) {
		st->base = BASE_REG;
		st->pc = PC_LINK;
		st->passed = false;
		st->over |= st->result;
	} else if (loads_lower_link(s, insn)) {
		msp_vm_new_base(st, BASE_COPY_1);
		st->pc = PC_LINK;
	} else if (insn->op == MSP_OP_XOR && imm->value == MSP_FT_VARG && st->pc == PC_LINK) {
		st->pc = PC_LINK_SUB;
	} else if (insn->op == MSP_OP_MOV && is_mem(from, s->flow->abi->sp, s->y->cf_PC)) {
		st->pc = st->saved ? PC_LINK : PC_OWN;
	} else if (insn->op == MSP_OP_MOV && st->pc == PC_NEXT && from->kind == MSP_OPND_MEM &&
		   from->value == -24) {
		st->pc = PC_CONT;
		st->cont = true;
	} else if (insn->op == MSP_OP_ADD && !is_reg(from, s->y->reg_pc) &&
		   imm->kind == MSP_OPND_IMM && imm->value & MAX_TYPE) {
		st->pc = PC_NEXT; /* distance and type */
	} else {
		/* A function was put where the old one was, by a tail call. */
		if (was_link && insn->op == MSP_OP_MOV && !st->link_gone)
			st->over = false;
		if (insn->op == MSP_OP_MOV)
			st->passed = false;
		st->pc = PC_OWN;
	}
}

/* What a store of a register, or of a pair, changes of the frame. */
static void store(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	const struct msp_operand *to = &insn->operand[0];
	bool link = st->pc >= PC_LINK && st->pc <= PC_LINK_SUB, pair = insn->second != MSP_REG_NONE;
	int64_t last = to->value + (pair ? 8 : 0);

	if (insn->op != MSP_OP_MOV || to->kind != MSP_OPND_MEM)
		return;
	if (is_L_base(s, to)) {
		st->stored = is_reg(&insn->operand[1], s->y->reg_base) && st->base == BASE_REG;
		/* The caller's: a frame is left to C, or a call has not got its own yet. */
		if (!is_reg(&insn->operand[1], s->y->reg_base) && to->base == s->y->reg_l) {
			st->outer = link;
			if (!link)
				msp_vm_new_base(st, BASE_STORED);
		}
		return;
	}
	if (is_mem(to, s->flow->abi->sp, s->y->cf_PC))
		st->saved = is_reg(&insn->operand[1], s->y->reg_pc) && st->pc == PC_LINK;
	if (to->base == s->flow->abi->sp || to->base == s->y->reg_dispatch ||
	    to->base == s->y->reg_l)
		return;
	if (msp_vm_stores_link(s->y, insn)) {
		msp_vm_new_base(st, BASE_REG);
		st->pc = PC_OWN;
		return;
	}
	if (to->base == s->y->reg_base && to->index == MSP_REG_NONE && st->base == BASE_REG &&
	    (to->value == -8 || last == -8))
		st->link_gone = st->over = true;
	/* A coroutine's arguments are no results. */
	if (link && (st->others_top == MSP_REG_NONE || to->base != st->others_top) &&
	    (to->index != MSP_REG_NONE || to->step || (to->value >= -24 && to->value < 0)))
		st->over = true;
}

/* L->top of a coroutine that is not L comes with its L->base; and is moved on then. */
static void follow_others_top(const struct msp_vm_states *s, const struct msp_insn *insn,
			      struct state *st)
{
	const struct msp_operand *from = &insn->operand[1];

	if (insn->op == MSP_OP_MOV && insn->second != MSP_REG_NONE && is_L_base(s, from) &&
	    from->base != s->y->reg_l && insn->operand[0].kind == MSP_OPND_REG)
		st->others_top = insn->second;
	else if (is_call(insn) || (st->others_top != MSP_REG_NONE && insn->op == MSP_OP_MOV &&
				   writes(insn, st->others_top)))
		st->others_top = MSP_REG_NONE;
}

/* The address of the function's slot is handed to a C function, for a result. */
#define MAX_ARGUMENTS 4
static bool takes_result(const struct msp_vm_states *s, int32_t i)
{
	const struct msp_insn *insn = s->flow->build->insn;

	for (int32_t k = i + 1; k <= i + MAX_ARGUMENTS && (uint32_t)k < s->count; k++) {
		if (is_call(&insn[k]))
			return true;
		if (!msp_insn_falls_through(&insn[k]))
			break;
	}
	return false;
}

/* C code may move the Lua stack: then only L->base goes along. */
void msp_vm_call_arm64(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];

	st->copy_1 = st->copy_2 = false;
	if (st->base == BASE_COPY_1 || st->base == BASE_COPY_2)
		st->base = BASE_UNKNOWN;
	if (st->base == BASE_REG && st->stored &&
	    (!insn->has_target || !msp_lj_in_block(s->flow->build, insn->target)))
		st->base = BASE_STORED;
}

#define MAX_BEHIND 16
bool msp_vm_reloads_base_arm64(const struct msp_vm_states *s, int32_t i)
{
	for (int n = 0; n < MAX_BEHIND; n++) {
		const struct msp_insn *insn;

		i++;
		if (i < 0 || (uint32_t)i >= s->count)
			break;
		insn = &s->flow->build->insn[i];
		if (writes(insn, s->y->reg_base))
			return insn->op == MSP_OP_MOV && is_L_base(s, &insn->operand[1]);
		for (unsigned int k = 0; k < insn->operand_count; k++) {
			const struct msp_operand *o = &insn->operand[k];

			if (is_reg(o, s->y->reg_base) ||
			    (o->kind == MSP_OPND_MEM && o->base == s->y->reg_base))
				return false;
		}
		if (insn->op == MSP_OP_JMP && insn->has_target)
			i = msp_lj_insn_at(s->flow->build, insn->target) - 1;
		else if (!msp_insn_falls_through(insn))
			break;
	}
	return false;
}

void msp_vm_run_arm64(const struct msp_vm_states *s, int32_t i, struct state *st)
{
	const struct msp_insn *insn = &s->flow->build->insn[i];
	bool copies = st->base == BASE_REG && insn->op == MSP_OP_MOV &&
		      is_reg(&insn->operand[1], s->y->reg_base);
	bool lowers = st->base == BASE_REG && insn->op == MSP_OP_SUB &&
		      is_reg(&insn->operand[1], s->y->reg_base) &&
		      insn->operand[2].kind == MSP_OPND_IMM &&
		      insn->operand[2].value == FRAME_SLOTS;

	if (msp_vm_is_reset(s->flow, insn)) {
		bool loaded = st->base == BASE_REG && st->stored; /* before, out of a trace */

		msp_vm_new_base(st, loaded ? BASE_REG : BASE_STORED);
		st->stored = true;
		st->pc = PC_OWN;
		return;
	}
	if (lowers && takes_result(s, i)) {
		st->result = true;
		st->over |= st->pc == PC_LINK;
	}
	store(s, i, st);
	follow_others_top(s, insn, st);
	if (is_call(insn)) {
		st->copy_1 = st->copy_2 = false;
		msp_vm_call_arm64(s, i, st);
		if (st->base == BASE_STORED && st->stored && !msp_vm_reloads_base_arm64(s, i))
			st->base = BASE_REG;
		return;
	}
	if (writes(insn, COPY_1))
		st->copy_1 = copies && is_reg(&insn->operand[0], COPY_1);
	if (writes(insn, COPY_2))
		st->copy_2 = lowers && is_reg(&insn->operand[0], COPY_2);
	if ((st->base == BASE_COPY_1 && writes(insn, COPY_1)) ||
	    (st->base == BASE_COPY_2 && writes(insn, COPY_2)))
		st->base = BASE_UNKNOWN;
	if (writes(insn, s->y->reg_pc) && !adds_to(insn, s->y->reg_pc) &&
	    !(insn->operand[1].kind == MSP_OPND_MEM && insn->operand[1].base == s->y->reg_pc &&
	      insn->operand[1].step))
		write_pc(s, i, st);
	if (writes(insn, s->y->reg_base))
		write_base(s, i, st);
}

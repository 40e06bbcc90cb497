/* SPDX-License-Identifier: MIT */
/*
 * The numbers of the VM's states: which of them is the collector's. The VM block
 * stores the states that it brings about itself, and never the collector's. The
 * compiler's come behind, so the first number that is not stored is the collector's.
 */
#include "luajit/build.h"

/* lj_obj.h: states are few. */
#define MAX_STATES 16
/* arm64: how far before the store its value is loaded. */
#define MAX_LOAD_WAY 8

/* States that a VM block stores, a bit each; ~st is what is in memory. */
static const struct {
	uint16_t stored;
	uint8_t collector;
} known[] = {
	{1 << 0 | 1 << 1, 2},				 /* INTERP, C */
	{1 << 0 | 1 << 1 | 1 << 3, 2},			 /* and EXIT */
	{1 << 0 | 1 << 1 | 1 << 2 | 1 << 3, 4},		 /* INTERP, LFUNC, FFUNC, CFUNC */
	{1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5, 4}, /* and EXIT */
};

/* The constant in a register before an instruction, from the straight way to it. */
static const struct msp_operand *constant_before(const struct msp_lj_build *build, uint32_t i,
						 uint8_t reg)
{
	for (uint32_t n = 1; n <= MAX_LOAD_WAY && n <= i && reg < 32; n++) {
		const struct msp_insn *insn = &build->insn[i - n];

		if (!msp_insn_falls_through(insn) || insn->op == MSP_OP_CALL)
			return NULL;
		if (!(insn->writes >> reg & 1))
			continue;
		return insn->op == MSP_OP_MOV && insn->operand[1].kind == MSP_OPND_IMM
			       ? &insn->operand[1]
			       : NULL;
	}
	return NULL;
}

/* The state that an instruction of the block stores; -1: none that is known. */
static int stored_state(const struct msp_lj_build *build, uint32_t i)
{
	const struct msp_lj_layout *l = &build->layout;
	const struct msp_operand *to = &build->insn[i].operand[0];
	const struct msp_operand *from = &build->insn[i].operand[1];
	int64_t at = l->g_vmstate - (l->reg_is_g ? 0 : l->dispatch_to_g);
	int64_t state;

	if (build->insn[i].op != MSP_OP_MOV || to->kind != MSP_OPND_MEM || to->size != 4 ||
	    to->base != l->reg_dispatch || to->index != MSP_REG_NONE || to->value != at)
		return -1;
	if (from->kind == MSP_OPND_REG)
		from = constant_before(build, i, from->reg);
	if (!from || from->kind != MSP_OPND_IMM)
		return -1;
	state = ~(int64_t)(int32_t)from->value;
	return state >= 0 && state < MAX_STATES ? (int)state : -1;
}

void msp_lj_evidence_states(struct msp_lj_build *build)
{
	uint32_t stored = 0;

	for (uint32_t i = 0; i < build->insn_count && build->has[MSP_LJ_FIELD_g_vmstate]; i++) {
		int state = stored_state(build, i);

		if (state >= 0)
			stored |= 1U << state;
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (known[i].stored == stored)
			MSP_LJ_FOUND(build, vmstate_gc, "code", known[i].collector,
				     "first state that the VM block does not store");
	}
	if (!build->has[MSP_LJ_FIELD_vmstate_gc])
		msp_lj_not_found(build, MSP_LJ_FIELD_vmstate_gc, "code",
				 "first state that the VM block does not store");
}

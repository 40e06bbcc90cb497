/* SPDX-License-Identifier: MIT */
/*
 * Which floating point registers hold values that are no constants: constants are only loaded from fixed
 * places, or are zero, and moved about (lj_emit_x86.h: emit_loadk64()).
 */
#include "luajit/trace_decode.h"

/* 16: none of these. */
static unsigned int number_of(unsigned int reg)
{
	return reg >= X86_REG_XMM0 && reg <= X86_REG_XMM15 ? reg - X86_REG_XMM0 : 16;
}

/* Is it in memory that is neither at a fixed place nor on the C stack? */
static bool is_object(const cs_x86_op *op)
{
	return op->type == X86_OP_MEM && op->mem.base != X86_REG_INVALID &&
	       op->mem.base != X86_REG_RIP && op->mem.base != X86_REG_RSP &&
	       op->mem.base != X86_REG_R14;
}

static bool is_variable(const struct msp_trace_decoder *d, const cs_x86_op *op)
{
	unsigned int i = op->type == X86_OP_REG ? number_of(op->reg) : 16;

	return i < 16 ? d->x64.variables >> i & 1 : is_object(op);
}

static bool is_arithmetic(unsigned int id)
{
	return id == X86_INS_ADDSD || id == X86_INS_SUBSD || id == X86_INS_MULSD ||
	       id == X86_INS_DIVSD;
}

/* Does what it writes depend on more than constants? */
static bool makes_variable(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	const cs_x86_op *op = insn->detail->x86.operands;

	switch (insn->id) {
	case X86_INS_MOVAPS:
	case X86_INS_MOVSD:
	case X86_INS_SQRTSD:
	case X86_INS_ROUNDSD:
		return is_variable(d, &op[1]);
	case X86_INS_CVTSI2SD: /* constants are converted before */
	case X86_INS_CVTSS2SD:
		return true;
	case X86_INS_ADDSD:
	case X86_INS_SUBSD:
	case X86_INS_MULSD:
	case X86_INS_DIVSD:
		return is_variable(d, &op[0]) || is_variable(d, &op[1]);
	default:
		return false;
	}
}

void msp_trace_numbers_x64(struct msp_trace_decoder *d, const cs_insn *insn,
			   struct msp_trace_ins *out)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *op = x86->operands;
	cs_regs read, written;
	uint8_t reads, writes;
	bool variable = x86->op_count >= 2 && makes_variable(d, insn);

	if (out->code == 0 || out->code == d->loop || insn->id == X86_INS_CALL)
		d->x64.variables = 0;
	if (x86->op_count == 2 && is_arithmetic(insn->id) && is_variable(d, &op[0]) &&
	    is_variable(d, &op[1]))
		out->tells |= MSP_TELLS_VARIABLES;
	if (cs_regs_access(d->handle, insn, read, &reads, written, &writes)) {
		d->x64.variables = 0;
		return;
	}
	while (writes--)
		if (number_of(written[writes]) < 16)
			d->x64.variables &= ~(1u << number_of(written[writes]));
	if (variable && insn->id != X86_INS_CALL && op[0].type == X86_OP_REG &&
	    number_of(op[0].reg) < 16)
		d->x64.variables |= 1u << number_of(op[0].reg);
}

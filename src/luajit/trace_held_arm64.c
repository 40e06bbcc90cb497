/* SPDX-License-Identifier: MIT */
/* Operands of arm64 instructions, and what registers hold. */
#include "luajit/objects.h"
#include "luajit/trace_arm64.h"

/* ---- Operands ---- */

const cs_arm64_op *msp_arm64_operand(const cs_insn *insn, uint8_t i)
{
	static const cs_arm64_op none;

	return i < insn->detail->arm64.op_count ? &insn->detail->arm64.operands[i] : &none;
}

int msp_arm64_number(unsigned int reg)
{
	if (reg >= ARM64_REG_X0 && reg <= ARM64_REG_X28)
		return (int)(reg - ARM64_REG_X0);
	if (reg >= ARM64_REG_W0 && reg <= ARM64_REG_W30)
		return (int)(reg - ARM64_REG_W0);
	return reg == ARM64_REG_X29 || reg == ARM64_REG_X30 ? (int)(reg - ARM64_REG_X29) + 29 : -1;
}

bool msp_arm64_is_wide(unsigned int reg)
{
	return msp_arm64_number(reg) >= 0 && (reg < ARM64_REG_W0 || reg > ARM64_REG_W30);
}

int msp_arm64_general(const cs_insn *insn, uint8_t i)
{
	const cs_arm64_op *op = msp_arm64_operand(insn, i);

	return op->type == ARM64_OP_REG ? msp_arm64_number(op->reg) : -1;
}

const cs_arm64_op *msp_arm64_memory(const cs_insn *insn)
{
	for (uint8_t i = 0; i < insn->detail->arm64.op_count; i++)
		if (insn->detail->arm64.operands[i].type == ARM64_OP_MEM)
			return &insn->detail->arm64.operands[i];
	return NULL;
}

struct msp_trace_held msp_arm64_held(const struct msp_trace_decoder *d, int reg)
{
	return reg < 0 ? (struct msp_trace_held){0} : d->arm64.held[reg];
}

bool msp_arm64_constant(const struct msp_trace_decoder *d, const cs_insn *insn, uint8_t i,
			uint64_t *value)
{
	struct msp_trace_held h = msp_arm64_held(d, msp_arm64_general(insn, i));

	*value = h.value;
	return h.kind == MSP_HELD_CONSTANT;
}

/* ---- What registers hold ---- */

static struct msp_trace_held of_load(const struct msp_trace_decoder *d, const cs_insn *insn,
				     uint8_t i)
{
	const cs_arm64_op *op = msp_arm64_memory(insn);
	bool wide = msp_arm64_is_wide(msp_arm64_operand(insn, i)->reg);
	struct msp_trace_held base, none = {0};

	if (!op)
		return msp_arm64_operand(insn, 1)->type == ARM64_OP_IMM && wide
			       ? (struct msp_trace_held){MSP_HELD_WORD,
							 (uint64_t)msp_arm64_operand(insn, 1)->imm}
			       : none;
	if (op->mem.base == ARM64_REG_SP || op->mem.index != ARM64_REG_INVALID)
		return none;
	base = msp_arm64_held(d, msp_arm64_number(op->mem.base));
	if (base.kind == MSP_HELD_CONSTANT)
		return wide ? (struct msp_trace_held){MSP_HELD_WORD,
						      base.value + (uint64_t)op->mem.disp + i * 8u}
			    : none;
	if (wide)
		return (struct msp_trace_held){MSP_HELD_LOADED, 0};
	if (insn->id == ARM64_INS_LDR && op->mem.disp == msp_lj_object_layout(d->layout)->tab_hmask)
		return (struct msp_trace_held){MSP_HELD_HMASK, 0};
	return none;
}

static struct msp_trace_held of_constant(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	const cs_arm64_op *last = msp_arm64_operand(insn, insn->detail->arm64.op_count - 1);
	unsigned int shift = last->shift.type == ARM64_SFT_LSL ? last->shift.value & 63 : 0;
	uint64_t imm = last->type == ARM64_OP_IMM ? (uint64_t)last->imm << shift : 0, value;
	struct msp_trace_held out = {MSP_HELD_CONSTANT, imm};
	bool before = msp_arm64_constant(d, insn, insn->id == ARM64_INS_MOVK ? 0 : 1, &value);

	if (last->type != ARM64_OP_IMM)
		return (struct msp_trace_held){0};
	switch (insn->id) {
	case ARM64_INS_MOVZ:
		break;
	case ARM64_INS_MOVN:
		out.value = ~imm;
		break;
	case ARM64_INS_MOVK:
		out.value = (value & ~(0xffffull << shift)) | imm;
		break;
	case ARM64_INS_ADD:
		out.value = value + imm;
		break;
	case ARM64_INS_SUB:
		out.value = value - imm;
		break;
	default:
		return (struct msp_trace_held){0};
	}
	if (!before && insn->id != ARM64_INS_MOVZ && insn->id != ARM64_INS_MOVN)
		out.kind = MSP_HELD_UNKNOWN;
	return out;
}

static struct msp_trace_held result_of(const struct msp_trace_decoder *d, const cs_insn *insn,
				       uint32_t does, uint8_t i)
{
	struct msp_trace_held out;

	if (does & MSP_DOES_LOAD)
		return of_load(d, insn, i);
	if (insn->id == ARM64_INS_MOV)
		out = msp_arm64_held(d, msp_arm64_general(insn, 1));
	else if (insn->id == ARM64_INS_ORR && msp_arm64_general(insn, 1) < 0 &&
		 msp_arm64_operand(insn, 2)->type == ARM64_OP_IMM)
		out = (struct msp_trace_held){MSP_HELD_CONSTANT,
					      (uint64_t)msp_arm64_operand(insn, 2)->imm};
	else
		out = of_constant(d, insn);
	if (!msp_arm64_is_wide(msp_arm64_operand(insn, i)->reg)) {
		if (out.kind != MSP_HELD_CONSTANT)
			return (struct msp_trace_held){0};
		out.value = (uint32_t)out.value;
	}
	return out;
}

static void forget_call(struct msp_trace_decoder *d)
{
	for (int i = 0; i <= 18; i++)
		d->arm64.held[i].kind = MSP_HELD_UNKNOWN;
	d->arm64.held[MSP_ARM64_LR].kind = MSP_HELD_UNKNOWN;
}

void msp_arm64_follow_registers(struct msp_trace_decoder *d, const cs_insn *insn, uint32_t does)
{
	struct msp_trace_held result[2] = {{0}};
	int count = insn->id == ARM64_INS_LDP ? 2 : 1, reg;

	if (insn->id == ARM64_INS_BL || insn->id == ARM64_INS_BLR) {
		forget_call(d);
		return;
	}
	if (does & (MSP_DOES_STORE | MSP_DOES_COMPARE) || insn->id == ARM64_INS_B)
		return;
	for (int i = 0; i < count; i++)
		result[i] = result_of(d, insn, does, (uint8_t)i);
	for (int i = 0; i < count; i++) {
		reg = msp_arm64_general(insn, (uint8_t)i);
		if (reg >= 0)
			d->arm64.held[reg] = result[i];
	}
}

void msp_arm64_begin_loop(struct msp_trace_decoder *d)
{
	for (int i = 0; i < 32; i++)
		if (d->arm64.held[i].kind == MSP_HELD_CONSTANT &&
		    (int64_t)d->arm64.held[i].value == (int32_t)d->arm64.held[i].value)
			d->arm64.held[i].kind = MSP_HELD_UNKNOWN;
}

/* SPDX-License-Identifier: MIT */
/*
 * What arm64's instructions of a trace are for (lj_asm_arm64.h, lj_emit_arm64.h). Constants are in
 * registers there, which are loaded long before, where the trace or its loop begins.
 */
#include "luajit/objects.h"
#include "luajit/trace_arm64.h"

#define ADDRESS_MASK ((1ull << 47) - 1)
#define SHIFTED (MSP_DOES_SHL | MSP_DOES_SHR | MSP_DOES_SAR | MSP_DOES_ROL)

static const struct {
	uint16_t id;
	uint32_t does;
} arm64[] = {
	{ARM64_INS_ADD, MSP_DOES_ADD},
	{ARM64_INS_FADD, MSP_DOES_ADD | MSP_DOES_FLOAT},
	{ARM64_INS_FMADD, MSP_DOES_ADD | MSP_DOES_FLOAT}, /* is of the addition */
	{ARM64_INS_SUB, MSP_DOES_SUB},
	{ARM64_INS_FSUB, MSP_DOES_SUB | MSP_DOES_FLOAT},
	{ARM64_INS_FMSUB, MSP_DOES_SUB | MSP_DOES_FLOAT},
	{ARM64_INS_FNMSUB, MSP_DOES_SUB | MSP_DOES_FLOAT},
	{ARM64_INS_MUL, MSP_DOES_MUL},
	{ARM64_INS_SMULL, MSP_DOES_MUL},
	{ARM64_INS_FMUL, MSP_DOES_MUL | MSP_DOES_FLOAT},
	{ARM64_INS_FDIV, MSP_DOES_DIV | MSP_DOES_FLOAT},
	{ARM64_INS_FSQRT, MSP_DOES_SQRT | MSP_DOES_FLOAT},
	{ARM64_INS_FRINTM, MSP_DOES_ROUND | MSP_DOES_FLOAT},
	{ARM64_INS_FRINTP, MSP_DOES_ROUND | MSP_DOES_FLOAT},
	{ARM64_INS_FRINTZ, MSP_DOES_ROUND | MSP_DOES_FLOAT},
	{ARM64_INS_AND, MSP_DOES_AND},
	{ARM64_INS_BIC, MSP_DOES_AND},
	{ARM64_INS_FABS, MSP_DOES_AND | MSP_DOES_FLOAT},
	{ARM64_INS_ORR, MSP_DOES_OR},
	{ARM64_INS_ORN, MSP_DOES_OR},
	{ARM64_INS_EOR, MSP_DOES_XOR},
	{ARM64_INS_EON, MSP_DOES_XOR},
	{ARM64_INS_LSL, MSP_DOES_SHL},
	{ARM64_INS_UBFIZ, MSP_DOES_SHL},
	{ARM64_INS_SBFIZ, MSP_DOES_SHL},
	{ARM64_INS_LSR, MSP_DOES_SHR},
	{ARM64_INS_UBFX, MSP_DOES_SHR},
	{ARM64_INS_ASR, MSP_DOES_SAR},
	{ARM64_INS_SBFX, MSP_DOES_SAR},
	{ARM64_INS_ROR, MSP_DOES_ROL},
	{ARM64_INS_EXTR, MSP_DOES_ROL},
	{ARM64_INS_MVN, MSP_DOES_NOT},
	{ARM64_INS_NEG, MSP_DOES_NOT},
	{ARM64_INS_FNEG, MSP_DOES_NOT | MSP_DOES_FLOAT},
	{ARM64_INS_CMP, MSP_DOES_COMPARE},
	{ARM64_INS_CMN, MSP_DOES_COMPARE},
	{ARM64_INS_TST, MSP_DOES_COMPARE},
	{ARM64_INS_FCMP, MSP_DOES_COMPARE | MSP_DOES_FLOAT},
	{ARM64_INS_SCVTF, MSP_DOES_CONVERT},
	{ARM64_INS_UCVTF, MSP_DOES_CONVERT},
	{ARM64_INS_FCVT, MSP_DOES_CONVERT},
	{ARM64_INS_FCVTZS, MSP_DOES_CONVERT},
	{ARM64_INS_FCVTZU, MSP_DOES_CONVERT},
	{ARM64_INS_BL, MSP_DOES_CALL},
	{ARM64_INS_CBZ, MSP_DOES_COMPARE | MSP_DOES_BRANCH},
	{ARM64_INS_CBNZ, MSP_DOES_COMPARE | MSP_DOES_BRANCH},
	{ARM64_INS_TBZ, MSP_DOES_COMPARE | MSP_DOES_BRANCH},
	{ARM64_INS_TBNZ, MSP_DOES_COMPARE | MSP_DOES_BRANCH},
	{ARM64_INS_MOV, MSP_DOES_COPY},
	{ARM64_INS_MOVZ, MSP_DOES_COPY},
	{ARM64_INS_MOVN, MSP_DOES_COPY},
	{ARM64_INS_MOVK, MSP_DOES_COPY},
	{ARM64_INS_FMOV, MSP_DOES_COPY},
	{ARM64_INS_SXTB, MSP_DOES_COPY},
	{ARM64_INS_SXTH, MSP_DOES_COPY},
	{ARM64_INS_SXTW, MSP_DOES_COPY},
	{ARM64_INS_UXTB, MSP_DOES_COPY},
	{ARM64_INS_UXTH, MSP_DOES_COPY},
	{ARM64_INS_LDR, MSP_DOES_LOAD},
	{ARM64_INS_LDUR, MSP_DOES_LOAD},
	{ARM64_INS_LDP, MSP_DOES_LOAD},
	{ARM64_INS_LDRB, MSP_DOES_LOAD},
	{ARM64_INS_LDURB, MSP_DOES_LOAD},
	{ARM64_INS_LDRH, MSP_DOES_LOAD},
	{ARM64_INS_LDURH, MSP_DOES_LOAD},
	{ARM64_INS_LDRSB, MSP_DOES_LOAD},
	{ARM64_INS_LDURSB, MSP_DOES_LOAD},
	{ARM64_INS_LDRSH, MSP_DOES_LOAD},
	{ARM64_INS_LDURSH, MSP_DOES_LOAD},
	{ARM64_INS_STR, MSP_DOES_STORE},
	{ARM64_INS_STUR, MSP_DOES_STORE},
	{ARM64_INS_STP, MSP_DOES_STORE},
	{ARM64_INS_STRB, MSP_DOES_STORE},
	{ARM64_INS_STURB, MSP_DOES_STORE},
	{ARM64_INS_STRH, MSP_DOES_STORE},
	{ARM64_INS_STURH, MSP_DOES_STORE},
};

static uint32_t table_does(unsigned int id)
{
	for (size_t i = 0; i < sizeof(arm64) / sizeof(arm64[0]); i++)
		if (arm64[i].id == id)
			return arm64[i].does;
	return 0;
}

/* ---- What an instruction is for ---- */

/*
 * Values are tagged above 47 bits: taking the tag off and looking at it is for what was loaded
 * before; putting one on is for the store that comes.
 */
static uint32_t tag_does(const struct msp_trace_decoder *d, const cs_insn *insn, uint32_t does)
{
	const cs_arm64_op *last = msp_arm64_operand(insn, insn->detail->arm64.op_count - 1);
	uint64_t value;

	if (does & SHIFTED && last->type == ARM64_OP_IMM && last->imm == 47)
		return MSP_DOES_TYPE;
	if (does & MSP_DOES_AND && last->type == ARM64_OP_IMM &&
	    (uint64_t)last->imm == ADDRESS_MASK)
		return MSP_DOES_TYPE;
	if (insn->id == ARM64_INS_CMN && last->type == ARM64_OP_IMM && last->imm < 16)
		return MSP_DOES_TYPE;
	if (insn->id == ARM64_INS_CMP && last->shift.type == ARM64_SFT_LSR &&
	    last->shift.value == 32)
		return MSP_DOES_TYPE;
	/* does a product have more than 32 bits? (asm_intmul()) */
	if (insn->id == ARM64_INS_ASR && msp_arm64_general(insn, 0) == MSP_ARM64_LR &&
	    last->imm == 32)
		return MSP_DOES_TYPE;
	if (insn->id == ARM64_INS_CMP &&
	    ((last->shift.type == ARM64_SFT_ASR && last->shift.value == 31) ||
	     (last->ext == ARM64_EXT_SXTW &&
	      msp_arm64_general(insn, 0) == msp_arm64_general(insn, 1))))
		return MSP_DOES_TYPE;
	if (does & MSP_DOES_ADD && last->shift.type == ARM64_SFT_LSL && last->shift.value == 47)
		return MSP_DOES_COPY;
	if (does & MSP_DOES_ADD && last->ext == ARM64_EXT_UXTW && !last->shift.value &&
	    msp_arm64_constant(d, insn, 1, &value) && value >> 47)
		return MSP_DOES_COPY;
	return does;
}

static uint32_t memory_does(const cs_insn *insn, uint32_t does)
{
	const cs_arm64_op *op = msp_arm64_memory(insn);

	if (!op) /* by its distance */
		return MSP_DOES_COPY | MSP_DOES_FIXED;
	if (op->mem.base == ARM64_REG_SP)
		return MSP_DOES_COPY;
	if (msp_arm64_number(op->mem.base) == MSP_ARM64_GL)
		return MSP_DOES_COPY | MSP_DOES_FIXED;
	return op->mem.index != ARM64_REG_INVALID ? does | MSP_DOES_INDEX : does;
}

/* A call by register: of a function that is constant, of one that was loaded, or not known. */
static uint32_t call_does(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	switch (msp_arm64_held(d, msp_arm64_general(insn, 0)).kind) {
	case MSP_HELD_CONSTANT:
		return MSP_DOES_CALL;
	case MSP_HELD_LOADED:
		return MSP_DOES_CALL | MSP_DOES_FOREIGN;
	default:
		return 0;
	}
}

/* A move that ends a load (fmov d, x; mov w, w) is for what comes before. */
static bool ends_load(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	int to = msp_arm64_general(insn, 0), from = msp_arm64_general(insn, 1);
	uint64_t value;

	if (insn->id == ARM64_INS_FMOV)
		return to < 0 && from >= 0 && !msp_arm64_constant(d, insn, 1, &value);
	return insn->id == ARM64_INS_MOV && to >= 0 && to == from;
}

static uint32_t arm64_does(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	uint32_t does = table_does(insn->id);
	uint64_t value;

	if (insn->id == ARM64_INS_B)
		return insn->detail->arm64.cc ? MSP_DOES_BRANCH : 0;
	if (insn->id == ARM64_INS_BLR)
		return call_does(d, insn);
	if (ends_load(d, insn))
		return MSP_DOES_TYPE;
	if (does & (MSP_DOES_LOAD | MSP_DOES_STORE))
		return memory_does(insn, does);
	if (msp_arm64_number(msp_arm64_operand(insn, 0)->reg) < 0 &&
	    msp_arm64_operand(insn, 0)->reg == ARM64_REG_SP)
		return MSP_DOES_COPY; /* room on the C stack */
	/* how far an upvalue is above the base: is it a slot of the trace? */
	if (insn->id == ARM64_INS_SUB &&
	    msp_arm64_held(d, msp_arm64_general(insn, 2)).kind == MSP_HELD_BASE)
		return MSP_DOES_TYPE;
	/* constants: orr with the zero register, or computed from another one; or a mark */
	if (insn->id == ARM64_INS_ORR && (msp_arm64_general(insn, 1) < 0 ||
					  msp_arm64_general(insn, 1) == msp_arm64_general(insn, 2)))
		return MSP_DOES_COPY;
	if ((insn->id == ARM64_INS_ADD || insn->id == ARM64_INS_SUB) &&
	    msp_arm64_operand(insn, 2)->type == ARM64_OP_IMM &&
	    msp_arm64_constant(d, insn, 1, &value))
		return MSP_DOES_COPY;
	return tag_does(d, insn, does);
}

static uint64_t jump_of(const cs_insn *insn)
{
	const cs_arm64_op *last = msp_arm64_operand(insn, insn->detail->arm64.op_count - 1);

	switch (insn->id) {
	case ARM64_INS_B:
	case ARM64_INS_CBZ:
	case ARM64_INS_CBNZ:
	case ARM64_INS_TBZ:
	case ARM64_INS_TBNZ:
		return last->type == ARM64_OP_IMM ? (uint64_t)last->imm : 0;
	default:
		return 0;
	}
}

/* ---- What is known of several instructions ---- */

/* Compares what has been allocated with when to collect, and jumps over the collector's step. */
static void follow_check(struct msp_trace_decoder *d, const cs_insn *insn,
			 struct msp_trace_ins *out)
{
	struct msp_trace_held a = msp_arm64_held(d, msp_arm64_general(insn, 0)),
			      b = msp_arm64_held(d, msp_arm64_general(insn, 1));

	if (d->check == 2 && out[-1].does == MSP_DOES_CHECK && insn->id != ARM64_INS_B) {
		out[-1].does = MSP_DOES_COMPARE;
		d->check = 0;
	}
	if (insn->id == ARM64_INS_CMP && a.kind == MSP_HELD_WORD && b.kind == MSP_HELD_WORD &&
	    a.value + 8 == b.value)
		d->check = 2;
	if (!d->check)
		return;
	if (out->does & MSP_DOES_BRANCH)
		d->check--;
	out->does = MSP_DOES_CHECK;
}

/*
 * A node's key is compared with a string (asm_hrefk(), asm_href()). The size of a table's hash is told
 * by its place in it, and that the trace ends where it is another one.
 */
static void follow_key(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	const cs_arm64_op *last = msp_arm64_operand(insn, 1);
	uint64_t value = 0, string;
	int loaded = msp_arm64_general(insn, 0);

	if (d->hmask && insn->id == ARM64_INS_B && insn->detail->arm64.cc == ARM64_CC_NE) {
		out->does |= MSP_DOES_KEY;
		out[-1].does |= MSP_DOES_KEY;
	}
	d->hmask = false;
	if (insn->id != ARM64_INS_CMP || last->shift.value)
		return;
	if (last->type == ARM64_OP_IMM)
		value = (uint64_t)last->imm;
	else if (msp_arm64_constant(d, insn, 0, &value))
		loaded = msp_arm64_general(insn, 1);
	else if (!msp_arm64_constant(d, insn, 1, &value))
		return;
	d->hmask = msp_arm64_held(d, loaded).kind == MSP_HELD_HMASK && !(value & (value + 1));
	if (last->type == ARM64_OP_IMM || !msp_arm64_is_wide(msp_arm64_operand(insn, 0)->reg))
		return;
	if (value > UINT32_MAX)
		out->imm = value & ADDRESS_MASK;
	string = msp_trace_tagged_string(d->layout, (int64_t)value);
	if (!string || msp_arm64_held(d, loaded).kind != MSP_HELD_LOADED)
		return;
	out->does |= MSP_DOES_KEY;
	out->key = string;
}

/*
 * Conditions that a comparison of integers without sign has, or one that asks which of two numbers is larger
 * (asm_compmap).
 */
static void follow_compare(struct msp_trace_decoder *d, const cs_insn *insn,
			   struct msp_trace_ins *out)
{
	arm64_cc cc = insn->id == ARM64_INS_B ? insn->detail->arm64.cc : ARM64_CC_INVALID;
	bool order =
		cc == ARM64_CC_HS || cc == ARM64_CC_LO || cc == ARM64_CC_HI || cc == ARM64_CC_LS;

	if (d->compares && order) {
		out->does |= MSP_DOES_BOUND;
		out[-1].does |= MSP_DOES_BOUND;
	}
	if (d->arm64.numbers && order)
		out->tells |= MSP_TELLS_ORDER;
	d->compares = insn->id == ARM64_INS_CMP && out->does & MSP_DOES_COMPARE;
	d->arm64.numbers = insn->id == ARM64_INS_FCMP;
}

/*
 * Behind a call constants are loaded again, and what was saved, to where they were: that is done for
 * the call, before the code of what comes next.
 */
static void follow_call(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	if (insn->id == ARM64_INS_BL || insn->id == ARM64_INS_BLR)
		d->arm64.after_call = true;
	else if (!(out->does & MSP_DOES_COPY))
		d->arm64.after_call = false;
	else if (d->arm64.after_call)
		out->does = MSP_DOES_TYPE;
}

/* Does it read a slot of the trace's Lua frame? */
static bool reads_slot(const struct msp_trace_decoder *d, const cs_insn *insn, int32_t *slot)
{
	const cs_arm64_op *op = msp_arm64_memory(insn);

	if (!op || !(table_does(insn->id) & MSP_DOES_LOAD) ||
	    msp_arm64_held(d, msp_arm64_number(op->mem.base)).kind != MSP_HELD_BASE)
		return false;
	*slot = op->mem.disp >> 3;
	return true;
}

/* Moves the trace's base, as a return below it does (asm_retf()). */
static bool sets_base(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	const cs_arm64_op *op = msp_arm64_memory(insn);

	return insn->id == ARM64_INS_STR && op && msp_arm64_number(op->mem.base) == MSP_ARM64_GL &&
	       op->mem.index == ARM64_REG_INVALID && op->mem.disp == d->layout->g_jit_base;
}

void msp_trace_begin_arm64(struct msp_trace_decoder *d)
{
	d->arm64.held[MSP_ARM64_GL] = (struct msp_trace_held){MSP_HELD_CONSTANT, d->g};
	d->arm64.value = d->arm64.tagged = -1;
	d->arm64.held[MSP_ARM64_BASE] = (struct msp_trace_held){MSP_HELD_BASE, 0};
}

void msp_trace_decode_arm64(struct msp_trace_decoder *d, const cs_insn *insn,
			    struct msp_trace_ins *out)
{
	struct msp_trace_held first;

	*out = (struct msp_trace_ins){.code = insn->address - d->addr, .jump = jump_of(insn)};
	if (out->code == d->loop)
		msp_arm64_begin_loop(d);
	out->does = arm64_does(d, insn);
	if (insn->id == ARM64_INS_SMULL) /* asm_intmul() */
		out->tells |= MSP_TELLS_OVERFLOW;
	first = d->arm64.held[0];
	if (out->does & MSP_DOES_CALL && first.kind == MSP_HELD_WORD &&
	    first.value == d->g + (uint64_t)d->layout->g_cur_L)
		out->does |= MSP_DOES_STATE;
	if (reads_slot(d, insn, &out->slot))
		out->does = MSP_DOES_SLOT;
	if (sets_base(d, insn))
		out->tells |= MSP_TELLS_RETURN;
	follow_key(d, insn, out);
	follow_check(d, insn, out);
	follow_compare(d, insn, out);
	msp_trace_join_arm64(d, insn, out);
	follow_call(d, insn, out);
	msp_arm64_follow_registers(d, insn, table_does(insn->id));
}

/* SPDX-License-Identifier: MIT */
/*
 * What arm64's instructions of a trace are for (lj_asm_arm64.h, lj_emit_arm64.h). Constants are in
 * registers there, which are loaded long before, where the trace or its loop begins.
 */
#include <string.h>

#include "luajit/objects.h"
#include "luajit/trace_decode.h"

enum { BASE = 19, GL = 22, LR = 30 };

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

/* ---- Operands ---- */

static const cs_arm64_op *operand(const cs_insn *insn, uint8_t i)
{
	static const cs_arm64_op none;

	return i < insn->detail->arm64.op_count ? &insn->detail->arm64.operands[i] : &none;
}

/* Number of a general register; negative: another one, or none. */
static int number_of(unsigned int reg)
{
	if (reg >= ARM64_REG_X0 && reg <= ARM64_REG_X28)
		return (int)(reg - ARM64_REG_X0);
	if (reg >= ARM64_REG_W0 && reg <= ARM64_REG_W30)
		return (int)(reg - ARM64_REG_W0);
	return reg == ARM64_REG_X29 || reg == ARM64_REG_X30 ? (int)(reg - ARM64_REG_X29) + 29 : -1;
}

static bool is_wide(unsigned int reg)
{
	return number_of(reg) >= 0 && (reg < ARM64_REG_W0 || reg > ARM64_REG_W30);
}

static int general(const cs_insn *insn, uint8_t i)
{
	const cs_arm64_op *op = operand(insn, i);

	return op->type == ARM64_OP_REG ? number_of(op->reg) : -1;
}

static const cs_arm64_op *memory(const cs_insn *insn)
{
	for (uint8_t i = 0; i < insn->detail->arm64.op_count; i++)
		if (insn->detail->arm64.operands[i].type == ARM64_OP_MEM)
			return &insn->detail->arm64.operands[i];
	return NULL;
}

/* What a general register holds, if that is known; else nothing. */
static struct msp_trace_held held(const struct msp_trace_decoder *d, int reg)
{
	return reg < 0 ? (struct msp_trace_held){0} : d->held[reg];
}

static bool is_constant(const struct msp_trace_decoder *d, const cs_insn *insn, uint8_t i,
			uint64_t *value)
{
	struct msp_trace_held h = held(d, general(insn, i));

	*value = h.value;
	return h.kind == MSP_HELD_CONSTANT;
}

/* ---- What an instruction is for ---- */

/*
 * Values are tagged above 47 bits: taking the tag off and looking at it is for what was loaded
 * before; putting one on is for the store that comes.
 */
static uint32_t tag_does(const struct msp_trace_decoder *d, const cs_insn *insn, uint32_t does)
{
	const cs_arm64_op *last = operand(insn, insn->detail->arm64.op_count - 1);
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
	if (does & MSP_DOES_ADD && last->shift.type == ARM64_SFT_LSL && last->shift.value == 47)
		return MSP_DOES_COPY;
	if (does & MSP_DOES_ADD && last->ext == ARM64_EXT_UXTW && !last->shift.value &&
	    is_constant(d, insn, 1, &value) && value >> 47)
		return MSP_DOES_COPY;
	return does;
}

static uint32_t memory_does(const cs_insn *insn, uint32_t does)
{
	const cs_arm64_op *op = memory(insn);

	if (!op) /* by its distance */
		return MSP_DOES_COPY | MSP_DOES_FIXED;
	if (op->mem.base == ARM64_REG_SP)
		return MSP_DOES_COPY;
	if (number_of(op->mem.base) == GL)
		return MSP_DOES_COPY | MSP_DOES_FIXED;
	return op->mem.index != ARM64_REG_INVALID ? does | MSP_DOES_INDEX : does;
}

/* A call by register: of a function that is constant, of one that was loaded, or not known. */
static uint32_t call_does(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	switch (held(d, general(insn, 0)).kind) {
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
	int to = general(insn, 0), from = general(insn, 1);
	uint64_t value;

	if (insn->id == ARM64_INS_FMOV)
		return to < 0 && from >= 0 && !is_constant(d, insn, 1, &value);
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
	/* constants: orr with the zero register, or computed from another one; or a mark */
	if (insn->id == ARM64_INS_ORR &&
	    (general(insn, 1) < 0 || general(insn, 1) == general(insn, 2)))
		return MSP_DOES_COPY;
	if ((insn->id == ARM64_INS_ADD || insn->id == ARM64_INS_SUB) &&
	    operand(insn, 2)->type == ARM64_OP_IMM && is_constant(d, insn, 1, &value))
		return MSP_DOES_COPY;
	return tag_does(d, insn, does);
}

static uint64_t jump_of(const cs_insn *insn)
{
	const cs_arm64_op *last = operand(insn, insn->detail->arm64.op_count - 1);

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

/* ---- What registers hold ---- */

static struct msp_trace_held of_load(const struct msp_trace_decoder *d, const cs_insn *insn,
				     uint8_t i)
{
	const cs_arm64_op *op = memory(insn);
	bool wide = is_wide(operand(insn, i)->reg);
	struct msp_trace_held base, none = {0};

	if (!op)
		return operand(insn, 1)->type == ARM64_OP_IMM && wide
			       ? (struct msp_trace_held){MSP_HELD_WORD,
							 (uint64_t)operand(insn, 1)->imm}
			       : none;
	if (op->mem.base == ARM64_REG_SP || op->mem.index != ARM64_REG_INVALID)
		return none;
	base = held(d, number_of(op->mem.base));
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
	const cs_arm64_op *last = operand(insn, insn->detail->arm64.op_count - 1);
	unsigned int shift = last->shift.type == ARM64_SFT_LSL ? last->shift.value & 63 : 0;
	uint64_t imm = last->type == ARM64_OP_IMM ? (uint64_t)last->imm << shift : 0, value;
	struct msp_trace_held out = {MSP_HELD_CONSTANT, imm};
	bool before = is_constant(d, insn, insn->id == ARM64_INS_MOVK ? 0 : 1, &value);

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
				       uint8_t i)
{
	struct msp_trace_held out;

	if (table_does(insn->id) & MSP_DOES_LOAD)
		return of_load(d, insn, i);
	if (insn->id == ARM64_INS_MOV)
		out = held(d, general(insn, 1));
	else if (insn->id == ARM64_INS_ORR && general(insn, 1) < 0 &&
		 operand(insn, 2)->type == ARM64_OP_IMM)
		out = (struct msp_trace_held){MSP_HELD_CONSTANT, (uint64_t)operand(insn, 2)->imm};
	else
		out = of_constant(d, insn);
	if (!is_wide(operand(insn, i)->reg)) {
		if (out.kind != MSP_HELD_CONSTANT)
			return (struct msp_trace_held){0};
		out.value = (uint32_t)out.value;
	}
	return out;
}

static void forget_call(struct msp_trace_decoder *d)
{
	for (int i = 0; i <= 18; i++)
		d->held[i].kind = MSP_HELD_UNKNOWN;
	d->held[LR].kind = MSP_HELD_UNKNOWN;
}

static void follow_registers(struct msp_trace_decoder *d, const cs_insn *insn)
{
	uint32_t does = table_does(insn->id);
	struct msp_trace_held result[2] = {{0}};
	int count = insn->id == ARM64_INS_LDP ? 2 : 1, reg;

	if (insn->id == ARM64_INS_BL || insn->id == ARM64_INS_BLR) {
		forget_call(d);
		return;
	}
	if (does & (MSP_DOES_STORE | MSP_DOES_COMPARE) || insn->id == ARM64_INS_B)
		return;
	for (int i = 0; i < count; i++)
		result[i] = result_of(d, insn, (uint8_t)i);
	for (int i = 0; i < count; i++) {
		reg = general(insn, (uint8_t)i);
		if (reg < 0)
			continue;
		d->held[reg] = result[i];
		if (reg == BASE)
			d->base = false;
	}
}

/*
 * Where the loop begins: what is an object or a value with its tag is the same each time round; a
 * number may be a variable's first value.
 */
static void begin_loop(struct msp_trace_decoder *d)
{
	for (int i = 0; i < 32; i++)
		if (d->held[i].kind == MSP_HELD_CONSTANT &&
		    (int64_t)d->held[i].value == (int32_t)d->held[i].value)
			d->held[i].kind = MSP_HELD_UNKNOWN;
}

/* ---- What is known of several instructions ---- */

/* Compares what has been allocated with when to collect, and jumps over the collector's step. */
static void follow_check(struct msp_trace_decoder *d, const cs_insn *insn,
			 struct msp_trace_ins *out)
{
	struct msp_trace_held a = held(d, general(insn, 0)), b = held(d, general(insn, 1));

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
 * A node's key is compared with a string (asm_hrefk(), asm_href()); the size of a table's hash is
 * told by its place in it.
 */
static void follow_key(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	const cs_arm64_op *last = operand(insn, 1);
	uint64_t value = 0, string;
	int loaded = general(insn, 0);

	if (insn->id != ARM64_INS_CMP || last->shift.value)
		return;
	if (last->type == ARM64_OP_IMM)
		value = (uint64_t)last->imm;
	else if (is_constant(d, insn, 0, &value))
		loaded = general(insn, 1);
	else if (!is_constant(d, insn, 1, &value))
		return;
	if (held(d, loaded).kind == MSP_HELD_HMASK && !(value & (value + 1)))
		out->does |= MSP_DOES_KEY;
	if (last->type == ARM64_OP_IMM || !is_wide(operand(insn, 0)->reg))
		return;
	if (value > UINT32_MAX)
		out->imm = value & ADDRESS_MASK;
	string = msp_trace_tagged_string(d->layout, (int64_t)value);
	if (!string || held(d, loaded).kind != MSP_HELD_LOADED)
		return;
	out->does |= MSP_DOES_KEY;
	out->key = string;
}

/* Conditions that a comparison without sign has (asm_compmap); of numbers these are others. */
static void follow_bound(struct msp_trace_decoder *d, const cs_insn *insn,
			 struct msp_trace_ins *out)
{
	arm64_cc cc = insn->id == ARM64_INS_B ? insn->detail->arm64.cc : ARM64_CC_INVALID;

	if (d->compares &&
	    (cc == ARM64_CC_HS || cc == ARM64_CC_LO || cc == ARM64_CC_HI || cc == ARM64_CC_LS)) {
		out->does |= MSP_DOES_BOUND;
		out[-1].does |= MSP_DOES_BOUND;
	}
	d->compares = insn->id == ARM64_INS_CMP && out->does & MSP_DOES_COMPARE;
}

/* While x19 is the base of the trace's Lua frame: does it read a slot of it? */
static bool reads_slot(const struct msp_trace_decoder *d, const cs_insn *insn, int32_t *slot)
{
	const cs_arm64_op *op = memory(insn);

	if (!d->base || !op || !(table_does(insn->id) & MSP_DOES_LOAD) ||
	    number_of(op->mem.base) != BASE || op->mem.index != ARM64_REG_INVALID)
		return false;
	*slot = op->mem.disp >> 3;
	return true;
}

void msp_trace_begin_arm64(struct msp_trace_decoder *d)
{
	d->held[GL] = (struct msp_trace_held){MSP_HELD_CONSTANT, d->g};
}

void msp_trace_decode_arm64(struct msp_trace_decoder *d, const cs_insn *insn,
			    struct msp_trace_ins *out)
{
	struct msp_trace_held first;

	*out = (struct msp_trace_ins){.code = insn->address - d->addr, .jump = jump_of(insn)};
	if (out->code == d->loop)
		begin_loop(d);
	out->does = arm64_does(d, insn);
	first = d->held[0];
	if (out->does & MSP_DOES_CALL && first.kind == MSP_HELD_WORD &&
	    first.value == d->g + (uint64_t)d->layout->g_cur_L)
		out->does |= MSP_DOES_STATE;
	if (reads_slot(d, insn, &out->slot))
		out->does = MSP_DOES_SLOT;
	follow_key(d, insn, out);
	follow_check(d, insn, out);
	follow_bound(d, insn, out);
	follow_registers(d, insn);
}

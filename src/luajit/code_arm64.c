/* SPDX-License-Identifier: MIT */
/* arm64 instructions, as capstone decodes them. */
#include "luajit/code_decode.h"

/* capstone instruction, operation. What is not listed is OTHER. */
static const struct {
	uint16_t id;
	uint8_t op;
	uint8_t size; /* of memory; 0: the register's */
} ops[] = {
	{ARM64_INS_MOV, MSP_OP_MOV, 0},	    {ARM64_INS_MOVZ, MSP_OP_MOV, 0},
	{ARM64_INS_MOVN, MSP_OP_MOV, 0},    {ARM64_INS_ADR, MSP_OP_LEA, 0},
	{ARM64_INS_ADRP, MSP_OP_MOV, 0},    {ARM64_INS_LDR, MSP_OP_MOV, 0},
	{ARM64_INS_LDUR, MSP_OP_MOV, 0},    {ARM64_INS_LDP, MSP_OP_MOV, 0},
	{ARM64_INS_LDRB, MSP_OP_MOV, 1},    {ARM64_INS_LDURB, MSP_OP_MOV, 1},
	{ARM64_INS_LDRH, MSP_OP_MOV, 2},    {ARM64_INS_LDURH, MSP_OP_MOV, 2},
	{ARM64_INS_LDRSW, MSP_OP_MOVSX, 4}, {ARM64_INS_LDURSW, MSP_OP_MOVSX, 4},
	{ARM64_INS_LDAR, MSP_OP_MOV, 0},    {ARM64_INS_SXTW, MSP_OP_MOVSX, 0},
	{ARM64_INS_STR, MSP_OP_MOV, 0},	    {ARM64_INS_STUR, MSP_OP_MOV, 0},
	{ARM64_INS_STP, MSP_OP_MOV, 0},	    {ARM64_INS_STRB, MSP_OP_MOV, 1},
	{ARM64_INS_STURB, MSP_OP_MOV, 1},   {ARM64_INS_STRH, MSP_OP_MOV, 2},
	{ARM64_INS_STURH, MSP_OP_MOV, 2},   {ARM64_INS_ADD, MSP_OP_ADD, 0},
	{ARM64_INS_SUB, MSP_OP_SUB, 0},	    {ARM64_INS_MUL, MSP_OP_MUL, 0},
	{ARM64_INS_SMULL, MSP_OP_MUL, 0},   {ARM64_INS_UMULL, MSP_OP_MUL, 0},
	{ARM64_INS_AND, MSP_OP_AND, 0},	    {ARM64_INS_ORR, MSP_OP_OR, 0},
	{ARM64_INS_EOR, MSP_OP_XOR, 0},	    {ARM64_INS_LSL, MSP_OP_SHL, 0},
	{ARM64_INS_LSR, MSP_OP_SHR, 0},	    {ARM64_INS_ASR, MSP_OP_SAR, 0},
	{ARM64_INS_MVN, MSP_OP_NOT, 0},	    {ARM64_INS_CMP, MSP_OP_CMP, 0},
	{ARM64_INS_CMN, MSP_OP_CMP, 0},	    {ARM64_INS_CCMP, MSP_OP_CMP, 0},
	{ARM64_INS_TST, MSP_OP_TEST, 0},    {ARM64_INS_BL, MSP_OP_CALL, 0},
	{ARM64_INS_BLR, MSP_OP_CALL, 0},    {ARM64_INS_B, MSP_OP_JMP, 0},
	{ARM64_INS_BR, MSP_OP_JMP, 0},	    {ARM64_INS_CBZ, MSP_OP_JCC, 0},
	{ARM64_INS_CBNZ, MSP_OP_JCC, 0},    {ARM64_INS_TBZ, MSP_OP_JCC, 0},
	{ARM64_INS_TBNZ, MSP_OP_JCC, 0},    {ARM64_INS_RET, MSP_OP_RET, 0},
	{ARM64_INS_BRK, MSP_OP_TRAP, 0},    {ARM64_INS_MOVK, MSP_OP_INSERT, 0},
};

/* BRAA, BRAB, BLRAA, BLRAB and those without a modifier; RETAA, RETAB (Arm ARM, C6.2). */
uint32_t msp_decode_without_auth(uint32_t word)
{
	if ((word & 0xfffffbff) == 0xd65f0bff)
		return 0xd65f03c0; /* ret */
	if ((word & 0xfedff800) == 0xd61f0800)
		return (word & 0x00200000) | 0xd61f0000 | (word & 0x3e0); /* br, blr */
	return word;
}

/* DWARF number and size of a general register. */
static uint8_t reg_of(unsigned int reg, uint8_t *size)
{
	*size = reg == ARM64_REG_WSP || reg == ARM64_REG_WZR ||
				(reg >= ARM64_REG_W0 && reg <= ARM64_REG_W30)
			? 4
			: 8;
	if (reg >= ARM64_REG_X0 && reg <= ARM64_REG_X28)
		return (uint8_t)(reg - ARM64_REG_X0);
	if (reg >= ARM64_REG_W0 && reg <= ARM64_REG_W30)
		return (uint8_t)(reg - ARM64_REG_W0);
	if (reg == ARM64_REG_FP || reg == ARM64_REG_LR)
		return reg == ARM64_REG_FP ? 29 : 30;
	return reg == ARM64_REG_SP || reg == ARM64_REG_WSP ? 31 : MSP_REG_NONE;
}

static bool is_zero(unsigned int reg)
{
	return reg == ARM64_REG_XZR || reg == ARM64_REG_WZR;
}

static void set_shift(const cs_arm64_op *from, struct msp_operand *to)
{
	static const uint8_t kind[] = {[ARM64_SFT_LSL] = MSP_OP_SHL,
				       [ARM64_SFT_LSR] = MSP_OP_SHR,
				       [ARM64_SFT_ASR] = MSP_OP_SAR};

	if (from->shift.type < sizeof(kind) && from->shift.value) {
		to->shift_op = kind[from->shift.type];
		to->shift = (uint8_t)from->shift.value;
	}
	if (from->ext == ARM64_EXT_UXTB || from->ext == ARM64_EXT_SXTB)
		to->narrow = 1;
	else if (from->ext == ARM64_EXT_UXTH || from->ext == ARM64_EXT_SXTH)
		to->narrow = 2;
	else if (from->ext == ARM64_EXT_UXTW || from->ext == ARM64_EXT_SXTW)
		to->narrow = 4;
}

static void set_operand(const cs_arm64_op *from, struct msp_operand *to)
{
	uint8_t size;

	to->size = 8;
	to->reg = to->base = to->index = MSP_REG_NONE;
	switch (from->type) {
	case ARM64_OP_REG:
		if (is_zero(from->reg)) {
			to->kind = MSP_OPND_IMM;
			reg_of(from->reg, &to->size);
			break;
		}
		to->kind = MSP_OPND_REG;
		to->reg = reg_of(from->reg, &to->size);
		set_shift(from, to);
		break;
	case ARM64_OP_IMM:
		to->kind = MSP_OPND_IMM;
		to->value = from->imm;
		if (from->shift.type == ARM64_SFT_LSL) {
			to->shift = (uint8_t)(from->shift.value & 63);
			to->value = (int64_t)((uint64_t)from->imm << to->shift);
		}
		break;
	case ARM64_OP_MEM:
		to->kind = MSP_OPND_MEM;
		to->base = reg_of(from->mem.base, &size);
		if (from->mem.index != ARM64_REG_INVALID)
			to->index = reg_of(from->mem.index, &size);
		to->scale = (uint8_t)(1U << (from->shift.value & 7));
		to->value = from->mem.disp;
		if (to->base == MSP_REG_NONE)
			to->kind = MSP_OPND_NONE;
		break;
	default:
		break;
	}
}

/* Which operand is memory; -1: none. */
static int memory_of(const cs_arm64 *arm)
{
	for (int i = 0; i < arm->op_count; i++) {
		if (arm->operands[i].type == ARM64_OP_MEM)
			return i;
	}
	return -1;
}

/* Vector registers have sizes of their own. */
static uint8_t vector_size(unsigned int reg)
{
	if (reg >= ARM64_REG_Q0 && reg <= ARM64_REG_Q31)
		return 16;
	if (reg >= ARM64_REG_S0 && reg <= ARM64_REG_S31)
		return 4;
	return 8;
}

/* A load's first operand is its register, a store's is the memory; a pair has another register. */
static void set_access(const cs_arm64 *arm, int mem, bool store, uint8_t size, struct msp_insn *out)
{
	struct msp_operand *reg = &out->operand[store], *at = &out->operand[!store], other;

	set_operand(&arm->operands[0], reg);
	set_operand(&arm->operands[mem], at);
	at->size = size ? size
		   : reg->reg == MSP_REG_NONE && reg->kind == MSP_OPND_REG
			   ? vector_size(arm->operands[0].reg)
			   : reg->size;
	if (mem == 2) {
		set_operand(&arm->operands[1], &other);
		out->second = other.kind == MSP_OPND_REG ? other.reg : MSP_REG_NONE;
	}
	if (mem + 1 < arm->op_count && arm->operands[mem + 1].type == ARM64_OP_IMM)
		at->step = arm->operands[mem + 1].imm;
	else if (arm->writeback)
		at->step = at->value;
	out->operand_count = 2;
}

static bool is_store(unsigned int id)
{
	switch (id) {
	case ARM64_INS_STR:
	case ARM64_INS_STUR:
	case ARM64_INS_STP:
	case ARM64_INS_STRB:
	case ARM64_INS_STURB:
	case ARM64_INS_STRH:
	case ARM64_INS_STURH:
		return true;
	default:
		return false;
	}
}

/* Instructions that leave their first operand as it is. */
static bool only_reads(const struct msp_insn *out, unsigned int id)
{
	switch (id) {
	case ARM64_INS_FCMP:
	case ARM64_INS_FCCMP:
	case ARM64_INS_CCMN:
	case ARM64_INS_PRFM:
	case ARM64_INS_MSR:
	case ARM64_INS_STLR:
	case ARM64_INS_STLRB:
	case ARM64_INS_STLRH:
		return true;
	default:
		return out->op == MSP_OP_CMP || out->op == MSP_OP_TEST || out->op == MSP_OP_CALL ||
		       out->op == MSP_OP_JMP || out->op == MSP_OP_JCC || out->op == MSP_OP_RET;
	}
}

static void set_writes(const cs_insn *insn, struct msp_insn *out)
{
	const struct msp_operand *to = &out->operand[0];

	if (to->kind == MSP_OPND_REG && to->reg != MSP_REG_NONE && !only_reads(out, insn->id)) {
		out->writes |= 1U << to->reg;
		if (out->second != MSP_REG_NONE)
			out->writes |= 1U << out->second;
	}
	if (out->op == MSP_OP_CALL)
		out->writes |= 1U << 30;
	for (unsigned int i = 0; i < out->operand_count; i++) {
		if (out->operand[i].kind == MSP_OPND_MEM && out->operand[i].step)
			out->writes |= 1U << out->operand[i].base;
	}
}

/* Some bits of a register: the lowest, or so many that it is as good as a shift. */
static void set_bits(const cs_insn *insn, struct msp_insn *out)
{
	const cs_arm64_op *from = insn->detail->arm64.operands;
	int64_t low = from[2].imm, width = from[3].imm;

	if (low && width < 32)
		return;
	out->op = low ? MSP_OP_SHR : MSP_OP_AND;
	out->operand_count = 3;
	out->operand[2] = (struct msp_operand){
		.kind = MSP_OPND_IMM,
		.size = 8,
		.value = low ? low : (int64_t)(~0ULL >> (64 - width)),
	};
}

/* A product and a register. */
static void set_addend(const cs_insn *insn, struct msp_insn *out)
{
	uint8_t size;

	if (insn->detail->arm64.op_count != 4)
		return;
	out->op = MSP_OP_MUL;
	out->addend = reg_of(insn->detail->arm64.operands[3].reg, &size);
	if (out->addend == MSP_REG_NONE)
		out->op = MSP_OP_OTHER;
}

/* Operations that capstone has other names for. */
static void set_special(const cs_insn *insn, struct msp_insn *out)
{
	struct msp_operand *o = out->operand;

	switch (insn->id) {
	case ARM64_INS_MOVN:
		o[1].value = o[0].size == 4 ? (int64_t)(uint32_t)~o[1].value : ~o[1].value;
		break;
	case ARM64_INS_ADR: /* an address, not an operand */
		o[1].kind = MSP_OPND_MEM;
		break;
	case ARM64_INS_CCMP:
		out->operand_count = 2;
		break;
	case ARM64_INS_CMN:
		if (o[1].kind == MSP_OPND_IMM)
			o[1].value = -o[1].value;
		else
			out->op = MSP_OP_OTHER;
		break;
	case ARM64_INS_SBFIZ:
	case ARM64_INS_UBFIZ:
		if (insn->detail->arm64.operands[3].imm < 32)
			break;
		out->op = MSP_OP_SHL;
		out->operand_count = 3;
		break;
	case ARM64_INS_UBFX:
		set_bits(insn, out);
		break;
	case ARM64_INS_MADD:
	case ARM64_INS_SMADDL:
	case ARM64_INS_UMADDL:
		set_addend(insn, out);
		break;
	case ARM64_INS_UXTB:
	case ARM64_INS_UXTH:
		out->op = MSP_OP_AND;
		out->operand_count = 3;
		o[2] = (struct msp_operand){.kind = MSP_OPND_IMM,
					    .size = 8,
					    .value = insn->id == ARM64_INS_UXTB ? 0xff : 0xffff};
		break;
	default:
		break;
	}
}

static void set_target(const cs_insn *insn, struct msp_insn *out)
{
	const cs_arm64 *arm = &insn->detail->arm64;
	const cs_arm64_op *last = &arm->operands[arm->op_count - 1];

	if (out->op != MSP_OP_CALL && out->op != MSP_OP_JMP && out->op != MSP_OP_JCC)
		return;
	if (insn->id == ARM64_INS_B && arm->cc != ARM64_CC_INVALID && arm->cc != ARM64_CC_AL)
		out->op = MSP_OP_JCC;
	if (last->type != ARM64_OP_IMM)
		return;
	out->has_target = true;
	out->target = (uint64_t)last->imm;
	/* What CBZ and CBNZ compare with zero stays; of the others there is nothing more to say. */
	if (insn->id != ARM64_INS_CBZ && insn->id != ARM64_INS_CBNZ)
		out->operand[0].kind = MSP_OPND_NONE;
	out->operand_count = 1;
}

void msp_decode_arm64(const cs_insn *insn, struct msp_insn *out)
{
	const cs_arm64 *arm = &insn->detail->arm64;
	int mem = memory_of(arm);
	uint8_t size = 0;

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (ops[i].id != insn->id)
			continue;
		out->op = ops[i].op;
		size = ops[i].size;
	}
	if (mem > 0 && (out->op == MSP_OP_MOV || out->op == MSP_OP_MOVSX)) {
		set_access(arm, mem, is_store(insn->id), size, out);
	} else {
		for (unsigned int i = 0; i < arm->op_count && i < MSP_INSN_OPERANDS; i++) {
			set_operand(&arm->operands[i], &out->operand[i]);
			out->operand_count = (uint8_t)(i + 1);
		}
		/* From memory beside the code: what is there is not looked at. */
		if (insn->id == ARM64_INS_LDR && out->operand[1].kind == MSP_OPND_IMM)
			out->op = MSP_OP_OTHER;
		set_special(insn, out);
	}
	set_writes(insn, out);
	set_target(insn, out);
}

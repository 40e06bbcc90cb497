/* SPDX-License-Identifier: MIT */
/* x86-64 instructions, as capstone decodes them. */
#include "luajit/code_decode.h"

/* capstone's names of each general register, by DWARF number; 0 where a width has none. */
static const struct {
	uint16_t reg[5]; /* 8, 4, 2, 1 bytes, high byte */
} x64_regs[16] = {
	{{X86_REG_RAX, X86_REG_EAX, X86_REG_AX, X86_REG_AL, X86_REG_AH}},
	{{X86_REG_RDX, X86_REG_EDX, X86_REG_DX, X86_REG_DL, X86_REG_DH}},
	{{X86_REG_RCX, X86_REG_ECX, X86_REG_CX, X86_REG_CL, X86_REG_CH}},
	{{X86_REG_RBX, X86_REG_EBX, X86_REG_BX, X86_REG_BL, X86_REG_BH}},
	{{X86_REG_RSI, X86_REG_ESI, X86_REG_SI, X86_REG_SIL, 0}},
	{{X86_REG_RDI, X86_REG_EDI, X86_REG_DI, X86_REG_DIL, 0}},
	{{X86_REG_RBP, X86_REG_EBP, X86_REG_BP, X86_REG_BPL, 0}},
	{{X86_REG_RSP, X86_REG_ESP, X86_REG_SP, X86_REG_SPL, 0}},
	{{X86_REG_R8, X86_REG_R8D, X86_REG_R8W, X86_REG_R8B, 0}},
	{{X86_REG_R9, X86_REG_R9D, X86_REG_R9W, X86_REG_R9B, 0}},
	{{X86_REG_R10, X86_REG_R10D, X86_REG_R10W, X86_REG_R10B, 0}},
	{{X86_REG_R11, X86_REG_R11D, X86_REG_R11W, X86_REG_R11B, 0}},
	{{X86_REG_R12, X86_REG_R12D, X86_REG_R12W, X86_REG_R12B, 0}},
	{{X86_REG_R13, X86_REG_R13D, X86_REG_R13W, X86_REG_R13B, 0}},
	{{X86_REG_R14, X86_REG_R14D, X86_REG_R14W, X86_REG_R14B, 0}},
	{{X86_REG_R15, X86_REG_R15D, X86_REG_R15W, X86_REG_R15B, 0}},
};

/* capstone instruction, operation. What is not listed is OTHER. */
static const struct {
	uint16_t id;
	uint8_t op;
} x64_ops[] = {
	{X86_INS_MOV, MSP_OP_MOV},     {X86_INS_MOVABS, MSP_OP_MOV},   {X86_INS_MOVZX, MSP_OP_MOV},
	{X86_INS_MOVSX, MSP_OP_MOVSX}, {X86_INS_MOVSXD, MSP_OP_MOVSX}, {X86_INS_LEA, MSP_OP_LEA},
	{X86_INS_ADD, MSP_OP_ADD},     {X86_INS_SUB, MSP_OP_SUB},      {X86_INS_IMUL, MSP_OP_MUL},
	{X86_INS_AND, MSP_OP_AND},     {X86_INS_OR, MSP_OP_OR},	       {X86_INS_XOR, MSP_OP_XOR},
	{X86_INS_SHL, MSP_OP_SHL},     {X86_INS_SHR, MSP_OP_SHR},      {X86_INS_SAR, MSP_OP_SAR},
	{X86_INS_CMP, MSP_OP_CMP},     {X86_INS_TEST, MSP_OP_TEST},    {X86_INS_PUSH, MSP_OP_PUSH},
	{X86_INS_POP, MSP_OP_POP},     {X86_INS_LEAVE, MSP_OP_LEAVE},  {X86_INS_CALL, MSP_OP_CALL},
	{X86_INS_JMP, MSP_OP_JMP},     {X86_INS_RET, MSP_OP_RET},      {X86_INS_INT3, MSP_OP_TRAP},
	{X86_INS_UD2, MSP_OP_TRAP},    {X86_INS_HLT, MSP_OP_TRAP},     {X86_INS_NOT, MSP_OP_NOT},
};

/* DWARF number of a general register, and whether it is the high byte of one. */
static uint8_t x64_reg(unsigned int reg, bool *high_byte)
{
	*high_byte = false;
	if (reg == X86_REG_INVALID)
		return MSP_REG_NONE;
	for (unsigned int i = 0; i < 16; i++) {
		for (unsigned int w = 0; w < 5; w++) {
			if (x64_regs[i].reg[w] != reg)
				continue;
			*high_byte = w == 4;
			return (uint8_t)i;
		}
	}
	return MSP_REG_NONE;
}

static uint8_t x64_op(const cs_insn *insn, csh handle)
{
	for (size_t i = 0; i < sizeof(x64_ops) / sizeof(x64_ops[0]); i++) {
		if (x64_ops[i].id == insn->id)
			return x64_ops[i].op;
	}
	if (cs_insn_group(handle, insn, X86_GRP_JUMP))
		return MSP_OP_JCC;
	return MSP_OP_OTHER;
}

static void x64_mem(const cs_insn *insn, const cs_x86_op *from, struct msp_operand *to)
{
	bool high;

	to->kind = MSP_OPND_MEM;
	to->base = x64_reg(from->mem.base, &high);
	to->index = x64_reg(from->mem.index, &high);
	to->scale = (uint8_t)from->mem.scale;
	to->value = from->mem.disp;
	if (from->mem.base == X86_REG_RIP)
		to->value += (int64_t)(insn->address + insn->size);
	/* Thread-local and vector-indexed memory: nothing is known about the address. */
	if (from->mem.segment != X86_REG_INVALID)
		to->kind = MSP_OPND_NONE;
}

static void x64_operands(const cs_insn *insn, struct msp_insn *out)
{
	const cs_x86 *x86 = &insn->detail->x86;

	for (unsigned int i = 0; i < x86->op_count && i < MSP_INSN_OPERANDS; i++) {
		const cs_x86_op *from = &x86->operands[i];
		struct msp_operand *to = &out->operand[i];

		to->size = from->size;
		to->base = to->index = to->reg = MSP_REG_NONE;
		if (from->type == X86_OP_REG) {
			to->kind = MSP_OPND_REG;
			to->reg = x64_reg(from->reg, &to->high_byte);
		} else if (from->type == X86_OP_IMM) {
			to->kind = MSP_OPND_IMM;
			to->value = from->imm;
		} else if (from->type == X86_OP_MEM) {
			x64_mem(insn, from, to);
		}
		out->operand_count = (uint8_t)(i + 1);
	}
}

static void x64_writes(csh handle, const cs_insn *insn, struct msp_insn *out)
{
	cs_regs read, written;
	uint8_t read_count = 0, written_count = 0;
	bool high;

	if (cs_regs_access(handle, insn, read, &read_count, written, &written_count) != 0)
		return;
	for (unsigned int i = 0; i < written_count; i++) {
		uint8_t reg = x64_reg(written[i], &high);

		/* Extending eax keeps its value, as far as values are followed. */
		if (reg != MSP_REG_NONE && insn->id != X86_INS_CDQE)
			out->writes |= 1U << reg;
	}
}

void msp_decode_x64(csh handle, const cs_insn *insn, struct msp_insn *out)
{
	out->op = x64_op(insn, handle);
	x64_operands(insn, out);
	x64_writes(handle, insn, out);
	if ((out->op == MSP_OP_CALL || out->op == MSP_OP_JMP || out->op == MSP_OP_JCC) &&
	    out->operand[0].kind == MSP_OPND_IMM) {
		out->has_target = true;
		out->target = (uint64_t)out->operand[0].value;
	}
}

/* SPDX-License-Identifier: MIT */
/* The oracle on x86-64. */
#include <elf.h>
#include <string.h>

#include "oracle.h"

const struct oracle_arch oracle_arch = {
	.arch = MSP_ARCH_X86_64,
	.machine = EM_X86_64,
	.sp = MSP_X64_RSP,
	.cs_arch = CS_ARCH_X86,
	.cs_mode = CS_MODE_64,
	.reg = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11",
		"r12", "r13", "r14", "r15"},
};

uint64_t oracle_arch_thread(const struct user_regs_struct *set)
{
	return set->fs_base;
}

void oracle_arch_leave_call(struct user_regs_struct *set)
{
	set->orig_rax = (unsigned long long)-1;
}

/* capstone's 64-bit registers by DWARF number. */
static uint8_t dwarf_reg(x86_reg reg)
{
	static const x86_reg by_number[] = {X86_REG_RAX, X86_REG_RDX, X86_REG_RCX, X86_REG_RBX,
					    X86_REG_RSI, X86_REG_RDI, X86_REG_RBP, X86_REG_RSP,
					    X86_REG_R8,	 X86_REG_R9,  X86_REG_R10, X86_REG_R11,
					    X86_REG_R12, X86_REG_R13, X86_REG_R14, X86_REG_R15};
	static const x86_reg low[] = {X86_REG_EAX,  X86_REG_EDX,  X86_REG_ECX,	X86_REG_EBX,
				      X86_REG_ESI,  X86_REG_EDI,  X86_REG_EBP,	X86_REG_ESP,
				      X86_REG_R8D,  X86_REG_R9D,  X86_REG_R10D, X86_REG_R11D,
				      X86_REG_R12D, X86_REG_R13D, X86_REG_R14D, X86_REG_R15D};

	if (reg == X86_REG_RIP)
		return ORACLE_REG_PC;
	for (uint8_t i = 0; i < 16; i++)
		if (by_number[i] == reg || low[i] == reg)
			return i;
	return ORACLE_REG_NONE;
}

static uint32_t reg_bit(x86_reg reg)
{
	uint8_t number = dwarf_reg(reg);

	return number < 16 ? 1u << number : 0;
}

static void add_memory(struct oracle_insn *out, const cs_x86_op *op, bool big)
{
	uint32_t n = out->memory_count;

	if (n == 2)
		return;
	out->memory[n].base = dwarf_reg(op->mem.base);
	out->memory[n].index = dwarf_reg(op->mem.index);
	out->memory[n].segment = op->mem.segment == X86_REG_FS ? ORACLE_SEG_FS : 0;
	out->memory[n].scale = (uint8_t)op->mem.scale;
	out->memory[n].disp = op->mem.disp;
	/* Sizes of the newer instructions are not to be relied on. */
	out->memory[n].size = big ? 4096 : op->size > 64 ? op->size : 64;
	out->memory_count++;
}

/* By itself, or as what is moved to; not by arithmetic, as in prologues and epilogues. */
static bool writes_sp(csh handle, const cs_insn *insn)
{
	const cs_x86_op *to = &insn->detail->x86.operands[0];

	if (insn->id == X86_INS_MOV && to->type == X86_OP_REG && to->reg == X86_REG_RSP)
		return true;
	return cs_reg_write(handle, insn, X86_REG_RSP) || cs_reg_write(handle, insn, X86_REG_ESP);
}

void oracle_arch_classify(csh handle, const cs_insn *insn, const struct msp_memory *mem,
			  struct oracle_insn *out)
{
	const cs_x86 *x86 = &insn->detail->x86;
	bool call = cs_insn_group(handle, insn, CS_GRP_CALL);
	bool big = strstr(insn->mnemonic, "xsave") || strstr(insn->mnemonic, "xrstor");
	bool plain = call || insn->id == X86_INS_PUSH || insn->id == X86_INS_POP ||
		     insn->id == X86_INS_PUSHFQ || insn->id == X86_INS_POPFQ ||
		     cs_insn_group(handle, insn, CS_GRP_RET);

	(void)mem;
	out->syscall = out->anywhere = insn->id == X86_INS_SYSCALL;
	out->pushes = call || insn->id == X86_INS_PUSH || insn->id == X86_INS_PUSHFQ;
	out->moves_sp = !plain && writes_sp(handle, insn);
	if (insn->id == X86_INS_MOV && x86->operands[0].type == X86_OP_MEM &&
	    x86->operands[1].type == X86_OP_REG)
		out->stores = reg_bit(x86->operands[1].reg);
	if (insn->id == X86_INS_MOV && x86->operands[0].type == X86_OP_REG &&
	    x86->operands[1].type == X86_OP_MEM)
		out->loads = reg_bit(x86->operands[0].reg);
	for (uint8_t i = 0; i < x86->op_count; i++) {
		if (x86->operands[i].type != X86_OP_MEM || insn->id == X86_INS_LEA ||
		    insn->id == X86_INS_NOP)
			continue;
		add_memory(out, &x86->operands[i], big);
		if (insn->id != X86_INS_JMP)
			continue;
		out->jumps = true;
		out->jump_base = dwarf_reg(x86->operands[i].mem.base);
	}
}

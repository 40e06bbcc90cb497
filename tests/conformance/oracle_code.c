/* SPDX-License-Identifier: MIT */
/* Machine code as the oracle needs it: what an instruction writes, how it moves the stack pointer. */
#include <capstone/capstone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

#define PLACES 65536

struct oracle_code {
	csh handle;
	cs_insn *scratch;
	struct oracle_insn *insn;
};

struct oracle_code *oracle_code_new(void)
{
	struct oracle_code *code = calloc(1, sizeof(*code));

	if (!code || cs_open(CS_ARCH_X86, CS_MODE_64, &code->handle) != CS_ERR_OK) {
		free(code);
		return NULL;
	}
	cs_option(code->handle, CS_OPT_DETAIL, CS_OPT_ON);
	code->scratch = cs_malloc(code->handle);
	code->insn = calloc(PLACES, sizeof(*code->insn));
	if (!code->scratch || !code->insn) {
		oracle_code_free(code);
		return NULL;
	}
	return code;
}

void oracle_code_free(struct oracle_code *code)
{
	if (!code)
		return;
	if (code->scratch)
		cs_free(code->scratch, 1);
	cs_close(&code->handle);
	free(code->insn);
	free(code);
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

static bool writes_sp(csh handle, const cs_insn *insn)
{
	return cs_reg_write(handle, insn, X86_REG_RSP) || cs_reg_write(handle, insn, X86_REG_ESP);
}

static void classify(struct oracle_code *code, struct oracle_insn *out)
{
	const cs_insn *insn = code->scratch;
	const cs_x86 *x86 = &insn->detail->x86;
	bool call = cs_insn_group(code->handle, insn, CS_GRP_CALL);
	bool big = strstr(insn->mnemonic, "xsave") || strstr(insn->mnemonic, "xrstor");
	bool plain = call || insn->id == X86_INS_PUSH || insn->id == X86_INS_POP ||
		     insn->id == X86_INS_PUSHFQ || insn->id == X86_INS_POPFQ ||
		     cs_insn_group(code->handle, insn, CS_GRP_RET);

	out->size = (uint8_t)insn->size;
	out->syscall = insn->id == X86_INS_SYSCALL;
	out->pushes = call || insn->id == X86_INS_PUSH || insn->id == X86_INS_PUSHFQ;
	out->moves_sp = !plain && writes_sp(code->handle, insn);
	out->jump_base = out->loads = out->stores = ORACLE_REG_NONE;
	if (insn->id == X86_INS_MOV && x86->operands[0].type == X86_OP_MEM &&
	    x86->operands[1].type == X86_OP_REG)
		out->stores = dwarf_reg(x86->operands[1].reg);
	if (insn->id == X86_INS_MOV && x86->operands[0].type == X86_OP_REG &&
	    x86->operands[1].type == X86_OP_MEM)
		out->loads = dwarf_reg(x86->operands[0].reg);
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

const struct oracle_insn *oracle_code_at(struct oracle_code *code, const struct msp_memory *mem,
					 uint64_t pc)
{
	struct oracle_insn *out = &code->insn[(pc * 0x9e3779b97f4a7c15ull) >> 48];
	uint8_t bytes[16];
	const uint8_t *at = bytes;
	uint64_t addr = pc;
	size_t size = sizeof(bytes);

	if (msp_read(mem, pc, bytes, size) != 0) {
		size = 4096 - (pc & 4095);
		memset(bytes, 0, sizeof(bytes));
		if (size >= sizeof(bytes) || msp_read(mem, pc, bytes, size) != 0)
			return NULL;
	}
	if (out->pc == pc && memcmp(out->bytes, bytes, sizeof(bytes)) == 0)
		return out;
	memset(out, 0, sizeof(*out));
	out->pc = pc;
	memcpy(out->bytes, bytes, sizeof(bytes));
	if (cs_disasm_iter(code->handle, &at, &size, &addr, code->scratch))
		classify(code, out);
	else
		out->syscall = true; /* not known: anything may happen */
	return out;
}

void oracle_code_text(struct oracle_code *code, const struct oracle_insn *insn, char *buf,
		      size_t size)
{
	const uint8_t *at = insn->bytes;
	uint64_t addr = insn->pc;
	size_t left = sizeof(insn->bytes);

	if (cs_disasm_iter(code->handle, &at, &left, &addr, code->scratch))
		snprintf(buf, size, "%s %s", code->scratch->mnemonic, code->scratch->op_str);
	else
		snprintf(buf, size, "(unknown)");
}

static uint64_t reg_value(const struct user_regs_struct *r, const struct oracle_insn *insn,
			  uint8_t reg)
{
	const uint64_t by_number[] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi,
				      r->rbp, r->rsp, r->r8,  r->r9,  r->r10, r->r11,
				      r->r12, r->r13, r->r14, r->r15};

	if (reg == ORACLE_REG_PC)
		return insn->pc + insn->size;
	return reg == ORACLE_REG_NONE ? 0 : by_number[reg];
}

void oracle_code_writes(const struct oracle_insn *insn, const struct user_regs_struct *regs,
			struct oracle_memory *m)
{
	if (insn->syscall) {
		oracle_memory_flush(m);
		return;
	}
	if (insn->pushes)
		oracle_memory_written(m, regs->rsp - 16, 16);
	for (uint32_t i = 0; i < insn->memory_count; i++) {
		uint64_t addr =
			reg_value(regs, insn, insn->memory[i].base) +
			reg_value(regs, insn, insn->memory[i].index) * insn->memory[i].scale +
			(uint64_t)insn->memory[i].disp;

		if (insn->memory[i].segment == ORACLE_SEG_FS)
			addr += regs->fs_base;
		oracle_memory_written(m, addr, insn->memory[i].size);
	}
}

/* SPDX-License-Identifier: MIT */
/* The oracle on arm64. */
#include <elf.h>
#include <string.h>

#include "oracle.h"

#define LOOK_BACK 6 /* instructions before a jump that is the interpreter's dispatch */

const struct oracle_arch oracle_arch = {
	.arch = MSP_ARCH_ARM64,
	.machine = EM_AARCH64,
	.sp = 31,
	.cs_arch = CS_ARCH_ARM64,
	.cs_mode = CS_MODE_ARM,
	.reg = {"x0",  "x1",  "x2",  "x3",  "x4",  "x5",  "x6",	 "x7",	"x8",  "x9",  "x10",
		"x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21",
		"x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp"},
};

uint64_t oracle_arch_thread(const struct user_regs_struct *set)
{
	(void)set; /* no instruction counts from there */
	return 0;
}

void oracle_arch_leave_call(struct user_regs_struct *set)
{
	(void)set; /* they do not tell */
}

static uint8_t dwarf_reg(arm64_reg reg)
{
	if (reg >= ARM64_REG_X0 && reg <= ARM64_REG_X28)
		return (uint8_t)(reg - ARM64_REG_X0);
	if (reg >= ARM64_REG_W0 && reg <= ARM64_REG_W30)
		return (uint8_t)(reg - ARM64_REG_W0);
	switch ((unsigned int)reg) {
	case ARM64_REG_X29:
		return 29;
	case ARM64_REG_X30:
		return 30;
	case ARM64_REG_SP:
	case ARM64_REG_WSP:
		return 31;
	default:
		return ORACLE_REG_NONE;
	}
}

static void add_memory(struct oracle_insn *out, const cs_arm64_op *op)
{
	uint32_t n = out->memory_count;

	out->memory[n].base = dwarf_reg(op->mem.base);
	out->memory[n].index = dwarf_reg(op->mem.index);
	out->memory[n].scale = op->shift.type == ARM64_SFT_LSL ? 1 << (op->shift.value & 7) : 1;
	out->memory[n].extend = op->ext == ARM64_EXT_UXTW   ? ORACLE_EXTEND_UNSIGNED
				: op->ext == ARM64_EXT_SXTW ? ORACLE_EXTEND_SIGNED
							    : 0;
	out->memory[n].disp = op->mem.disp;
	out->memory[n].size = 64;
	/* What comes after the access is said like what comes before it: both places. */
	out->memory[n + 1] = out->memory[n];
	out->memory[n + 1].index = ORACLE_REG_NONE;
	out->memory[n + 1].disp = 0;
	out->memory_count = 2;
}

static bool is_store(const cs_insn *insn)
{
	return insn->mnemonic[0] == 's' && insn->mnemonic[1] == 't';
}

static bool is_load(const cs_insn *insn)
{
	return insn->mnemonic[0] == 'l' && insn->mnemonic[1] == 'd';
}

/* What the first operands of a load or store are. */
static void add_registers(struct oracle_insn *out, const cs_insn *insn)
{
	const cs_arm64 *arm64 = &insn->detail->arm64;
	uint32_t regs = 0;

	for (uint8_t i = 0; i < arm64->op_count && arm64->operands[i].type == ARM64_OP_REG; i++) {
		uint8_t reg = dwarf_reg(arm64->operands[i].reg);

		regs |= reg < 32 ? 1u << reg : 0;
	}
	if (is_store(insn))
		out->stores = regs;
	else if (is_load(insn))
		out->loads = regs;
}

/*
 * add x9, G, w16, uxtb #3; ldr x8, [x9, #table]; br x8, with others between them. capstone leaves
 * the first one's extension out where it is a shift: the words are looked at.
 */
static void find_dispatch(struct oracle_insn *out, const struct msp_memory *mem)
{
	uint32_t word[LOOK_BACK], reg, at = LOOK_BACK;

	memcpy(&reg, out->bytes, 4);
	reg = reg >> 5 & 31;
	if (msp_read(mem, out->pc - sizeof(word), word, sizeof(word)) != 0)
		return;
	while (at-- > 0) /* ldr reg, [x, #imm] */
		if ((word[at] & 0xffc0001f) == (0xf9400000 | reg))
			break;
	if (at > LOOK_BACK)
		return;
	reg = word[at] >> 5 & 31;
	while (at-- > 0) /* add reg, base, index, uxtb or uxtw #3 */
		if ((word[at] & 0xffe0bc1f) == (0x8b200c00 | reg)) {
			out->jumps = true;
			out->jump_base = word[at] >> 5 & 31;
			return;
		}
}

void oracle_arch_classify(csh handle, const cs_insn *insn, const struct msp_memory *mem,
			  struct oracle_insn *out)
{
	const cs_arm64 *arm64 = &insn->detail->arm64;
	uint8_t first = arm64->op_count && arm64->operands[0].type == ARM64_OP_REG
				? dwarf_reg(arm64->operands[0].reg)
				: ORACLE_REG_NONE;
	bool touches = false;

	(void)handle;
	for (uint8_t i = 0; i < arm64->op_count; i++) {
		if (arm64->operands[i].type != ARM64_OP_MEM)
			continue;
		add_memory(out, &arm64->operands[i]);
		touches = true;
	}
	out->syscall = insn->id == ARM64_INS_SVC;
	/* dc zva writes a whole line. */
	out->anywhere = out->syscall || insn->id == ARM64_INS_SYS || insn->id == ARM64_INS_DC;
	out->moves_sp = !touches && first == 31;
	if (touches)
		add_registers(out, insn);
	if (insn->id == ARM64_INS_BR)
		find_dispatch(out, mem);
}

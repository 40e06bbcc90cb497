/* SPDX-License-Identifier: MIT */
/* Machine code as the oracle needs it: what an instruction writes, how it moves the stack pointer. */
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

	if (!code ||
	    cs_open(oracle_arch.cs_arch, oracle_arch.cs_mode, &code->handle) != CS_ERR_OK) {
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
	out->jump_base = ORACLE_REG_NONE;
	if (cs_disasm_iter(code->handle, &at, &size, &addr, code->scratch)) {
		out->size = (uint8_t)code->scratch->size;
		oracle_arch_classify(code->handle, code->scratch, mem, out);
	} else {
		out->anywhere = true;
	}
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

static uint64_t reg_value(const struct oracle_process *p, const struct oracle_insn *insn,
			  uint8_t reg)
{
	if (reg == ORACLE_REG_PC)
		return insn->pc + insn->size;
	return reg == ORACLE_REG_NONE ? 0 : p->regs.reg[reg];
}

static uint64_t index_value(const struct oracle_process *p, const struct oracle_insn *insn,
			    uint32_t i)
{
	uint64_t value = reg_value(p, insn, insn->memory[i].index);

	if (insn->memory[i].extend == ORACLE_EXTEND_UNSIGNED)
		value = (uint32_t)value;
	if (insn->memory[i].extend == ORACLE_EXTEND_SIGNED)
		value = (uint64_t)(int32_t)value;
	return value * insn->memory[i].scale;
}

void oracle_code_writes(const struct oracle_insn *insn, const struct oracle_process *p)
{
	if (insn->anywhere) {
		oracle_memory_flush(p->memory);
		return;
	}
	if (insn->pushes)
		oracle_memory_written(p->memory, p->regs.reg[oracle_arch.sp] - 16, 16);
	for (uint32_t i = 0; i < insn->memory_count; i++) {
		uint64_t addr = reg_value(p, insn, insn->memory[i].base) + index_value(p, insn, i) +
				(uint64_t)insn->memory[i].disp;

		if (insn->memory[i].segment == ORACLE_SEG_FS)
			addr += oracle_arch_thread(&p->set);
		oracle_memory_written(p->memory, addr, insn->memory[i].size);
	}
}

/* SPDX-License-Identifier: MIT */
/* One step by libdw's description of a frame; shares nothing with the code under test. */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdlib.h>
#include <string.h>

#include "cfi_compare.h"

struct machine {
	const struct cpu *cpu;
	const struct regs *in;
	read_word_fn read;
	void *ctx;
	uint64_t cfa;
	uint64_t stack[34];
	int depth;
	bool is_value; /* the result is the value, not where it is */
};

static bool push_register(struct machine *m, uint64_t reg, uint64_t offset)
{
	if (reg >= REG_COUNT || !has_reg(m->in, (int)reg))
		return false;
	m->stack[m->depth++] = m->in->value[reg] + offset;
	return true;
}

/* Operations that push. 1: done, 0: it is another one, -1: cannot be. */
static int step_push(struct machine *m, const Dwarf_Op *op)
{
	if (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31)
		return push_register(m, op->atom - DW_OP_breg0, op->number) ? 1 : -1;
	if (op->atom >= DW_OP_reg0 && op->atom <= DW_OP_reg31) {
		m->is_value = true;
		return push_register(m, op->atom - DW_OP_reg0, 0) ? 1 : -1;
	}
	if (op->atom >= DW_OP_lit0 && op->atom <= DW_OP_lit31) {
		m->stack[m->depth++] = op->atom - DW_OP_lit0;
		return 1;
	}
	if (op->atom >= DW_OP_const1u && op->atom <= DW_OP_consts) {
		m->stack[m->depth++] = op->number;
		return 1;
	}
	switch (op->atom) {
	case DW_OP_regx:
		m->is_value = true;
		return push_register(m, op->number, 0) ? 1 : -1;
	case DW_OP_bregx:
		return push_register(m, op->number, op->number2) ? 1 : -1;
	case DW_OP_call_frame_cfa:
		m->stack[m->depth++] = m->cfa;
		return 1;
	default:
		return 0;
	}
}

static bool step_binary(struct machine *m, const Dwarf_Op *op)
{
	uint64_t *to, by;

	if (m->depth < 2)
		return false;
	by = m->stack[--m->depth];
	to = &m->stack[m->depth - 1];
	switch (op->atom) {
	case DW_OP_plus:
		*to += by;
		return true;
	case DW_OP_minus:
		*to -= by;
		return true;
	case DW_OP_mul:
		*to *= by;
		return true;
	case DW_OP_and:
		*to &= by;
		return true;
	case DW_OP_shl:
		*to <<= by;
		return true;
	case DW_OP_ge:
		*to = (int64_t)*to >= (int64_t)by;
		return true;
	default:
		return false;
	}
}

static bool evaluate(struct machine *m, const Dwarf_Op *ops, size_t count, uint64_t *result)
{
	m->depth = 0;
	m->is_value = false;
	for (size_t i = 0; i < count && m->depth < 32; i++) {
		int pushed = step_push(m, &ops[i]);

		if (pushed < 0)
			return false;
		if (pushed)
			continue;
		if (ops[i].atom == DW_OP_stack_value)
			m->is_value = true;
		else if (ops[i].atom == DW_OP_plus_uconst && m->depth)
			m->stack[m->depth - 1] += ops[i].number;
		else if (ops[i].atom == DW_OP_deref && m->depth) {
			if (!m->read(m->ctx, m->stack[m->depth - 1], &m->stack[m->depth - 1]))
				return false;
		} else if (!step_binary(m, &ops[i]))
			return false;
	}
	*result = m->depth ? m->stack[m->depth - 1] : 0;
	return m->depth > 0;
}

enum said { SAID_VALUE, SAID_SAME, SAID_UNDEFINED, SAID_ODD };

/* What libdw says a register of the caller is. */
static enum said register_of(struct machine *m, Dwarf_Frame *frame, int reg, uint64_t *value)
{
	Dwarf_Op memory[3], *ops;
	size_t count;

	if (dwarf_frame_register(frame, reg, memory, &ops, &count))
		return SAID_ODD;
	if (!count)
		return ops ? SAID_UNDEFINED : SAID_SAME;
	if (!evaluate(m, ops, count, value) || (!m->is_value && !m->read(m->ctx, *value, value)))
		return SAID_ODD;
	return SAID_VALUE;
}

static bool restore(struct machine *m, Dwarf_Frame *frame, int reg, struct regs *out,
		    bool *rbx_default)
{
	int column = reg == m->cpu->pc ? m->cpu->ra_column : reg;
	uint64_t value;

	switch (register_of(m, frame, column, &out->value[reg])) {
	case SAID_VALUE:
		out->known |= 1ull << reg;
		return true;
	case SAID_UNDEFINED:
		/* No function keeps rax: only a mixed up table says so. */
		if (m->cpu != &cpu_x64 || reg != MSP_X64_RBX ||
		    register_of(m, frame, MSP_X64_RAX, &value) == SAID_UNDEFINED)
			return true;
		*rbx_default = true;
		/* fall through */
	case SAID_SAME:
		out->value[reg] = m->in->value[column];
		out->known |= (uint64_t)has_reg(m->in, column) << reg;
		return true;
	default:
		return false;
	}
}

enum step_result step_by_libdw(const struct cpu *cpu, Dwarf_CFI *eh, Dwarf_CFI *debug,
			       uint64_t addr, const struct regs *in, read_word_fn read, void *ctx,
			       struct regs *out, bool *rbx_default)
{
	struct machine m = {.cpu = cpu, .in = in, .read = read, .ctx = ctx};
	enum step_result result = STEP_OK;
	Dwarf_Frame *frame = NULL;
	Dwarf_Op *ops;
	size_t count;

	memset(out, 0, sizeof(*out));
	if ((!eh || dwarf_cfi_addrframe(eh, addr, &frame)) &&
	    (!debug || dwarf_cfi_addrframe(debug, addr, &frame)))
		return STEP_NO_RULE;
	if (!dwarf_frame_cfa(frame, &ops, &count) && count && !evaluate(&m, ops, count, &m.cfa))
		result = STEP_UNSUPPORTED;
	for (int i = 0; compared_reg(cpu, i) >= 0; i++)
		if (!restore(&m, frame, compared_reg(cpu, i), out, rbx_default))
			result = STEP_UNSUPPORTED;
	if (result == STEP_OK && !has_reg(out, cpu->pc))
		result = STEP_END;
	free(frame);
	return result;
}

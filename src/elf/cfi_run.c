/* SPDX-License-Identifier: MIT */
/* The DW_CFA_* machine (DWARF 5, section 6.4.2), run once over each FDE. */
#include <dwarf.h>
#include <string.h>

#include "elf/cfi.h"
#include "moonspy/moonspy.h"

/* Compilers nest once. */
#define REMEMBER_MAX 16

struct machine {
	const struct msp_cfi_arch *arch;
	struct msp_cfi_cie *cie;
	struct msp_rows *rows; /* NULL while the CIE's own program runs */
	const uint8_t *at, *end;
	uint64_t loc;
	uint32_t from, stop;
	struct msp_cfi_state state;
	struct msp_cfi_state stack[REMEMBER_MAX];
	uint32_t depth;
};

bool msp_uleb(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
	const uint8_t *p = *at;

	*value = 0;
	for (unsigned shift = 0; p < end; shift += 7) {
		uint8_t byte = *p++;

		if (shift < 64)
			*value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*at = p;
			return true;
		}
	}
	return false;
}

bool msp_sleb(const uint8_t **at, const uint8_t *end, int64_t *value)
{
	const uint8_t *p = *at;
	uint64_t bits = 0;

	for (unsigned shift = 0; p < end;) {
		uint8_t byte = *p++;

		if (shift < 64)
			bits |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
		if (byte & 0x80)
			continue;
		if (shift < 64 && byte & 0x40)
			bits |= -1ull << shift;
		*value = (int64_t)bits;
		*at = p;
		return true;
	}
	return false;
}

/* Factored offsets multiply; a product that overflows must fit no rule. */
static int64_t times(int64_t a, int64_t b)
{
	int64_t product;

	return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static struct msp_cfi_reg *slot_of(struct machine *m, struct msp_cfi_state *state, uint64_t reg)
{
	if (reg == m->arch->sp)
		return &state->regs[MSP_CFI_SP_SLOT];
	for (int i = 0; i < m->arch->slot_count; i++)
		if (m->arch->slot_reg[i] == reg)
			return &state->regs[i];
	return NULL;
}

static void set_reg(struct machine *m, uint64_t reg, uint8_t how, int64_t value)
{
	struct msp_cfi_reg *slot = slot_of(m, &m->state, reg);

	if (slot)
		*slot = (struct msp_cfi_reg){.how = how, .value = value};
	if (how != CFI_OFFSET || reg >= 32)
		return;
	m->state.ever_saved |= 1u << reg;
	if (reg < m->arch->eh_data)
		m->state.eh_cfa_reg = m->state.cfa_reg;
}

static void restore_reg(struct machine *m, uint64_t reg)
{
	struct msp_cfi_reg *slot = slot_of(m, &m->state, reg);

	if (slot)
		*slot = *slot_of(m, &m->cie->initial, reg);
}

/*
 * A register has the return address. Not where that is on the stack as well: glibc since 2.41, for arm64,
 * says it of a copy of x30 whatever the function has called since.
 */
static void in_register(struct machine *m, uint64_t reg, int64_t other)
{
	const struct msp_cfi_reg *ra = &m->state.regs[MSP_SLOT_RA];

	if (m->arch->ra_live && reg == m->arch->ra && ra->how == CFI_OFFSET &&
	    m->state.cfa_reg == m->arch->sp && !m->state.cfa_expr && ra->value >= -m->state.cfa_off)
		return;
	set_reg(m, reg, CFI_REGISTER, other);
}

/* The state holds from m->from to m->loc. */
static int emit(struct machine *m)
{
	struct msp_rule rule;
	uint64_t to = m->loc < m->stop ? m->loc : m->stop;
	int index;

	if (!m->rows || to <= m->from)
		return 0;
	msp_cfi_rule(m->arch, &m->state, m->cie->signal, &rule);
	index = msp_rows_intern(m->rows, &rule);
	if (index < 0)
		return index;
	index = msp_rows_add(m->rows, m->from, (uint32_t)index);
	m->from = (uint32_t)to;
	return index;
}

static int advance(struct machine *m, uint64_t delta)
{
	uint64_t bytes, old = m->loc;
	int err;

	if (__builtin_mul_overflow(delta, m->cie->code_align, &bytes) ||
	    __builtin_add_overflow(old, bytes, &m->loc))
		m->loc = UINT64_MAX;
	err = m->loc > m->from ? emit(m) : 0;
	if (m->loc >= m->stop)
		m->at = m->end; /* nothing further can hold in this function */
	return err;
}

static bool fixed(struct machine *m, unsigned size, uint64_t *value)
{
	*value = 0;
	if ((size_t)(m->end - m->at) < size)
		return false;
	memcpy(value, m->at, size);
	m->at += size;
	return true;
}

static bool set_cfa(struct machine *m, uint64_t reg, int64_t off)
{
	m->state.cfa_reg = reg < 256 ? (uint32_t)reg : MSP_REG_NONE;
	m->state.cfa_off = off;
	m->state.cfa_expr = NULL;
	return true;
}

static bool block(struct machine *m, const uint8_t **expr, uint32_t *size)
{
	uint64_t length;

	if (!msp_uleb(&m->at, m->end, &length) || length > (uint64_t)(m->end - m->at))
		return false;
	*expr = m->at;
	*size = (uint32_t)length;
	m->at += length;
	return true;
}

static bool set_reg_expression(struct machine *m, uint8_t how)
{
	struct msp_cfi_reg value = {.how = how}, *slot;
	uint64_t reg;

	if (!msp_uleb(&m->at, m->end, &reg) || !block(m, &value.expr, &value.size))
		return false;
	slot = slot_of(m, &m->state, reg);
	if (slot)
		*slot = value;
	return true;
}

static bool remember(struct machine *m)
{
	if (m->depth == REMEMBER_MAX)
		return false;
	m->stack[m->depth++] = m->state;
	return true;
}

static bool restore_state(struct machine *m)
{
	if (!m->depth)
		return false;
	m->state = m->stack[--m->depth];
	return true;
}

/* Instructions about one register, its number first. */
static bool step_register(struct machine *m, uint8_t op)
{
	uint64_t reg, value = 0;
	int64_t offset = 0;

	if (!msp_uleb(&m->at, m->end, &reg))
		return false;
	if (op == DW_CFA_offset_extended_sf || op == DW_CFA_val_offset_sf) {
		if (!msp_sleb(&m->at, m->end, &offset))
			return false;
	} else if (op == DW_CFA_offset_extended || op == DW_CFA_val_offset ||
		   op == DW_CFA_register || op == DW_CFA_GNU_negative_offset_extended) {
		if (!msp_uleb(&m->at, m->end, &value))
			return false;
		offset = op == DW_CFA_GNU_negative_offset_extended ? -(int64_t)value
								   : (int64_t)value;
	}
	if (op == DW_CFA_undefined)
		set_reg(m, reg, CFI_UNDEFINED, 0);
	else if (op == DW_CFA_same_value)
		set_reg(m, reg, CFI_SAME, 0);
	else if (op == DW_CFA_register)
		in_register(m, reg, (int64_t)value);
	else if (op == DW_CFA_restore_extended)
		restore_reg(m, reg);
	else
		set_reg(m, reg,
			op == DW_CFA_val_offset || op == DW_CFA_val_offset_sf ? CFI_VAL_OFFSET
									      : CFI_OFFSET,
			times(offset, m->cie->data_align));
	return true;
}

/* Instructions about the CFA. */
static bool step_cfa(struct machine *m, uint8_t op)
{
	uint64_t reg = m->state.cfa_reg, value = 0;
	int64_t offset = 0;

	switch (op) {
	case DW_CFA_def_cfa:
		return msp_uleb(&m->at, m->end, &reg) && msp_uleb(&m->at, m->end, &value) &&
		       set_cfa(m, reg, (int64_t)value);
	case DW_CFA_def_cfa_sf:
		return msp_uleb(&m->at, m->end, &reg) && msp_sleb(&m->at, m->end, &offset) &&
		       set_cfa(m, reg, times(offset, m->cie->data_align));
	case DW_CFA_def_cfa_register:
		/* Defined only after a register + offset rule. */
		return !m->state.cfa_expr && msp_uleb(&m->at, m->end, &reg) &&
		       set_cfa(m, reg, m->state.cfa_off);
	case DW_CFA_def_cfa_offset:
		return !m->state.cfa_expr && msp_uleb(&m->at, m->end, &value) &&
		       set_cfa(m, reg, (int64_t)value);
	case DW_CFA_def_cfa_offset_sf:
		return !m->state.cfa_expr && msp_sleb(&m->at, m->end, &offset) &&
		       set_cfa(m, reg, times(offset, m->cie->data_align));
	default:
		return block(m, &m->state.cfa_expr, &m->state.cfa_expr_size);
	}
}

/* Instructions whose operands say where the next row starts. */
static int step_location(struct machine *m, uint8_t op, bool *ok)
{
	uint64_t value = 0;
	unsigned size = op == DW_CFA_advance_loc1   ? 1
			: op == DW_CFA_advance_loc2 ? 2
			: op == DW_CFA_advance_loc4 ? 4
						    : 8;

	*ok = fixed(m, size, &value);
	return *ok ? advance(m, value) : 0;
}

/* One instruction without operand in its opcode. false: not understood. */
static int step_extended(struct machine *m, uint8_t op, bool *ok)
{
	uint64_t ignored;

	*ok = true;
	switch (op) {
	case DW_CFA_nop:
		return 0;
	case DW_CFA_advance_loc1:
	case DW_CFA_advance_loc2:
	case DW_CFA_advance_loc4:
	case DW_CFA_MIPS_advance_loc8:
		return step_location(m, op, ok);
	case DW_CFA_remember_state:
		*ok = remember(m);
		return 0;
	case DW_CFA_restore_state:
		*ok = restore_state(m);
		return 0;
	case DW_CFA_def_cfa:
	case DW_CFA_def_cfa_sf:
	case DW_CFA_def_cfa_register:
	case DW_CFA_def_cfa_offset:
	case DW_CFA_def_cfa_offset_sf:
	case DW_CFA_def_cfa_expression:
		*ok = step_cfa(m, op);
		return 0;
	case DW_CFA_expression:
		*ok = set_reg_expression(m, CFI_EXPRESSION);
		return 0;
	case DW_CFA_val_expression:
		*ok = set_reg_expression(m, CFI_VAL_EXPRESSION);
		return 0;
	case DW_CFA_GNU_args_size:
		*ok = msp_uleb(&m->at, m->end, &ignored);
		return 0;
	case DW_CFA_GNU_window_save: /* DW_CFA_AARCH64_negate_ra_state has the same number */
		*ok = m->arch->negate_ra_state;
		m->state.ra_signed = !m->state.ra_signed;
		return 0;
	case DW_CFA_offset_extended:
	case DW_CFA_offset_extended_sf:
	case DW_CFA_GNU_negative_offset_extended:
	case DW_CFA_val_offset:
	case DW_CFA_val_offset_sf:
	case DW_CFA_restore_extended:
	case DW_CFA_undefined:
	case DW_CFA_same_value:
	case DW_CFA_register:
		*ok = step_register(m, op);
		return 0;
	default: /* DW_CFA_set_loc too: no producer for these processors emits it */
		*ok = false;
		return 0;
	}
}

static int step(struct machine *m, bool *ok)
{
	uint8_t op = *m->at++, low = op & 0x3f;
	uint64_t offset;

	*ok = true;
	switch (op & 0xc0) {
	case DW_CFA_advance_loc:
		return advance(m, low);
	case DW_CFA_offset:
		*ok = msp_uleb(&m->at, m->end, &offset);
		set_reg(m, low, CFI_OFFSET, times((int64_t)offset, m->cie->data_align));
		return 0;
	case DW_CFA_restore:
		restore_reg(m, low);
		return 0;
	default:
		return step_extended(m, op, ok);
	}
}

static int run(struct machine *m)
{
	while (m->at < m->end) {
		bool ok;
		int err = step(m, &ok);

		if (err)
			return err;
		if (!ok) {
			m->state.unknown = true;
			break;
		}
	}
	m->loc = m->stop;
	return emit(m);
}

/* Many FDEs share a CIE: were its program run for each, a hostile file could take for ever. */
static int start_cie(struct machine *m)
{
	m->at = m->cie->program;
	m->end = m->cie->program_end;
	m->state = (struct msp_cfi_state){.cfa_reg = MSP_REG_NONE, .unknown = m->cie->other_ra};
	m->depth = 0;
	m->rows = NULL;
	m->stop = UINT32_MAX;
	m->loc = 0;
	m->cie->initial = m->state;
	m->cie->started = true;
	run(m);
	m->cie->initial = m->state;
	return 0;
}

/*
 * glibc's lazy binder (sysdeps/aarch64/dl-trampoline.S): the PLT has pushed the return address, and
 * the CFI says that it is above the CFA, where nothing of a frame is. The CFA is meant without it.
 */
static bool has_pushed(const struct msp_cfi_arch *arch, const struct msp_cfi_fde *fde)
{
	static const uint8_t ra_above[] = {DW_CFA_offset_extended_sf, 30,
					   0x7f}; /* r30 at CFA + 8 */

	return arch->arch == MSP_ARCH_ARM64 &&
	       memmem(fde->program, fde->program_size, ra_above, sizeof(ra_above)) != NULL;
}

int msp_cfi_run(const struct msp_cfi_arch *arch, struct msp_cfi_cie *cie,
		const struct msp_cfi_fde *fde, uint32_t from, struct msp_rows *rows)
{
	struct machine m;

	m.arch = arch;
	m.cie = cie;
	m.from = from;
	if (!cie->started)
		start_cie(&m);
	m.rows = rows;
	m.state = cie->initial;
	m.state.pushed = has_pushed(arch, fde);
	m.depth = 0;
	m.at = fde->program;
	m.end = fde->program + fde->program_size;
	m.loc = fde->start;
	m.stop = fde->end;
	if (m.state.unknown)
		m.at = m.end;
	return run(&m);
}

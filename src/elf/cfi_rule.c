/* SPDX-License-Identifier: MIT */
/* From what the CFI says to a rule, if a rule can say it. */
#include <dwarf.h>
#include <string.h>

#include "elf/cfi.h"

static const struct msp_cfi_arch archs[] = {
	{
		.arch = MSP_ARCH_X86_64,
		.ra = MSP_X64_RA,
		.sp = MSP_X64_RSP,
		.eh_data = 2,
		.slot_count = 7,
		.slot_reg = {MSP_X64_RA, MSP_X64_RBX, MSP_X64_RBP, MSP_X64_R12, MSP_X64_R13,
			     MSP_X64_R14, MSP_X64_R15},
	},
	{
		.arch = MSP_ARCH_ARM64,
		.ra = 30,
		.sp = 31,
		.eh_data = 4,
		.slot_count = 12,
		.slot_reg = {30, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29},
		.ra_live = true,
		.negate_ra_state = true,
	},
};

const struct msp_cfi_arch *msp_cfi_arch(int arch)
{
	for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
		if (archs[i].arch == arch)
			return &archs[i];
	return NULL;
}

/* DW_OP_breg<n> offset at the start of an expression. */
static bool take_breg(const uint8_t **at, const uint8_t *end, uint32_t *reg, int64_t *off)
{
	if (*at == end || **at < DW_OP_breg0 || **at > DW_OP_breg31)
		return false;
	*reg = (uint32_t)(*(*at)++ - DW_OP_breg0);
	return msp_sleb(at, end, off);
}

/*
 * PLT entries push one word in their middle. Linkers describe all of them by
 *   sp + 8 + ((pc & 15) >= threshold) << 3
 * Returns the threshold, -1 if the expression is another one.
 */
static int plt_threshold(const uint8_t *at, const uint8_t *end)
{
	static const uint8_t before[] = {DW_OP_breg7, 8, DW_OP_breg16, 0, DW_OP_lit15, DW_OP_and};
	static const uint8_t after[] = {DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus};
	int lit;

	if ((size_t)(end - at) != sizeof(before) + 1 + sizeof(after) ||
	    memcmp(at, before, sizeof(before)) ||
	    memcmp(at + sizeof(before) + 1, after, sizeof(after)))
		return -1;
	lit = at[sizeof(before)] - DW_OP_lit0;
	return lit >= 0 && lit < 16 ? lit : -1;
}

static bool set_cfa(struct msp_rule *rule, uint8_t kind, uint32_t reg, int64_t off)
{
	if (reg >= MSP_REG_COUNT || off < INT32_MIN || off > INT32_MAX)
		return false;
	rule->cfa_kind = kind;
	rule->cfa_reg = (uint8_t)reg;
	rule->cfa_off = (int32_t)off;
	return true;
}

static bool cfa_expression(const struct msp_cfi_arch *arch, const struct msp_cfi_state *state,
			   struct msp_rule *rule)
{
	const uint8_t *at = state->cfa_expr, *end = at + state->cfa_expr_size;
	uint64_t add = 0;
	uint32_t reg;
	int64_t off;
	int threshold = plt_threshold(at, end);

	if (threshold >= 0 && arch->arch == MSP_ARCH_X86_64)
		return set_cfa(rule, MSP_CFA_PLT, arch->sp, threshold);
	if (!take_breg(&at, end, &reg, &off))
		return false;
	if (at == end)
		return set_cfa(rule, MSP_CFA_REG, reg, off);
	if (*at++ != DW_OP_deref)
		return false;
	if (at < end && (*at++ != DW_OP_plus_uconst || !msp_uleb(&at, end, &add)))
		return false;
	if (at != end || (add != 0 && add != 8))
		return false;
	return set_cfa(rule, add ? MSP_CFA_DEREF_ADD8 : MSP_CFA_DEREF, reg, off);
}

static bool cfa(const struct msp_cfi_arch *arch, const struct msp_cfi_state *state,
		struct msp_rule *rule)
{
	if (state->cfa_expr)
		return cfa_expression(arch, state, rule);
	/* x86-64's column 16 is no register that anything could be relative to. */
	if (!arch->ra_live && state->cfa_reg == arch->ra)
		return false;
	return set_cfa(rule, MSP_CFA_REG, state->cfa_reg, state->cfa_off);
}

static bool fits(int64_t off)
{
	return off >= INT16_MIN && off < MSP_SAVED_UNDEFINED;
}

/*
 * A register at an address that is not told by the CFA but by a register: gcc
 * does that in functions that realign the stack. Only where the CFA is told by
 * the same register can a rule say it.
 */
static bool expression_slot(const struct msp_cfi_reg *reg, struct msp_rule *rule, int64_t *off,
			    bool *by_register)
{
	const uint8_t *at = reg->expr, *end = at + reg->size;
	uint32_t base;

	if (!take_breg(&at, end, &base, off) || at != end || base != rule->cfa_reg)
		return false;
	if (rule->cfa_kind == MSP_CFA_REG) {
		*off -= rule->cfa_off;
		return true;
	}
	*by_register = true;
	return rule->cfa_kind == MSP_CFA_DEREF;
}

/* What a rule says of a register other than the return address. */
static int16_t saved(const struct msp_cfi_reg *reg, struct msp_rule *rule, bool *by_register)
{
	int64_t off = reg->value;

	switch (reg->how) {
	case CFI_DEFAULT:
	case CFI_SAME:
		return MSP_SAVED_SAME;
	case CFI_EXPRESSION:
		if (!expression_slot(reg, rule, &off, by_register))
			return MSP_SAVED_UNDEFINED;
		/* fall through */
	case CFI_OFFSET:
		return fits(off) ? (int16_t)off : MSP_SAVED_UNDEFINED;
	default:
		/* The walker then lacks this register, and knows it; all else is right. */
		return MSP_SAVED_UNDEFINED;
	}
}

static bool saved_registers(const struct msp_cfi_arch *arch, const struct msp_cfi_state *state,
			    struct msp_rule *rule)
{
	bool any = false, offsets = false;

	for (int i = 1; i < arch->slot_count; i++) {
		bool by_register = false;

		rule->saved[i] = saved(&state->regs[i], rule, &by_register);
		if (rule->saved[i] >= MSP_SAVED_UNDEFINED)
			continue;
		any |= by_register;
		offsets |= !by_register;
	}
	if (any)
		rule->cfa_kind = MSP_CFA_DEREF_FRAME;
	/* One rule cannot do both: give up the registers, not the frame. */
	for (int i = 1; any && offsets && i < arch->slot_count; i++)
		if (state->regs[i].how == CFI_OFFSET)
			rule->saved[i] = MSP_SAVED_UNDEFINED;
	return true;
}

static bool return_address(const struct msp_cfi_arch *arch, const struct msp_cfi_state *state,
			   struct msp_rule *rule)
{
	const struct msp_cfi_reg *ra = &state->regs[MSP_SLOT_RA];
	bool by_register = false;

	switch (ra->how) {
	case CFI_DEFAULT:
	case CFI_SAME:
		rule->saved[MSP_SLOT_RA] = MSP_SAVED_SAME;
		return arch->ra_live;
	case CFI_OFFSET:
	case CFI_EXPRESSION:
		rule->saved[MSP_SLOT_RA] = saved(ra, rule, &by_register);
		return !by_register && rule->saved[MSP_SLOT_RA] != MSP_SAVED_UNDEFINED;
	case CFI_REGISTER:
		if (rule->cfa_kind != MSP_CFA_REG || ra->value < 0 || ra->value >= MSP_REG_COUNT)
			return false;
		rule->cfa_kind = MSP_CFA_RA_REG;
		rule->saved[MSP_SLOT_RA] = (int16_t)ra->value;
		return true;
	default:
		return false;
	}
}

/* The caller's sp is the CFA. CFI that says otherwise is beyond a rule. */
static bool stack_pointer(const struct msp_cfi_state *state)
{
	const struct msp_cfi_reg *sp = &state->regs[MSP_CFI_SP_SLOT];

	return sp->how == CFI_DEFAULT || (sp->how == CFI_VAL_OFFSET && sp->value == 0);
}

/*
 * A signal frame as the kernel lays it out. x86-64: the CFA is the interrupted
 * sp, 160 bytes into the ucontext at sp; others mark frames of their own with
 * 'S' (Go's runtime, gVisor), and those are not ours to read.
 */
static bool kernel_signal_frame(const struct msp_cfi_arch *arch, const struct msp_cfi_state *state)
{
	const uint8_t *at = state->cfa_expr, *end;
	uint32_t reg;
	int64_t off;

	if (arch->arch != MSP_ARCH_X86_64)
		return !state->unknown;
	if (state->unknown || !at)
		return false;
	end = at + state->cfa_expr_size;
	return take_breg(&at, end, &reg, &off) && reg == MSP_X64_RSP && off == 160 &&
	       end - at == 1 && *at == DW_OP_deref;
}

/* The registers that hand an exception over, and all that a caller may expect to be kept. */
static uint32_t eh_registers(const struct msp_cfi_arch *arch)
{
	uint32_t regs = (1u << arch->eh_data) - 1;

	for (int i = 1; i < arch->slot_count; i++)
		regs |= 1u << arch->slot_reg[i];
	return regs;
}

/*
 * Only a function that ends with gcc's __builtin_eh_return saves both: the registers that hand an
 * exception over (the dynamic linker saves them, too, for a function that it binds late) and
 * all that are kept. It writes where it will go to over its own frame;
 * once the CFA is told by another register (arm64: the return address is in its register), it has
 * restored all others.
 */
static void eh_return(const struct msp_cfi_arch *arch, const struct msp_cfi_state *state,
		      struct msp_rule *rule)
{
	if (~state->ever_saved & eh_registers(arch))
		return;
	rule->flags |= MSP_RULE_THROWS;
	if (state->cfa_reg == state->eh_cfa_reg &&
	    !(arch->ra_live && rule->saved[MSP_SLOT_RA] == MSP_SAVED_SAME))
		return;
	rule->flags ^= MSP_RULE_THROWS | MSP_RULE_LANDS;
	for (int i = 1; i < arch->slot_count; i++)
		rule->saved[i] = MSP_SAVED_SAME;
}

/* The CFA is behind two more words. */
static void add_pushed(struct msp_rule *rule)
{
	if (rule->cfa_kind != MSP_CFA_REG)
		return;
	rule->cfa_off += 16;
	for (int i = 0; i < MSP_SLOT_COUNT; i++)
		if (rule->saved[i] < MSP_SAVED_UNDEFINED)
			rule->saved[i] = (int16_t)(rule->saved[i] - 16);
}

void msp_cfi_rule(const struct msp_cfi_arch *arch, const struct msp_cfi_state *state, bool signal,
		  struct msp_rule *rule)
{
	memset(rule, 0, sizeof(*rule));
	if (signal && kernel_signal_frame(arch, state)) {
		rule->cfa_kind = MSP_CFA_SIGNAL;
		rule->cfa_reg = arch->sp;
		return;
	}
	if (!state->unknown && (state->regs[MSP_SLOT_RA].how == CFI_UNDEFINED ||
				(state->regs[MSP_SLOT_RA].how == CFI_DEFAULT && !arch->ra_live))) {
		rule->cfa_kind = MSP_CFA_END;
		return;
	}
	if (state->unknown || signal || !cfa(arch, state, rule) || !stack_pointer(state) ||
	    !return_address(arch, state, rule)) {
		memset(rule, 0, sizeof(*rule));
		rule->cfa_kind = MSP_CFA_UNSUPPORTED;
		return;
	}
	saved_registers(arch, state, rule);
	eh_return(arch, state, rule);
	if (state->pushed)
		add_pushed(rule);
	if (state->ra_signed)
		rule->flags |= MSP_RULE_RA_SIGNED;
}

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* One step over a native frame by its unwind rule (DWARF standard, section 6.4). */
#ifndef MSP_UNWIND_NATIVE_H
#define MSP_UNWIND_NATIVE_H

/* A host that only ever walks one kind of machine says which: the others are then left out. */
#ifndef host_arch
#define host_arch(w) ((w)->arch)
#endif

/* Registers that a function keeps for its caller; the others are lost after one step. */
#define MSP_X64_PRESERVED \
	(1u << MSP_X64_RBX | 1u << MSP_X64_RBP | 1u << MSP_X64_RSP | 0xfu << MSP_X64_R12)
#define MSP_ARM64_PRESERVED 0xfff80000u /* x19..x30, sp */

static MSP_INLINE uint32_t arch_sp(const struct msp_walk *w)
{
	return host_arch(w) == MSP_ARCH_X86_64 ? MSP_X64_RSP : 31;
}

static MSP_INLINE uint32_t arch_fp(const struct msp_walk *w)
{
	return host_arch(w) == MSP_ARCH_X86_64 ? MSP_X64_RBP : 29;
}

static MSP_INLINE uint32_t arch_preserved(const struct msp_walk *w)
{
	return host_arch(w) == MSP_ARCH_X86_64 ? MSP_X64_PRESERVED : MSP_ARM64_PRESERVED;
}

/* DWARF number of the register in a slot other than MSP_SLOT_RA. */
static MSP_INLINE uint32_t arch_slot_reg(const struct msp_walk *w, uint32_t slot)
{
	if (host_arch(w) != MSP_ARCH_X86_64)
		return 18 + slot;
	return slot == 1 ? MSP_X64_RBX : slot == 2 ? MSP_X64_RBP : MSP_X64_R12 - 3 + slot;
}

static MSP_INLINE uint32_t arch_slot_count(const struct msp_walk *w)
{
	return host_arch(w) == MSP_ARCH_X86_64 ? 7 : MSP_SLOT_COUNT;
}

static MSP_INLINE int reg_known(const struct msp_walk *w, uint32_t reg)
{
	return w->known >> (reg & 31) & 1;
}

static MSP_INLINE uint64_t reg_get(const struct msp_walk *w, uint32_t reg)
{
	return w->reg[reg & (MSP_REG_COUNT - 1)];
}

/*
 * Keeps what the innermost frames have in their registers: see moved.h. Behind a signal's frame all
 * registers are known again: what it has interrupted is an innermost frame, too.
 */
static MSP_INLINE void native_keep(struct msp_walk *w)
{
	uint32_t n, slot;

	if (w->exact || w->frame_count == w->first_frame) {
		w->kept_from = w->frame_count;
		w->kept_count = 0;
	}
	n = w->frame_count - w->kept_from;
	if (n >= MSP_KEPT_FRAMES || n != w->kept_count)
		return;
	for (slot = 0; n == 0 && slot < MSP_LEAF_REGS; slot++)
		w->leaf[slot] = w->reg[slot] & -(uint64_t)(w->known >> slot & 1);
	for (slot = 1; slot < MSP_SLOT_COUNT; slot++) {
		uint32_t reg = arch_slot_reg(w, slot) & 31;

		if (slot >= arch_slot_count(w))
			continue;
		/* Without a branch, which the verifier would have to follow both ways. */
		w->kept[n & (MSP_KEPT_FRAMES - 1)][slot] = w->reg[reg] & -(uint64_t)(w->known >> reg & 1);
	}
	/* rax, x0: what the function that has just returned gives back */
	w->kept[n & (MSP_KEPT_FRAMES - 1)][MSP_SLOT_RA] = w->exact ? w->reg[0] : 0;
	w->kept_count = n + 1;
}

/* arm64: an exception may be about to land. The rule becomes one of what happens. */
static MSP_INLINE int native_landing(struct msp_walk *w)
{
	uint32_t taken = (uint32_t)w->rule.cfa_off & (MSP_REG_COUNT - 1);

	if (host_arch(w) != MSP_ARCH_ARM64)
		return MSP_ERR_BAD_RULE;
	if (!reg_known(w, taken))
		return MSP_ERR_LOST_REGISTER;
	w->cfa = w->reg[31];
	w->rule.cfa_kind = MSP_CFA_RA_REG;
	if (reg_get(w, taken))
		w->cfa += reg_get(w, w->rule.cfa_reg);
	else
		w->rule.saved[MSP_SLOT_RA] = 30;
	return MSP_ERR_NONE;
}

/* w->rule -> w->cfa. */
static MSP_INLINE int native_cfa(struct msp_walk *w)
{
	uint64_t at;

	if (!reg_known(w, w->rule.cfa_reg))
		return MSP_ERR_LOST_REGISTER;
	at = reg_get(w, w->rule.cfa_reg) + (int64_t)w->rule.cfa_off;
	switch (w->rule.cfa_kind) {
	case MSP_CFA_REG:
	case MSP_CFA_RA_REG:
		w->cfa = at;
		return MSP_ERR_NONE;
	case MSP_CFA_DEREF:
	case MSP_CFA_DEREF_ADD8:
	case MSP_CFA_DEREF_FRAME:
		if (host_read(w, &w->cfa, 8, at))
			return MSP_ERR_STACK_READ;
		if (w->rule.cfa_kind == MSP_CFA_DEREF_ADD8)
			w->cfa += 8;
		return MSP_ERR_NONE;
	case MSP_CFA_LANDING:
		return native_landing(w);
	case MSP_CFA_PLT:
		w->cfa = reg_get(w, arch_sp(w)) + 8;
		if ((w->pc & 15) >= (uint32_t)w->rule.cfa_off)
			w->cfa += 8;
		return MSP_ERR_NONE;
	default:
		return MSP_ERR_BAD_RULE;
	}
}

/* One saved register at base + ofs. The words just below base are in w->stack if have_stack. */
static MSP_INLINE int native_load(struct msp_walk *w, uint64_t base, int ofs, int have_stack,
	uint64_t *value)
{
	if (have_stack && ofs <= -8 && ofs >= -64) {
		*value = *(uint64_t *)(w->stack + ((uint32_t)(ofs + 64) & 0x38));
		return 0;
	}
	return host_read(w, value, 8, base + (int64_t)ofs);
}

/* The callee-saved registers but the return address; base: what their offsets count from. */
static MSP_INLINE uint32_t native_restore_saved(struct msp_walk *w, uint64_t base, int have_stack)
{
	uint32_t known = w->known & (arch_preserved(w) | w->keep), slot, reg;
	uint64_t value = 0;
	int ofs;

	for (slot = 1; slot < MSP_SLOT_COUNT; slot++) {
		if (slot >= arch_slot_count(w))
			break;
		ofs = w->rule.saved[slot];
		if (ofs == MSP_SAVED_SAME)
			continue;
		reg = arch_slot_reg(w, slot) & 31;
		known &= ~(1u << reg);
		if (ofs == MSP_SAVED_UNDEFINED || native_load(w, base, ofs, have_stack, &value))
			continue;
		w->reg[reg] = value;
		known |= 1u << reg;
	}
	return known;
}

/* The return address, before any register is replaced. */
static MSP_INLINE int native_return_address(struct msp_walk *w, int have_stack, uint64_t *value)
{
	int ofs = w->rule.saved[MSP_SLOT_RA];

	if (w->rule.cfa_kind == MSP_CFA_RA_REG || (ofs == MSP_SAVED_SAME && host_arch(w) == MSP_ARCH_ARM64)) {
		uint32_t reg = w->rule.cfa_kind == MSP_CFA_RA_REG ? ofs : 30;

		*value = reg_get(w, reg);
		return reg_known(w, reg) ? MSP_ERR_NONE : MSP_ERR_LOST_REGISTER;
	}
	if (ofs == MSP_SAVED_UNDEFINED || ofs == MSP_SAVED_SAME)
		return MSP_ERR_LOST_REGISTER;
	return native_load(w, w->cfa, ofs, have_stack, value) ? MSP_ERR_STACK_READ : MSP_ERR_NONE;
}

/* All registers of the caller, from w->cfa and w->rule. */
static MSP_INLINE int native_restore(struct msp_walk *w)
{
	int at_frame = w->rule.cfa_kind == MSP_CFA_DEREF_FRAME, have_stack, err;
	uint64_t base = at_frame ? reg_get(w, w->rule.cfa_reg) : w->cfa, ra = 0;
	uint32_t reg = arch_sp(w) & 31;

	have_stack = host_read(w, w->stack, 64, base - 64) == 0;
	err = native_return_address(w, have_stack && !at_frame, &ra);
	if (err)
		return err;
	w->known = native_restore_saved(w, base, have_stack);
	if (host_arch(w) == MSP_ARCH_ARM64) {
		ra &= MSP_ARM64_ADDRESS;
		w->known &= ~(1u << 30);
	}
	w->pc = ra;
	w->reg[reg] = w->cfa;
	w->known |= 1u << reg;
	return MSP_ERR_NONE;
}

/* Offsets of the general registers in the kernel's signal frame, from sp in the return trampoline. */
#define MSP_X64_UC_GREGS 40    /* struct ucontext.uc_mcontext, arch/x86 uapi */
#define MSP_ARM64_UC_REGS 312  /* siginfo 128, then uc_mcontext.regs at 184 */

static MSP_INLINE int native_signal_x64(struct msp_walk *w)
{
	uint64_t uc = w->reg[MSP_X64_RSP] + MSP_X64_UC_GREGS;
	const uint64_t *g = (const uint64_t *)w->buf;

	/* r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip */
	if (host_read(w, w->buf, 17 * 8, uc))
		return MSP_ERR_STACK_READ;
	for (int i = 0; i < 8; i++)
		w->reg[MSP_X64_R8 + i] = g[i];
	w->reg[MSP_X64_RDI] = g[8];
	w->reg[MSP_X64_RSI] = g[9];
	w->reg[MSP_X64_RBP] = g[10];
	w->reg[MSP_X64_RBX] = g[11];
	w->reg[MSP_X64_RDX] = g[12];
	w->reg[MSP_X64_RAX] = g[13];
	w->reg[MSP_X64_RCX] = g[14];
	w->reg[MSP_X64_RSP] = g[15];
	w->pc = g[16];
	w->known = 0xffff;
	return MSP_ERR_NONE;
}

static MSP_INLINE int native_signal_arm64(struct msp_walk *w)
{
	uint64_t at = w->reg[31] + MSP_ARM64_UC_REGS;

	for (int i = 0; i < 32; i++)
		if (host_read(w, &w->reg[i], 8, at + 8 * i))
			return MSP_ERR_STACK_READ;
	if (host_read(w, &w->pc, 8, at + 8 * 32))
		return MSP_ERR_STACK_READ;
	w->known = 0xffffffffu;
	return MSP_ERR_NONE;
}

static MSP_INLINE int native_signal(struct msp_walk *w)
{
	int err = host_arch(w) == MSP_ARCH_X86_64 ? native_signal_x64(w) : native_signal_arm64(w);

	if (err)
		return walk_error(w, err);
	w->exact = 1;
	return MSP_STEP_MORE;
}

/*
 * No rule: the frame pointer, if it checks out: aligned, above the stack
 * pointer and near it, and the word above it is a return address into a known
 * executable mapping.
 */
static MSP_INLINE int native_frame_pointer(struct msp_walk *w)
{
	uint32_t fp = arch_fp(w), sp = arch_sp(w);
	uint64_t at = w->reg[fp & 31], pair[2];

	/*
	 * psABI 3.4.1: a zero frame pointer marks the outermost frame. Not of the innermost one, where all
	 * registers are known and this may be one like others.
	 */
	if (reg_known(w, fp) && !at && !reg_known(w, 0))
		return MSP_STEP_DONE;
	if (!reg_known(w, fp) || (at & 7) || at < w->reg[sp & 31] || at - w->reg[sp & 31] > 1 << 20)
		return walk_error(w, MSP_ERR_NO_RULE);
	if (host_read(w, pair, 16, at) || (pair[0] && pair[0] <= at))
		return walk_error(w, MSP_ERR_NO_RULE);
	w->look = pair[1] - 1;
	if (MSP_CALL(w, find_mapping))
		return walk_error(w, MSP_ERR_NO_RULE);
	walk_way(w, MSP_WAY_FRAME_POINTER);
	w->reg[fp & 31] = pair[0];
	w->reg[sp & 31] = at + 16;
	w->pc = pair[1];
	w->known = 1u << fp | 1u << sp; /* what the function did to the others is not known */
	w->exact = 0;
	return MSP_STEP_MORE;
}

/* Replaces the registers by the caller's. */
MSP_SUB(native_unwind)
{
	uint64_t old_sp = w->reg[arch_sp(w) & 31];
	int in_register = host_arch(w) == MSP_ARCH_ARM64 && w->rule.saved[MSP_SLOT_RA] == MSP_SAVED_SAME;
	int err;

	w->thrown = w->rule.flags & (MSP_RULE_THROWS | MSP_RULE_LANDS);
	w->thrown_sp = old_sp;

	switch (w->rule.cfa_kind) {
	case MSP_CFA_END:
		return MSP_STEP_DONE;
	case MSP_CFA_SIGNAL:
		return native_signal(w);
	case MSP_CFA_NONE:
		return native_frame_pointer(w);
	case MSP_CFA_UNSUPPORTED:
		return walk_error(w, MSP_ERR_BAD_RULE);
	}
	if (w->rule.flags & MSP_RULE_STARTS && reg_known(w, 0) && !w->reg[0])
		return MSP_STEP_DONE;
	err = native_cfa(w);
	if (!err && w->cfa < old_sp)
		err = MSP_ERR_NO_PROGRESS;
	w->thrown_ra = w->cfa + (int64_t)w->rule.saved[MSP_SLOT_RA];
	if (!err)
		err = native_restore(w);
	if (err)
		return walk_error(w, err);
	/* The first frame of a thread has no caller; an unwinder's has one, but for where it writes where it lands. */
	if (!w->pc)
		return w->thrown ? walk_error(w, MSP_ERR_LUA_THROWN) : MSP_STEP_DONE;
	/* The return address is on no stack: in an innermost function, which may be in a system call (vfork). */
	if (w->cfa == old_sp && !w->exact && !in_register && w->frame_count > w->first_frame + 1)
		return walk_error(w, MSP_ERR_NO_PROGRESS);
	w->exact = 0;
	return MSP_STEP_MORE;
}

#define MSP_A64_BTI_C 0xd503245fu

/* Where the code at w->pc of a callback has its page's first instructions, words being those from there on; 0: it is none. */
static MSP_INLINE uint64_t callback_head_arm64(const struct msp_walk *w, const uint32_t word[4])
{
	uint64_t pc = w->pc;
	uint32_t branch;

	if ((word[0] & 0xff00001f) == 0x5800000b) /* ldr x11 */
		return pc;
	if ((word[0] & 0xff00001f) == 0x5800000a) /* ldr x10 */
		return pc - 4;
	if ((word[0] & 0xfffff7e0) == 0xd61f0160) /* br x11, braaz x11 */
		return pc - 8;
	if (word[0] == MSP_A64_BTI_C && (word[1] & 0xffe0001f) == 0x52800009) {
		branch = word[2];
		pc += 8;
	} else if ((word[0] & 0xffe0001f) == 0x52800009) { /* mov w9, slot */
		branch = word[1];
		pc += 4;
	} else {
		branch = word[0];
	}
	if (branch >> 26 != 5) /* b */
		return 0;
	return pc + (uint64_t)((int64_t)((int32_t)(branch << 6) >> 6) * 4);
}

/*
 * arm64: `mov w9, slot; b page`, and at the page's start `ldr x11, VM; ldr x10, g; br x11`. The
 * return address is in its register, nothing is on the stack yet.
 */
static MSP_INLINE int native_callback_arm64(struct msp_walk *w)
{
	uint32_t *word = (uint32_t *)w->stack;
	uint64_t head;

	if (!w->exact || host_read(w, w->stack, 16, w->pc))
		return 1;
	head = callback_head_arm64(w, word);
	if (!head || host_read(w, w->stack, 16, head) || (word[0] & 0xff00001f) != 0x5800000b ||
		(word[1] & 0xff00001f) != 0x5800000a || (word[2] & 0xfffff7e0) != 0xd61f0160)
		return 1;
	walk_way(w, MSP_WAY_CALLBACK_CODE);
	__builtin_memset(&w->rule, 0, sizeof(w->rule));
	w->rule.cfa_kind = MSP_CFA_REG;
	w->rule.cfa_reg = 31;
	for (int i = 0; i < MSP_SLOT_COUNT; i++)
		w->rule.saved[i] = MSP_SAVED_SAME;
	return 0;
}

/*
 * FFI callbacks start in code that LuaJIT writes at run time (lj_ccallback.c):
 * `mov al, slot; jmp group`, then `push rbp; mov ah, group; mov rbp, g; jmp VM`,
 * near or through memory.
 * Not 0: that is not where w->pc is. Else w->rule says how to leave it.
 */
MSP_SUB(native_callback_stub)
{
	const uint8_t *at = w->stack + 16, *group = w->stack;
	uint64_t to = 0;
	int pushed;

	if (host_arch(w) == MSP_ARCH_ARM64)
		return native_callback_arm64(w);
	if (host_arch(w) != MSP_ARCH_X86_64 || !w->exact || host_read(w, w->stack + 16, 16, w->pc))
		return 1;
	if (at[0] != 0xb0 && at[0] != 0xeb && at[0] != 0x55 && at[0] != 0xb4 && at[0] != 0x48 && at[0] != 0xe9 && at[0] != 0xff)
		return 1;
	if (at[0] == 0xeb && host_read(w, w->stack + 8, 8, w->pc - 8)) /* the page may begin there */
		return 1;
	if (at[0] != 0xeb && at[0] != 0xb0 && host_read(w, w->stack, 16, w->pc - 16))
		return 1;
	if (at[0] == 0xb0 && at[2] == 0xeb)
		to = w->pc + 4 + (int8_t)at[3];
	else if (at[-2] == 0xb0 && at[0] == 0xeb)
		to = w->pc + 2 + (int8_t)at[1];
	else if (at[0] == 0x55)
		to = w->pc;
	else if (at[-1] == 0x55 && at[0] == 0xb4)
		to = w->pc - 1;
	else if (at[-3] == 0x55 && at[0] == 0x48)
		to = w->pc - 3;
	else if (at[-13] == 0x55)
		to = w->pc - 13;
	pushed = to && to < w->pc && at[0] != 0xeb;
	if (!to || host_read(w, w->stack, 16, to))
		return 1;
	if (group[0] != 0x55 || group[1] != 0xb4 || group[3] != 0x48 || group[4] != 0xbd ||
		(group[13] != 0xe9 && group[13] != 0xff))
		return 1;
	walk_way(w, MSP_WAY_CALLBACK_CODE);
	__builtin_memset(&w->rule, 0, sizeof(w->rule));
	w->rule.cfa_kind = MSP_CFA_REG;
	w->rule.cfa_reg = MSP_X64_RSP;
	w->rule.cfa_off = pushed ? 16 : 8;
	for (int i = 1; i < MSP_SLOT_COUNT; i++)
		w->rule.saved[i] = MSP_SAVED_SAME;
	w->rule.saved[MSP_SLOT_RA] = -8;
	if (pushed)
		w->rule.saved[2] = -16; /* rbp */
	return 0;
}

#endif

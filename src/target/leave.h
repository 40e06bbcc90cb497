/* SPDX-License-Identifier: MIT */
/*
 * The first step out of a call that went where there is no code. Included after unwind/walker.h by
 * hosts in user space, which define
 *
 *	host_find(w, pc)   see target/lookup.h
 *	host_memory(w)     const struct msp_memory *
 */
#ifndef MSP_TARGET_LEAVE_H
#define MSP_TARGET_LEAVE_H

#include "target/walker.h"

/* A frame for it, and on with its caller. */
static void leave_nowhere(struct msp_walk *w, const struct msp_registers *regs)
{
	uint64_t ret;

	if (w->arch != MSP_ARCH_X86_64 || host_find(w, w->pc) ||
		!msp_call_to_nowhere(host_memory(w), regs, &ret) || !host_find(w, ret))
		return;
	w->look = w->pc;
	w->map = (struct msp_mapping){0};
	emit_native(w);
	w->pc = ret;
	w->reg[arch_sp(w)] += 8;
	w->exact = 0;
}

static void walk_set_registers(struct msp_walk *w, const struct msp_registers *regs)
{
	w->known = w->arch == MSP_ARCH_X86_64 ? 0xffff : 0xffffffff;
	for (int i = 0; i < MSP_REG_COUNT; i++)
		w->reg[i] = regs->reg[i];
	w->pc = regs->pc;
	w->exact = !regs->syscall;
}

#endif

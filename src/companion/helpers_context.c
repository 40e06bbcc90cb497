/* SPDX-License-Identifier: MIT */
/* Helper functions: which VM and coroutine run, from registers. */
#include <string.h>

#include "companion/helpers.h"

static uint64_t reg(struct helper *h, const struct ljvm_registers *r, int32_t number)
{
	uint64_t value = number >= 0 && number < 32 ? r->reg[number] : 0;

	return h->c.gc64 == 1 ? value : (uint32_t)value;
}

/* The C frame is at the stack pointer, or above it by the return address of a routine of the interpreter's. */
static int find_cframe(struct helper *h, const struct ljvm_registers *r, struct ljvm_context *out,
		       struct helper_L *L)
{
	unsigned int ref = h->c.cf_ref_size == 4 ? 4 : 8;
	int most = h->c.arch == LJVM_ARCH_X64 ? 1 : 0;

	for (int i = 0; i <= most; i++) {
		out->cframe = r->sp + (uint64_t)i * 8;
		if (helper_number(h, out->cframe + (uint64_t)h->c.cf_L, ref, &out->L) == 0 &&
		    helper_L(h, out->L, out->g, L) == 0 && L->cframe == out->cframe)
			return 0;
	}
	return LJVM_E_BROKEN;
}

/*
 * BASE and PC are in registers, but for a few instructions around calls and returns, and after the interpreter has called
 * C code. What is in memory then may be of an earlier moment, and fit all the same: it is not taken.
 */
static int interpreter(struct helper *h, const struct ljvm_registers *r, struct ljvm_context *out)
{
	struct helper_L L;
	int err = find_cframe(h, r, out, &L);

	if (err < 0)
		return err;
	out->kind = LJVM_PC_INTERPRETER;
	out->base = reg(h, r, h->c.reg_base);
	out->pc = reg(h, r, h->c.reg_pc);
	return helper_fits(h, &L, out->base, out->pc) ? LJVM_PC_INTERPRETER : LJVM_E_BROKEN;
}

/* Compiled code of a VM: it is that of the registers, or, where they do not tell, one in the list. */
static int find_trace(struct helper *h, uint64_t pc, uint64_t *g, struct ljvm_trace *out)
{
	int err;

	if (helper_check_g(h, *g) < 0)
		return helper_owner(h, pc, g, out);
	err = helper_trace(h, *g, pc, out);
	return err == LJVM_E_NONE ? LJVM_E_NOT_MINE : err;
}

static int compiled(struct helper *h, const struct ljvm_registers *r, struct ljvm_context *out)
{
	struct ljvm_trace trace;
	struct helper_L L;
	int err = find_trace(h, r->pc, &out->g, &trace);

	if (err < 0)
		return err;
	if (helper_ref(h, out->g + (uint64_t)h->c.g_cur_L, &out->L) < 0 ||
	    helper_number(h, out->g + (uint64_t)h->c.g_jit_base, h->c.gc64 == 1 ? 8 : 4,
			  &out->base) < 0)
		return LJVM_E_READ;
	err = helper_L(h, out->L, out->g, &L);
	if (err < 0)
		return err;
	if (out->base < L.stack || out->base > L.end) /* in the head of a trace it is not set yet */
		out->base = L.base;
	out->cframe = L.cframe;
	out->kind = LJVM_PC_TRACE;
	out->trace = trace.number;
	out->trace_offset = trace.offset;
	return LJVM_PC_TRACE;
}

int companion_context(const struct ljvm_memory *m, const struct ljvm_registers *r,
		      struct ljvm_context *out)
{
	uint64_t vmstate;
	struct helper h;
	int err = helper_begin(&h, m);

	memset(out, 0, sizeof(*out));
	if (err < 0)
		return err;
	out->g = reg(&h, r, h.c.reg_dispatch) - (uint64_t)(int64_t)h.c.reg_dispatch_g;
	if (!helper_in_vm(&h, r->pc))
		err = compiled(&h, r, out);
	else
		err = helper_check_g(&h, out->g) < 0 ? LJVM_E_BROKEN : interpreter(&h, r, out);
	if (err < 0)
		return err;
	if (helper_number(&h, out->g + (uint64_t)h.c.g_vmstate, 4, &vmstate) < 0)
		return LJVM_E_READ;
	out->vmstate = (int32_t)vmstate;
	return err;
}

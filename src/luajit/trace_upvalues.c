/* SPDX-License-Identifier: MIT */
/*
 * Upvalues of functions that are constants of a trace: they are at known places, and only what
 * accesses the upvalue reads them there (lj_record.c: rec_upvalue(), lj_asm_x86.h: asm_uref()).
 */
#include "luajit/objects.h"
#include "luajit/trace_proof.h"

/* GCupval.tv: behind the header and two bytes. */
static uint32_t value_offset(const struct msp_trace_reader *r)
{
	return r->layout->gc64 ? 16 : 8;
}

/* False: there is one that is not readable, or they are too many. */
static bool read_function(struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t callee)
{
	const struct msp_lj_layout *y = r->layout;
	const struct msp_lj_object_layout *o = msp_lj_object_layout(y);
	uint64_t fn = f->callees.of[callee].fn, at;
	uint8_t count;

	if (msp_read(r->mem, fn + (uint64_t)y->fn_ffid + 1, &count, 1))
		return false;
	for (uint32_t i = 0; i < count; i++) {
		if (f->upvalues == MSP_TRACE_UPVALUES || !msp_trace_work(f, MSP_TRACE_READ) ||
		    !msp_lj_read_ref(y, r->mem,
				     fn + (uint64_t)y->fn_pc + o->fn_uv + (uint64_t)i * o->ref,
				     &at))
			return false;
		f->upvalue[f->upvalues].proto = f->callees.of[callee].proto;
		f->upvalue[f->upvalues].at = at;
		f->upvalue[f->upvalues++].index = i;
	}
	return true;
}

void msp_trace_upvalues_read(struct msp_trace_reader *r, struct msp_trace_facts *f)
{
	for (uint32_t i = 0; i < f->callees.count; i++)
		if (f->callees.of[i].proto && !read_function(r, f, i)) {
			f->upvalues = 0;
			return;
		}
}

uint64_t msp_trace_upvalue_at(const struct msp_trace_reader *r, const struct msp_trace_facts *f,
			      uint64_t place)
{
	uint32_t value = value_offset(r), points = msp_lj_object_layout(r->layout)->uv_value;

	for (uint32_t i = 0; place && i < f->upvalues; i++) {
		uint64_t off = place - f->upvalue[i].at;

		if (off == points || off == value || off == value + 4)
			return f->upvalue[i].at;
	}
	return 0;
}

bool msp_step_has_upvalue(const struct msp_steps *s, const struct msp_step *step, uint64_t upvalue)
{
	const struct msp_trace_proto *p = s->frame[step->frame].proto;
	struct msp_bc_ins ins = msp_bc_decode(s->r->set, p->ins[step->pos]);
	uint32_t index = step->op == MSP_BC_UGET ? ins.d : ins.a;

	if (step->unknown)
		return true;
	if (step->op < MSP_BC_UGET || step->op > MSP_BC_USETP)
		return false;
	for (uint32_t i = 0; i < s->facts->upvalues; i++)
		if (s->facts->upvalue[i].at == upvalue && s->facts->upvalue[i].proto == p &&
		    s->facts->upvalue[i].index == index)
			return true;
	return false;
}

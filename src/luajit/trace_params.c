/* SPDX-License-Identifier: MIT */
/*
 * Functions that are passed as parameters: what the frame's own call was given; or, of a frame that
 * the trace began in, what the slot was checked to be.
 */
#include "luajit/trace_ir.h"
#include "luajit/trace_proof.h"

#define MAX_DEPTH 8

/* Is a slot a parameter that is never changed, nor by a call of itself in its place? */
static bool is_parameter(const struct msp_steps *s, const struct msp_trace_proto *p, uint32_t slot)
{
	uint8_t params, op;

	if (s->r->layout->pt_numparams < 0 ||
	    msp_read(s->r->mem, p->addr + (uint64_t)s->r->layout->pt_numparams, &params, 1) ||
	    slot >= params || !msp_trace_work(s->facts, 2 * msp_trace_proto_size(p)))
		return false;
	for (uint32_t q = 1; q < msp_trace_proto_size(p); q++) {
		op = msp_bc_decode(s->r->set, p->ins[q]).op;
		if (op == MSP_BC_CALLT || op == MSP_BC_CALLMT)
			return false;
	}
	return !msp_trace_is_written(s->r, p, slot, 0);
}

/* The function in a slot of the trace's base before the trace, if it was loaded. */
static uint64_t loaded_slot(const struct msp_steps *s, uint32_t slot)
{
	const struct msp_trace_reader *r = s->r;

	for (uint32_t ref = MSP_REF_BIAS + 1; ref < r->nins && msp_trace_work(s->facts, 1); ref++)
		if (msp_ir_type(r, ref) == MSP_IR_FUNC && msp_ir_a(r, ref) == slot)
			return msp_trace_checked_function(r, ref);
	return 0;
}

/* The function in a slot of the frame at the trace's base. */
static uint64_t function_at_base(const struct msp_steps *s, uint32_t slot)
{
	const struct msp_trace_reader *r = s->r;
	uint32_t snap = s->from == MSP_AT_LOOP ? 0 : (uint32_t)s->from, ref;

	if (r->image->snap[snap].tail_call || s->facts->lowers)
		return 0;
	slot += 1u + r->layout->fr2;
	ref = msp_trace_slot_ref(r, snap, slot);
	if (!ref)
		return loaded_slot(s, slot);
	if (!msp_ir_has_type(r, ref, MSP_IR_FUNC))
		return 0;
	return msp_ir_is_constant(r, ref) ? msp_ir_object(r, ref)
					  : msp_trace_checked_function(r, ref);
}

static enum msp_callee callee_at(const struct msp_steps *s, uint16_t frame, uint32_t pos,
				 uint32_t slot, uint64_t *fn, int depth);

/* Was the frame's function called by its parent's call itself, so that it has its arguments? */
static bool has_arguments(const struct msp_steps *s, const struct msp_path_frame *f, uint32_t param,
			  int depth)
{
	const struct msp_path_frame *parent = &s->frame[f->parent];
	struct msp_bc_ins call;
	uint32_t index;
	uint64_t fn;

	if (!f->depth || !parent->proto || f->call >= msp_trace_proto_size(parent->proto))
		return false;
	call = msp_bc_decode(s->r->set, parent->proto->ins[f->call]);
	if ((call.op != MSP_BC_CALL || param + 1 >= call.c) &&
	    (call.op != MSP_BC_CALLM || param >= call.c))
		return false;
	return callee_at(s, f->parent, f->call, call.a, &fn, depth) == MSP_CALLEE_LUA &&
	       msp_trace_callee_of(s->facts, fn, &index) == MSP_CALLEE_LUA &&
	       s->facts->proto[index] == f->proto;
}

static enum msp_callee callee_at(const struct msp_steps *s, uint16_t frame, uint32_t pos,
				 uint32_t slot, uint64_t *fn, int depth)
{
	const struct msp_path_frame *f = &s->frame[frame];
	enum msp_callee calls;
	struct msp_bc_ins call;

	if (!depth || !f->proto)
		return MSP_CALLEE_ANY;
	calls = msp_trace_value(s->r, s->facts, f->proto, pos, &slot, fn);
	if (calls != MSP_CALLEE_ANY || !is_parameter(s, f->proto, slot))
		return calls;
	if (!f->depth) {
		*fn = function_at_base(s, slot);
		return *fn ? MSP_CALLEE_LUA : MSP_CALLEE_ANY;
	}
	if (!has_arguments(s, f, slot, depth - 1))
		return MSP_CALLEE_ANY;
	call = msp_bc_decode(s->r->set, s->frame[f->parent].proto->ins[f->call]);
	return callee_at(s, f->parent, f->call, call.a + 1u + s->r->layout->fr2 + slot, fn,
			 depth - 1);
}

enum msp_callee msp_steps_param(const struct msp_steps *s, uint16_t frame, uint32_t pos,
				uint32_t *index)
{
	struct msp_bc_ins call = msp_bc_decode(s->r->set, s->frame[frame].proto->ins[pos]);
	enum msp_callee calls;
	uint64_t fn;

	if (call.op == MSP_BC_ITERC || !msp_trace_work(s->facts, MSP_TRACE_READ))
		return MSP_CALLEE_ANY;
	calls = callee_at(s, frame, pos, call.a, &fn, MAX_DEPTH);
	return calls == MSP_CALLEE_LUA ? msp_trace_callee_of(s->facts, fn, index) : calls;
}

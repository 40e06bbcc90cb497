/* SPDX-License-Identifier: MIT */
/* What a call inside of a trace calls. */
#include "luajit/objects.h"
#include "luajit/trace_path.h"

#define CLOSURE_MAX 64
#define CONSTANTS_MAX 512
#define ADDRESS_MASK ((1ull << 47) - 1)

/* False: it is a function that can not be read. */
static bool add_callee(struct msp_trace_reader *r, struct msp_path_callees *out, uint64_t fn)
{
	const struct msp_lj_layout *y = r->layout;
	uint8_t ffid;
	uint64_t pc;

	if (msp_lj_object_type(y, r->mem, fn) != MSP_GCT_FUNC)
		return true;
	if (msp_read(r->mem, fn + (uint64_t)y->fn_ffid, &ffid, 1) ||
	    !msp_lj_read_ref(y, r->mem, fn + (uint64_t)y->fn_pc, &pc))
		return false;
	out->of[out->count].fn = fn;
	out->of[out->count].ffid = ffid;
	out->of[out->count].proto = ffid ? NULL : msp_trace_proto_at(r, pc - (uint64_t)y->pt_size);
	if (!ffid && !out->of[out->count].proto)
		return false;
	out->count++;
	return true;
}

bool msp_path_callees_read(struct msp_trace_reader *r, struct msp_path_callees *out)
{
	uint64_t word;
	bool all = true;

	out->count = 0;
	/* Constants have falling numbers; an object is the word behind its constant. */
	for (uint32_t ref = MSP_REF_BIAS, n = 0; ref-- > r->nk;) {
		if (n == CONSTANTS_MAX || out->count == MSP_PATH_CALLEES)
			return false;
		word = msp_get64(r->data + (size_t)(ref - r->nk) * MSP_IR_SIZE);
		if (!r->layout->gc64)
			word &= UINT32_MAX;
		if (!msp_lj_object_address(word))
			continue;
		all &= add_callee(r, out, word);
		n++;
	}
	return all;
}

static uint32_t find(const struct msp_path_callees *callees, uint64_t fn)
{
	for (uint32_t i = 0; i < callees->count; i++)
		if (callees->of[i].fn == fn)
			return i;
	return MSP_PATH_NONE;
}

/* The closure that a prototype has among the constants, if it is one. */
static uint64_t closure_of(const struct msp_path_callees *callees,
			   const struct msp_trace_proto *proto)
{
	uint64_t found = 0;

	for (uint32_t i = 0; i < callees->count; i++)
		if (callees->of[i].proto == proto) {
			if (found)
				return 0;
			found = callees->of[i].fn;
		}
	return found;
}

static bool read_upvalue(const struct msp_trace_reader *r, uint64_t fn, uint32_t index,
			 uint64_t *out)
{
	const struct msp_lj_layout *y = r->layout;
	const struct msp_lj_object_layout *o = msp_lj_object_layout(y);
	uint64_t uv, at, value;

	if (!msp_lj_read_ref(y, r->mem,
			     fn + (uint64_t)y->fn_pc + o->fn_uv + (uint64_t)index * o->ref, &uv) ||
	    !msp_lj_read_ref(y, r->mem, uv + o->uv_value, &at) || msp_read(r->mem, at, &value, 8))
		return false;
	*out = y->gc64 ? value & ADDRESS_MASK : (uint32_t)value;
	return true;
}

uint64_t msp_trace_object(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			  uint32_t index)
{
	uint64_t at, ref = r->layout->gc64 ? 8 : 4;

	return msp_lj_read_ref(r->layout, r->mem, p->k - ((uint64_t)index + 1) * ref, &at) ? at : 0;
}

/* The instruction before pos that has put a value into the slot, as the bytecode is written. */
static uint32_t written_before(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			       uint32_t pos, uint32_t slot)
{
	struct msp_bc_ins ins;

	while (pos-- > 1) {
		ins = msp_bc_decode(r->set, p->ins[pos]);
		if (ins.a == slot && msp_bc_mode(ins.op) == MSP_BC_DST)
			return pos;
	}
	return 0;
}

static enum msp_path_resolved by_local(struct msp_trace_reader *r,
				       const struct msp_path_callees *callees,
				       const struct msp_trace_proto *p, uint32_t pos, uint32_t slot,
				       uint32_t *callee)
{
	uint32_t def = written_before(r, p, pos, slot);
	struct msp_bc_ins ins = msp_bc_decode(r->set, p->ins[def]);
	uint64_t proto;

	if (!def || ins.op != MSP_BC_FNEW)
		return MSP_PATH_UNKNOWN;
	proto = msp_trace_object(r, p, ins.d);
	for (*callee = 0; *callee < callees->count; ++*callee)
		if (callees->of[*callee].proto && callees->of[*callee].proto->addr == proto)
			return MSP_PATH_KNOWN;
	return MSP_PATH_UNKNOWN;
}

enum msp_path_resolved msp_path_resolve(struct msp_trace_reader *r,
					const struct msp_path_callees *callees,
					const struct msp_path_frame *frame, uint32_t pos,
					uint32_t *callee, uint64_t *key)
{
	struct msp_trace_proto *p = frame->proto;
	uint32_t def = written_before(r, p, pos, (p->ins[pos] >> 8) & 0xff);
	struct msp_bc_ins ins = msp_bc_decode(r->set, p->ins[def]);
	uint64_t closure = frame->closure ? frame->closure : closure_of(callees, p), fn;

	*key = 0;
	if (!def)
		return MSP_PATH_UNKNOWN;
	*key = msp_ident_mix(p->addr, (uint64_t)ins.op << 32 | ins.d << 8 | ins.b);
	if (ins.op == MSP_BC_MOV)
		return by_local(r, callees, p, def, ins.d, callee);
	if (ins.op != MSP_BC_UGET || !closure || !read_upvalue(r, closure, ins.d, &fn))
		return MSP_PATH_UNKNOWN;
	*callee = find(callees, fn);
	/* a C type or function, which make no frame */
	if (*callee == MSP_PATH_NONE && msp_lj_object_type(r->layout, r->mem, fn) != MSP_GCT_CDATA)
		return MSP_PATH_UNKNOWN;
	return MSP_PATH_KNOWN;
}

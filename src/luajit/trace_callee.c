/* SPDX-License-Identifier: MIT */
/* What the calls of a trace call: from the bytecode that gets the function, and how it was checked. */
#include "luajit/objects.h"
#include "luajit/trace_ir.h"
#include "luajit/trace_proof.h"

#define POLYMORPHIC 0x60 /* GCproto.flags from there on: many closures were made of it (lj_obj.h) */
#define MAX_MOVES 8

/* Can another instruction than def have put a value into the slot, at pos? but: a jump that does not count. */
static bool is_bypassed(const struct msp_trace_reader *r, struct msp_trace_facts *f,
			const struct msp_trace_proto *p, uint32_t def, uint32_t pos, uint32_t but)
{
	struct msp_bc_ins ins;
	int64_t target;

	for (uint32_t q = 1; q < msp_trace_proto_size(p); q++) {
		ins = msp_bc_decode(r->set, p->ins[q]);
		if ((q >= def && q <= pos) || q == but)
			continue;
		if ((ins.op == MSP_BC_JFORL || ins.op == MSP_BC_JITERL) && !msp_trace_work(f, q))
			return true; /* its beginning has to be looked for */
		target = msp_bc_is_jump(ins.op) || ins.op == MSP_BC_JFORL || ins.op == MSP_BC_JITERL
				 ? msp_trace_loop_start(r, p, q)
				 : 0;
		if (target > (int64_t)def && target <= (int64_t)pos)
			return true;
	}
	return false;
}

bool msp_trace_is_written(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			  uint32_t slot, uint32_t but)
{
	struct msp_bc_ins ins;

	for (uint32_t q = 1; q < msp_trace_proto_size(p); q++) {
		ins = msp_bc_decode(r->set, p->ins[q]);
		switch (q == but ? MSP_BC_NONE : msp_bc_mode(ins.op)) {
		case MSP_BC_NONE:
			break;
		case MSP_BC_DST:
		case MSP_BC_TEST:
			if (ins.a == slot)
				return true;
			break;
		default:
			if (ins.a <= slot)
				return true;
		}
	}
	return false;
}

/* The one instruction that puts a value into the slot which is there at pos; 0: not known. */
static uint32_t sole_writer(const struct msp_trace_reader *r, struct msp_trace_facts *f,
			    const struct msp_trace_proto *p, uint32_t pos, uint32_t slot)
{
	struct msp_bc_ins ins;

	for (uint32_t def = pos; def-- > 1;) {
		ins = msp_bc_decode(r->set, p->ins[def]);
		switch (msp_bc_mode(ins.op)) {
		case MSP_BC_DST:
			if (ins.a == slot)
				return is_bypassed(r, f, p, def, pos, 0) &&
						       msp_trace_is_written(r, p, slot, def)
					       ? 0
					       : def;
			break;
		case MSP_BC_NONE:
			break;
		default:
			if (ins.a <= slot)
				return 0;
		}
	}
	return 0;
}

/* Is what is in the slot at pos what a loop counts with? */
static bool is_counter(const struct msp_trace_reader *r, struct msp_trace_facts *f,
		       const struct msp_trace_proto *p, uint32_t pos, uint32_t slot)
{
	struct msp_bc_ins ins;
	int64_t end;

	for (uint32_t def = pos; def-- > 1;) {
		ins = msp_bc_decode(r->set, p->ins[def]);
		if ((ins.op == MSP_BC_FORI || ins.op == MSP_BC_JFORI) && ins.a + 3u == slot) {
			end = msp_bc_target(&ins, def) - 1; /* its FORL */
			return end > (int64_t)pos && !is_bypassed(r, f, p, def, pos, end);
		}
		if (msp_bc_mode(ins.op) != MSP_BC_NONE &&
		    (msp_bc_mode(ins.op) == MSP_BC_DST ? ins.a == slot : ins.a <= slot))
			return false;
	}
	return false;
}

bool msp_trace_is_number(const struct msp_trace_reader *r, struct msp_trace_facts *f,
			 const struct msp_trace_proto *p, uint32_t pos, uint32_t slot)
{
	uint32_t def;
	uint8_t op;

	if (!msp_trace_work(f, 2 * msp_trace_proto_size(p)))
		return false;
	if (is_counter(r, f, p, pos, slot))
		return true;
	def = f->lookup ? 0 : sole_writer(r, f, p, pos, slot);
	op = msp_bc_decode(r->set, p->ins[def]).op;
	return def && (op == MSP_BC_KSHORT || op == MSP_BC_KNUM || op == MSP_BC_LEN ||
		       (op >= MSP_BC_ADDVN && op <= MSP_BC_POW));
}

/* What an upvalue holds that never changes. */
static enum {
	UPVALUE_UNKNOWN,
	UPVALUE_CHANGES,
	UPVALUE_IS
} read_upvalue(const struct msp_trace_reader *r, uint64_t fn, uint32_t index, uint64_t *out)
{
	const struct msp_lj_layout *y = r->layout;
	const struct msp_lj_object_layout *o = msp_lj_object_layout(y);
	uint64_t uv, place, value;
	uint8_t immutable;

	if (!msp_lj_read_ref(y, r->mem,
			     fn + (uint64_t)y->fn_pc + o->fn_uv + (uint64_t)index * o->ref, &uv) ||
	    msp_lj_object_type(y, r->mem, uv) != MSP_GCT_UPVAL ||
	    msp_read(r->mem, uv + (uint64_t)y->gc_gct + 2, &immutable, 1))
		return UPVALUE_UNKNOWN;
	if (!immutable)
		return UPVALUE_CHANGES;
	if (!msp_lj_read_ref(y, r->mem, uv + o->uv_value, &place) ||
	    msp_read(r->mem, place, &value, 8))
		return UPVALUE_UNKNOWN;
	*out = y->gc64 ? value & ((1ull << 47) - 1) : (uint32_t)value;
	return UPVALUE_IS;
}

static bool is_polymorphic(const struct msp_trace_reader *r, const struct msp_trace_proto *p)
{
	uint8_t flags;

	return r->layout->pt_flags < 0 ||
	       msp_read(r->mem, p->addr + (uint64_t)r->layout->pt_flags, &flags, 1) ||
	       flags >= POLYMORPHIC;
}

/* The function that a loaded one was checked to be, before it was called; 0: none. */
uint64_t msp_trace_checked_function(const struct msp_trace_reader *r, uint32_t loaded)
{
	uint32_t is;

	for (uint32_t ref = loaded + 1; ref < r->nins; ref++) {
		if ((msp_ir_at(r, ref)[4] & (MSP_IR_GUARD | MSP_IR_TYPE)) !=
			    (MSP_IR_GUARD | MSP_IR_FUNC) ||
		    msp_ir_a(r, ref) != loaded)
			continue;
		is = msp_ir_b(r, ref);
		if (msp_ir_is_constant(r, is) && msp_ir_type(r, is) == MSP_IR_FUNC)
			return msp_ir_object(r, is);
	}
	return 0;
}

/* The string by which a table is accessed whose slot an instruction loads or stores; 0: none. */
uint32_t msp_trace_key_of(const struct msp_trace_reader *r, uint32_t ref)
{
	uint32_t slot = msp_ir_a(r, ref), key;

	if (slot <= MSP_REF_BIAS || slot >= r->nins)
		return 0;
	key = msp_ir_b(r, slot);
	if (msp_ir_is_constant(r, key) &&
	    msp_ir_type(r, key) != MSP_IR_STR) /* it has a known place */
		key = msp_ir_a(r, key);
	return msp_ir_is_constant(r, key) && msp_ir_type(r, key) == MSP_IR_STR ? key : 0;
}

/* ---- Values that were loaded ---- */

/* What is read from a place of one name. */
struct loads {
	uint64_t fn; /* a function, 0: none was */
	bool other;  /* and what is none */
	bool any;    /* it can not be known */
};

/* An instruction that accesses such a place, or something else about it. */
static void add_load(const struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t ref,
		     struct loads *loads)
{
	uint8_t type = msp_ir_type(r, ref);
	uint64_t fn;

	if (type == MSP_IR_P32 || type == MSP_IR_P64)
		return;
	if (msp_ir_b(r, ref) >= r->nk) { /* a store; others, without effect, may be gone */
		loads->any = true;
	} else if (type != MSP_IR_FUNC) {
		loads->other |= type != MSP_IR_NIL;
	} else {
		fn = msp_trace_work(f, r->nins - ref) ? msp_trace_checked_function(r, ref) : 0;
		loads->any |= !fn || (loads->fn && loads->fn != fn);
		loads->fn = fn;
	}
}

/* LUA: some function, which may be a built-in one too. */
static enum msp_callee loaded(const struct loads *loads, uint64_t *fn)
{
	*fn = loads->fn;
	if (loads->any || (loads->fn && loads->other))
		return MSP_CALLEE_ANY;
	return loads->fn ? MSP_CALLEE_LUA : MSP_CALLEE_NONE;
}

/* What is called by a name in a table. */
static enum msp_callee named_function(const struct msp_trace_reader *r, struct msp_trace_facts *f,
				      uint64_t name, uint64_t *fn)
{
	struct loads loads = {0};
	uint32_t key;

	if (!name || f->indexed || !msp_trace_work(f, r->nins - MSP_REF_BIAS))
		return MSP_CALLEE_ANY;
	for (uint32_t ref = MSP_REF_BIAS + 1; ref < r->nins; ref++) {
		key = msp_trace_key_of(r, ref);
		if (key && msp_ir_object(r, key) == name)
			add_load(r, f, ref, &loads);
	}
	return loaded(&loads, fn);
}

/* An upvalue's place: of a function, by its index (UREFO, UREFC). Others may look like it. */
static bool is_upvalue(const struct msp_trace_reader *r, uint32_t ref, uint32_t index)
{
	uint8_t type = msp_ir_is_ins(r, ref) ? msp_ir_type(r, ref) : MSP_IR_NIL;

	return (type == MSP_IR_P32 || type == MSP_IR_P64) && msp_ir_b(r, ref) >> 8 == index &&
	       msp_ir_has_type(r, msp_ir_a(r, ref), MSP_IR_FUNC);
}

/* What is called in an upvalue that changes. One that is a slot of the trace itself has no load. */
static enum msp_callee changing_upvalue(const struct msp_trace_reader *r, struct msp_trace_facts *f,
					uint32_t index, uint64_t *fn)
{
	struct loads loads = {0};

	if (!msp_trace_work(f, r->nins - MSP_REF_BIAS))
		return MSP_CALLEE_ANY;
	for (uint32_t ref = MSP_REF_BIAS + 1; ref < r->nins; ref++) {
		if (is_upvalue(r, msp_ir_a(r, ref), index))
			add_load(r, f, ref, &loads);
		loads.any |= msp_ir_guard(r, ref) && msp_ir_a(r, ref) == MSP_REF_BIAS;
	}
	return loaded(&loads, fn);
}

/*
 * A function that reads an upvalue that never changes is known to the trace itself (rec_upvalue()
 * of lj_record.c), unless it is polymorphic.
 */
static enum msp_callee upvalue_function(const struct msp_trace_reader *r, struct msp_trace_facts *f,
					const struct msp_trace_proto *p, uint32_t index,
					uint64_t *fn)
{
	bool changes = true;
	uint64_t is;

	*fn = 0;
	if (!msp_trace_work(f, MSP_TRACE_READ) || is_polymorphic(r, p))
		return MSP_CALLEE_ANY;
	for (uint32_t i = 0; i < f->callees.count; i++) {
		if (f->callees.of[i].proto != p)
			continue;
		if (!msp_trace_work(f, 4 * MSP_TRACE_READ))
			return MSP_CALLEE_ANY;
		switch (read_upvalue(r, f->callees.of[i].fn, index, &is)) {
		case UPVALUE_CHANGES:
			break;
		case UPVALUE_IS:
			changes = false;
			if (*fn && *fn != is)
				return MSP_CALLEE_ANY;
			*fn = is;
			break;
		default:
			return MSP_CALLEE_ANY;
		}
	}
	if (changes)
		return changing_upvalue(r, f, index, fn);
	return MSP_CALLEE_LUA;
}

/* ---- Calls ---- */

/* One that was made here: a closure of the same prototype is as good. */
static enum msp_callee made_function(const struct msp_trace_facts *f, uint64_t proto, uint64_t *fn)
{
	for (uint32_t i = 0; i < f->callees.count; i++)
		if (f->callees.of[i].proto && f->callees.of[i].proto->addr == proto) {
			*fn = f->callees.of[i].fn;
			return MSP_CALLEE_LUA;
		}
	return MSP_CALLEE_ANY;
}

enum msp_callee msp_trace_value(struct msp_trace_reader *r, struct msp_trace_facts *f,
				const struct msp_trace_proto *p, uint32_t pos, uint32_t *slot,
				uint64_t *fn)
{
	struct msp_bc_ins ins;

	for (int i = 0; i < MAX_MOVES && msp_trace_work(f, msp_trace_proto_size(p)); i++) {
		pos = sole_writer(r, f, p, pos, *slot);
		if (!pos)
			return MSP_CALLEE_ANY;
		ins = msp_bc_decode(r->set, p->ins[pos]);
		switch (ins.op) {
		case MSP_BC_MOV:
			*slot = ins.d;
			break;
		case MSP_BC_FNEW:
			return made_function(f, msp_trace_object(r, p, ins.d), fn);
		case MSP_BC_UGET:
			return upvalue_function(r, f, p, ins.d, fn);
		case MSP_BC_TGETS:
			return named_function(r, f, msp_trace_object(r, p, ins.c), fn);
		case MSP_BC_GGET:
			return named_function(r, f, msp_trace_object(r, p, ins.d), fn);
		default:
			return MSP_CALLEE_ANY;
		}
	}
	return MSP_CALLEE_ANY;
}

enum msp_callee msp_trace_callee_of(const struct msp_trace_facts *f, uint64_t fn, uint32_t *index)
{
	uint32_t i = 0;

	while (i < f->callees.count && f->callees.of[i].fn != fn)
		i++;
	if (i == f->callees.count)
		return MSP_CALLEE_ANY;
	*index = i;
	if (!f->callees.of[i].proto)
		return MSP_CALLEE_BUILTIN;
	for (*index = 0; f->proto[*index] != f->callees.of[i].proto;)
		++*index;
	return MSP_CALLEE_LUA;
}

static enum msp_callee find_callee(struct msp_trace_reader *r, struct msp_trace_facts *f,
				   const struct msp_trace_proto *p, uint32_t pos, uint32_t *index)
{
	struct msp_bc_ins call = msp_bc_decode(r->set, p->ins[pos]);
	enum msp_callee calls = MSP_CALLEE_ANY;
	uint32_t slot = call.a;
	uint64_t fn;

	if (call.op != MSP_BC_ITERC)
		calls = msp_trace_value(r, f, p, pos, &slot, &fn);
	return calls == MSP_CALLEE_LUA ? msp_trace_callee_of(f, fn, index) : calls;
}

enum msp_callee msp_trace_callee(struct msp_trace_reader *r, struct msp_trace_facts *f,
				 const struct msp_trace_proto *p, uint32_t pos, uint32_t *index)
{
	uint32_t i = 0;

	while (i < f->calls && (f->call[i].p != p || f->call[i].pos != pos))
		i++;
	if (i == MSP_TRACE_CALLS)
		return MSP_CALLEE_ANY;
	if (i == f->calls) {
		f->call[i].p = p;
		f->call[i].pos = pos;
		f->call[i].calls = find_callee(r, f, p, pos, &f->call[i].index);
		f->calls++;
	}
	*index = f->call[i].index;
	return f->call[i].calls;
}

/* SPDX-License-Identifier: MIT */
/*
 * What a trace's instructions (IR) tell of all of it: which functions it can call, and whether it
 * can call metamethods or return below its base. Of an instruction only its type and operands are
 * used, which have been the same in all of LuaJIT 2.x (lj_ir.h):
 *
 *	op1 u16 | op2 u16 | type u8 | opcode u8 | register u8, spill slot u8
 *
 * and, with GC64, the word behind a constant is its object; without, the first half of it.
 */
#include <string.h>

#include "luajit/objects.h"
#include "luajit/trace_proof.h"

#define MAX_WORK (16 << 20) /* of a whole proof: a large trace takes a hundredth of it */
#define TYPE_MASK 31
#define GUARD 0x80
enum {
	TYPE_NIL = 0,
	TYPE_STR = 4,
	TYPE_P32 = 5,
	TYPE_P64 = 9,
	TYPE_PROTO = 7,
	TYPE_FUNC = 8,
	TYPE_CDATA = 10,
	TYPE_UDATA = 12,
	TYPE_NUM = 14
};

#define POLYMORPHIC 0x60 /* GCproto.flags from there on: many closures were made of it (lj_obj.h) */

static const uint8_t *at(const struct msp_trace_reader *r, uint32_t ref)
{
	return r->data + (size_t)(ref - r->nk) * MSP_IR_SIZE;
}

static uint8_t type_of(const struct msp_trace_reader *r, uint32_t ref)
{
	return at(r, ref)[4] & TYPE_MASK;
}

static uint64_t object_of(const struct msp_trace_reader *r, uint32_t ref)
{
	if (!r->layout->gc64)
		return msp_get32(at(r, ref));
	return ref + 1 < MSP_REF_BIAS ? msp_get64(at(r, ref + 1)) : 0;
}

static bool is_constant(const struct msp_trace_reader *r, uint32_t ref)
{
	return ref >= r->nk && ref < MSP_REF_BIAS;
}

/* Is the constant the name of a metamethod? If it can not be read, too. */
static bool is_meta_name(const struct msp_trace_reader *r, uint32_t ref, bool *index)
{
	uint64_t str = object_of(r, ref);
	char text[12] = "";

	*index = false;
	if (msp_lj_object_type(r->layout, r->mem, str) != MSP_GCT_STR)
		return false;
	if (msp_read(r->mem, str + (uint64_t)r->layout->str_data, text, 8))
		return true;
	msp_read(r->mem, str + (uint64_t)r->layout->str_data, text, sizeof(text) - 1);
	*index = !strcmp(text, "__index") || !strcmp(text, "__newindex");
	return text[0] == '_' && text[1] == '_';
}

static void add_proto(struct msp_trace_facts *f, struct msp_trace_proto *p)
{
	for (uint32_t i = 0; i < f->protos; i++)
		if (f->proto[i] == p)
			return;
	if (f->protos == MSP_PATH_CALLEES)
		f->known = false;
	else
		f->proto[f->protos++] = p;
}

static void read_constant(struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t ref)
{
	uint64_t object = object_of(r, ref);
	struct msp_trace_proto *p;
	bool index;

	switch (type_of(r, ref)) {
	case TYPE_PROTO:
		if (msp_lj_object_type(r->layout, r->mem, object) != MSP_GCT_PROTO)
			return;
		p = msp_trace_proto_at(r, object);
		if (p)
			add_proto(f, p);
		else
			f->known = false;
		return;
	case TYPE_STR:
		f->lookup |= is_meta_name(r, ref, &index) && !index;
		return;
	case TYPE_CDATA:
	case TYPE_UDATA:
		f->meta = f->lookup = true;
		return;
	default:
		return;
	}
}

/*
 * Constants with 64 bits have a second word; without GC64 references have none. Their opcodes follow
 * that of the three that each trace has. False: it does not end at these.
 */
static bool read_constants(struct msp_trace_reader *r, struct msp_trace_facts *f)
{
	enum { KPRI, KINT, KGC, KPTR, KKPTR, KNULL, KNUM, KINT64, KSLOT };
	uint8_t first = at(r, MSP_REF_BIAS - 1)[5];
	uint32_t ref = r->nk;

	if (r->nk > MSP_REF_BIAS - 3)
		return false;
	while (ref < MSP_REF_BIAS - 3) {
		int op = at(r, ref)[5] - first;

		read_constant(r, f, ref);
		ref += op == KNUM || op == KINT64 || (r->layout->gc64 && op >= KGC && op <= KKPTR)
			       ? 2
			       : 1;
	}
	return ref == MSP_REF_BIAS - 3 && at(r, ref)[5] == first && at(r, ref + 1)[5] == first;
}

/* The string by which a table is accessed whose slot an instruction loads or stores; 0: none. */
static uint32_t key_of(const struct msp_trace_reader *r, uint32_t ref)
{
	uint32_t slot = msp_get16(at(r, ref)), key;

	if (slot <= MSP_REF_BIAS || slot >= r->nins)
		return 0;
	key = msp_get16(at(r, slot) + 2);
	if (is_constant(r, key) && type_of(r, key) != TYPE_STR) /* it has a known place */
		key = msp_get16(at(r, key));
	return is_constant(r, key) && type_of(r, key) == TYPE_STR ? key : 0;
}

/* A metamethod's function is loaded from, or was stored in, a table by its name. */
static bool is_metamethod(const struct msp_trace_reader *r, uint32_t ref)
{
	uint32_t key = type_of(r, ref) == TYPE_FUNC ? key_of(r, ref) : 0;
	bool index;

	return key && is_meta_name(r, key, &index);
}

/* A return below the base (RETF): its operands are the function and the place that it returns to. */
static void read_return(struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t ref)
{
	uint32_t proto = msp_get16(at(r, ref)), place = msp_get16(at(r, ref) + 2);
	uint64_t object;
	struct msp_trace_proto *p;
	int64_t pos;

	if (!(at(r, ref)[4] & GUARD) || !is_constant(r, proto) || !is_constant(r, place) ||
	    type_of(r, proto) != TYPE_PROTO)
		return;
	object = object_of(r, proto);
	if (msp_lj_object_type(r->layout, r->mem, object) != MSP_GCT_PROTO)
		return;
	p = msp_trace_proto_at(r, object);
	pos = p ? ((int64_t)object_of(r, place) - (int64_t)p->bc) / 4 : 0;
	if (!p || pos <= 0 || pos >= msp_trace_proto_size(p) || f->lowers == MSP_TRACE_LOWER) {
		f->known = false;
		return;
	}
	f->lower[f->lowers].proto = p;
	f->lower[f->lowers++].pos = pos;
}

static bool is_string(const struct msp_trace_reader *r, uint32_t ref)
{
	return ref >= r->nk && ref < r->nins && type_of(r, ref) == TYPE_STR;
}

/*
 * Calls that not every trace has: a string becomes a number (STRTO), of which it is known later
 * whether it is one; two strings are the arguments of the comparison (CARG, which has no type).
 */
static void read_strings(const struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t ref)
{
	uint32_t a = msp_get16(at(r, ref)), b = msp_get16(at(r, ref) + 2);
	uint8_t type = at(r, ref)[4];

	f->scans |= type & GUARD && (type & TYPE_MASK) == TYPE_NUM && is_string(r, a);
	f->compares |= (type & TYPE_MASK) == TYPE_NIL && is_string(r, a) && is_string(r, b);
}

void msp_trace_facts_read(struct msp_trace_reader *r, struct msp_trace_facts *f)
{
	const uint8_t *base = at(r, MSP_REF_BIAS);

	*f = (struct msp_trace_facts){.work = MAX_WORK};
	f->known = msp_path_callees_read(r, &f->callees);
	f->root = !msp_get16(base) && !msp_get16(base + 2);
	for (uint32_t i = 0; i < f->callees.count; i++)
		if (f->callees.of[i].proto)
			add_proto(f, f->callees.of[i].proto);
	f->known &= read_constants(r, f);
	for (uint32_t ref = MSP_REF_BIAS + 1; ref < r->nins; ref++) {
		read_return(r, f, ref);
		read_strings(r, f, ref);
		f->meta = f->meta || type_of(r, ref) == TYPE_CDATA ||
			  type_of(r, ref) == TYPE_UDATA || is_metamethod(r, ref);
		f->lookup |= f->meta;
	}
}

/* ---- Calls ---- */

/* Can another instruction than def have put a value into the slot, at pos? */
static bool is_bypassed(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			uint32_t def, uint32_t pos)
{
	struct msp_bc_ins ins;
	int64_t target;

	for (uint32_t q = 1; q < msp_trace_proto_size(p); q++) {
		ins = msp_bc_decode(r->set, p->ins[q]);
		if (q >= def && q <= pos)
			continue;
		target = msp_bc_is_jump(ins.op) || ins.op == MSP_BC_JFORL || ins.op == MSP_BC_JITERL
				 ? msp_trace_loop_start(r, p, q)
				 : 0;
		if (target > (int64_t)def && target <= (int64_t)pos)
			return true;
	}
	return false;
}

/* The one instruction that puts a value into the slot which is there at pos; 0: not known. */
static uint32_t sole_writer(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			    uint32_t pos, uint32_t slot)
{
	struct msp_bc_ins ins;

	for (uint32_t def = pos; --def >= 1;) {
		ins = msp_bc_decode(r->set, p->ins[def]);
		switch (msp_bc_mode(ins.op)) {
		case MSP_BC_DST:
			if (ins.a == slot)
				return is_bypassed(r, p, def, pos) ? 0 : def;
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

/* The function in an upvalue that never changes. */
static bool read_upvalue(const struct msp_trace_reader *r, uint64_t fn, uint32_t index,
			 uint64_t *out)
{
	const struct msp_lj_layout *y = r->layout;
	const struct msp_lj_object_layout *o = msp_lj_object_layout(y);
	uint64_t uv, place, value;
	uint8_t immutable;

	if (!msp_lj_read_ref(y, r->mem,
			     fn + (uint64_t)y->fn_pc + o->fn_uv + (uint64_t)index * o->ref, &uv) ||
	    msp_lj_object_type(y, r->mem, uv) != MSP_GCT_UPVAL ||
	    msp_read(r->mem, uv + (uint64_t)y->gc_gct + 2, &immutable, 1) || !immutable ||
	    !msp_lj_read_ref(y, r->mem, uv + o->uv_value, &place) ||
	    msp_read(r->mem, place, &value, 8))
		return false;
	*out = y->gc64 ? value & ((1ull << 47) - 1) : (uint32_t)value;
	return true;
}

static bool is_polymorphic(const struct msp_trace_reader *r, const struct msp_trace_proto *p)
{
	uint8_t flags;

	return r->layout->pt_flags < 0 ||
	       msp_read(r->mem, p->addr + (uint64_t)r->layout->pt_flags, &flags, 1) ||
	       flags >= POLYMORPHIC;
}

/*
 * A function that reads an upvalue that never changes is known to the trace itself (rec_upvalue()
 * of lj_record.c), unless it is polymorphic.
 */
static bool upvalue_function(const struct msp_trace_reader *r, const struct msp_trace_facts *f,
			     const struct msp_trace_proto *p, uint32_t index, uint64_t *out)
{
	uint64_t fn;

	*out = 0;
	if (is_polymorphic(r, p))
		return false;
	for (uint32_t i = 0; i < f->callees.count; i++) {
		if (f->callees.of[i].proto != p)
			continue;
		if (!read_upvalue(r, f->callees.of[i].fn, index, &fn) || (*out && *out != fn))
			return false;
		*out = fn;
	}
	return *out;
}

/* The function that a loaded one was checked to be, before it was called; 0: none. */
static uint64_t checked_function(const struct msp_trace_reader *r, uint32_t loaded)
{
	uint32_t is;

	for (uint32_t ref = loaded + 1; ref < r->nins; ref++) {
		if ((at(r, ref)[4] & (GUARD | TYPE_MASK)) != (GUARD | TYPE_FUNC) ||
		    msp_get16(at(r, ref)) != loaded)
			continue;
		is = msp_get16(at(r, ref) + 2);
		if (is_constant(r, is) && type_of(r, is) == TYPE_FUNC)
			return object_of(r, is);
	}
	return 0;
}

/*
 * The function that is called by a name in a table: the only one that any was checked to be after
 * it was loaded by that name. Nothing is stored by it.
 */
static bool named_function(const struct msp_trace_reader *r, struct msp_trace_facts *f,
			   uint64_t name, uint64_t *out)
{
	uint64_t fn;
	uint32_t key;
	uint8_t type;

	*out = 0;
	if (!name || f->meta || !msp_trace_work(f, r->nins - MSP_REF_BIAS))
		return false;
	for (uint32_t ref = MSP_REF_BIAS + 1; ref < r->nins; ref++) {
		key = key_of(r, ref);
		type = type_of(r, ref);
		if (!key || object_of(r, key) != name || type == TYPE_NIL || type == TYPE_P32 ||
		    type == TYPE_P64)
			continue;
		fn = type == TYPE_FUNC && msp_trace_work(f, r->nins - ref)
			     ? checked_function(r, ref)
			     : 0;
		if (!fn || (*out && *out != fn))
			return false;
		*out = fn;
	}
	return *out;
}

/* The function in the slot that is called at pos. False: not known. */
static bool function_at(struct msp_trace_reader *r, struct msp_trace_facts *f,
			const struct msp_trace_proto *p, uint32_t pos, uint64_t *fn)
{
	struct msp_bc_ins call = msp_bc_decode(r->set, p->ins[pos]), ins;
	uint32_t def = 0;

	if (call.op != MSP_BC_ITERC && msp_trace_work(f, msp_trace_proto_size(p)))
		def = sole_writer(r, p, pos, call.a);
	ins = msp_bc_decode(r->set, p->ins[def]);
	switch (def ? ins.op : MSP_BC_UNKNOWN) {
	case MSP_BC_UGET:
		return upvalue_function(r, f, p, ins.d, fn);
	case MSP_BC_TGETS:
		return named_function(r, f, msp_trace_object(r, p, ins.c), fn);
	case MSP_BC_GGET:
		return named_function(r, f, msp_trace_object(r, p, ins.d), fn);
	default:
		return false;
	}
}

static enum msp_callee find_callee(struct msp_trace_reader *r, struct msp_trace_facts *f,
				   const struct msp_trace_proto *p, uint32_t pos, uint32_t *index)
{
	uint32_t i = 0;
	uint64_t fn;

	if (!function_at(r, f, p, pos, &fn))
		return MSP_CALLEE_ANY;
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

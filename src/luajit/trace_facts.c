/* SPDX-License-Identifier: MIT */
/*
 * What a trace's instructions (IR) tell of all of it: which functions it can call, and whether it
 * can return below its base.
 */
#include "luajit/objects.h"
#include "luajit/trace_ir.h"
#include "luajit/trace_proof.h"

#define MAX_WORK (16 << 20) /* of a whole proof: a large trace takes a hundredth of it */

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

#define MINUS_ONE 0xbff0000000000000ull
#define TWO 0x4000000000000000ull

static void read_number(struct msp_trace_facts *f, uint64_t bits)
{
	f->negates |= bits == MINUS_ONE;
	f->doubles |= bits == TWO;
}

/* Is there a function, of all in the trace, that negates something? */
static void read_bytecode(struct msp_trace_reader *r, struct msp_trace_facts *f)
{
	struct msp_trace_proto *p;

	for (uint32_t i = 0; i < r->proto_count && !f->negates; i++) {
		p = &r->proto[i];
		if (!msp_trace_need_bytecode(r, p) || !msp_trace_work(f, msp_trace_proto_size(p))) {
			f->negates = true;
			return;
		}
		for (uint32_t pos = 1; pos < msp_trace_proto_size(p); pos++)
			f->negates |= msp_bc_decode(r->set, p->ins[pos]).op == MSP_BC_UNM;
	}
}

static void read_constant(struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t ref)
{
	uint64_t object = msp_ir_object(r, ref);
	struct msp_trace_proto *p;

	if (msp_ir_type(r, ref) == MSP_IR_PROTO &&
	    msp_lj_object_type(r->layout, r->mem, object) == MSP_GCT_PROTO) {
		p = msp_trace_proto_at(r, object);
		if (p)
			add_proto(f, p);
		else
			f->known = false;
	} else {
		msp_trace_metas_constant(r, f, ref);
	}
}

/*
 * Constants with 64 bits have a second word; without GC64 references have none. Their opcodes follow
 * that of the three that each trace has. False: it does not end at these.
 */
static bool read_constants(struct msp_trace_reader *r, struct msp_trace_facts *f)
{
	enum { KPRI, KINT, KGC, KPTR, KKPTR, KNULL, KNUM, KINT64, KSLOT };
	uint8_t first = msp_ir_at(r, MSP_REF_BIAS - 1)[5];
	uint32_t ref = r->nk;

	if (r->nk > MSP_REF_BIAS - 3)
		return false;
	while (ref < MSP_REF_BIAS - 3) {
		int op = msp_ir_at(r, ref)[5] - first;

		if (op == KNUM)
			read_number(f, msp_get64(msp_ir_at(r, ref + 1)));
		read_constant(r, f, ref);
		ref += op == KNUM || op == KINT64 || (r->layout->gc64 && op >= KGC && op <= KKPTR)
			       ? 2
			       : 1;
	}
	return ref == MSP_REF_BIAS - 3 && msp_ir_at(r, ref)[5] == first &&
	       msp_ir_at(r, ref + 1)[5] == first;
}

/* A return below the base (RETF): its operands are the function and the place that it returns to. */
static void read_return(struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t ref)
{
	uint32_t proto = msp_ir_a(r, ref), place = msp_ir_b(r, ref);
	uint64_t object;
	struct msp_trace_proto *p;
	int64_t pos;

	if (!(msp_ir_guard(r, ref)) || !msp_ir_is_constant(r, proto) ||
	    !msp_ir_is_constant(r, place) || msp_ir_type(r, proto) != MSP_IR_PROTO)
		return;
	object = msp_ir_object(r, proto);
	if (msp_lj_object_type(r->layout, r->mem, object) != MSP_GCT_PROTO)
		return;
	p = msp_trace_proto_at(r, object);
	pos = p ? ((int64_t)msp_ir_object(r, place) - (int64_t)p->bc) / 4 : 0;
	if (!p || pos <= 0 || pos >= msp_trace_proto_size(p) || f->lowers == MSP_TRACE_LOWER) {
		f->known = false;
		return;
	}
	f->lower[f->lowers].proto = p;
	f->lower[f->lowers++].pos = pos;
}

/*
 * Calls that not every trace has: a string becomes a number (STRTO), of which it is known later
 * whether it is one; two strings are the arguments of the comparison (CARG, which has no type).
 */
static void read_strings(const struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t ref)
{
	bool string = msp_ir_has_type(r, msp_ir_a(r, ref), MSP_IR_STR);

	f->scans |= msp_ir_guard(r, ref) && msp_ir_type(r, ref) == MSP_IR_NUM && string;
	f->compares |= msp_ir_type(r, ref) == MSP_IR_NIL && string &&
		       msp_ir_has_type(r, msp_ir_b(r, ref), MSP_IR_STR);
}

void msp_trace_facts_read(struct msp_trace_reader *r, struct msp_trace_facts *f)
{
	const uint8_t *base = msp_ir_at(r, MSP_REF_BIAS);

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
	}
	msp_trace_metas_read(r, f);
	read_bytecode(r, f);
	msp_trace_upvalues_read(r, f);
}

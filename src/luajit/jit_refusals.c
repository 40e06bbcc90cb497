/* SPDX-License-Identifier: MIT */
/*
 * What is not compiled. The compiler marks a place that it gives up on in the
 * bytecode: the loop or function header becomes one that does not count. It
 * does the same to a function for which the program has switched it off.
 */
#include "luajit/jit_refusals.h"

#include <stdlib.h>

#include "luajit/bytecode.h"
#include "luajit/proto.h"
#include "moonspy/moonspy.h"

#define MAX_REFUSALS (1u << 20)
#define MAX_BYTECODE (1ull << 30) /* of all functions together: more is no program's */

/* lj_traceerr.h: the same reasons in this order since 2015. */
static const char *const reasons[] = {
	"error thrown or hook called during recording",
	"trace too short",
	"trace too long",
	"trace too deep",
	"too many snapshots",
	"blacklisted",
	"retry recording",
	"not yet implemented: bytecode",
	"leaving loop in root trace",
	"inner loop in root trace",
	"loop unroll limit reached",
	"bad argument type",
	"compilation is switched off for a function",
	"call unroll limit reached",
	"down-recursion, restarting",
	"not yet implemented: a library function or this use of it",
	"not yet implemented: return to lower frame",
	"store with nil or NaN key",
	"missing metamethod",
	"looping index lookup",
	"not yet implemented: mixed sparse/dense table",
	"symbol not in cache",
	"not yet implemented: C type conversion",
	"not yet implemented: C function type",
	"guard would always fail",
	"too many PHIs",
	"persistent type instability",
	"no memory for machine code",
	"machine code too long",
	"machine code area is full",
	"too many spill slots",
	"inconsistent register allocation",
	"not yet implemented: instruction for the assembler",
	"not yet implemented: PHI shuffling too complex",
	"not yet implemented: register coalescing too complex",
};

const char *msp_lj_reason_text(uint32_t reason)
{
	return reason < sizeof(reasons) / sizeof(*reasons) ? reasons[reason] : NULL;
}

/* lj_bc.h: from a function's first header opcode, FUNCF. */
enum { FUNCF, IFUNCF, JFUNCF, FUNCV, IFUNCV, JFUNCV };

enum place { PLACE_NONE, PLACE_HOT, PLACE_NOT_COUNTED };

static enum place place_of(const struct msp_lj_layout *layout, const struct msp_bc_set *set,
			   uint32_t ins, bool *loop)
{
	*loop = true;
	switch (msp_bc_decode(set, ins).op) {
	case MSP_BC_FORL:
	case MSP_BC_JFORL:
	case MSP_BC_ITERL:
	case MSP_BC_JITERL:
	case MSP_BC_LOOP:
	case MSP_BC_JLOOP:
	case MSP_BC_ITERN:
	case MSP_BC_ITERC: /* what ITERN becomes when it is given up */
		return PLACE_HOT;
	case MSP_BC_IFORL:
	case MSP_BC_IITERL:
	case MSP_BC_ILOOP:
		return PLACE_NOT_COUNTED;
	case MSP_BC_FUNC:
		break;
	default:
		return PLACE_NONE;
	}
	*loop = false;
	switch ((ins & 0xff) - layout->bc_funcf) {
	case FUNCF:
	case JFUNCF:
	case FUNCV:
	case JFUNCV:
		return PLACE_HOT;
	case IFUNCF:
	case IFUNCV:
		return PLACE_NOT_COUNTED;
	default:
		return PLACE_NONE;
	}
}

bool msp_lj_is_hot_place(const struct msp_lj_layout *layout, uint32_t ins, bool *loop)
{
	const struct msp_bc_set *set = msp_bc_set_find(layout);

	return set && place_of(layout, set, ins, loop) != PLACE_NONE;
}

struct scan {
	const struct msp_lj_layout *layout;
	const struct msp_memory *mem;
	const struct msp_bc_set *set;
	const struct msp_lj_aborts *aborts;
	struct msp_lj_jit *out;
	size_t room;
	uint64_t bytes; /* of bytecode read */
};

static int add(struct scan *s, const struct msp_lj_refusal *refusal)
{
	struct msp_lj_refusal *grown;

	if (s->out->refusals == MAX_REFUSALS)
		return 0;
	if (s->out->refusals == s->room) {
		s->room = s->room ? 2 * s->room : 64;
		grown = reallocarray(s->out->refusal, s->room, sizeof(*grown));
		if (!grown)
			return MSP_E_NOMEM;
		s->out->refusal = grown;
	}
	s->out->refusal[s->out->refusals++] = *refusal;
	return 0;
}

/* The newest abort that is remembered of a place. */
static const struct msp_lj_abort *abort_of(const struct scan *s, uint64_t pc)
{
	for (uint32_t i = s->aborts->count; i-- > 0;)
		if (s->aborts->abort[i].pc == pc)
			return &s->aborts->abort[i];
	return NULL;
}

static bool was_compiled(const struct scan *s, uint32_t ins)
{
	uint8_t op = msp_bc_decode(s->set, ins).op, head = (ins & 0xff) - s->layout->bc_funcf;

	return op == MSP_BC_JFORL || op == MSP_BC_JITERL || op == MSP_BC_JLOOP ||
	       (op == MSP_BC_FUNC && (head == JFUNCF || head == JFUNCV));
}

static int look_at(struct scan *s, const struct msp_lj_proto_ref *pt, uint32_t pos, uint32_t ins)
{
	const struct msp_lj_abort *abort;
	struct msp_lj_refusal refusal = {.reason = MSP_LJ_REASON_NONE};
	enum place place = place_of(s->layout, s->set, ins, &refusal.loop);

	if (place == PLACE_NONE)
		return 0;
	abort = abort_of(s, pt->addr + (uint64_t)s->layout->pt_size + pos * 4ull);
	/* A place that was compiled after all is no refusal. */
	if (place == PLACE_HOT && (!abort || was_compiled(s, ins)))
		return 0;
	refusal.kind = place == PLACE_HOT	     ? MSP_LJ_ABORTED
		       : pt->flags & MSP_PROTO_NOJIT ? MSP_LJ_SWITCHED_OFF
						     : MSP_LJ_GIVEN_UP;
	refusal.place = (struct msp_lj_code_place){pt->addr, pt->ident, pos};
	if (abort)
		refusal.reason = abort->reason;
	if (abort && place == PLACE_HOT)
		refusal.penalty = abort->penalty;
	return add(s, &refusal);
}

static int scan_proto(struct scan *s, const struct msp_lj_proto_ref *pt)
{
	uint64_t bc = pt->addr + (uint64_t)s->layout->pt_size;
	uint32_t *ins, n = pt->sizebc;
	int r = 0;

	s->bytes += n * sizeof(*ins);
	if (!n || s->bytes > MAX_BYTECODE) {
		s->out->all_functions &= !n;
		return 0;
	}
	ins = malloc(n * sizeof(*ins));
	if (!ins)
		return MSP_E_NOMEM;
	/* It may be gone by now, and something else in its place: its header must be there. */
	if (!msp_read(s->mem, bc, ins, n * sizeof(*ins)) &&
	    msp_bc_decode(s->set, ins[0]).op == MSP_BC_FUNC)
		for (uint32_t pos = 0; !r && pos < n; pos++)
			r = look_at(s, pt, pos, ins[pos]);
	free(ins);
	return r;
}

static int by_kind(const void *a, const void *b)
{
	const struct msp_lj_refusal *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind - y->kind;
	if (x->penalty != y->penalty)
		return x->penalty < y->penalty ? 1 : -1;
	if (x->loop != y->loop)
		return x->loop ? -1 : 1;
	if (x->place.pt != y->place.pt)
		return x->place.pt < y->place.pt ? -1 : 1;
	return (x->place.pos > y->place.pos) - (x->place.pos < y->place.pos);
}

int msp_lj_refusals_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			 const struct msp_lj_protos *protos, const struct msp_lj_aborts *aborts,
			 struct msp_lj_jit *out)
{
	struct scan s = {.layout = layout,
			 .mem = mem,
			 .set = msp_bc_set_find(layout),
			 .aborts = aborts,
			 .out = out};
	int r = 0;

	for (size_t i = 0; s.set && !r && i < protos->count; i++)
		r = scan_proto(&s, &protos->proto[i]);
	if (out->refusals)
		qsort(out->refusal, out->refusals, sizeof(*out->refusal), by_kind);
	return r;
}

/* SPDX-License-Identifier: MIT */
/* Helper functions: frames of a Lua stack, functions and lines. */
#include <string.h>

#include "companion/helpers.h"
#include "luajit/bytecode.h"

#define MOST_BYTECODE 0x4000000u
#define MOST_HIDDEN 8 /* frames in a row that are no function's */
#define CONT_FFI_CALLBACK 1

/* ---- One frame: its function, and the link that leads to the next ---- */

struct link {
	uint64_t base, function, word;
	bool is_thread; /* no function, but the coroutine itself: its first frames */
};

/* Slots below a frame's first that hold its function and its link. */
static uint64_t head_size(struct helper *h)
{
	return h->c.fr2 == 1 ? 16 : 8;
}

static bool is_bottom(struct helper *h, const struct helper_L *L, uint64_t base)
{
	return base < L->stack + head_size(h) + 8;
}

/* With GC64 the tag of a slot tells what is in it, else the object itself has to. */
static int take_gc64(struct helper *h, const uint64_t slot[2], struct link *out)
{
	int64_t tag = (int64_t)slot[0] >> h->c.tv_shift;

	out->function = slot[0] & ((1ull << h->c.tv_shift) - 1);
	out->word = slot[1];
	out->is_thread = tag == ~(int64_t)h->c.gct_thread;
	return tag == h->c.tv_func || out->is_thread ? 0 : LJVM_E_BROKEN;
}

static int take_gc32(struct helper *h, uint64_t slot, struct link *out)
{
	uint64_t gct;

	out->function = (uint32_t)slot;
	out->word = slot >> 32;
	if (helper_number(h, out->function + (uint64_t)h->c.gc_gct, 1, &gct) < 0)
		return LJVM_E_READ;
	out->is_thread = gct == (uint64_t)h->c.gct_thread;
	return 0;
}

static int get_link(struct helper *h, const struct helper_L *L, uint64_t base, struct link *out)
{
	uint64_t slot[2];

	if (base % 8 || is_bottom(h, L, base) || base > L->end)
		return LJVM_E_BROKEN;
	if (helper_read(h, base - head_size(h), slot, head_size(h)) < 0)
		return LJVM_E_READ;
	out->base = base;
	if (h->c.fr2 != 1)
		return take_gc32(h, slot[0], out);
	return h->c.tv_shift > 0 && h->c.tv_shift < 64 ? take_gc64(h, slot, out) : LJVM_E_BROKEN;
}

static bool is_kind(struct helper *h, const struct link *link, int32_t kind)
{
	return (link->word & (uint64_t)h->c.frame_typep) == (uint64_t)kind;
}

/* The slot a continuation has below the frame: n is 1: the PC it goes on at; 2: what continues. */
static int get_continuation(struct helper *h, const struct link *link, int n, uint64_t *out)
{
	unsigned int ref = h->c.fr2 == 1 ? 8 : 4;

	return helper_number(h, link->base - head_size(h) - (uint64_t)n * ref, ref, out);
}

/* The next frame: its first slot, and the PC it goes on at, 0 if it has none. */
static int get_next(struct helper *h, const struct link *link, uint64_t *base, uint64_t *pc)
{
	uint64_t size = link->word & ~(uint64_t)h->c.frame_typep;
	uint32_t call;

	*pc = 0;
	if ((link->word & (uint64_t)h->c.frame_type) == (uint64_t)h->c.frame_lua) {
		*pc = link->word;
		if (helper_read(h, *pc - 4, &call, sizeof(call)) < 0)
			return LJVM_E_READ;
		size = head_size(h) + (call >> 8 & 0xff) * 8;
	} else if (is_kind(h, link, h->c.frame_cont) && get_continuation(h, link, 1, pc) < 0) {
		return LJVM_E_READ;
	}
	if (size < head_size(h) || size % 8 || size > link->base)
		return LJVM_E_BROKEN;
	*base = link->base - size;
	return 0;
}

/* Is what called this frame C code? */
static bool is_from_c(struct helper *h, const struct link *link)
{
	uint64_t what;

	if (is_kind(h, link, h->c.frame_c) || is_kind(h, link, h->c.frame_cp))
		return true;
	return is_kind(h, link, h->c.frame_cont) && get_continuation(h, link, 2, &what) == 0 &&
	       what == CONT_FFI_CALLBACK;
}

/* ---- Its function ---- */

/* How many instructions a prototype has. */
static int get_sizebc(struct helper *h, uint64_t pt, uint64_t *out)
{
	uint64_t gct;

	if (pt % 4)
		return LJVM_E_BROKEN;
	if (helper_number(h, pt + (uint64_t)h->c.gc_gct, 1, &gct) < 0 ||
	    helper_number(h, pt + (uint64_t)h->c.pt_sizebc, 4, out) < 0)
		return LJVM_E_READ;
	return gct == (uint64_t)h->c.gct_proto && *out && *out <= MOST_BYTECODE ? 0 : LJVM_E_BROKEN;
}

/* The instruction before pc; -1: it is not of that prototype. */
static int32_t position(struct helper *h, uint64_t pt, uint64_t sizebc, uint64_t pc)
{
	uint64_t first = pt + (uint64_t)h->c.pt_size, distance = pc - first;

	return distance && distance % 4 == 0 && distance <= sizebc * 4 ? (int32_t)(distance / 4) - 1
								       : -1;
}

static int get_function(struct helper *h, const struct link *link, uint64_t pc,
			struct ljvm_frame *out)
{
	const struct ljvm_constants *c = &h->c;
	uint64_t gct, ffid, code, sizebc;
	int err;

	if (helper_number(h, link->function + (uint64_t)c->gc_gct, 1, &gct) < 0 ||
	    helper_number(h, link->function + (uint64_t)c->fn_ffid, 1, &ffid) < 0)
		return LJVM_E_READ;
	if (gct != (uint64_t)c->gct_func)
		return LJVM_E_BROKEN;
	out->base = link->base;
	out->function = link->function;
	out->ffid = (uint32_t)ffid;
	out->pos = -1;
	out->return_pc = 0;
	if (ffid) {
		out->kind = ffid == (uint64_t)c->ff_c ? LJVM_FRAME_C : LJVM_FRAME_FAST;
		return helper_number(h, link->function + (uint64_t)c->fn_cfunc, 8, &out->pt);
	}
	out->kind = LJVM_FRAME_LUA;
	if (helper_ref(h, link->function + (uint64_t)c->fn_pc, &code) < 0)
		return LJVM_E_READ;
	out->pt = code - (uint64_t)c->pt_size;
	err = get_sizebc(h, out->pt, &sizebc);
	if (err < 0)
		return err;
	out->return_pc = pc;
	out->pos = position(h, out->pt, sizebc, pc);
	return 0;
}

/* ---- The frames of a stack ---- */

/* The second frame of a vararg function, below the first, has the link to its caller. */
static int skip_vararg(struct helper *h, const struct helper_L *L, struct link *link)
{
	uint64_t base, pc;
	int err = 0;

	if (is_kind(h, link, h->c.frame_varg)) {
		err = get_next(h, link, &base, &pc);
		if (err == 0)
			err = get_link(h, L, base, link);
	}
	return err;
}

/* The frame at base, or below it if that is no function's. 0: there is none. */
static int frame_at(struct helper *h, const struct helper_L *L, uint64_t base, uint64_t pc,
		    struct ljvm_frame *out)
{
	struct link link;
	int err = 0;

	for (int i = 0; i < MOST_HIDDEN && err == 0; i++) {
		if (is_bottom(h, L, base))
			return 0;
		err = get_link(h, L, base, &link);
		if (err == 0 && !link.is_thread) {
			err = get_function(h, &link, pc, out);
			if (err == 0)
				err = skip_vararg(h, L, &link);
			if (err == 0)
				out->from_c = is_from_c(h, &link);
			return err < 0 ? err : 1;
		}
		if (err == 0)
			err = get_next(h, &link, &base, &pc);
	}
	return err < 0 ? err : LJVM_E_BROKEN;
}

int companion_frame_first(const struct ljvm_memory *m, const struct ljvm_context *context,
			  struct ljvm_frame *out)
{
	uint64_t base = context->base, pc = context->pc;
	struct ljvm_cframe cframe;
	struct helper_L L;
	struct helper h;
	int err = helper_begin(&h, m);

	if (err == 0)
		err = helper_L(&h, context->L, context->g, &L);
	if (err < 0)
		return err;
	if (!base) {
		base = L.base;
		if (context->cframe && helper_cframe(&h, context->cframe, &cframe) == 0 &&
		    cframe.L == context->L)
			pc = cframe.pc;
	}
	memset(out, 0, sizeof(*out));
	out->L = context->L;
	err = frame_at(&h, &L, base, pc, out);
	return err == 0 ? LJVM_E_NONE : err;
}

int companion_frame_next(const struct ljvm_memory *m, struct ljvm_frame *frame)
{
	uint64_t base, pc;
	struct helper_L L;
	struct helper h;
	struct link link;
	int err = helper_begin(&h, m);

	if (err == 0)
		err = helper_L(&h, frame->L, 0, &L);
	if (err == 0)
		err = get_link(&h, &L, frame->base, &link);
	if (err == 0)
		err = skip_vararg(&h, &L, &link);
	if (err == 0)
		err = get_next(&h, &link, &base, &pc);
	return err < 0 ? err : frame_at(&h, &L, base, pc, frame);
}

/* Can that be an instruction that calls? These have the same numbers in the generations of bytecode that are known. */
static bool may_call(struct helper *h, uint64_t at)
{
	bool known = h->c.bc_funcf == 89 || h->c.bc_funcf == 96;
	uint8_t op;

	if (helper_read(h, at, &op, sizeof(op)) < 0)
		return true;
	return !known || (op >= MSP_BC_CALLM && op <= MSP_BC_ITERN);
}

/*
 * As a function is called or returns, BASE can be its own and PC its caller's. In a recursive one PC lies in both: is it
 * behind a call by a function with the same prototype, whose frame would be there?
 */
static bool may_be_callers(struct helper *h, const struct helper_L *L, const struct link *link,
			   uint64_t pc, uint64_t pt)
{
	struct ljvm_frame caller = {.L = L->at};
	struct link as_called = {.base = link->base, .word = pc}, outer;
	uint64_t base, its_pc;

	return may_call(h, pc - 4) && get_next(h, &as_called, &base, &its_pc) == 0 &&
	       get_link(h, L, base, &outer) == 0 && !outer.is_thread &&
	       get_function(h, &outer, pc, &caller) == 0 && caller.pt == pt;
}

bool helper_fits(struct helper *h, const struct helper_L *L, uint64_t base, uint64_t pc)
{
	struct ljvm_frame frame = {.L = L->at}, caller = {.L = L->at};
	uint64_t below, its_pc, header;
	struct link link, outer;

	if (get_link(h, L, base, &link) < 0 || link.is_thread ||
	    get_function(h, &link, pc, &frame) < 0)
		return false;
	if (frame.kind == LJVM_FRAME_LUA &&
	    (frame.pos < 0 || may_be_callers(h, L, &link, pc, frame.pt)))
		return false;
	/* A function of C has the PC at its header instruction, or its link in it. */
	if (frame.kind != LJVM_FRAME_LUA &&
	    (helper_ref(h, link.function + (uint64_t)h->c.fn_pc, &header) < 0 ||
	     (pc != link.word && pc != header && pc != header + 4)))
		return false;
	if ((link.word & (uint64_t)h->c.frame_type) != (uint64_t)h->c.frame_lua)
		return true;
	/* The link leads to the call in a Lua function: it has been written. */
	return get_next(h, &link, &below, &its_pc) == 0 && get_link(h, L, below, &outer) == 0 &&
	       !outer.is_thread && get_function(h, &outer, its_pc, &caller) == 0 &&
	       caller.kind == LJVM_FRAME_LUA && caller.pos >= 0;
}

/* ---- Functions and lines ---- */

static int get_line(struct helper *h, uint64_t pt, int32_t pos, uint64_t sizebc,
		    struct ljvm_function *out)
{
	uint64_t lines, numline, delta = 0;
	unsigned int width;

	if (helper_ref(h, pt + (uint64_t)h->c.pt_lineinfo, &lines) < 0 ||
	    helper_number(h, pt + (uint64_t)h->c.pt_numline, 4, &numline) < 0)
		return LJVM_E_READ;
	if (!lines || pos < 0 || (uint64_t)pos >= sizebc)
		return 0;
	width = numline < 256 ? 1 : numline < 65536 ? 2 : 4;
	if (pos > 0 && helper_number(h, lines + (uint64_t)(pos - 1) * width, width, &delta) < 0)
		return LJVM_E_READ;
	out->line = out->first_line + (uint32_t)delta;
	return 0;
}

int companion_function(const struct ljvm_memory *m, uint64_t pt, int32_t pos,
		       struct ljvm_function *out)
{
	uint64_t name, gct, length, first, sizebc;
	struct helper h;
	size_t kept;
	int err = helper_begin(&h, m);

	memset(out, 0, sizeof(*out));
	if (err == 0)
		err = get_sizebc(&h, pt, &sizebc);
	if (err < 0)
		return err == LJVM_E_BROKEN ? LJVM_E_NONE : err;
	if (helper_ref(&h, pt + (uint64_t)h.c.pt_chunkname, &name) < 0 ||
	    helper_number(&h, pt + (uint64_t)h.c.pt_firstline, 4, &first) < 0 ||
	    helper_number(&h, name + (uint64_t)h.c.gc_gct, 1, &gct) < 0 ||
	    helper_number(&h, name + (uint64_t)h.c.str_len, 4, &length) < 0)
		return LJVM_E_READ;
	if (gct != (uint64_t)h.c.gct_str)
		return LJVM_E_BROKEN;
	kept = length < sizeof(out->chunk) - 1 ? length : sizeof(out->chunk) - 1;
	if (kept && helper_read(&h, name + (uint64_t)h.c.str_data, out->chunk, kept) < 0)
		return LJVM_E_READ;
	out->chunk_size = (uint32_t)length;
	out->first_line = (uint32_t)first;
	return get_line(&h, pt, pos, sizebc, out);
}

/* SPDX-License-Identifier: MIT */
/* Helper functions: memory, live VMs, whose code it is, traces, C frames. */
#include <string.h>

#include "companion/helpers.h"

#define MOST_TRACES 65536u
#define MOST_READS 262144u
#define MOST_STACK 0x4000000u /* slots */

/* ---- Memory ---- */

int companion_read_self(void *context, uint64_t address, void *buffer, size_t size)
{
	(void)context;
	return companion_read(buffer, address, size) ? 0 : LJVM_E_READ;
}

int helper_read(struct helper *h, uint64_t at, void *to, size_t size)
{
	if (!at || !h->m->read || !h->reads)
		return LJVM_E_READ;
	h->reads--;
	return h->m->read(h->m->context, at, to, size) == 0 ? 0 : LJVM_E_READ;
}

int helper_number(struct helper *h, uint64_t at, unsigned int size, uint64_t *out)
{
	*out = 0; /* little-endian */
	return helper_read(h, at, out, size);
}

int helper_ref(struct helper *h, uint64_t at, uint64_t *out)
{
	return helper_number(h, at, h->c.gc64 == 1 ? 8 : 4, out);
}

/* A part of a descriptor elsewhere: as much as we know of it, the rest is as missing says. */
static int read_part(struct helper *h, const struct ljvm_part *part, void *to, size_t size,
		     int missing)
{
	size_t there = part->size < size ? part->size : size;

	memset(to, missing, size);
	if (!there)
		return LJVM_E_NONE;
	return helper_read(h, h->m->descriptor + part->offset, to, there);
}

static int begin_elsewhere(struct helper *h)
{
	struct ljvm_descriptor d;
	int err = helper_read(h, h->m->descriptor, &d, sizeof(d));

	if (err < 0)
		return err;
	if (memcmp(d.magic, LJVM_MAGIC, sizeof(d.magic)) != 0 || d.major != LJVM_MAJOR ||
	    d.pointer_size != 8)
		return LJVM_E_BROKEN;
	err = read_part(h, &d.constants, &h->c, sizeof(h->c), 0xff);
	return err < 0 ? err : read_part(h, &d.addresses, &h->a, sizeof(h->a), 0);
}

int helper_begin(struct helper *h, const struct ljvm_memory *m)
{
	h->m = m;
	h->reads = MOST_READS;
	if (m->descriptor)
		return begin_elsewhere(h);
	if (!companion_ready())
		return LJVM_E_NONE;
	h->c = *companion_constants();
	h->a = *companion_addresses();
	return 0;
}

/* ---- VMs ---- */

int helper_L(struct helper *h, uint64_t at, uint64_t g, struct helper_L *out)
{
	const struct ljvm_constants *c = &h->c;
	uint64_t gct, size;

	if (at % 4)
		return LJVM_E_BROKEN;
	out->at = at;
	if (helper_number(h, at + (uint64_t)c->gc_gct, 1, &gct) < 0 ||
	    helper_ref(h, at + (uint64_t)c->L_glref, &out->g) < 0 ||
	    helper_ref(h, at + (uint64_t)c->L_stack, &out->stack) < 0 ||
	    helper_number(h, at + (uint64_t)c->L_stacksize, 4, &size) < 0 ||
	    helper_number(h, at + (uint64_t)c->L_base, 8, &out->base) < 0 ||
	    helper_number(h, at + (uint64_t)c->L_cframe, 8, &out->cframe) < 0)
		return LJVM_E_READ;
	out->end = out->stack + size * 8;
	out->cframe &= ~(uint64_t)c->cframe_flags;
	if (gct != (uint64_t)c->gct_thread || (g && out->g != g) || !out->stack || out->stack % 8 ||
	    size > MOST_STACK || out->base < out->stack || out->base > out->end)
		return LJVM_E_BROKEN;
	return 0;
}

int helper_check_g(struct helper *h, uint64_t g)
{
	struct helper_L L;
	uint64_t main_l;

	if (!g || g % 8)
		return LJVM_E_BROKEN;
	if (helper_ref(h, g + (uint64_t)h->c.g_mainthref, &main_l) < 0)
		return LJVM_E_READ;
	return helper_L(h, main_l, g, &L);
}

/* A slot as it was at one moment; used again meanwhile, it is none. */
static int read_slot(struct helper *h, uint64_t at, struct ljvm_slot *out)
{
	struct ljvm_slot again;

	if (helper_read(h, at, out, sizeof(*out)) < 0 ||
	    helper_read(h, at, &again, sizeof(again)) < 0)
		return LJVM_E_READ;
	if (again.serial != out->serial || again.g != out->g)
		out->g = 0;
	return 0;
}

/* A way through the slots. */
struct walk {
	struct ljvm_live live;
	struct ljvm_slots head;
	uint64_t at; /* of the head's */
	uint32_t next;
};

static int begin_walk(struct helper *h, struct walk *w)
{
	memset(w, 0, sizeof(*w));
	if (!h->a.live)
		return LJVM_E_NONE;
	if (helper_read(h, (uintptr_t)h->a.live, &w->live, sizeof(w->live)) < 0)
		return LJVM_E_READ;
	w->head.next = w->live.slots;
	return w->live.slot_size < sizeof(struct ljvm_slot) || w->live.slot_size > 4096
		       ? LJVM_E_BROKEN
		       : 0;
}

/* The next slot that has a VM. LJVM_E_NONE: there is none. */
static int next_vm(struct helper *h, struct walk *w, struct ljvm_slot *out)
{
	uint64_t slot;

	for (;;) {
		if (w->next == w->head.count) {
			w->at = w->head.next;
			w->next = 0;
			if (!w->at)
				return LJVM_E_NONE;
			if (helper_read(h, w->at, &w->head, offsetof(struct ljvm_slots, slot)) < 0)
				return LJVM_E_READ;
			continue;
		}
		slot = w->at + offsetof(struct ljvm_slots, slot) +
		       (uint64_t)w->next++ * w->live.slot_size;
		if (read_slot(h, slot, out) < 0)
			return LJVM_E_READ;
		if (out->g)
			return 0;
	}
}

int companion_vm(const struct ljvm_memory *m, uint32_t n, struct ljvm_vm *out)
{
	struct ljvm_slot slot;
	struct helper h;
	struct walk w;
	int err = helper_begin(&h, m);

	if (err == 0)
		err = begin_walk(&h, &w);
	do
		err = err < 0 ? err : next_vm(&h, &w, &slot);
	while (err == 0 && n--);
	if (err < 0)
		return err;
	*out = (struct ljvm_vm){.g = slot.g, .thread = slot.thread, .serial = slot.serial};
	return helper_ref(&h, slot.g + (uint64_t)h.c.g_mainthref, &out->main);
}

/* ---- Code ---- */

bool helper_in_vm(struct helper *h, uint64_t pc)
{
	return pc >= (uintptr_t)h->a.vm_code && pc < (uintptr_t)h->a.vm_code_end;
}

static int fill_trace(struct helper *h, uint64_t at, struct ljvm_trace *out)
{
	const struct ljvm_constants *c = &h->c;
	uint64_t root, link, spadjust;

	if (helper_ref(h, at + (uint64_t)c->T_startpt, &out->startpt) < 0 ||
	    helper_ref(h, at + (uint64_t)c->T_startpc, &out->startpc) < 0 ||
	    helper_number(h, at + (uint64_t)c->T_root, 2, &root) < 0 ||
	    helper_number(h, at + (uint64_t)c->T_link, 2, &link) < 0 ||
	    helper_number(h, at + (uint64_t)c->T_spadjust, 2, &spadjust) < 0)
		return LJVM_E_READ;
	out->root = (uint32_t)root;
	out->link = (uint32_t)link;
	out->spadjust = (int32_t)spadjust;
	return 0;
}

/* Is pc in the trace at that place of the table? LJVM_E_NONE: no, or it is none yet. */
static int is_in_trace(struct helper *h, uint64_t at, uint32_t number, uint64_t pc,
		       struct ljvm_trace *out)
{
	const struct ljvm_constants *c = &h->c;
	uint64_t gct, traceno, mcode, szmcode;

	if (helper_number(h, at + (uint64_t)c->T_mcode, 8, &mcode) < 0 ||
	    helper_number(h, at + (uint64_t)c->T_szmcode, 4, &szmcode) < 0)
		return LJVM_E_READ;
	if (pc < mcode || pc - mcode >= szmcode)
		return LJVM_E_NONE;
	if (helper_number(h, at + (uint64_t)c->gc_gct, 1, &gct) < 0 ||
	    helper_number(h, at + (uint64_t)c->T_traceno, 2, &traceno) < 0)
		return LJVM_E_READ;
	if (gct != (uint64_t)c->gct_trace || traceno != number)
		return LJVM_E_NONE;
	*out = (struct ljvm_trace){.object = at,
				   .mcode = mcode,
				   .szmcode = (uint32_t)szmcode,
				   .number = number,
				   .offset = (uint32_t)(pc - mcode)};
	return fill_trace(h, at, out);
}

int helper_trace(struct helper *h, uint64_t g, uint64_t pc, struct ljvm_trace *out)
{
	unsigned int ref = h->c.gc64 == 1 ? 8 : 4;
	uint64_t J = g + (uint64_t)(int64_t)h->c.g_J, table, count, at;
	int err;

	if (h->c.jit != 1)
		return LJVM_E_NONE;
	if (helper_number(h, J + (uint64_t)h->c.J_trace, 8, &table) < 0 ||
	    helper_number(h, J + (uint64_t)h->c.J_sizetrace, 4, &count) < 0)
		return LJVM_E_READ;
	if (count > MOST_TRACES)
		return LJVM_E_BROKEN;
	for (uint32_t i = 1; i < count; i++) {
		if (helper_number(h, table + (uint64_t)i * ref, ref, &at) < 0)
			return LJVM_E_READ;
		if (!at)
			continue;
		err = is_in_trace(h, at, i, pc, out);
		if (err != LJVM_E_NONE)
			return err;
	}
	return LJVM_E_NONE;
}

int companion_trace(const struct ljvm_memory *m, uint64_t g, uint64_t pc, struct ljvm_trace *out)
{
	struct helper h;
	int err = helper_begin(&h, m);

	return err < 0 ? err : helper_trace(&h, g, pc, out);
}

int helper_owner(struct helper *h, uint64_t pc, uint64_t *g, struct ljvm_trace *out)
{
	struct ljvm_slot slot;
	struct walk w;
	int err = begin_walk(h, &w);

	while (err == 0 && (err = next_vm(h, &w, &slot)) == 0)
		if (helper_trace(h, slot.g, pc, out) == 0) {
			*g = slot.g;
			return 0;
		}
	return err == LJVM_E_NONE ? LJVM_E_NOT_MINE : err;
}

int companion_owner(const struct ljvm_memory *m, uint64_t pc, uint64_t *g, struct ljvm_trace *out)
{
	struct ljvm_trace unwanted;
	uint64_t whose = 0;
	struct helper h;
	int err = helper_begin(&h, m);

	if (err == 0 && helper_in_vm(&h, pc))
		return LJVM_PC_INTERPRETER;
	if (err == 0)
		err = helper_owner(&h, pc, &whose, out ? out : &unwanted);
	if (err == 0 && g)
		*g = whose;
	return err < 0 ? err : LJVM_PC_TRACE;
}

/* ---- C frames ---- */

int helper_cframe(struct helper *h, uint64_t sp, struct ljvm_cframe *out)
{
	const struct ljvm_constants *c = &h->c;
	unsigned int ref = c->cf_ref_size == 4 ? 4 : 8;
	uint64_t return_at = sp + (uint64_t)c->cf_size - 8;

	memset(out, 0, sizeof(*out));
	if (!sp || sp % 8)
		return LJVM_E_BROKEN;
	if (c->arch ==
	    LJVM_ARCH_ARM64) /* beside the frame pointer: at the frame's end since 2023, before at its beginning */
		return_at = c->cf_prev == 0 ? return_at : sp + 8;
	if (helper_number(h, sp + (uint64_t)c->cf_L, ref, &out->L) < 0 ||
	    helper_number(h, sp + (uint64_t)c->cf_PC, ref, &out->pc) < 0 ||
	    helper_number(h, sp + (uint64_t)c->cf_prev, 8, &out->prev) < 0 ||
	    helper_number(h, return_at, 8, &out->return_address) < 0)
		return LJVM_E_READ;
	out->prev &= ~(uint64_t)c->cframe_flags;
	out->cfa = sp + (uint64_t)c->cf_size;
	return 0;
}

int companion_cframe(const struct ljvm_memory *m, uint64_t sp, struct ljvm_cframe *out)
{
	struct helper h;
	int err = helper_begin(&h, m);

	return err < 0 ? err : helper_cframe(&h, sp, out);
}

/* SPDX-License-Identifier: MIT */
/* Looking at bytecode: variables, reaching definitions, and the name at a call site. */
#include <stdio.h>
#include <string.h>

#include "luajit/names.h"

#define JUMP_REACH 32769 /* no jump leads further */
#define MOVES_MAX 4

bool msp_view_string(const struct msp_bc_view *view, uint32_t index, char buf[MSP_NAME_MAX])
{
	uint64_t ref = msp_proto_kgc(view->pt, index);
	uint32_t len;

	return ref && !msp_lj_string_read(view->layout, view->mem, ref, buf, MSP_NAME_MAX, &len) &&
	       len > 0;
}

bool msp_view_var(struct msp_bc_view *view, uint32_t pos, uint32_t slot, struct msp_proto_var *out)
{
	return msp_proto_var(view->pt, pos, slot, out, &view->work) && out->name;
}

/* Does the instruction write, or may it have written, the slot? */
static bool writes(const struct msp_bc_ins *ins, uint32_t slot)
{
	switch (msp_bc_mode(ins->op)) {
	case MSP_BC_DST:
	case MSP_BC_TEST:
		return ins->a == slot;
	case MSP_BC_BASE:
		return slot >= ins->a;
	case MSP_BC_NILS:
		return slot >= ins->a && slot <= ins->d;
	default:
		return false;
	}
}

/* Can control get into (def, pos] other than through def? */
static bool entered_elsewhere(struct msp_bc_view *view, uint32_t def, uint32_t pos)
{
	uint32_t first = def > JUMP_REACH ? def - JUMP_REACH : 1;
	uint32_t last = pos + JUMP_REACH < view->pt->sizebc ? pos + JUMP_REACH : view->pt->sizebc;

	for (uint32_t i = first; i < last; i++) {
		struct msp_bc_ins ins;
		int64_t target;

		if (i == def) {
			i = pos > def ? pos - 1 : def; /* jumps inside the stretch are its own */
			continue;
		}
		if (!view->work)
			return true;
		view->work--;
		ins = msp_view_ins(view, i);
		if (!msp_bc_is_jump(ins.op))
			continue;
		target = msp_bc_target(&ins, i);
		if (target > def && target <= pos)
			return true;
	}
	return false;
}

bool msp_view_find_def(struct msp_bc_view *view, uint32_t pos, uint32_t slot, uint32_t *def)
{
	for (uint32_t i = pos; i-- > 1 && view->work; view->work--) {
		struct msp_bc_ins ins = msp_view_ins(view, i);

		if (!writes(&ins, slot))
			continue;
		*def = i;
		return msp_bc_mode(ins.op) == MSP_BC_DST && !entered_elsewhere(view, i, pos);
	}
	return false;
}

/* A variable's name counts if it is no parameter: those name what a function is for. */
static void note_local(struct msp_bc_view *view, uint32_t pos, uint32_t slot, struct msp_site *out)
{
	struct msp_proto_var var;

	if (!*out->name && slot >= view->pt->numparams && msp_view_var(view, pos, slot, &var))
		snprintf(out->name, sizeof(out->name), "%s", var.name);
}

/* The last resort: the local variable, if there was one on the way. */
static bool take_local(struct msp_site *out)
{
	out->kind = MSP_SITE_LOCAL;
	return *out->name;
}

/*
 * What the instruction at pos finds in slot: followed back through moves to an
 * upvalue, a global or a field. If that leads nowhere, the name of the local
 * variable that was called: the function came from elsewhere.
 */
static bool find_callee(struct msp_bc_view *view, uint32_t pos, uint32_t slot, struct msp_site *out)
{
	struct msp_bc_ins ins = {.op = MSP_BC_MOV};
	const char *name;

	for (int moves = 0; moves < MOVES_MAX && ins.op == MSP_BC_MOV; moves++) {
		if (!msp_view_find_def(view, pos, slot, &pos))
			return take_local(out);
		ins = msp_view_ins(view, pos);
		slot = ins.d;
		if (ins.op == MSP_BC_MOV)
			note_local(view, pos, slot, out);
	}
	out->kind = ins.op == MSP_BC_UGET ? MSP_SITE_UPVALUE : MSP_SITE_KEY;
	switch (ins.op) {
	case MSP_BC_UGET:
		out->index = ins.d;
		name = msp_proto_uvname(view->pt, ins.d);
		snprintf(out->name, sizeof(out->name), "%s", name ? name : "");
		return *out->name;
	case MSP_BC_GGET:
		return msp_view_string(view, ins.d, out->name);
	case MSP_BC_TGETS:
		return msp_view_string(view, ins.c, out->name);
	default:
		return take_local(out);
	}
}

bool msp_site_find(struct msp_bc_view *view, uint32_t pos, struct msp_site *out)
{
	struct msp_bc_ins ins;

	out->name[0] = 0;
	if (!pos || pos >= view->pt->sizebc)
		return false;
	ins = msp_view_ins(view, pos);
	/* An iterator's slot holds what "for ... in" made of an expression: no name there. */
	if (!msp_bc_is_call(ins.op) || ins.op == MSP_BC_ITERC || ins.op == MSP_BC_ITERN)
		return false;
	return find_callee(view, pos, ins.a, out);
}

/* SPDX-License-Identifier: MIT */
/* The variables of a Lua frame, as debug.getlocal() and debug.getupvalue() have them (lj_debug.c). */
#include <stdlib.h>
#include <string.h>

#include "luajit/objects.h"
#include "luajit/proto.h"
#include "moonspy/moonspy.h"

#define VARARGS_MAX 250
#define VARINFO_WORK 1000000u

struct reading {
	struct msp_lj_values *values;
	const struct msp_lj_place *place;
	struct msp_proto pt;
	uint32_t pos;
	bool no_pos;
	unsigned int depth;
	struct msp_variables *out;
	size_t room;
	uint32_t work;
};

/* Adds the variable at an address; name may be NULL. False: there is no room. */
static bool add(struct reading *r, enum msp_variable_kind kind, uint32_t index, const char *name,
		uint64_t at)
{
	struct msp_variables *out = r->out;
	struct msp_variable *bigger;
	size_t room;

	if (out->count == r->room) {
		room = r->room ? r->room * 2 : 8;
		bigger = reallocarray(out->variable, room, sizeof(*bigger));
		if (!bigger)
			return false;
		out->variable = bigger;
		r->room = room;
	}
	if (!*r->values->left) {
		out->cut = true;
		return false;
	}
	out->variable[out->count] = (struct msp_variable){
		.kind = kind, .index = index, .name = name ? strdup(name) : NULL};
	msp_lj_value_at(r->values, at, r->depth, &out->variable[out->count].value);
	out->count++;
	return true;
}

/*
 * With names: the variables that live at this position; without a position, the
 * parameters, which live in the whole function. Without names: all slots.
 */
static void read_locals(struct reading *r)
{
	uint32_t slots = r->pt.framesize, head = r->values->layout->fr2 ? 16 : 8;
	struct msp_proto_var var;

	if (r->place->limit > r->place->base + head &&
	    (r->place->limit - r->place->base - head) / 8 < slots)
		slots = (uint32_t)((r->place->limit - r->place->base - head) / 8);
	if (r->no_pos && slots > r->pt.numparams)
		slots = r->pt.numparams;
	for (uint32_t slot = 0; slot < slots; slot++) {
		const char *name = NULL;

		if (r->pt.varinfo) {
			if (!msp_proto_var(&r->pt, r->no_pos ? 0 : r->pos, slot, &var, &r->work))
				return;
			if (!var.name)
				continue;
			name = var.name;
		}
		if (!add(r, MSP_LOCAL, slot, name, r->place->base + 8ull * slot))
			return;
	}
}

/* Where an upvalue of the function has its value; 0: not known. */
static uint64_t upvalue_at(const struct reading *r, uint32_t index)
{
	const struct msp_lj_layout *layout = r->values->layout;
	const struct msp_lj_object_layout *objects = r->values->objects;
	uint64_t at = r->place->fn + (uint64_t)layout->fn_pc + objects->fn_uv +
		      (uint64_t)index * objects->ref;
	uint64_t uv, value;

	if (!msp_lj_read_ref(layout, r->values->mem, at, &uv) ||
	    msp_lj_object_type(layout, r->values->mem, uv) != MSP_GCT_UPVAL ||
	    !msp_lj_read_ref(layout, r->values->mem, uv + objects->uv_value, &value))
		return 0;
	return value & 7 ? 0 : value;
}

static void read_upvalues(struct reading *r)
{
	for (uint32_t i = 0; i < r->pt.sizeuv; i++)
		if (!add(r, MSP_UPVALUE, i, msp_proto_uvname(&r->pt, i), upvalue_at(r, i)))
			return;
}

/* Extra arguments lie below the frame, above the parameters of its lower half. */
static void read_varargs(struct reading *r)
{
	uint64_t head = r->values->layout->fr2 ? 16 : 8, link = 0, first, base = r->place->base;

	if (!(r->pt.flags & MSP_PROTO_VARARG))
		return;
	if (r->values->layout->fr2 ? msp_read(r->values->mem, base - 8, &link, 8)
				   : msp_read(r->values->mem, base - 4, &link, 4))
		return;
	if ((link & 7) != MSP_FT_VARG || (link & ~7ull) > base)
		return;
	first = base - (link & ~7ull) + 8ull * r->pt.numparams;
	for (uint32_t i = 0; first + 8ull * i + head < base && i < VARARGS_MAX; i++)
		if (!add(r, MSP_VARARG, i, NULL, first + 8ull * i))
			return;
}

int msp_lj_variables_read(struct msp_lj_values *values, const struct msp_memory *mem,
			  const struct msp_lj_place *place, uint64_t pt, uint64_t ident,
			  uint32_t pos, bool no_pos, bool in_trace, unsigned int depth,
			  uint32_t *left, struct msp_variables *out)
{
	struct reading r = {.values = values,
			    .place = place,
			    .pos = pos,
			    .no_pos = no_pos,
			    .depth = depth,
			    .out = out,
			    .work = VARINFO_WORK};
	int error;

	memset(out, 0, sizeof(*out));
	values->mem = mem;
	values->left = left;
	error = msp_proto_read(values->layout, mem, pt, &r.pt);
	if (!error && r.pt.ident != ident)
		error = MSP_E_GONE;
	if (!error) {
		out->in_registers = in_trace;
		if (!in_trace)
			read_locals(&r);
		read_varargs(&r);
		read_upvalues(&r);
	}
	msp_proto_free(&r.pt);
	return error;
}

void msp_lj_variables_free(struct msp_variables *variables)
{
	for (size_t i = 0; i < variables->count; i++) {
		free(variables->variable[i].name);
		msp_lj_value_free(&variables->variable[i].value);
	}
	free(variables->variable);
	memset(variables, 0, sizeof(*variables));
}

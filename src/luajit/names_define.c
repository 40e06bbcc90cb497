/* SPDX-License-Identifier: MIT */
/*
 * Names by definition. The parent's bytecode makes a closure (FNEW) and puts
 * it somewhere: into a local variable, an upvalue, a global, a field. Where it
 * goes is its name. The value is followed forward through the slots, the table
 * that it is stored in backward to where that came from.
 *
 * Branches: a test of the value itself has a known outcome (a function is
 * true), of other tests the not-taken side is followed. The compiler uses
 * slots as a stack, so other values do not get into the way.
 */
#include <string.h>

#include "luajit/names.h"

#define STEPS_MAX 20000 /* instructions followed for one value: a long table constructor */
#define DEPTH_MAX 8	/* tables in tables */

struct slots {
	uint64_t bit[4];
};

static bool slots_has(const struct slots *slots, uint8_t slot)
{
	return slots->bit[slot >> 6] >> (slot & 63) & 1;
}

static void slots_set(struct slots *slots, uint8_t slot, bool on)
{
	uint64_t bit = 1ull << (slot & 63);

	if (on)
		slots->bit[slot >> 6] |= bit;
	else
		slots->bit[slot >> 6] &= ~bit;
}

static void slots_drop(struct slots *slots, unsigned first, unsigned last)
{
	for (unsigned i = first; i <= last && i < 256; i++)
		slots_set(slots, i, false);
}

static bool slots_empty(const struct slots *slots)
{
	return !(slots->bit[0] | slots->bit[1] | slots->bit[2] | slots->bit[3]);
}

/* A value on its way from the instruction that made it. */
struct journey {
	struct msp_bc_view *view;
	const struct msp_proto *child; /* NULL: a table */
	struct slots live;
	uint32_t from, pos;
	int depth;
	bool done; /* there is no name further on */
	struct msp_text *out;
};

static bool follow(struct msp_bc_view *view, const struct msp_proto *child, uint32_t from,
		   uint8_t slot, int depth, struct msp_text *out);
static bool table_path(struct msp_bc_view *view, uint32_t pos, uint8_t slot, int depth,
		       struct msp_text *out);

static bool add_string(const struct msp_bc_view *view, uint32_t index, struct msp_text *out)
{
	char buf[MSP_NAME_MAX];

	if (!msp_view_string(view, index, buf))
		return false;
	msp_text_add(out, buf);
	return true;
}

/* Adds the key in slot to a table's name, if it is a constant or a variable. */
static void add_slot_key(struct msp_bc_view *view, uint32_t pos, uint8_t slot, struct msp_text *out)
{
	struct msp_proto_var var;
	struct msp_bc_ins ins;
	char buf[MSP_NAME_MAX];
	uint32_t def;

	if (msp_view_var(view, pos, slot, &var)) {
		msp_text_add(out, "[");
		msp_text_add(out, var.name);
		msp_text_add(out, "]");
		return;
	}
	if (msp_view_find_def(view, pos, slot, &def)) {
		ins = msp_view_ins(view, def);
		if (ins.op == MSP_BC_KSTR && msp_view_string(view, ins.d, buf)) {
			msp_text_add_key(out, buf, '.');
			return;
		}
		if (ins.op == MSP_BC_KSHORT) {
			msp_text_add_index(out, (int16_t)ins.d);
			return;
		}
	}
	msp_text_add(out, "[?]");
}

/* The expression that was read from a table: the table's name and the key. */
static bool get_path(struct msp_bc_view *view, uint32_t def, const struct msp_bc_ins *ins,
		     int depth, struct msp_text *out)
{
	char buf[MSP_NAME_MAX];

	if (!table_path(view, def, ins->b, depth, out))
		msp_text_clear(out);
	switch (ins->op) {
	case MSP_BC_TGETS:
		if (!msp_view_string(view, ins->c, buf))
			return false;
		msp_text_add_key(out, buf, '.');
		return true;
	case MSP_BC_TGETB:
		if (out->len)
			msp_text_add_index(out, ins->c);
		return out->len > 0;
	default:
		if (out->len)
			add_slot_key(view, def, ins->c, out);
		return out->len > 0;
	}
}

/* Name of the table in slot, as the instruction at pos sees it. */
static bool table_path(struct msp_bc_view *view, uint32_t pos, uint8_t slot, int depth,
		       struct msp_text *out)
{
	struct msp_proto_var var;
	struct msp_bc_ins ins;
	const char *name;
	uint32_t def;

	if (depth > DEPTH_MAX)
		return false;
	if (msp_view_var(view, pos, slot, &var)) {
		msp_text_add(out, var.name);
		return true;
	}
	if (!msp_view_find_def(view, pos, slot, &def))
		return false;
	ins = msp_view_ins(view, def);
	switch (ins.op) {
	case MSP_BC_UGET:
		name = msp_proto_uvname(view->pt, ins.d);
		msp_text_add(out, name ? name : "");
		return out->len > 0;
	case MSP_BC_GGET:
		return add_string(view, ins.d, out);
	case MSP_BC_MOV:
		return table_path(view, def, ins.d, depth + 1, out);
	case MSP_BC_TGETS:
	case MSP_BC_TGETB:
	case MSP_BC_TGETV:
		return get_path(view, def, &ins, depth + 1, out);
	case MSP_BC_TNEW:
	case MSP_BC_TDUP:
		return follow(view, NULL, def, slot, depth + 1, out);
	default:
		return false;
	}
}

/*
 * "function M:f()" and "M.f = function(self)" differ in one thing only: the
 * line of the store is that of the keyword in the first, of "end" in the second.
 */
static bool is_method(const struct journey *j, uint8_t table)
{
	struct msp_proto_var var;
	struct msp_bc_ins ins;
	uint32_t def;

	if (!j->child || !j->child->numparams || !msp_proto_var(j->child, 0, 0, &var, NULL) ||
	    !var.name || strcmp(var.name, "self"))
		return false;
	if (msp_proto_line(j->view->pt, j->pos) != j->child->firstline)
		return false;
	if (msp_view_var(j->view, j->pos, table, &var) ||
	    !msp_view_find_def(j->view, j->pos, table, &def))
		return true;
	ins = msp_view_ins(j->view, def);
	return ins.op != MSP_BC_TNEW && ins.op != MSP_BC_TDUP;
}

static bool store_table(struct journey *j, const struct msp_bc_ins *ins)
{
	char buf[MSP_NAME_MAX];

	msp_text_clear(j->out);
	if (!table_path(j->view, j->pos, ins->b, j->depth, j->out))
		msp_text_clear(j->out);
	switch (ins->op) {
	case MSP_BC_TSETS:
		if (!msp_view_string(j->view, ins->c, buf))
			return false;
		msp_text_add_key(j->out, buf, is_method(j, ins->b) ? ':' : '.');
		return true;
	case MSP_BC_TSETB:
		if (j->out->len)
			msp_text_add_index(j->out, ins->c);
		return j->out->len > 0;
	default:
		if (j->out->len)
			add_slot_key(j->view, j->pos, ins->c, j->out);
		return j->out->len > 0;
	}
}

/* Does the instruction store the value under a name? */
static bool step_store(struct journey *j, const struct msp_bc_ins *ins)
{
	struct msp_proto_var var;
	const char *name;

	switch (ins->op) {
	case MSP_BC_GSET:
		return slots_has(&j->live, ins->a) && add_string(j->view, ins->d, j->out);
	case MSP_BC_USETV:
		if (ins->d > 255 || !slots_has(&j->live, ins->d))
			return false;
		name = msp_proto_uvname(j->view->pt, ins->a);
		msp_text_add(j->out, name ? name : "");
		return j->out->len > 0;
	case MSP_BC_TSETS:
	case MSP_BC_TSETB:
	case MSP_BC_TSETV:
		return slots_has(&j->live, ins->a) && store_table(j, ins);
	case MSP_BC_MOV:
		if (ins->d > 255 || !slots_has(&j->live, ins->d) ||
		    !msp_view_var(j->view, j->pos, ins->a, &var))
			return false;
		msp_text_add(j->out, var.name);
		return true;
	default:
		return false;
	}
}

/* setmetatable(t, mt) returns t: the one call that a table on its way often goes through. */
static bool is_setmetatable(const struct journey *j, const struct msp_bc_ins *ins)
{
	unsigned argument = ins->a + 1u + (j->view->layout->fr2 ? 1 : 0);
	struct msp_text callee;

	msp_text_clear(&callee);
	return ins->op == MSP_BC_CALL && argument < 256 && slots_has(&j->live, argument) &&
	       table_path(j->view, j->pos, ins->a, DEPTH_MAX - 1, &callee) &&
	       !strcmp(callee.s, "setmetatable");
}

/* Which slots hold the value after the instruction. */
static void step_slots(struct journey *j, const struct msp_bc_ins *ins)
{
	bool moved = ins->op == MSP_BC_MOV && ins->d < 256 && slots_has(&j->live, ins->d);
	bool kept;

	switch (msp_bc_mode(ins->op)) {
	case MSP_BC_DST:
		slots_set(&j->live, ins->a, moved);
		break;
	case MSP_BC_NILS:
		slots_drop(&j->live, ins->a, ins->d);
		break;
	case MSP_BC_BASE:
		kept = is_setmetatable(j, ins);
		slots_drop(&j->live, ins->a, 255);
		slots_set(&j->live, ins->a, kept);
		break;
	default:
		break;
	}
}

/* Where it goes on. Sets done at the end of the road. */
static void step_flow(struct journey *j, const struct msp_bc_ins *ins)
{
	struct msp_bc_ins next;
	bool tested = (ins->op >= MSP_BC_ISTC && ins->op <= MSP_BC_ISF) && ins->d < 256 &&
		      slots_has(&j->live, ins->d);
	bool taken = tested && (ins->op == MSP_BC_IST || ins->op == MSP_BC_ISTC);
	uint32_t jump = j->pos;
	int64_t target;

	j->pos++;
	if (msp_bc_is_return(ins->op)) {
		j->done = true;
		return;
	}
	if (ins->op <= MSP_BC_ISF) {
		if (!taken) {
			j->pos++; /* the jump that belongs to the comparison */
			return;
		}
		if (ins->op == MSP_BC_ISTC)
			slots_set(&j->live, ins->a, true);
		jump++;
		if (jump >= j->view->pt->sizebc) {
			j->done = true;
			return;
		}
		next = msp_view_ins(j->view, jump);
		ins = &next;
	}
	if (ins->op != MSP_BC_JMP && ins->op != MSP_BC_UCLO)
		return;
	target = msp_bc_target(ins, jump);
	if (target > jump)
		j->pos = target > UINT32_MAX ? UINT32_MAX : target;
	else
		j->done = true;
}

/* A local variable that began after the value was made, in a slot that holds it. */
static bool became_local(struct journey *j)
{
	struct msp_proto_var var;

	for (unsigned slot = 0; slot < 256; slot++) {
		if (!(j->live.bit[slot >> 6] >> (slot & 63))) {
			slot |= 63;
			continue;
		}
		if (slots_has(&j->live, slot) && msp_view_var(j->view, j->pos, slot, &var) &&
		    var.start > j->from) {
			msp_text_add(j->out, var.name);
			return true;
		}
	}
	return false;
}

/* Name of what the instruction at from puts into slot. */
static bool follow(struct msp_bc_view *view, const struct msp_proto *child, uint32_t from,
		   uint8_t slot, int depth, struct msp_text *out)
{
	struct journey j = {.view = view,
			    .child = child,
			    .from = from,
			    .pos = from + 1,
			    .depth = depth,
			    .out = out};
	struct msp_proto_var var;

	if (depth > DEPTH_MAX)
		return false;
	msp_text_clear(out);
	if (msp_view_var(view, from, slot,
			 &var)) { /* assigned to a variable that is there already */
		msp_text_add(out, var.name);
		return true;
	}
	slots_set(&j.live, slot, true);
	for (int steps = 0; steps < STEPS_MAX && view->work; steps++, view->work--) {
		struct msp_bc_ins ins;

		if (j.done || j.pos >= view->pt->sizebc || slots_empty(&j.live))
			return false;
		if (became_local(&j))
			return true;
		ins = msp_view_ins(view, j.pos);
		if (step_store(&j, &ins))
			return true;
		step_slots(&j, &ins);
		step_flow(&j, &ins);
	}
	return false;
}

bool msp_define_find(const struct msp_bc_view *view, const struct msp_proto *child, uint32_t *pos)
{
	const struct msp_proto *pt = view->pt;
	uint32_t last = child->firstline + child->numline, line;

	if (pt->chunkname != child->chunkname || pt->addr == child->addr)
		return false;
	for (uint32_t i = 1; i < pt->sizebc; i++) {
		struct msp_bc_ins ins = msp_view_ins(view, i);

		if (ins.op != MSP_BC_FNEW || msp_proto_kgc(pt, ins.d) != child->addr)
			continue;
		/*
		 * The closure is made on the line of the child's "end", or of its
		 * "function" if it goes straight into its variable. A stale parent,
		 * with a new child at the old address, would hardly pass this.
		 */
		line = msp_proto_line(pt, i);
		if (pt->lineinfo && line != last && line != child->firstline)
			continue;
		*pos = i;
		return true;
	}
	return false;
}

bool msp_define_name(struct msp_bc_view *view, const struct msp_proto *child, uint32_t pos,
		     struct msp_text *out)
{
	struct msp_bc_ins ins = msp_view_ins(view, pos);

	if (follow(view, child, pos, ins.a, 0, out) && out->len)
		return true;
	msp_text_clear(out);
	return false;
}

/* SPDX-License-Identifier: MIT */
/*
 * Evidence from exported API functions, read symbolically: what they do is
 * defined by the Lua manual, so what they touch tells where the fields are.
 */
#include "luajit/build.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/sym.h"

#define ARG0 (msp_code_abi(env->code)->arg[0])
#define ARG1 (msp_code_abi(env->code)->arg[1])
#define ARG2 (msp_code_abi(env->code)->arg[2])

/* What one reader has seen so far; -1: not yet. */
struct seen {
	struct msp_lj_build *build;
	int64_t value[4];
};

static int64_t known(const struct msp_lj_build *build, enum msp_lj_field field)
{
	return build->has[field] ? msp_lj_field_get(&build->layout, field) : -1;
}
#define KNOWN(build, field) known(build, MSP_LJ_FIELD_##field)

/* Bytes of a reference to an object or into memory (GCRef, MRef). */
static unsigned int ref_size(const struct msp_lj_build *build)
{
	return KNOWN(build, gc64) == 0 ? 4 : 8;
}

static void see(struct seen *seen, unsigned int i, int64_t value)
{
	if (seen->value[i] < 0)
		seen->value[i] = value;
}

/* lua_gettop: returns (top - base) / size of a slot. */
static bool read_gettop(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	struct msp_sym diff, shift, top, base;

	/* Of the shift's result 32 bits count: either way of shifting will do. */
	if (ev->kind != MSP_SYM_AT_RET ||
	    (!msp_sym_is_op(env, ev->a, MSP_OP_SAR, &diff, &shift) &&
	     !msp_sym_is_op(env, ev->a, MSP_OP_SHR, &diff, &shift)) ||
	    !msp_sym_is_op(env, diff, MSP_OP_SUB, &top, &base))
		return false;
	msp_sym_is_load_reg(env, top, 8, ARG0, &seen->value[0]);
	msp_sym_is_load_reg(env, base, 8, ARG0, &seen->value[1]);
	return true;
}

/* lua_status: returns a byte of the state. */
static bool read_status(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;

	return ev->kind == MSP_SYM_AT_RET &&
	       msp_sym_is_load_reg(env, ev->a, 1, ARG0, &seen->value[0]);
}

/* lua_atpanic: returns g->panic, and stores its argument there: g is behind L->glref. */
static bool read_atpanic(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	struct msp_sym base;

	if (ev->kind != MSP_SYM_AT_STORE || !msp_sym_is_reg(env, ev->b, ARG1) || ev->b.off != 0)
		return false;
	base = (struct msp_sym){ev->a.node, 0};
	if (!msp_sym_is_load_reg(env, base, 0, ARG0, &seen->value[0]))
		return false;
	seen->value[1] = env->node[base.node].size == 8;
	return true;
}

/* lua_pushthread: compares L with the main thread, and the new top with maxstack. */
static bool read_pushthread(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	int64_t off, top, glref = KNOWN(seen->build, L_glref);
	struct msp_sym x = ev->a, y = ev->b;

	if (ev->kind != MSP_SYM_AT_CMP)
		return false;
	if (msp_sym_is_reg(env, y, ARG0) || msp_sym_is_load_reg(env, x, 0, ARG0, &off)) {
		x = ev->b;
		y = ev->a;
	}
	if (msp_sym_is_reg(env, x, ARG0) && msp_sym_is_load_load_reg(env, y, 0, ARG0, glref, &off))
		see(seen, 0, off);
	/* x == top + one slot */
	x.off -= 8;
	if (msp_sym_is_load_reg(env, x, 8, ARG0, &top) && top == KNOWN(seen->build, L_top) &&
	    msp_sym_is_load_reg(env, y, ref_size(seen->build), ARG0, &off))
		see(seen, 1, off);
	return seen->value[0] >= 0 && seen->value[1] >= 0;
}

/* lua_concat of nothing: pushes the empty string, which is part of the global state. */
static bool read_concat(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	struct msp_sym value, tag, base;
	int64_t glref;

	if (ev->kind != MSP_SYM_AT_STORE)
		return false;
	value = ev->b;
	if (!env->refs32) { /* a tag is in the same word */
		if (!msp_sym_is_op(env, ev->b, MSP_OP_OR, &value, &tag))
			return false;
		if (msp_sym_is(env, value, MSP_SYM_CONST))
			value = tag;
	}
	base = (struct msp_sym){value.node, 0};
	if (!msp_sym_is_load_reg(env, base, 0, ARG0, &glref) ||
	    glref != KNOWN(seen->build, L_glref) || value.off <= 0)
		return false;
	seen->value[0] = value.off;
	return true;
}

/* lua_iscfunction: of a function object it tests ffid. Others it compares with the index. */
static bool read_iscfunction(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	struct msp_sym addr;

	if (ev->kind != MSP_SYM_AT_CMP || !msp_sym_is_load(env, ev->a, 1, &addr) ||
	    !msp_sym_is_untagged(env, (struct msp_sym){addr.node, 0}) ||
	    !(msp_sym_is(env, ev->b, MSP_SYM_CONST) || msp_sym_equal(ev->a, ev->b)))
		return false;
	seen->value[0] = addr.off;
	return true;
}

/*
 * lua_tocfunction: returns the C function of a function object, or NULL. What
 * it looks behind is the function's bytecode, whatever path seems to return it.
 */
static bool read_tocfunction(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	struct msp_sym addr;

	if (ev->kind == MSP_SYM_AT_LOAD &&
	    msp_sym_is_load(env, (struct msp_sym){ev->a.node, 0}, 0, &addr) &&
	    msp_sym_is_untagged(env, (struct msp_sym){addr.node, 0}))
		seen->value[2] = addr.off;
	if (ev->kind != MSP_SYM_AT_RET || !msp_sym_is_load(env, ev->a, 8, &addr) ||
	    !msp_sym_is_untagged(env, (struct msp_sym){addr.node, 0}) || addr.off == seen->value[2])
		return false;
	seen->value[0] = addr.off;
	return true;
}

/* lua_dump: hands on the prototype, which lies right before the function's bytecode. */
static bool read_dump(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	struct msp_sym arg, pc, addr;

	if (ev->kind != MSP_SYM_AT_CALL)
		return false;
	for (unsigned int i = 0; i < MSP_CODE_ARGS; i++) {
		arg = ev->reg[msp_code_abi(env->code)->arg[i]];
		pc = (struct msp_sym){arg.node, 0};
		if (arg.off >= 0 || !msp_sym_is_load(env, pc, 0, &addr) ||
		    !msp_sym_is_untagged(env, (struct msp_sym){addr.node, 0}))
			continue;
		seen->value[0] = addr.off;
		seen->value[1] = -arg.off;
		return true;
	}
	return false;
}

/* lua_tolstring: stores the length through its third argument, returns the data. */
static bool read_tolstring(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	struct msp_sym addr;

	if (ev->kind == MSP_SYM_AT_STORE && msp_sym_is_reg(env, ev->a, ARG2) &&
	    msp_sym_is_load(env, ev->b, 4, &addr) &&
	    msp_sym_is_untagged(env, (struct msp_sym){addr.node, 0}))
		see(seen, 0, addr.off);
	if (ev->kind == MSP_SYM_AT_RET &&
	    msp_sym_is_untagged(env, (struct msp_sym){ev->a.node, 0}) && ev->a.off > 0)
		see(seen, 1, ev->a.off);
	return seen->value[0] >= 0 && seen->value[1] >= 0;
}

/* lua_pcall: saves the error function as distance from the stack's start: x - L->stack. */
static bool read_pcall(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	struct msp_sym a, b;
	int64_t off;

	if (ev->kind != MSP_SYM_AT_CALL)
		return false;
	for (unsigned int i = 0; i < MSP_CODE_ARGS; i++) {
		if (msp_sym_is_op(env, ev->reg[msp_code_abi(env->code)->arg[i]], MSP_OP_SUB, &a,
				  &b) &&
		    msp_sym_is_load_reg(env, b, ref_size(seen->build), ARG0, &off)) {
			seen->value[0] = off;
			return true;
		}
	}
	return false;
}

/*
 * lua_gc: a full collection starts its sweep at the list of all objects:
 * g->gc.sweep = &g->gc.root, and sweep follows root.
 */
static bool read_gc(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct seen *seen = env->ctx;
	unsigned int size = ref_size(seen->build);

	if (ev->kind != MSP_SYM_AT_STORE || ev->size != size ||
	    !msp_sym_is(env, ev->a, MSP_SYM_REG) || ev->a.node != ev->b.node || ev->b.off <= 0 ||
	    ev->a.off != ev->b.off + size)
		return false;
	seen->value[0] = ev->b.off;
	return true;
}

typedef bool (*reader)(struct msp_sym_env *env, const struct msp_sym_event *ev);

struct question {
	const char *symbol;
	reader read;
	int field[2]; /* what value[0] and value[1] are; -1 none */
	const char *why;
};

#define F(name) MSP_LJ_FIELD_##name
static const struct question questions[] = {
	{"lua_gettop", read_gettop, {F(L_top), F(L_base)}, "lua_gettop returns top - base"},
	{"lua_status", read_status, {F(L_status), -1}, "lua_status returns it"},
	{"lua_atpanic", read_atpanic, {F(L_glref), F(gc64)}, "lua_atpanic stores behind it"},
	{"lua_pushthread",
	 read_pushthread,
	 {F(g_mainthref), F(L_maxstack)},
	 "lua_pushthread compares with it"},
	{"lua_concat", read_concat, {F(g_strempty), -1}, "lua_concat of nothing pushes it"},
	{"lua_iscfunction", read_iscfunction, {F(fn_ffid), -1}, "lua_iscfunction tests it"},
	{"lua_tocfunction", read_tocfunction, {F(fn_cfunc), -1}, "lua_tocfunction returns it"},
	{"lua_dump",
	 read_dump,
	 {F(fn_pc), F(pt_size)},
	 "lua_dump passes the prototype before the bytecode"},
	{"lua_tolstring",
	 read_tolstring,
	 {F(str_len), F(str_data)},
	 "lua_tolstring gives length and data"},
	{"lua_pcall", read_pcall, {F(L_stack), -1}, "lua_pcall saves a distance from it"},
};

static bool ask(struct msp_lj_build *build, struct msp_sym_env *env, const char *symbol,
		reader read, struct seen *seen)
{
	struct msp_symbol sym;

	*seen = (struct seen){.build = build, .value = {-1, -1, -1, -1}};
	if (msp_image_find_symbol(build->image, symbol, &sym) != 0)
		return false;
	env->code = build->code;
	env->start = sym.addr;
	env->end = sym.addr + (sym.size ? sym.size : 0x200);
	env->max_insns = 400;
	env->refs32 = KNOWN(build, gc64) == 0;
	env->event = read;
	env->ctx = seen;
	msp_sym_run(env, sym.addr);
	return true;
}

/* lua_gc is a switch: each piece of it is read by itself, with its registers unknown. */
static void find_gcroot(struct msp_lj_build *build, struct msp_sym_env *env, struct seen *seen)
{
	struct msp_symbol sym;
	struct msp_insn insn;
	uint64_t addr, end;
	bool piece = true;

	*seen = (struct seen){.build = build, .value = {-1, -1, -1, -1}};
	if (msp_image_find_symbol(build->image, "lua_gc", &sym) != 0)
		return;
	end = sym.addr + (sym.size ? sym.size : 0x200);
	env->start = sym.addr;
	env->end = end;
	env->max_insns = 32;
	env->event = read_gc;
	env->ctx = seen;
	for (addr = sym.addr; addr < end; addr += insn.size) {
		if (msp_code_decode(build->code, addr, &insn) != 0)
			return;
		if (piece)
			msp_sym_run(env, addr);
		piece = !msp_insn_falls_through(&insn);
	}
	if (seen->value[0] > 0)
		build->g_gcroot = (int32_t)seen->value[0];
}

void msp_lj_evidence_api(struct msp_lj_build *build)
{
	struct msp_sym_env *env = calloc(1, sizeof(*env));
	struct seen seen;

	if (!env)
		return;
	for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
		const struct question *q = &questions[i];
		bool there = ask(build, env, q->symbol, q->read, &seen);

		for (unsigned int k = 0; k < 2; k++) {
			if (q->field[k] < 0)
				continue;
			if (seen.value[k] >= 0)
				msp_lj_found(build, (enum msp_lj_field)q->field[k], "code",
					     seen.value[k], q->why);
			else
				msp_lj_not_found(build, (enum msp_lj_field)q->field[k], "code",
						 there ? q->why : q->symbol);
		}
	}
	find_gcroot(build, env, &seen);
	free(env);
}

/* SPDX-License-Identifier: MIT */
/*
 * Evidence where no function has a name, as in a static program that was
 * stripped: functions are reached from the libraries' tables and from the VM
 * block, and told apart by what they do.
 */
#include "luajit/build.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/sym.h"

#define ARG0 (msp_code_abi(env->code)->arg[0])
#define ARG2 (msp_code_abi(env->code)->arg[2])
#define MAX_FUNCTION 0x400
#define MAX_CALLEES 96
/* lj_str_new compares the length less 1 with a limit near the largest number. */
#define MIN_STR_LIMIT 0x7f000000

struct reader {
	struct msp_lj_build *build;
	int64_t field; /* -1: not seen */
	bool limited;  /* the length was compared */
	uint64_t callee[MAX_CALLEES];
	unsigned int callees;
};

static void run(struct reader *r, struct msp_sym_env *env, uint64_t entry,
		bool (*event)(struct msp_sym_env *, const struct msp_sym_event *))
{
	env->code = r->build->code;
	env->start = entry;
	env->end = entry + MAX_FUNCTION;
	env->max_insns = 1500;
	env->visits = 16;	 /* all paths leave by the same few instructions */
	env->early_first = true; /* what is asked for is decided at the start */
	env->refs32 = !r->build->layout.gc64;
	env->event = event;
	env->ctx = r;
	msp_sym_run(env, entry);
}

/* lua_pushthread compares L with the main thread. Inlined or not, coroutine.running does. */
static bool running_event(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct reader *r = env->ctx;
	int64_t glref = r->build->layout.L_glref, off;

	if (ev->kind == MSP_SYM_AT_CALL && msp_sym_is(env, ev->a, MSP_SYM_CONST) &&
	    msp_sym_is_reg(env, ev->reg[ARG0], ARG0) && r->callees < MAX_CALLEES)
		r->callee[r->callees++] = (uint64_t)ev->a.off;
	if (ev->kind != MSP_SYM_AT_CMP)
		return false;
	if ((msp_sym_is_reg(env, ev->a, ARG0) &&
	     msp_sym_is_load_load_reg(env, ev->b, 0, ARG0, glref, &off)) ||
	    (msp_sym_is_reg(env, ev->b, ARG0) &&
	     msp_sym_is_load_load_reg(env, ev->a, 0, ARG0, glref, &off)))
		r->field = off;
	return r->field >= 0;
}

static void find_mainthref(struct reader *r, struct msp_sym_env *env)
{
	struct msp_lj_build *build = r->build;
	unsigned int direct;

	r->callees = 0;
	r->field = -1;
	run(r, env, build->coroutine_running, running_event);
	direct = r->callees;
	for (unsigned int i = 0; i < direct && r->field < 0; i++)
		run(r, env, r->callee[i], running_event);
	if (r->field >= 0)
		MSP_LJ_FOUND(build, g_mainthref, "code", r->field,
			     "coroutine.running compares with it");
}

/* lj_str_new(L, text, length): of no length, it is the empty string in the global state. */
static bool str_new_event(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct reader *r = env->ctx;
	int64_t glref;

	if (ev->kind == MSP_SYM_AT_CMP && msp_sym_is_reg(env, ev->a, ARG2) && ev->a.off == -1 &&
	    msp_sym_is(env, ev->b, MSP_SYM_CONST) && ev->b.off >= MIN_STR_LIMIT)
		r->limited = true;
	if (ev->kind == MSP_SYM_AT_RET && r->limited && ev->a.off > 0 &&
	    msp_sym_is_load_reg(env, (struct msp_sym){ev->a.node, 0}, 0, ARG0, &glref) &&
	    glref == r->build->layout.L_glref)
		r->field = ev->a.off;
	return r->field >= 0;
}

/* The VM block calls it to make strings. */
static void find_strempty(struct reader *r, struct msp_sym_env *env)
{
	struct msp_lj_build *build = r->build;

	r->callees = 0;
	for (uint32_t i = 0; i < build->insn_count; i++) {
		const struct msp_insn *insn = &build->insn[i];
		bool seen = insn->op != MSP_OP_CALL || !insn->has_target ||
			    msp_lj_in_block(build, insn->target);

		for (unsigned int k = 0; k < r->callees && !seen; k++)
			seen = r->callee[k] == insn->target;
		if (!seen && r->callees < MAX_CALLEES)
			r->callee[r->callees++] = insn->target;
	}
	r->field = -1;
	for (unsigned int i = 0; i < r->callees && r->field < 0; i++) {
		r->limited = false;
		run(r, env, r->callee[i], str_new_event);
	}
	if (r->field >= 0)
		MSP_LJ_FOUND(build, g_strempty, "code", r->field,
			     "a function of the VM returns it for no text");
}

void msp_lj_evidence_static(struct msp_lj_build *build)
{
	struct msp_sym_env *env = calloc(1, sizeof(*env));
	struct reader r = {.build = build};

	if (env && build->has[MSP_LJ_FIELD_L_glref]) {
		if (build->coroutine_running)
			find_mainthref(&r, env);
		find_strempty(&r, env);
	}
	free(env);
}

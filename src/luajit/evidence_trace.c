/* SPDX-License-Identifier: MIT */
/*
 * Evidence from jit.util.tracesnap(trace, number), which is in every LuaJIT
 * with a JIT compiler: it compares the trace's number with the size of the
 * table of traces, itself or by a function of its own; then the snapshot's
 * with the trace's count of them, and reads that snapshot.
 */
#include "luajit/build.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/sym.h"

#define MAX_FUNCTION 0x400
/* More than any snapshot, or any header of a trace, has. */
#define MAX_SNAP 16
#define MAX_TRACE 128
#define MAX_CALLEES 16
#define ARG0 (msp_code_abi(env->code)->arg[0])

struct snap_reader {
	struct msp_lj_build *build;
	int64_t sizetrace;
	uint64_t callee[MAX_CALLEES]; /* functions that get the same L */
	unsigned int callees;
	int64_t nsnap;
	struct msp_sym snaps; /* the trace's array of snapshots */
	int64_t mapofs, ref;  /* fields of a snapshot: of their size the only ones */
	int64_t nslots, nent; /* the lower and the higher of the bytes */
};

static bool is_field(const struct msp_sym_env *env, struct msp_sym addr, int64_t max)
{
	return env->node[addr.node].kind != MSP_SYM_REG && addr.off > 0 && addr.off < max;
}

/* A number of two bytes in a trace, compared with what a call has returned. */
static void compared(struct snap_reader *r, const struct msp_sym_env *env, struct msp_sym number,
		     struct msp_sym returned)
{
	struct msp_sym addr;

	if (r->nsnap < 0 && msp_sym_is(env, returned, MSP_SYM_RESULT) &&
	    msp_sym_is_load(env, number, 2, &addr) && is_field(env, addr, MAX_TRACE))
		r->nsnap = addr.off;
}

/* The same, of four bytes in the jit_State, which is reached through the global state. */
static void compared_size(struct snap_reader *r, const struct msp_sym_env *env,
			  struct msp_sym number, struct msp_sym returned)
{
	const struct msp_lj_layout *layout = &r->build->layout;
	struct msp_sym addr;
	int64_t glref;

	if (r->sizetrace < 0 && msp_sym_is(env, returned, MSP_SYM_RESULT) &&
	    msp_sym_is_load(env, number, 4, &addr) &&
	    msp_sym_is_load_reg(env, (struct msp_sym){addr.node, 0}, 0, ARG0, &glref) &&
	    glref == layout->L_glref && addr.off > layout->g_to_J)
		r->sizetrace = addr.off - layout->g_to_J;
}

/* An address that depends on the number: in the array that the trace points at. */
static void loaded(struct snap_reader *r, const struct msp_sym_env *env,
		   const struct msp_sym_event *ev)
{
	const struct msp_sym_node *index = &env->node[ev->a.node];
	struct msp_sym base, addr;
	int64_t off = ev->a.off;

	if (r->nsnap < 0 || off < 0 || off >= MAX_SNAP ||
	    !(index->kind == MSP_SYM_INDEX ||
	      (index->kind == MSP_SYM_OP && index->op == MSP_OP_ADD)))
		return;
	/* The array may be either part of the sum. */
	base = msp_sym_is_load(env, index->a, 0, &addr) ? index->a : index->b;
	if (!msp_sym_is_load(env, base, 0, &addr) || !is_field(env, addr, MAX_TRACE))
		return;
	if (!r->snaps.node)
		r->snaps = base;
	if (base.node != r->snaps.node)
		return;
	if (ev->size == 1) {
		r->nslots = r->nslots < 0 || off < r->nslots ? off : r->nslots;
		r->nent = off > r->nent ? off : r->nent;
	} else if (ev->size == 4 || off == 0) {
		r->mapofs = off;
	} else if (ev->size == 2) {
		r->ref = off;
	}
}

static bool read_size(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct snap_reader *r = env->ctx;

	if (ev->kind == MSP_SYM_AT_CMP) {
		compared_size(r, env, ev->a, ev->b);
		compared_size(r, env, ev->b, ev->a);
	}
	return r->sizetrace >= 0;
}

static bool read_snap(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct snap_reader *r = env->ctx;

	read_size(env, ev);
	if (ev->kind == MSP_SYM_AT_CMP) {
		compared(r, env, ev->a, ev->b);
		compared(r, env, ev->b, ev->a);
	} else if (ev->kind == MSP_SYM_AT_LOAD) {
		loaded(r, env, ev);
	} else if (ev->kind == MSP_SYM_AT_CALL && msp_sym_is(env, ev->a, MSP_SYM_CONST) &&
		   msp_sym_is_reg(env, ev->reg[ARG0], ARG0) && r->callees < MAX_CALLEES) {
		r->callee[r->callees++] = (uint64_t)ev->a.off;
	}
	return false;
}

static void run(struct msp_sym_env *env, uint64_t entry,
		bool (*event)(struct msp_sym_env *, const struct msp_sym_event *))
{
	env->start = entry;
	env->end = entry + MAX_FUNCTION;
	env->event = event;
	msp_sym_run(env, entry);
}

/* The size of the table may be compared in a function that gets the number by itself. */
static void find_sizetrace(struct msp_sym_env *env, struct snap_reader *r)
{
	for (unsigned int i = 0; i < r->callees && r->sizetrace < 0; i++)
		run(env, r->callee[i], read_size);
	if (r->sizetrace >= 0)
		MSP_LJ_FOUND(r->build, J_sizetrace, "code", r->sizetrace,
			     "jit.util.tracesnap compares with it");
}

void msp_lj_evidence_traces(struct msp_lj_build *build)
{
	static const char why[] = "jit.util.tracesnap reads it";
	struct snap_reader r = {.build = build,
				.sizetrace = -1,
				.nsnap = -1,
				.mapofs = -1,
				.ref = -1,
				.nslots = -1,
				.nent = -1};
	struct msp_sym_env *env;

	if (!build->tracesnap || !build->layout.jit || !(env = calloc(1, sizeof(*env))))
		return;
	env->code = build->code;
	env->max_insns = 300;
	env->keep_spills = true;
	env->refs32 = !build->layout.gc64;
	env->ctx = &r;
	run(env, build->tracesnap, read_snap);
	if (build->has[MSP_LJ_FIELD_g_to_J] && build->has[MSP_LJ_FIELD_L_glref])
		find_sizetrace(env, &r);
	free(env);
	if (r.nsnap < 0)
		return;
	MSP_LJ_FOUND(build, T_nsnap, "code", r.nsnap, "jit.util.tracesnap compares with it");
	if (r.mapofs != 0 || r.nent <= r.nslots)
		return;
	MSP_LJ_FOUND(build, snap_mapofs, "code", r.mapofs, why);
	if (r.ref > 0)
		MSP_LJ_FOUND(build, snap_ref, "code", r.ref, why);
	MSP_LJ_FOUND(build, snap_nslots, "code", r.nslots, why);
	MSP_LJ_FOUND(build, snap_nent, "code", r.nent, why);
}

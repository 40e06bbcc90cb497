/* SPDX-License-Identifier: MIT */
/*
 * Evidence from the VM block's own code: the entries that C calls set up the
 * frame and the registers, the handlers use the fields. Each piece is read
 * symbolically; its registers are what the code says they are.
 */
#include "luajit/build.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/sym.h"

#define ARG0 (msp_code_abi(env->code)->arg[0])
#define ARG1 (msp_code_abi(env->code)->arg[1])
#define SP (msp_code_abi(env->code)->sp)
/* lj_obj.h: vmstate is ~LJ_VMST_*, which are few. */
#define MIN_VMSTATE (-16)
/* Opcodes from BC_FUNCF to BC_FUNCCW (lj_bc.h). */
#define HEADER_OPS 8
#define FUNCC_FROM_FUNCF 6

/* Counts how often each pair of numbers was seen: single hits can mislead, the habit cannot. */
#define MAX_VOTES 64
struct votes {
	struct {
		int64_t a, b;
		unsigned int count;
	} v[MAX_VOTES];
	unsigned int count;
};

struct vm_reader {
	struct msp_lj_build *build;
	struct msp_sym_env env;
	unsigned int ref_size; /* bytes of a reference: 8 with GC64 */

	/* Of the piece being read. */
	int64_t jmp_mcode, jmp_trace;
	int64_t call_untagged; /* function's field that is called or handed to a call */
	int64_t compared[2];
	struct msp_sym compared_value;

	/* Of the handler that enters traces: offsets from the dispatch register. */
	int64_t trace_mcode, trace_table;
	struct votes trace_stores; /* those that all handlers that come there have */

	struct votes save_pc;	/* frame slot, register */
	struct votes save_l;	/* frame slot << 16 | field of L, base register */
	struct votes vmstate;	/* offset from the dispatch register */
	struct votes save_by_l; /* arm64: register that holds L << 16 | field of L, register */
	struct votes
		stored; /* of the piece being read: offset from the dispatch register, register */
};

static void vote(struct votes *votes, int64_t a, int64_t b)
{
	for (unsigned int i = 0; i < votes->count; i++) {
		if (votes->v[i].a == a && votes->v[i].b == b) {
			votes->v[i].count++;
			return;
		}
	}
	if (votes->count < MAX_VOTES) {
		votes->v[votes->count].a = a;
		votes->v[votes->count].b = b;
		votes->v[votes->count++].count = 1;
	}
}

static bool voted(const struct votes *votes, int64_t a, int64_t b)
{
	for (unsigned int i = 0; i < votes->count; i++) {
		if (votes->v[i].a == a && votes->v[i].b == b)
			return true;
	}
	return false;
}

/* Drops the pairs that others do not have. */
static void keep_common(struct votes *votes, const struct votes *others)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < votes->count; i++) {
		if (voted(others, votes->v[i].a, votes->v[i].b))
			votes->v[kept++] = votes->v[i];
	}
	votes->count = kept;
}

/* The pair seen most often, if at least twice as often as the next; false: no habit. */
static bool winner(const struct votes *votes, int64_t *a, int64_t *b)
{
	unsigned int best = 0, second = 0;

	for (unsigned int i = 0; i < votes->count; i++) {
		if (votes->v[i].count > best) {
			second = best;
			best = votes->v[i].count;
			*a = votes->v[i].a;
			*b = votes->v[i].b;
		} else if (votes->v[i].count > second) {
			second = votes->v[i].count;
		}
	}
	return best >= 3 && best >= 2 * second;
}

static void run_with(struct vm_reader *r, uint32_t entry, unsigned int max_insns,
		     bool (*event)(struct msp_sym_env *, const struct msp_sym_event *), void *ctx)
{
	r->env.code = r->build->code;
	r->env.start = r->build->block_start;
	r->env.end = r->build->block_end;
	r->env.refs32 = r->ref_size == 4;
	r->env.max_insns = max_insns;
	r->env.event = event;
	r->env.ctx = ctx;
	msp_sym_run(&r->env, entry);
}

static void run(struct vm_reader *r, uint32_t entry, unsigned int max_insns,
		bool (*event)(struct msp_sym_env *, const struct msp_sym_event *))
{
	run_with(r, entry, max_insns, event, r);
}

/* What is added to an offset from the dispatch register to make one from g. */
static int64_t to_g(const struct msp_lj_build *build)
{
	return build->layout.reg_is_g ? 0 : build->layout.dispatch_to_g;
}

static bool is_const(const struct msp_sym_env *env, struct msp_sym v)
{
	return msp_sym_is(env, v, MSP_SYM_CONST);
}

static struct msp_sym base_of(struct msp_sym v)
{
	return (struct msp_sym){v.node, 0};
}

/* ---- Entries: C functions that are called with L ---- */

struct entry_seen {
	int64_t l_cframe,
		cframe; /* field that gets the stack pointer; that, from the entry's rsp */
	int64_t glref, glref_size;
	int64_t arg0_slot[4]; /* frame slots that get L, from the entry's rsp */
	unsigned int arg0_count;
	int64_t prev_slot;
	int64_t stack, top; /* fields whose difference is saved */
	int64_t cur_l, vmstate, dispatch_to_g, fn_pc, fr2;
	int reg_dispatch, reg_pc, reg_is_g;
};

struct entry_reader {
	struct vm_reader *r;
	struct entry_seen s;
};

static void entry_store(struct msp_sym_env *env, const struct msp_sym_event *ev,
			struct entry_seen *s)
{
	struct msp_sym x, y;
	int64_t off;

	if (msp_sym_is_reg(env, ev->a, ARG0) && msp_sym_is_reg(env, ev->b, SP) && s->l_cframe < 0) {
		s->l_cframe = ev->a.off;
		s->cframe = ev->b.off & ~3LL; /* flags in the low bits */
	} else if (msp_sym_is_reg(env, ev->a, SP)) {
		if (msp_sym_is_reg(env, ev->b, ARG0) && ev->b.off == 0 && s->arg0_count < 4)
			s->arg0_slot[s->arg0_count++] = ev->a.off;
		else if (msp_sym_is_op(env, ev->b, MSP_OP_SUB, &x, &y) &&
			 msp_sym_is_load_reg(env, y, 0, ARG0, &s->top))
			msp_sym_is_load_reg(env, x, 0, ARG0, &s->stack);
		else if (msp_sym_is_load_reg(env, ev->b, 0, ARG0, &off) && off > 0)
			s->prev_slot = ev->a.off;
	} else if (msp_sym_is_load_reg(env, base_of(ev->a), 0, ARG0, &off)) {
		if (msp_sym_is_reg(env, ev->b, ARG0) && ev->b.off == 0)
			s->cur_l = ev->a.off;
		else if (ev->size == 4 && is_const(env, ev->b) && (int32_t)ev->b.off < 0 &&
			 (int32_t)ev->b.off >= MIN_VMSTATE)
			s->vmstate = ev->a.off;
		else
			return;
		s->glref = off;
		s->glref_size = env->node[ev->a.node].size;
	}
}

/* The dispatch: jump to [g + dispatch_to_g + opcode * 8], with the bytecode position in a register. */
static void entry_jump(struct msp_sym_env *env, const struct msp_sym_event *ev,
		       struct entry_seen *s)
{
	struct msp_sym addr;
	int64_t glref;

	if (!msp_sym_is_load(env, ev->a, 8, &addr) || !msp_sym_is(env, addr, MSP_SYM_INDEX) ||
	    !msp_sym_is_load_reg(env, env->node[addr.node].a, 0, ARG0, &glref) ||
	    s->dispatch_to_g > 0)
		return;
	s->dispatch_to_g = addr.off;
	for (int i = 0; i < msp_code_abi(env->code)->regs; i++) {
		struct msp_sym from;

		/* It holds the table, or g itself. */
		if (ev->reg[i].node == env->node[addr.node].a.node &&
		    (ev->reg[i].off == addr.off || (!ev->reg[i].off && s->reg_dispatch < 0))) {
			s->reg_dispatch = i;
			s->reg_is_g = ev->reg[i].off == 0;
		}
		if (ev->reg[i].off == 4 && msp_sym_is_load(env, base_of(ev->reg[i]), 0, &from) &&
		    msp_sym_is_untagged(env, base_of(from))) {
			s->reg_pc = i;
			s->fn_pc = from.off;
		}
	}
}

static bool entry_event(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct entry_reader *e = env->ctx;

	if (ev->kind == MSP_SYM_AT_STORE)
		entry_store(env, ev, &e->s);
	else if (ev->kind == MSP_SYM_AT_JUMP)
		entry_jump(env, ev, &e->s);
	else if (ev->kind == MSP_SYM_AT_LOAD && msp_sym_is_reg(env, ev->a, ARG1) && ev->a.off < 0 &&
		 ev->a.off >= -16 && ev->size == e->r->ref_size && e->s.fr2 < 0)
		e->s.fr2 = ev->a.off == -16;
	return false;
}

/* Of the slots that hold L, the saved bytecode position is the one the handlers write to. */
static void entry_slots(struct msp_lj_build *build, const struct entry_seen *s)
{
	int64_t pc = build->has[MSP_LJ_FIELD_cf_PC] ? build->layout.cf_PC : -1;

	for (unsigned int i = 0; i < s->arg0_count; i++) {
		if (s->arg0_slot[i] - s->cframe != pc)
			MSP_LJ_FOUND(build, cf_L, "code", s->arg0_slot[i] - s->cframe,
				     "entry from C saves L there");
	}
	if (s->prev_slot >= s->cframe && s->prev_slot != -1)
		MSP_LJ_FOUND(build, cf_prev, "code", s->prev_slot - s->cframe,
			     "entry from C saves L->cframe there");
}

static void entry_found(struct msp_lj_build *build, const struct entry_seen *s)
{
	MSP_LJ_FOUND(build, cframe_size, "code", -s->cframe + msp_code_abi(build->code)->pushed,
		     "entry from C: depth of the stack pointer in L->cframe");
	MSP_LJ_FOUND(build, L_cframe, "code", s->l_cframe, "entry from C stores the stack pointer");
	entry_slots(build, s);
	MSP_LJ_FOUND(build, L_glref, "code", s->glref, "entry from C takes the dispatch register");
	MSP_LJ_FOUND(build, gc64, "code", s->glref_size == 8, "entry from C loads a reference");
	if (s->stack >= 0 && s->top == build->layout.L_top)
		MSP_LJ_FOUND(build, L_stack, "code", s->stack, "entry from C saves stack - top");
	if (s->cur_l >= 0)
		MSP_LJ_FOUND(build, g_cur_L, "code", s->cur_l, "entry from C stores L in g");
	if (s->vmstate >= 0)
		MSP_LJ_FOUND(build, g_vmstate, "code", s->vmstate,
			     "entry from C stores ~INTERP in g");
	MSP_LJ_FOUND(build, dispatch_to_g, "code", s->dispatch_to_g,
		     "dispatch of the entry from C");
	MSP_LJ_FOUND(build, reg_dispatch, "code", s->reg_dispatch, "dispatch of the entry from C");
	build->layout.reg_is_g = s->reg_is_g == 1;
	if (s->reg_pc >= 0) {
		MSP_LJ_FOUND(build, reg_pc, "code", s->reg_pc, "dispatch of the entry from C");
		MSP_LJ_FOUND(build, fn_pc, "code", s->fn_pc,
			     "entry from C starts the function there");
	}
	if (s->fr2 >= 0)
		MSP_LJ_FOUND(build, fr2, "code", s->fr2,
			     "entry from C finds the function below base");
}

static void read_entry(struct entry_reader *e, uint32_t entry)
{
	memset(&e->s, 0xff, sizeof(e->s));
	e->s.arg0_count = 0;
	run_with(e->r, entry, 120, entry_event, e);
}

/* Entries with no frame of an outer call to save (lj_vm_resume) tell less; they are skipped. */
static void read_entries(struct vm_reader *r)
{
	struct msp_lj_build *build = r->build;
	struct entry_reader e = {.r = r};

	for (unsigned int i = 0; i < build->ref_count; i++) {
		if (build->ref[i].kind == MSP_LJ_REF_ADDRESS)
			continue;
		read_entry(&e, build->ref[i].target);
		if (e.s.l_cframe >= 0 && e.s.glref >= 0 && e.s.dispatch_to_g >= 0 &&
		    e.s.prev_slot != -1)
			entry_found(build, &e.s);
	}
}

/* What everything else depends on: the size of references, as the entries load them. */
static unsigned int read_ref_size(struct vm_reader *r)
{
	struct entry_reader e = {.r = r};

	for (unsigned int i = 0; i < r->build->ref_count; i++) {
		if (r->build->ref[i].kind == MSP_LJ_REF_ADDRESS)
			continue;
		read_entry(&e, r->build->ref[i].target);
		if (e.s.l_cframe >= 0 && e.s.glref >= 0)
			return (unsigned int)e.s.glref_size;
	}
	return r->build->has[MSP_LJ_FIELD_gc64] && !r->build->layout.gc64 ? 4 : 8;
}

/* ---- Handlers ---- */

static void handler_store(struct vm_reader *r, const struct msp_sym_event *ev)
{
	const struct msp_sym_env *env = &r->env;
	const struct msp_sym_node *from = &env->node[ev->b.node];
	int64_t slot;

	if (ev->size == r->ref_size && msp_sym_is_reg(env, ev->a, SP) && ev->a.off > 0 &&
	    from->kind == MSP_SYM_REG && from->op != SP)
		vote(&r->save_pc, ev->a.off, from->op);
	if (ev->size == r->ref_size && msp_sym_is_load_reg(env, base_of(ev->a), 0, SP, &slot) &&
	    (ev->a.off == r->build->layout.L_base || !r->build->has[MSP_LJ_FIELD_L_base]) &&
	    ev->a.off > 0 && from->kind == MSP_SYM_REG && !ev->b.off)
		vote(&r->save_l, slot << 16 | ev->a.off, from->op);
	if (ev->size == 4 && is_const(env, ev->b) && (int32_t)ev->b.off < 0 &&
	    (int32_t)ev->b.off >= MIN_VMSTATE && env->node[ev->a.node].kind == MSP_SYM_REG)
		vote(&r->vmstate, ev->a.off, env->node[ev->a.node].op);
	/* arm64 keeps L in a register. */
	if (ev->size == 8 && env->node[ev->a.node].kind == MSP_SYM_REG &&
	    env->node[ev->a.node].op != SP && ev->a.off > 0 &&
	    (ev->a.off == r->build->layout.L_base || !r->build->has[MSP_LJ_FIELD_L_base]) &&
	    from->kind == MSP_SYM_REG && !ev->b.off)
		vote(&r->save_by_l, (int64_t)env->node[ev->a.node].op << 16 | ev->a.off, from->op);
	if (ev->size == r->ref_size && msp_sym_is_reg(env, ev->a, r->build->layout.reg_dispatch) &&
	    from->kind == MSP_SYM_REG && !ev->b.off)
		vote(&r->stored, ev->a.off, from->op);
}

/* Jump into a trace: [[[dispatch + x] + number * 8] + mcode]. */
static void handler_jump(struct vm_reader *r, const struct msp_sym_event *ev)
{
	const struct msp_sym_env *env = &r->env;
	struct msp_sym trace, slot;
	int64_t off;

	if (!msp_sym_is_load(env, ev->a, 8, &trace) ||
	    !msp_sym_is_load(env, base_of(trace), 0, &slot) ||
	    !msp_sym_is(env, slot, MSP_SYM_INDEX) ||
	    !msp_sym_is_load_reg(env, env->node[slot.node].a, 0, r->build->layout.reg_dispatch,
				 &off))
		return;
	r->jmp_mcode = trace.off;
	r->jmp_trace = off;
}

/* A function object: taken out of its slot, or (arm64) handed to the handler as a call's third argument. */
static bool is_function(const struct msp_sym_env *env, struct msp_sym v)
{
	const struct msp_code_abi *abi = msp_code_abi(env->code);

	return msp_sym_is_untagged(env, v) ||
	       (abi->arch == MSP_ARCH_ARM64 && msp_sym_is_reg(env, v, abi->arg[2]));
}

static void handler_call(struct vm_reader *r, const struct msp_sym_event *ev)
{
	const struct msp_sym_env *env = &r->env;
	struct msp_sym addr;

	if (msp_sym_is_load(env, ev->a, 8, &addr) && is_function(env, base_of(addr)))
		r->call_untagged = addr.off;
	else if (msp_sym_is_load(env, ev->reg[ARG1], 8, &addr) && is_function(env, base_of(addr)) &&
		 !is_const(env, ev->a))
		r->call_untagged = addr.off;
}

static bool handler_event(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct vm_reader *r = env->ctx;

	if (ev->kind == MSP_SYM_AT_STORE)
		handler_store(r, ev);
	else if (ev->kind == MSP_SYM_AT_JUMP)
		handler_jump(r, ev);
	else if (ev->kind == MSP_SYM_AT_CALL)
		handler_call(r, ev);
	return false;
}

static void trace_found(struct msp_lj_build *build, const struct vm_reader *r)
{
	int64_t d2g = to_g(build);

	if (r->trace_mcode < 0)
		return;

	MSP_LJ_FOUND(build, T_mcode, "code", r->trace_mcode, "BC_JLOOP jumps there");
	for (unsigned int i = 0; i < r->trace_stores.count; i++) {
		if (r->trace_stores.v[i].b == build->layout.reg_base)
			MSP_LJ_FOUND(build, g_jit_base, "code", d2g + r->trace_stores.v[i].a,
				     "BC_JLOOP stores BASE there");
	}
	if (build->has[MSP_LJ_FIELD_g_to_J])
		MSP_LJ_FOUND(build, J_trace, "code", d2g + r->trace_table - build->layout.g_to_J,
			     "BC_JLOOP takes the trace from there");
}

/* BC_FUNCC calls the function's C function, BC_FUNCCW hands it to a wrapper: the last two opcodes. */
static void header_ops_found(struct msp_lj_build *build, unsigned int funcc, int64_t cfunc)
{
	MSP_LJ_FOUND(build, bc_funcf, "code", (int64_t)funcc - FUNCC_FROM_FUNCF,
		     "handlers of BC_FUNCC and BC_FUNCCW call the C function");
	MSP_LJ_FOUND(build, bc_funccw, "code", (int64_t)funcc + 1,
		     "handlers of BC_FUNCC and BC_FUNCCW call the C function");
	MSP_LJ_FOUND(build, fn_cfunc, "code", cfunc, "BC_FUNCC calls it");
	build->op_count = funcc + 2;
}

static void read_handlers(struct vm_reader *r)
{
	struct msp_lj_build *build = r->build;
	int64_t before = -1;

	for (unsigned int i = 0; i < build->handler_count; i++) {
		r->stored.count = 0;
		r->jmp_mcode = r->call_untagged = -1;
		run(r, build->handler[i], 60, handler_event);
		if (r->jmp_mcode >= 0) {
			if (r->trace_mcode < 0)
				r->trace_stores = r->stored;
			else
				keep_common(&r->trace_stores, &r->stored);
			r->trace_mcode = r->jmp_mcode;
			r->trace_table = r->jmp_trace;
		}
		/* Opcodes that a build does not have share the next one's handler. */
		if (i && build->handler[i] == build->handler[i - 1])
			continue;
		if (before >= 0 && before == r->call_untagged && !build->op_count)
			header_ops_found(build, i - 1, before);
		before = r->call_untagged;
	}
}

static void habits_found(struct vm_reader *r)
{
	struct msp_lj_build *build = r->build;
	int64_t a, b;

	if (winner(&r->save_pc, &a, &b)) {
		MSP_LJ_FOUND(build, cf_PC, "code", a, "handlers save the bytecode position there");
		MSP_LJ_FOUND(build, reg_pc, "code", b, "handlers save it as bytecode position");
	}
	if (winner(&r->save_l, &a, &b)) {
		MSP_LJ_FOUND(build, cf_L, "code", a >> 16, "handlers take L from there");
		MSP_LJ_FOUND(build, L_base, "code", a & 0xffff, "handlers store BASE there");
		MSP_LJ_FOUND(build, reg_base, "code", b, "handlers store it in L->base");
	}
}

/* arm64: L in a register, and in the frame where the entries put it. */
static void l_register_found(struct vm_reader *r)
{
	struct msp_lj_build *build = r->build;
	int64_t a, b;

	if (!winner(&r->save_by_l, &a, &b))
		return;
	MSP_LJ_FOUND(build, reg_l, "code", a >> 16, "handlers store BASE in L->base through it");
	MSP_LJ_FOUND(build, L_base, "code", a & 0xffff, "handlers store BASE there");
	MSP_LJ_FOUND(build, reg_base, "code", b, "handlers store it in L->base");
}

static void vmstate_found(struct vm_reader *r)
{
	struct msp_lj_build *build = r->build;
	int64_t a, b;

	if (winner(&r->vmstate, &a, &b) && b == build->layout.reg_dispatch)
		MSP_LJ_FOUND(build, g_vmstate, "code", to_g(build) + a,
			     "handlers store ~INTERP and ~C there");
}

/* ---- Pieces whose address C code takes: trace exits, continuations ---- */

static bool address_event(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct vm_reader *r = env->ctx;
	struct msp_lj_build *build = r->build;
	struct msp_sym a, b;

	/* lj_trace_exit(J, exit state on the stack) */
	a = ev->kind == MSP_SYM_AT_CALL ? ev->reg[build->layout.reg_dispatch] : ev->a;
	if (ev->kind == MSP_SYM_AT_CALL && msp_sym_is_reg(env, ev->reg[ARG1], SP) && a.node &&
	    ev->reg[ARG0].node == a.node)
		MSP_LJ_FOUND(build, g_to_J, "code", to_g(build) + ev->reg[ARG0].off - a.off,
			     "trace exit passes J and the registers");
	if (ev->kind != MSP_SYM_AT_CMP)
		return false;
	/* Opcode compared with BC_FUNCF and with the number of opcodes. */
	if (is_const(env, ev->b) && ev->size == 4 && ev->a.node && r->compared[1] < 0) {
		int64_t now = ev->b.off, before = r->compared[0];

		if (msp_sym_equal(r->compared_value, ev->a) &&
		    (now == before + HEADER_OPS || now == before - HEADER_OPS)) {
			r->compared[0] = now < before ? now : before;
			r->compared[1] = now < before ? before : now;
		} else {
			r->compared[0] = now;
		}
		r->compared_value = ev->a;
	}
	/* Stitching: a trace's link is compared with its number. */
	if (msp_sym_is_load(env, ev->a, 2, &a) && msp_sym_is_load(env, ev->b, 2, &b) &&
	    a.node == b.node && a.off != b.off) {
		MSP_LJ_FOUND(build, T_link, "code", a.off, "stitching compares it with the number");
		MSP_LJ_FOUND(build, T_traceno, "code", b.off,
			     "stitching compares the link with it");
	}
	return false;
}

static void read_addresses(struct vm_reader *r)
{
	struct msp_lj_build *build = r->build;

	for (unsigned int i = 0; i < build->ref_count; i++) {
		if (build->ref[i].kind != MSP_LJ_REF_ADDRESS)
			continue;
		r->compared[0] = r->compared[1] = -1;
		r->compared_value = (struct msp_sym){0};
		run(r, build->ref[i].target, 120, address_event);
		if (r->compared[1] > 0) {
			MSP_LJ_FOUND(build, bc_funcf, "code", r->compared[0],
				     "trace exit tests for function headers");
			MSP_LJ_FOUND(build, bc_funccw, "code", r->compared[1] - 1,
				     "trace exit tests for function headers");
		}
	}
}

/* ---- BC_IFUNCF: what a function's start takes from its prototype ---- */

static bool ifuncf_event(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct vm_reader *r = env->ctx;
	struct msp_lj_build *build = r->build;
	int pc = build->layout.reg_pc;
	int64_t off, to_pt = (int64_t)build->layout.pt_size + 4;
	struct msp_sym a, b;

	/* Bytes -4 to 0 are the instruction's own. */
	if (ev->kind == MSP_SYM_AT_LOAD && ev->size == r->ref_size &&
	    msp_sym_is_reg(env, ev->a, pc) && ev->a.off < -4)
		MSP_LJ_FOUND(build, pt_k, "code", to_pt + ev->a.off,
			     "BC_FUNCF loads the constants");
	if (ev->kind == MSP_SYM_AT_CMP && (msp_sym_is_load_reg(env, ev->b, 1, pc, &off) ||
					   (msp_sym_is_op(env, ev->b, MSP_OP_SHL, &a, &b) &&
					    msp_sym_is_load_reg(env, a, 1, pc, &off))))
		MSP_LJ_FOUND(build, pt_numparams, "code", to_pt + off,
			     "BC_FUNCF compares the arguments with it");
	if (ev->kind == MSP_SYM_AT_CMP &&
	    msp_sym_is_load(env, ev->b, r->ref_size, &(struct msp_sym){0})) {
		struct msp_sym addr = env->node[ev->b.node].a;

		if ((msp_sym_is_load_reg(env, base_of(addr), 0, SP, &off) &&
		     off == build->layout.cf_L) ||
		    (build->has[MSP_LJ_FIELD_reg_l] &&
		     msp_sym_is_reg(env, addr, build->layout.reg_l)))
			MSP_LJ_FOUND(build, L_maxstack, "code", addr.off,
				     "BC_FUNCF compares the frame's end with it");
	}
	if (ev->kind == MSP_SYM_AT_CALL && msp_sym_is_load_reg(env, ev->reg[ARG1], 1, pc, &off)) {
		MSP_LJ_FOUND(build, pt_framesize, "code", to_pt + off,
			     "BC_FUNCF grows the stack by it");
		return true;
	}
	return false;
}

struct islt {
	bool dualnum, ended; /* it has been followed to its end */
};

/* BC_ISLT of a DUALNUM build compares integers too: two values, none of them a constant. */
static bool islt_event(struct msp_sym_env *env, const struct msp_sym_event *ev)
{
	struct islt *islt = env->ctx;

	if (ev->kind == MSP_SYM_AT_CMP && !is_const(env, ev->a) && !is_const(env, ev->b))
		islt->dualnum = true;
	islt->ended |= ev->kind == MSP_SYM_AT_JUMP;
	return islt->ended;
}

static void read_single_handlers(struct vm_reader *r)
{
	struct msp_lj_build *build = r->build;
	struct islt islt = {false};

	if (build->has[MSP_LJ_FIELD_pt_size] && build->has[MSP_LJ_FIELD_bc_funcf] &&
	    build->layout.bc_funcf + 1U < build->handler_count)
		run(r, build->handler[build->layout.bc_funcf + 1], 100, ifuncf_event);
	run_with(r, build->handler[0], 40, islt_event, &islt);
	if (islt.dualnum || islt.ended)
		MSP_LJ_FOUND(build, dualnum, "code", islt.dualnum,
			     "whether BC_ISLT compares integers");
}

/* The block's unwind rule, made by the assembler's author, says the frame's size too. */
static void read_frame_rule(struct msp_lj_build *build)
{
	const struct msp_unwind_table *table;

	if (msp_image_unwind(build->image, &table) != 0)
		return;
	for (uint32_t i = 0; i < table->row_count; i++) {
		const struct msp_rule *rule;

		if (table->rows[i].addr > build->block_start)
			break;
		if (i + 1 < table->row_count && table->rows[i + 1].addr <= build->block_start)
			continue;
		rule = &table->rules[table->rows[i].rule];
		if (rule->cfa_kind == MSP_CFA_REG && rule->cfa_reg == msp_code_abi(build->code)->sp)
			MSP_LJ_FOUND(build, cframe_size, "code", rule->cfa_off,
				     "unwind rule of the VM block");
	}
}

void msp_lj_evidence_vm(struct msp_lj_build *build)
{
	struct vm_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return;
	r->build = build;
	MSP_LJ_FOUND(build, arch, "code", msp_image_arch(build->image), "ELF header");
	MSP_LJ_FOUND(build, vm_start, "code", build->block_start, "table of handlers");
	MSP_LJ_FOUND(build, vm_end, "code", build->block_end, "end of the handlers' code");
	r->trace_mcode = -1;
	r->ref_size = 8;
	r->ref_size = read_ref_size(r);
	read_handlers(r);
	/* Before the entries: the saved position tells their two slots with L apart. */
	habits_found(r);
	l_register_found(r);
	read_entries(r);
	vmstate_found(r);
	read_addresses(r);
	trace_found(build, r);
	read_single_handlers(r);
	read_frame_rule(build);
	MSP_LJ_FOUND(build, jit, "code", build->has[MSP_LJ_FIELD_T_mcode],
		     "whether a handler jumps into traces");
	if (build->layout.arch == MSP_ARCH_X86_64)
		MSP_LJ_FOUND(build, reg_l, "constant", MSP_REG_NONE,
			     "x86-64 keeps L in the frame only");
	free(r);
}

/* SPDX-License-Identifier: MIT */
#include "oracle_run.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "moonspy/moonspy.h"

/* Every how many steps what is known of the memory is compared with it. */
#define VERIFY_EVERY 8192
#define MOVE_STEPS 4000 /* in which a stack is moved, and what is new of it is cleared */
#define GCV_MASK ((1ull << 47) - 1) /* of a GC64 value */

struct run {
	const struct oracle_options *opts;
	struct msp_images *images;
	struct oracle_process process;
	struct oracle_kernel *kernel;
	struct oracle_judge judge;
	struct oracle_report report;
	struct oracle_coverage coverage;
	const struct msp_mapping *block; /* of the LuaJIT that is covered */
	const struct msp_lj_layout *y;
	struct oracle_stack *before, *now;
	struct msp_registers regs; /* before the step */
	bool have_before;
	uint64_t steps, in_block, stale, signals, in_calls, blocked, processes, threads;
	struct asked {
		uint64_t asked, answered, differs;
	} bpf, core;
	uint64_t random;
	uint64_t marks; /* but of a handler's steps one, and of those in which a stack is moved */
	uint64_t moved; /* the step at which a stack was first marked that is moved */
	uint64_t handler_sp; /* where the stack of the signal handler begins that runs; 0: none */
	bool handler_marked;
};

static uint64_t next_random(struct run *r)
{
	r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
	return r->random >> 33;
}

/* The mapping with a LuaJIT in it; there may be none yet. */
static void find_block(struct run *r)
{
	struct oracle_process *p = &r->process;
	size_t count;
	const struct msp_mapping *map = msp_space_mappings(p->space, &count);

	r->block = NULL;
	for (size_t i = 0; i < count && !r->block; i++) {
		const struct msp_image_entry *e = msp_images_get(r->images, map[i].image);

		if (!(map[i].flags & MSP_MAP_FILE) || !e || e->layout == MSP_LAYOUT_NONE)
			continue;
		r->y = msp_lj_build_layout(e->build);
		if (!r->coverage.seen && oracle_coverage_new(&r->coverage, e) != 0)
			continue;
		r->block = &map[i];
	}
}

static void refresh(struct run *r)
{
	oracle_process_refresh(&r->process);
	find_block(r);
	if (r->kernel)
		oracle_kernel_set(r->kernel, &r->process);
}

static bool in_block(const struct run *r, uint64_t pc)
{
	return r->block && pc - r->block->base - r->y->vm_start < r->y->vm_end - r->y->vm_start;
}

static void walk(struct run *r, struct oracle_stack *out)
{
	const struct msp_registers *regs = &r->process.regs;
	struct msp_stack stack;

	msp_walker_walk(r->process.walker, oracle_memory_reader(r->process.memory), regs, &stack);
	if (stack.error == MSP_ERR_NO_MAPPING || stack.error == MSP_ERR_NO_TABLE) {
		refresh(r);
		msp_walker_walk(r->process.walker, oracle_memory_reader(r->process.memory), regs,
				&stack);
	}
	oracle_stack_take(out, &stack);
}

static void fault(struct run *r, const char *why, const struct oracle_insn *insn)
{
	oracle_report_fault(&r->report, &r->process, why, insn, &r->process.regs,
			    r->have_before ? r->before : NULL, r->now);
}

/*
 * At a dispatch BASE and PC are certain: the function below BASE is the top
 * frame. Its answer is taken from the target here, not from the walker.
 */
static const char *check_dispatch(struct run *r, const struct oracle_stack *s)
{
	const struct msp_memory *mem = oracle_memory_reader(r->process.memory);
	uint64_t base = r->process.regs.reg[r->y->reg_base % MSP_REG_COUNT], fn = 0, pc = 0;
	uint64_t next = r->process.regs.reg[r->y->reg_pc % MSP_REG_COUNT]; /* behind the position */
	const struct msp_raw_frame *top = NULL;
	uint32_t size = 0;
	uint8_t ffid = 0;

	if (!r->y->fr2)
		return NULL;
	for (uint32_t i = 0; i < s->count && !top; i++)
		if (s->raw[i].kind == MSP_RAW_LUA || s->raw[i].kind == MSP_RAW_FAST ||
		    s->raw[i].kind == MSP_RAW_CFUNC)
			top = &s->raw[i];
	if (!top)
		return "no Lua frame at a dispatch";
	if (msp_read(mem, base - 16, &fn, 8) || (fn &= GCV_MASK, 0) ||
	    msp_read(mem, fn + (uint64_t)r->y->fn_ffid, &ffid, 1) ||
	    msp_read(mem, fn + (uint64_t)r->y->fn_pc, &pc, 8))
		return NULL;
	if ((ffid == 0) != (top->kind == MSP_RAW_LUA))
		return "the top frame is of another kind than the function at BASE";
	if (ffid)
		return ffid > 1 && top->pos != ffid ? "the top frame is another fast function"
						    : NULL;
	if (top->addr != pc - (uint64_t)r->y->pt_size)
		return "the top frame is another function than that at BASE";
	/* A trace may leave to an instruction that is kept in the trace: no position. */
	if (msp_read(mem, pc - (uint64_t)r->y->pt_size + (uint64_t)r->y->pt_sizebc, &size, 4) ||
	    next - pc > 4 * (uint64_t)size)
		return NULL;
	if ((top->flags & MSP_RAWF_NOPC) || top->pos != (next - pc) / 4 - 1)
		return "the top frame's position is not PC";
	return NULL;
}

static bool is_dispatch(const struct run *r, const struct oracle_insn *insn)
{
	return insn->jumps && r->block && insn->jump_base == r->y->reg_dispatch &&
	       in_block(r, insn->pc);
}

/*
 * What a handler has interrupted stands still while it runs: if that is marked, it is one mark. So is a stack that is
 * being moved, at two or three places of the function that does it.
 */
static void count_mark(struct run *r)
{
	bool same_move =
		r->now->error == MSP_ERR_LUA_MOVING && r->moved && r->steps - r->moved < MOVE_STEPS;

	if (!same_move && (!r->handler_sp || !r->handler_marked))
		r->marks++;
	r->handler_marked = r->handler_sp != 0;
	if (r->now->error == MSP_ERR_LUA_MOVING && !same_move)
		r->moved = r->steps;
}

static void follow_handler(struct run *r)
{
	if (r->process.signalled) {
		r->handler_sp = r->process.regs.reg[oracle_arch.sp];
		r->handler_marked = false;
	} else if (r->process.regs.reg[oracle_arch.sp] > r->handler_sp) {
		r->handler_sp = 0;
	}
}

static void judge(struct run *r, const struct oracle_insn *insn)
{
	struct oracle_step step = {.insn = insn};
	const struct oracle_insn *next;

	step.native = !in_block(r, r->regs.pc) || !in_block(r, r->process.regs.pc);
	step.dispatch = is_dispatch(r, insn);
	step.tail_call =
		in_block(r, insn->pc) && (insn->loads | insn->stores) >> r->y->reg_pc % 32 & 1;
	follow_handler(r);
	if (r->now->error != MSP_ERR_NONE) {
		if (r->now->error > MSP_ERR_TRUNCATED)
			count_mark(r);
		/* Where a row of them begins. */
		if (r->now->error != MSP_ERR_TRUNCATED &&
		    (!r->have_before || r->before->error != r->now->error)) {
			char why[64];

			snprintf(why, sizeof(why), "marked, reason %d", r->now->error);
			fault(r, why, insn);
			r->report.faults--;
		}
		r->report.marked[r->now->error]++;
		r->judge.top = ORACLE_TOP_ACTIVE;
	} else if (r->have_before && r->before->error == MSP_ERR_NONE &&
		   !oracle_judge_step(&r->judge, &step, r->before, r->now)) {
		fault(r, r->judge.why, insn);
	}
	for (int i = 0; i < MSP_WAY_COUNT; i++)
		r->report.ways[i] += r->now->ways >> i & 1;
	if (!in_block(r, r->process.regs.pc))
		return;
	r->in_block++;
	r->coverage.seen[r->process.regs.pc - r->block->base - r->y->vm_start] = 1;
	next = oracle_code_at(r->process.code, oracle_memory_reader(r->process.memory),
			      r->process.regs.pc);
	if (next && is_dispatch(r, next) && r->now->error == MSP_ERR_NONE) {
		const char *why = check_dispatch(r, r->now);

		if (why)
			fault(r, why, insn);
	}
}

/* Another host's answer for the moment of r->before, in r->now. */
static void compare(struct run *r, struct asked *asked, const char *why,
		    const struct oracle_insn *insn)
{
	const struct oracle_stack *a = r->before, *b = r->now;

	asked->answered++;
	if (a->count == b->count && memcmp(a->raw, b->raw, a->count * sizeof(*a->raw)) == 0)
		return;
	asked->differs++;
	oracle_report_fault(&r->report, &r->process, why, insn, &r->regs, a, b);
}

/* Steps, and asks BPF for the moment before. */
static bool step_with_kernel(struct run *r, const struct oracle_insn *insn)
{
	struct msp_stack stack = {0};
	uint32_t count = 0;

	if (!oracle_kernel_step(r->kernel, &r->process, &stack.frames, &count))
		return false;
	if (r->process.other ||
	    r->process.signalled) /* that instruction has not run, or in another process */
		return true;
	stack.count = count;
	r->bpf.asked++;
	if (!stack.frames)
		return true;
	oracle_stack_take(r->now, &stack);
	compare(r, &r->bpf, "the kernel's answer is another", insn);
	return true;
}

static void ask_core(struct run *r, const struct oracle_insn *insn)
{
	r->core.asked++;
	if (oracle_core_walk(&r->process, r->now))
		compare(r, &r->core, "the core file's answer is another", insn);
}

/*
 * In the kernel below it: the pc is behind the instruction, and counts as a return
 * address. The Lua frames and the native callers are those that there were before.
 */
static void check_in_call(struct run *r, const struct oracle_insn *insn)
{
	struct oracle_stack *a = r->before, *b = r->now;
	struct msp_registers regs = r->process.regs;
	struct msp_stack stack;

	regs.pc += insn->size;
	regs.syscall = true;
	msp_walker_walk(r->process.walker, oracle_memory_reader(r->process.memory), &regs, &stack);
	oracle_stack_take(b, &stack);
	r->in_calls++;
	if (a->error == MSP_ERR_NONE &&
	    (b->error != MSP_ERR_NONE || a->lua_count != b->lua_count ||
	     b->native_count != a->native_count + 1 ||
	     memcmp(a->lua, b->lua, a->lua_count * sizeof(*a->lua)) != 0 ||
	     memcmp(a->native, b->native, a->native_count * sizeof(*a->native)) != 0))
		oracle_report_fault(&r->report, &r->process, "another stack in the system call",
				    insn, &r->regs, a, b);
}

static bool is_due(const struct run *r, uint64_t every)
{
	return every && r->have_before && r->steps % every == 0;
}

/* A signal at this instruction. */
static void signal_target(struct run *r)
{
	oracle_process_signal(&r->process, next_random(r) % 2 ? SIGUSR1 : SIGUSR2);
	r->signals++;
}

/* A child that it forked is stepped now; or that has ended, and this is the parent. */
static void see_process(struct run *r)
{
	if (!r->process.other)
		return;
	r->process.other = false;
	r->processes++;
	refresh(r);
}

/* What is asked of the moment before a step, and the step. false: there was none. */
static bool ask_and_step(struct run *r, const struct oracle_insn *insn)
{
	bool made;

	if (is_due(r, r->opts->core_every))
		ask_core(r, insn);
	if (insn->syscall && r->have_before)
		check_in_call(r, insn);
	if (is_due(r, r->opts->signal_every))
		signal_target(r);
	made = r->kernel && is_due(r, r->opts->kernel_every) ? step_with_kernel(r, insn)
							     : oracle_process_step(&r->process);
	r->blocked += r->process.blocked;
	see_process(r);
	return made;
}

/* One instruction. false: none was made, the process has ended or waits. */
static bool step(struct run *r)
{
	struct oracle_process *p = &r->process;
	const struct msp_memory *mem = oracle_memory_reader(p->memory);
	const struct oracle_insn *insn = oracle_code_at(p->code, mem, p->regs.pc);
	struct oracle_insn done;
	struct oracle_stack *swap;

	if (!insn)
		return false;
	done = *insn; /* its place may be taken by another */
	r->regs = p->regs;
	oracle_code_writes(&done, p);
	if (!ask_and_step(r, &done))
		return false;
	r->steps++;
	if (r->steps % VERIFY_EVERY == 0 && !oracle_memory_verify(p->memory)) {
		r->stale += oracle_process_alone(p); /* other threads write, too */
		oracle_memory_flush(p->memory);
	}
	walk(r, r->now);
	judge(r, &done);
	oracle_report_stack(&r->report, p, r->now);
	swap = r->before;
	r->before = r->now;
	r->now = swap;
	r->have_before = true;
	return true;
}

static bool start(struct run *r)
{
	oracle_process_end(&r->process);
	if (oracle_process_start(r->images, r->opts->argv, r->opts->preload, r->opts->start_ms,
				 &r->process) != 0)
		return false;
	refresh(r);
	return true;
}

static void next_thread(struct run *r)
{
	pid_t tid = r->process.tid;

	if (!r->process.ended && oracle_process_next_thread(&r->process))
		r->threads += r->process.tid != tid;
}

/* Bursts without any step, until the process waits for what never comes. */
#define MAX_IDLE 100

static void run_bursts(struct run *r)
{
	unsigned int idle = 0;

	while (r->steps < r->opts->steps && idle++ < MAX_IDLE) {
		uint64_t end = r->steps + r->opts->burst;

		r->have_before = false;
		r->judge.top = ORACLE_TOP_ACTIVE;
		refresh(r);
		while (r->steps < end && r->steps < r->opts->steps && step(r))
			idle = 0;
		if (!r->process.ended && r->opts->free_ms)
			oracle_process_run(&r->process,
					   1 + (unsigned int)(next_random(r) % r->opts->free_ms));
		next_thread(r);
		see_process(r);
		if (r->process.ended && !start(r))
			return;
	}
}

/*
 * More than one in 100,000, or than a place of two instructions; stacks too deep to be recorded aside.
 * Of a stack that is moved, which is one mark with many steps: more than one step in 200.
 */
static bool too_many_marks(const struct run *r)
{
	return r->report.marked[MSP_ERR_LUA_MOVING] * 200 > r->steps ||
	       (r->marks > 2 && r->marks * 100000 > r->steps);
}

static int finish(struct run *r, double seconds)
{
	const struct oracle_coverage *c = &r->coverage;
	uint32_t seen = c->seen ? oracle_coverage_count(c) : 0, all = seen;
	char marks[512];

	if (c->seen && r->opts->coverage)
		all = oracle_coverage_merge(&r->coverage, r->opts->coverage);
	oracle_report_marks(&r->report, marks, sizeof(marks));
	printf("%-24s %9" PRIu64 " steps, %6.0f/s, %9" PRIu64 " in the VM block, %u of %u "
	       "instructions (%.1f %%; all %u), %u stacks, BPF %" PRIu64 "/%" PRIu64
	       " asked, %" PRIu64 " other, core files %" PRIu64 "/%" PRIu64 ", %" PRIu64
	       " other, %" PRIu64 " system calls, %" PRIu64 " signals, %" PRIu64
	       " other processes, %" PRIu64 " other threads, %" PRIu64 " waits, %" PRIu64
	       " faults, marked:%s%s%s\n",
	       r->opts->title, r->steps, (double)r->steps / seconds, r->in_block, seen,
	       c->instructions, c->instructions ? 100.0 * seen / c->instructions : 0, all,
	       r->report.seen_count, r->bpf.answered, r->bpf.asked, r->bpf.differs,
	       r->core.answered, r->core.asked, r->core.differs, r->in_calls, r->signals,
	       r->processes, r->threads, r->blocked, r->report.faults, marks[0] ? marks : " none",
	       r->stale ? ", MEMORY STALE" : "", r->steps < r->opts->steps ? ", ENDED EARLY" : "");
	oracle_report_ways(&r->report);
	for (uint32_t i = 0; i < r->report.kinds; i++)
		printf("    %6" PRIu64 " x 0x%" PRIx64 " %s\n", r->report.kind[i].count,
		       r->report.kind[i].at, r->report.kind[i].why);
	if (r->opts->unseen && c->seen && r->block)
		oracle_coverage_print(c, &r->process, r->block->base);
	if (r->opts->json)
		oracle_report_write(&r->report, r->opts->json);
	/* Who is asked answers: a host that is silent agrees with nothing. */
	return r->report.faults || r->stale || r->steps < r->opts->steps || too_many_marks(r) ||
	       2 * r->bpf.answered < r->bpf.asked || 2 * r->core.answered < r->core.asked;
}

static double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int oracle_run(const struct oracle_options *opts)
{
	struct run *r = calloc(1, sizeof(*r));
	char why[256] = "";
	double since;
	int rc = 77;

	if (!r)
		return 2;
	r->opts = opts;
	r->before = calloc(1, sizeof(*r->before));
	r->now = calloc(1, sizeof(*r->now));
	if (!r->before || !r->now || oracle_report_new(&r->report, opts->verbose) != 0 ||
	    msp_images_new(&(struct msp_images_options){0}, &r->images) != 0)
		return 2;
	if (opts->kernel_every)
		r->kernel = oracle_kernel_new(why, sizeof(why));
	if (opts->kernel_every && !r->kernel)
		printf("BPF is not asked: %s\n", why);
	since = now_seconds();
	if (start(r)) {
		since = now_seconds();
		run_bursts(r);
		rc = finish(r, now_seconds() - since);
	} else {
		printf("SKIP: the program cannot be started and traced\n");
	}
	oracle_process_end(&r->process);
	oracle_kernel_free(r->kernel);
	oracle_coverage_free(&r->coverage);
	oracle_report_free(&r->report);
	msp_images_free(r->images);
	free(r->before);
	free(r->now);
	free(r);
	return rc;
}

/* SPDX-License-Identifier: MIT */
/* All threads of a process at one moment. */
#include "target/snapshot_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "moonspy/moonspy.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static int prepare_walk(struct taking *taking)
{
	int r = msp_walker_new(taking->space, &taking->walker);

	return r < 0 ? r
		     : msp_memory_cache_new(msp_space_host(taking->space)->memory, &taking->cache);
}

static int prepare(struct taking *taking)
{
	int r = prepare_walk(taking);

	if (r < 0)
		return r;
	taking->tid_count = msp_process_threads(taking->process, &taking->tids);
	if (taking->tid_count < 0)
		return taking->tid_count;
	taking->states = calloc(taking->tid_count, sizeof(*taking->states));
	if (!taking->states)
		return MSP_E_NOMEM;
	for (int i = 0; i < taking->tid_count; i++)
		taking->states[i] = msp_process_thread_state(taking->process, taking->tids[i]);
	return 0;
}

static int state_before(const struct taking *taking, pid_t tid)
{
	for (int i = 0; i < taking->tid_count; i++)
		if (taking->tids[i] == tid)
			return taking->states[i];
	return 'R';
}

static bool is_stale(const struct msp_stack *stack)
{
	return stack->error == MSP_ERR_NO_MAPPING || stack->error == MSP_ERR_NO_TABLE;
}

/* What reads the values of the VM that a VM frame speaks of; NULL: there is none. */
static struct msp_lj_values *values_of(struct taking *taking, const struct msp_raw_frame *frame)
{
	const struct msp_vm *vm = msp_space_vm_at(taking->space, frame->image, frame->addr);

	return vm ? msp_space_vm_values(taking->space, vm) : NULL;
}

static void keep_variables(struct taking *taking, const struct msp_stack *stack,
			   struct msp_variables *variables)
{
	const struct msp_memory *mem = msp_memory_cache_memory(taking->cache);
	struct msp_lj_values *values = NULL;

	for (size_t i = 0; i < stack->count; i++) {
		const struct msp_raw_frame *f = &stack->frames[i];

		if (f->kind == MSP_RAW_VM)
			values = values_of(taking, f);
		/* A function that is gone, or lies, has none. */
		if (f->kind == MSP_RAW_LUA && values && !(f->flags & MSP_RAWF_INLINED))
			msp_lj_variables_read(values, mem, &stack->places[i], f->addr, f->ident,
					      f->pos, f->flags & MSP_RAWF_NOPC,
					      f->flags & MSP_RAWF_JIT, taking->options.values,
					      &taking->values_left, &variables[i]);
	}
}

int snapshot_keep(struct taking *taking, const struct msp_stack *stack,
		  struct msp_raw_frame **frames, struct msp_variables **variables, size_t *count)
{
	*frames = malloc((stack->count + 1) * sizeof(**frames));
	if (!*frames)
		return MSP_E_NOMEM;
	memcpy(*frames, stack->frames, stack->count * sizeof(**frames));
	*count = stack->count;
	if (!taking->options.values)
		return 0;
	*variables = calloc(stack->count + 1, sizeof(**variables));
	if (!*variables)
		return MSP_E_NOMEM;
	keep_variables(taking, stack, *variables);
	return 0;
}

void snapshot_drop(struct msp_raw_frame *frames, struct msp_variables *variables, size_t count)
{
	for (size_t i = 0; variables && i < count; i++)
		msp_lj_variables_free(&variables[i]);
	free(variables);
	free(frames);
}

/* The stack of a thread whose registers are known. */
static void walk_thread(struct taking *taking, struct msp_thread_stack *thread)
{
	struct msp_stack stack;
	int r;

	msp_walker_walk(taking->walker, msp_memory_cache_memory(taking->cache), &thread->regs,
			&stack);
	taking->stale |= is_stale(&stack);
	thread->error = stack.error;
	thread->has_vm = stack.has_vm;
	thread->vmstate = stack.vmstate;
	r = snapshot_keep(taking, &stack, &thread->frames, &thread->variables, &thread->count);
	if (r == 0 && taking->options.coroutines)
		r = snapshot_meet(taking, thread->tid, &stack);
	if (r < 0)
		thread->result = r;
	taking->broken |= stack.error || r < 0;
}

static void take_thread(struct taking *taking, struct msp_thread_stack *thread)
{
	thread->result = msp_thread_registers(taking->process, thread->tid, &thread->regs);
	if (thread->result == 0)
		walk_thread(taking, thread);
	else
		taking->broken |= thread->result != MSP_E_GONE;
}

static int take_threads(struct taking *taking)
{
	struct msp_snapshot *out = taking->out;
	pid_t *tids;
	int count;

	count = msp_process_threads(taking->process, &tids);
	if (count < 0)
		return count;
	out->thread = calloc(count, sizeof(*out->thread));
	if (!out->thread) {
		free(tids);
		return MSP_E_NOMEM;
	}
	for (int i = 0; i < count; i++) {
		struct msp_thread_stack *thread = &out->thread[out->count];

		thread->tid = tids[i];
		take_thread(taking, thread);
		/* Dying threads are not there any more. */
		out->count += thread->result != MSP_E_GONE;
	}
	free(tids);
	return 0;
}

/* Names and states take time, and are as true afterwards. */
static void describe_threads(struct taking *taking)
{
	for (size_t i = 0; i < taking->out->count; i++) {
		struct msp_thread_stack *thread = &taking->out->thread[i];

		msp_process_thread_name(taking->process, thread->tid, thread->name);
		thread->state = state_before(taking, thread->tid);
	}
}

static int take_once(struct taking *taking)
{
	uint64_t since;
	int r;

	msp_memory_cache_clear(taking->cache);
	snapshot_forget(taking);
	taking->values_left = MSP_LJ_VALUES_MAX;
	taking->stale = taking->broken = false;
	r = msp_process_stop(taking->process);
	if (r < 0)
		return r;
	since = msp_process_stopped_since(taking->process);
	r = take_threads(taking);
	if (r == 0 && taking->options.coroutines)
		r = snapshot_coroutines(taking);
	msp_process_resume(taking->process);
	taking->out->stopped_ns += now_ns() - since;
	return r;
}

static void finish(struct taking *taking)
{
	snapshot_forget(taking);
	msp_walker_free(taking->walker);
	msp_memory_cache_free(taking->cache);
	free(taking->tids);
	free(taking->states);
}

/* What would only make the stop longer. */
static void prepare_values(struct msp_space *space)
{
	size_t count;
	const struct msp_vm *vms = msp_space_vms(space, &count);

	for (size_t i = 0; i < count; i++)
		if (!vms[i].gone && vms[i].proof.heap)
			msp_space_vm_values(space, &vms[i]);
}

static struct taking begin(struct msp_space *space, const struct msp_snapshot_options *options,
			   struct msp_snapshot *out)
{
	struct taking taking = {.space = space,
				.process = msp_space_process(space),
				.out = out,
				.values_left = MSP_LJ_VALUES_MAX};

	memset(out, 0, sizeof(*out));
	if (options)
		taking.options = *options;
	if (taking.options.values)
		prepare_values(space);
	return taking;
}

int msp_snapshot_take(struct msp_space *space, const struct msp_snapshot_options *options,
		      struct msp_snapshot *out)
{
	struct taking taking = begin(space, options, out);
	uint64_t stopped;
	int r;

	r = prepare(&taking);
	if (r == 0)
		r = take_once(&taking);
	/* Libraries may have come since the mappings were read: once more, with them. */
	if (r == 0 && taking.stale && msp_space_refresh(space) > 0) {
		stopped = out->stopped_ns;
		msp_snapshot_free(out);
		out->stopped_ns = stopped;
		r = take_once(&taking);
	}
	if (r == 0)
		describe_threads(&taking);
	else
		msp_snapshot_free(out);
	finish(&taking);
	return r;
}

/*
 * Not every writer of cores knows what was called: where no system call was made, there was none.
 * The instruction is before the pc, or at it if the call is made once more after a signal.
 */
static bool may_be_in_call(struct taking *taking, const struct msp_core_thread *thread)
{
	static const uint8_t syscall[] = {0x0f, 0x05};
	uint8_t code[4];

	if (!thread->in_call || msp_read(msp_memory_cache_memory(taking->cache),
					 thread->regs.pc - 2, code, sizeof(code)))
		return thread->in_call;
	return !memcmp(code, syscall, 2) || !memcmp(code + 2, syscall, 2);
}

static void take_core_thread(struct taking *taking, const struct msp_core *core,
			     const struct msp_core_thread *from, struct msp_thread_stack *thread)
{
	thread->tid = from->tid;
	thread->result = from->result;
	thread->regs = from->regs;
	thread->regs.syscall = may_be_in_call(taking, from);
	thread->state = thread->regs.syscall ? 'S' : 'R';
	/* The notes have the process's name, which is its first thread's. */
	if (thread->tid == msp_core_pid(core))
		snprintf(thread->name, sizeof(thread->name), "%s", msp_core_comm(core));
	if (thread->result == 0)
		walk_thread(taking, thread);
	else
		taking->broken = true;
}

int msp_snapshot_of_core(struct msp_space *space, const struct msp_core *core,
			 const struct msp_snapshot_options *options, struct msp_snapshot *out)
{
	struct taking taking = begin(space, options, out);
	const struct msp_core_thread *threads;
	size_t count;
	int r;

	threads = msp_core_threads(core, &count);
	taking.broken = !msp_core_all_threads(core);
	r = prepare_walk(&taking);
	if (r == 0) {
		out->thread = calloc(count + 1, sizeof(*out->thread));
		r = out->thread ? 0 : MSP_E_NOMEM;
	}
	for (; r == 0 && out->count < count; out->count++)
		take_core_thread(&taking, core, &threads[out->count], &out->thread[out->count]);
	if (r == 0 && taking.options.coroutines)
		r = snapshot_coroutines(&taking);
	if (r < 0)
		msp_snapshot_free(out);
	finish(&taking);
	return r;
}

void msp_snapshot_free(struct msp_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->count; i++)
		snapshot_drop(snapshot->thread[i].frames, snapshot->thread[i].variables,
			      snapshot->thread[i].count);
	for (size_t i = 0; i < snapshot->coroutines; i++)
		snapshot_drop(snapshot->coroutine[i].frames, snapshot->coroutine[i].variables,
			      snapshot->coroutine[i].count);
	free(snapshot->coroutine);
	free(snapshot->thread);
	memset(snapshot, 0, sizeof(*snapshot));
}

/* SPDX-License-Identifier: MIT */
/* All threads of a process at one moment. */
#include "target/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "moonspy/moonspy.h"
#include "target/cache.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* What a stop needs, got before it. */
struct taking {
	struct msp_space *space;
	struct msp_process *process;
	struct msp_walker *walker;
	struct msp_memory_cache *cache;
	struct msp_snapshot *out;
	pid_t *tids; /* before the stop, with their states then */
	int *states;
	int tid_count;
	bool stale; /* a stack met code that the space does not know */
};

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

/* The stack of a thread whose registers are known. */
static void walk_thread(struct taking *taking, struct msp_thread_stack *thread)
{
	struct msp_stack stack;

	msp_walker_walk(taking->walker, msp_memory_cache_memory(taking->cache), &thread->regs,
			&stack);
	taking->stale |= is_stale(&stack);
	thread->error = stack.error;
	thread->has_vm = stack.has_vm;
	thread->vmstate = stack.vmstate;
	thread->frames = malloc((stack.count + 1) * sizeof(*thread->frames));
	if (!thread->frames) {
		thread->result = MSP_E_NOMEM;
		return;
	}
	memcpy(thread->frames, stack.frames, stack.count * sizeof(*thread->frames));
	thread->count = stack.count;
}

static void take_thread(struct taking *taking, struct msp_thread_stack *thread)
{
	thread->result = msp_thread_registers(taking->process, thread->tid, &thread->regs);
	if (thread->result == 0)
		walk_thread(taking, thread);
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
	taking->stale = false;
	r = msp_process_stop(taking->process);
	if (r < 0)
		return r;
	since = msp_process_stopped_since(taking->process);
	r = take_threads(taking);
	msp_process_resume(taking->process);
	taking->out->stopped_ns += now_ns() - since;
	return r;
}

static void finish(struct taking *taking)
{
	msp_walker_free(taking->walker);
	msp_memory_cache_free(taking->cache);
	free(taking->tids);
	free(taking->states);
}

int msp_snapshot_take(struct msp_space *space, struct msp_snapshot *out)
{
	struct taking taking = {.space = space, .process = msp_space_process(space), .out = out};
	uint64_t stopped;
	int r;

	memset(out, 0, sizeof(*out));
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

static void take_core_thread(struct taking *taking, const struct msp_core *core,
			     const struct msp_core_thread *from, struct msp_thread_stack *thread)
{
	thread->tid = from->tid;
	thread->state = from->in_call ? 'S' : 'R';
	thread->result = from->result;
	thread->regs = from->regs;
	/* The notes have the process's name, which is its first thread's. */
	if (thread->tid == msp_core_pid(core))
		snprintf(thread->name, sizeof(thread->name), "%s", msp_core_comm(core));
	if (thread->result == 0)
		walk_thread(taking, thread);
}

int msp_snapshot_of_core(struct msp_space *space, const struct msp_core *core,
			 struct msp_snapshot *out)
{
	struct taking taking = {.space = space, .out = out};
	const struct msp_core_thread *threads;
	size_t count;
	int r;

	memset(out, 0, sizeof(*out));
	threads = msp_core_threads(core, &count);
	r = prepare_walk(&taking);
	if (r == 0) {
		out->thread = calloc(count + 1, sizeof(*out->thread));
		r = out->thread ? 0 : MSP_E_NOMEM;
	}
	for (; r == 0 && out->count < count; out->count++)
		take_core_thread(&taking, core, &threads[out->count], &out->thread[out->count]);
	finish(&taking);
	return r;
}

void msp_snapshot_free(struct msp_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->count; i++)
		free(snapshot->thread[i].frames);
	free(snapshot->thread);
	memset(snapshot, 0, sizeof(*snapshot));
}

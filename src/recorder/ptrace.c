/* SPDX-License-Identifier: MIT */
/*
 * The engine for where BPF is not allowed. At each tick every thread that is
 * running is stopped, its stack is read, and it goes on: one thread at a time.
 * A thread runs at a tick as often as it uses the CPU, so samples are of CPU
 * time here too. Threads that sleep are left alone: a stop would interrupt
 * their system calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "moonspy/moonspy.h"
#include "recorder/internal.h"
#include "target/snapshot.h"

/* New threads and children are looked for this often. */
#define RESCAN_NS 100000000ull
/* Threads may stand still this share of the time; else the rate goes down. */
#define MAX_STOPPED_PERCENT 2
#define WINDOW_NS 1000000000ull

/* What the engine keeps for a process. */
struct rec_stopper {
	struct msp_walker *walker;
	pid_t *tid;
	int count;
	uint64_t scanned_ns;
	dev_t exe_dev;
	ino_t exe_inode;
};

struct rec_ptrace {
	uint64_t period_ns, base_period_ns, next_ns;
	uint64_t window_ns, stopped_ns; /* start of the window; time threads stood still in it */
	double weight;			/* samples not counted yet, of a rate that went down */
	dev_t own_dev;
	ino_t own_inode;
};

int rec_ptrace_open(struct msp_recorder *rec)
{
	struct rec_ptrace *p = calloc(1, sizeof(*p));
	struct stat st;

	if (!p)
		return MSP_E_NOMEM;
	p->base_period_ns = p->period_ns = 1000000000u / rec->opts.rate;
	p->next_ns = p->window_ns = rec_now_ns();
	if (!stat("/proc/self/exe", &st)) {
		p->own_dev = st.st_dev;
		p->own_inode = st.st_ino;
	}
	rec->ptrace = p;
	return 0;
}

void rec_ptrace_close(struct msp_recorder *rec)
{
	free(rec->ptrace);
	rec->ptrace = NULL;
}

void rec_stopper_free(struct rec_stopper *s)
{
	if (!s)
		return;
	msp_walker_free(s->walker);
	free(s->tid);
	free(s);
}

static bool exe_of(pid_t pid, struct stat *st)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return !stat(path, st);
}

static int make_stopper(struct rec_process *p)
{
	struct stat st;

	p->stopper = calloc(1, sizeof(*p->stopper));
	if (!p->stopper)
		return MSP_E_NOMEM;
	if (exe_of(p->pid, &st)) {
		p->stopper->exe_dev = st.st_dev;
		p->stopper->exe_inode = st.st_ino;
	}
	return msp_walker_new(p->space, &p->stopper->walker);
}

/* Threads that are new, and whether it still is the same program. */
static void rescan(struct msp_recorder *rec, struct rec_process *p)
{
	struct rec_stopper *s = p->stopper;
	struct stat st;
	pid_t *tid;
	int n;

	if (s && exe_of(p->pid, &st) && (st.st_dev != s->exe_dev || st.st_ino != s->exe_inode)) {
		rec_unload(p);
		rec_load(rec, p);
		s = NULL;
	}
	if (!p->process || (!s && make_stopper(p)))
		return;
	s = p->stopper;
	n = msp_process_threads(p->process, &tid);
	if (n < 0)
		return;
	free(s->tid);
	s->tid = tid;
	s->count = n;
	s->scanned_ns = rec_now_ns();
}

static void find_children(struct msp_recorder *rec, struct rec_process *parent)
{
	pid_t *child;
	int n = msp_process_children(parent->pid, &child);

	for (int i = 0; i < n; i++)
		if (!rec_find(rec, child[i]))
			msp_recorder_add(rec, child[i]);
	if (n >= 0)
		free(child);
}

/* A launched child waits with our own program before it calls exec. */
static bool still_waiting(struct msp_recorder *rec, struct rec_process *p)
{
	struct stat st;

	if (!p->waiting)
		return false;
	if (!exe_of(p->pid, &st)) {
		p->waiting = false; /* it has ended */
		return true;
	}
	if (st.st_dev == rec->ptrace->own_dev && st.st_ino == rec->ptrace->own_inode)
		return true;
	p->waiting = false;
	rec_load(rec, p);
	return false;
}

/* How many samples one stop stands for. */
static uint32_t take_weight(struct rec_ptrace *e)
{
	uint32_t whole;

	e->weight += (double)e->period_ns / e->base_period_ns;
	whole = e->weight;
	e->weight -= whole;
	return whole;
}

static void deliver(struct msp_recorder *rec, struct rec_process *p, pid_t tid,
		    const struct msp_stack *stack)
{
	struct msp_sample sample = {.kind = MSP_RECORD_SAMPLE,
				    .pid = p->pid,
				    .tid = tid,
				    .frame_count = stack->count,
				    .error = stack->error,
				    .vmstate = stack->vmstate,
				    .has_vm = stack->has_vm,
				    .time = rec_now_ns()};
	char name[16] = "";

	msp_process_thread_name(p->process, tid, name);
	memcpy(sample.comm, name, sizeof(sample.comm));
	for (uint32_t n = take_weight(rec->ptrace); n && !rec->failed; n--)
		rec_on_sample(rec, &sample, stack->frames);
}

static void sample_thread(struct msp_recorder *rec, struct rec_process *p, pid_t tid)
{
	struct msp_registers regs;
	struct msp_stack stack;
	uint64_t start = rec_now_ns();
	int err = msp_thread_stop(p->process, tid);

	if (err == MSP_E_PERMISSION)
		rec->denied = p->pid;
	if (err)
		return;
	err = msp_thread_registers(p->process, tid, &regs);
	if (!err)
		msp_walker_walk(p->stopper->walker, NULL, &regs, &stack);
	msp_thread_resume(p->process, tid);
	rec->ptrace->stopped_ns += rec_now_ns() - start;
	if (err)
		return;
	deliver(rec, p, tid, &stack);
	if (stack.error == MSP_ERR_NO_MAPPING && rec_now_ns() - p->refreshed_ns > RESCAN_NS)
		p->dirty = true;
}

static void sample_process(struct msp_recorder *rec, struct rec_process *p)
{
	if (!p->added || still_waiting(rec, p) || !p->process)
		return;
	if (!p->stopper || rec_now_ns() - p->stopper->scanned_ns > RESCAN_NS) {
		rescan(rec, p);
		if (rec->opts.follow)
			find_children(rec, p);
	}
	for (int i = 0; p->stopper && i < p->stopper->count; i++)
		if (msp_process_thread_state(p->process, p->stopper->tid[i]) == 'R')
			sample_thread(rec, p, p->stopper->tid[i]);
}

/* Lowers the rate when the stops cost too much. */
static void watch_cost(struct rec_ptrace *e)
{
	uint64_t now = rec_now_ns(), window = now - e->window_ns;

	if (window < WINDOW_NS)
		return;
	if (e->stopped_ns * 100 > window * MAX_STOPPED_PERCENT)
		e->period_ns = e->period_ns * 3 / 2;
	e->window_ns = now;
	e->stopped_ns = 0;
}

int rec_ptrace_tick(struct msp_recorder *rec)
{
	struct rec_ptrace *e = rec->ptrace;
	uint64_t now = rec_now_ns();
	struct timespec at;

	e->next_ns += e->period_ns;
	if (e->next_ns < now) /* too slow for this rate */
		e->next_ns = now;
	at.tv_sec = e->next_ns / 1000000000u;
	at.tv_nsec = e->next_ns % 1000000000u;
	if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
		return MSP_E_BUSY;
	for (size_t i = 0; i < rec->process_count; i++)
		sample_process(rec, rec->process[i]);
	watch_cost(e);
	return rec->failed;
}

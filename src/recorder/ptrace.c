/* SPDX-License-Identifier: MIT */
/*
 * The engine for where BPF is not allowed. At each tick all threads are looked at;
 * then each that runs is stopped, its stack is read, and it goes on: one at a time.
 * A stack counts for the CPU time that the thread has used since its last one.
 * On a busy machine a thread that is running may be waiting for a CPU; where it
 * was when it lost its CPU is not where it spends its time, and is not counted.
 * Threads that sleep are left alone: a stop would interrupt their system calls.
 */
#include <sched.h>
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
/* The rate does not go below ten a second. */
#define MAX_PERIOD_NS 100000000ull
/* A stop counts for no more periods than this; what is left is for those after it. */
#define MAX_PERIODS 8
/* Who wakes up within this time of the timer takes the CPU from a thread where the timer met it. */
#define PROMPT_NS 150000ull

struct stop_thread {
	pid_t tid;
	uint64_t cpu_ns;	     /* it had used when it was looked at last */
	uint64_t owed_ns;	     /* of that, not yet counted in samples */
	struct msp_thread_look look; /* at this tick */
	uint64_t asked_ns;	     /* when it was asked to stop */
	bool to_stop;
};

/* What the engine keeps for a process. */
struct rec_stopper {
	struct msp_walker *walker;
	struct stop_thread *thread;
	int count;
	uint64_t scanned_ns;
	dev_t exe_dev;
	ino_t exe_inode;
};

struct rec_ptrace {
	uint64_t period_ns, base_period_ns, next_ns;
	uint64_t due_ns, woken_ns;	/* this tick: when it was to be, and was */
	bool urgent, never_urgent;	/* real-time priority: has it; may not have it */
	bool late;			/* a thread is to stop that was not waited for any longer */
	uint64_t window_ns, stopped_ns; /* start of the window; time threads stood still in it */
	dev_t own_dev;
	ino_t own_inode;
};

/*
 * While it waits for a tick and while a thread stands still, the engine goes before
 * others, where it may: woken late, it would meet the thread where that gave up its CPU.
 * What takes long is done without.
 */
static void set_urgent(struct rec_ptrace *e, bool urgent)
{
	struct sched_param param = {.sched_priority = urgent ? 1 : 0};

	if (e->urgent == urgent || e->never_urgent)
		return;
	if (sched_setscheduler(0, (urgent ? SCHED_FIFO : SCHED_OTHER) | SCHED_RESET_ON_FORK,
			       &param))
		e->never_urgent = true;
	else
		e->urgent = urgent;
}

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
	free(s->thread);
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

/* A thread as it was known, or a new one: the time it has used so far is not ours. */
static struct stop_thread known_thread(const struct msp_recorder *rec, struct rec_process *p,
				       pid_t tid)
{
	struct stop_thread new = {.tid = tid, .owed_ns = rec->ptrace->base_period_ns / 2};
	struct msp_thread_times times;

	for (int i = 0; i < p->stopper->count; i++)
		if (p->stopper->thread[i].tid == tid)
			return p->stopper->thread[i];
	if (!msp_process_thread_times(p->process, tid, &times))
		new.cpu_ns = times.used_ns;
	return new;
}

/* Threads that are new, and whether it still is the same program. */
static void rescan(struct msp_recorder *rec, struct rec_process *p)
{
	struct rec_stopper *s = p->stopper;
	struct stop_thread *thread;
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
	thread = calloc(n + 1, sizeof(*thread));
	for (int i = 0; thread && i < n; i++)
		thread[i] = known_thread(rec, p, tid[i]);
	free(tid);
	if (!thread)
		return;
	free(s->thread);
	s->thread = thread;
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

/* A thread that has gone unseen for so long is seen wherever it is. */
static bool is_overdue(const struct rec_ptrace *e, const struct stop_thread *thread)
{
	uint64_t used = thread->look.times.used_ns;

	return thread->owed_ns + (used > thread->cpu_ns ? used - thread->cpu_ns : 0) >=
	       MAX_PERIODS * e->period_ns;
}

/*
 * Whether the thread kept its CPU since the tick, or lost it to us alone as we woke up in time. Else
 * it lost it where threads do, which is at the end of a system call more often than not.
 */
static bool is_fair(const struct rec_ptrace *e, const struct stop_thread *thread,
		    const struct msp_thread_times *now)
{
	const struct msp_thread_times *before = &thread->look.times;

	return now->runs == before->runs ||
	       (now->runs == before->runs + 1 && e->woken_ns - e->due_ns <= PROMPT_NS &&
		now->waited_ns - before->waited_ns <= thread->asked_ns - e->woken_ns + PROMPT_NS);
}

/* How many samples a stop stands for. The thread is stopped: what it has used is exact. */
static uint32_t count_samples(const struct rec_ptrace *e, struct rec_process *p,
			      struct stop_thread *thread)
{
	struct msp_thread_times now;
	uint64_t whole;

	if (!thread->look.times.runs || msp_process_thread_times(p->process, thread->tid, &now)) {
		thread->owed_ns +=
			e->period_ns; /* not counted here: as if it had run all the time */
	} else {
		if (!is_fair(e, thread, &now) && !is_overdue(e, thread))
			return 0;
		thread->owed_ns += now.used_ns - thread->cpu_ns;
		thread->cpu_ns = now.used_ns;
	}
	whole = thread->owed_ns / e->base_period_ns;
	if (whole > MAX_PERIODS * e->period_ns / e->base_period_ns)
		whole = MAX_PERIODS * e->period_ns / e->base_period_ns;
	thread->owed_ns -= whole * e->base_period_ns;
	return whole;
}

static void deliver(struct msp_recorder *rec, struct rec_process *p, pid_t tid,
		    const struct msp_stack *stack, uint32_t count)
{
	struct msp_sample sample = {.kind = MSP_RECORD_SAMPLE,
				    .pid = p->pid,
				    .tid = tid,
				    .frame_count = stack->count,
				    .error = stack->error,
				    .ways = stack->ways,
				    .vmstate = stack->vmstate,
				    .has_vm = stack->has_vm,
				    .time = rec_now_ns()};
	char name[16] = "";

	msp_process_thread_name(p->process, tid, name);
	memcpy(sample.comm, name, sizeof(sample.comm));
	for (; count && !rec->failed; count--)
		rec_on_sample(rec, &sample, stack->frames);
}

/*
 * No event tells of new mappings here: the thread stands still, so what it has
 * where its frames are is looked at.
 */
static void note_remaps(struct rec_process *p, const struct msp_stack *stack)
{
	const struct msp_memory *mem = msp_process_memory(p->process);
	const struct msp_images *images = msp_space_images(p->space);
	const struct msp_mapping *map = NULL, *found;

	for (size_t i = 0; i < stack->count; i++) {
		const struct msp_raw_frame *f = &stack->frames[i];

		if (f->kind != MSP_RAW_NATIVE)
			continue;
		found = msp_space_find(p->space, f->addr - (f->flags & MSP_RAWF_RETURN));
		if (!found || found == map || !(found->flags & MSP_MAP_FILE))
			continue;
		map = found;
		if (!msp_image_is_mapped(msp_images_get(images, map->image)->image, mem, map->base))
			rec_note_remap(p, map->start, map->end, rec_now_ns());
	}
}

static void sample_thread(struct msp_recorder *rec, struct rec_process *p,
			  struct stop_thread *thread)
{
	struct msp_registers regs;
	struct msp_stack stack;
	uint64_t start;
	uint32_t count;
	int err;

	set_urgent(rec->ptrace, true);
	thread->asked_ns = rec_now_ns();
	err = msp_thread_stop(p->process, thread->tid);
	start = rec_now_ns(); /* before, it went on, or waited for a CPU */
	if (err == MSP_E_PERMISSION)
		rec->denied = p->pid;
	rec->ptrace->late |= err == MSP_E_BUSY;
	if (err)
		return;
	count = count_samples(rec->ptrace, p, thread);
	err = count ? msp_thread_registers(p->process, thread->tid, &regs) : MSP_E_BUSY;
	if (!err)
		msp_walker_walk(p->stopper->walker, NULL, &regs, &stack);
	if (!err)
		note_remaps(p, &stack);
	msp_thread_resume(p->process, thread->tid);
	rec->ptrace->stopped_ns += rec_now_ns() - start;
	if (err)
		return;
	rec->stops++;
	set_urgent(rec->ptrace, false);
	deliver(rec, p, thread->tid, &stack, count);
	if (stack.error == MSP_ERR_NO_MAPPING && rec_now_ns() - p->refreshed_ns > RESCAN_NS)
		p->dirty = true;
}

/* What may have come since the last tick: another program, threads, children. */
static void update_process(struct msp_recorder *rec, struct rec_process *p)
{
	if (!p->added || still_waiting(rec, p) || !p->process)
		return;
	if (p->stopper && rec_now_ns() - p->stopper->scanned_ns <= RESCAN_NS)
		return;
	rescan(rec, p);
	if (rec->opts.follow)
		find_children(rec, p);
}

/*
 * Which threads are to be stopped: those on a CPU, and those from which we may have taken it as we
 * woke up. The others have waited for one since before the tick; one that is overdue is stopped too.
 */
static void look_at_threads(const struct rec_ptrace *e, struct rec_process *p, int our_cpu)
{
	for (int i = 0; p->stopper && i < p->stopper->count; i++) {
		struct stop_thread *thread = &p->stopper->thread[i];
		uint64_t runs = thread->look.times.runs;
		bool waited = thread->look.state == 'R' && !thread->look.on_cpu;

		thread->to_stop =
			!msp_process_thread_look(p->process, thread->tid, &thread->look) &&
			thread->look.state == 'R' &&
			(thread->look.on_cpu || is_overdue(e, thread) ||
			 (thread->look.cpu == our_cpu &&
			  !(waited && thread->look.times.runs == runs)));
	}
}

/* Those on a CPU first: a thread that waits for one keeps us waiting. */
static void sample_threads(struct msp_recorder *rec, struct rec_process *p, bool on_cpu)
{
	for (int i = 0; p->stopper && i < p->stopper->count; i++)
		if (p->stopper->thread[i].to_stop && p->stopper->thread[i].look.on_cpu == on_cpu)
			sample_thread(rec, p, &p->stopper->thread[i]);
}

static void sample_processes(struct msp_recorder *rec)
{
	int our_cpu = sched_getcpu();

	for (size_t i = 0; i < rec->process_count; i++)
		look_at_threads(rec->ptrace, rec->process[i], our_cpu);
	for (size_t i = 0; i < rec->process_count; i++)
		sample_threads(rec, rec->process[i], true);
	for (size_t i = 0; i < rec->process_count; i++)
		sample_threads(rec, rec->process[i], false);
}

/* Lowers the rate when the stops cost too much, and raises it again when they cost less than half of that. */
static void watch_cost(struct rec_ptrace *e)
{
	uint64_t now = rec_now_ns(), window = now - e->window_ns;

	if (window < WINDOW_NS)
		return;
	if (e->stopped_ns * 100 > window * MAX_STOPPED_PERCENT)
		e->period_ns = e->period_ns * 3 / 2;
	else if (e->stopped_ns * 200 < window * MAX_STOPPED_PERCENT)
		e->period_ns = e->period_ns * 2 / 3;
	if (e->period_ns > MAX_PERIOD_NS)
		e->period_ns = MAX_PERIOD_NS;
	if (e->period_ns < e->base_period_ns)
		e->period_ns = e->base_period_ns;
	e->window_ns = now;
	e->stopped_ns = 0;
}

/* A thread that stops late must not stand still until the next tick. */
static void release_late(struct msp_recorder *rec)
{
	const struct timespec step = {.tv_nsec = 500000};
	size_t pending;

	while (rec->ptrace->late && rec_now_ns() < rec->ptrace->next_ns) {
		pending = 0;
		for (size_t i = 0; i < rec->process_count; i++)
			if (rec->process[i]->process)
				pending += msp_process_release_late(rec->process[i]->process);
		rec->ptrace->late = pending;
		if (pending)
			nanosleep(&step, NULL);
	}
}

int rec_ptrace_tick(struct msp_recorder *rec)
{
	struct rec_ptrace *e = rec->ptrace;
	uint64_t now = rec_now_ns();
	struct timespec at;
	bool interrupted;

	e->next_ns += e->period_ns;
	if (e->next_ns < now) /* too slow for this rate */
		e->next_ns = now;
	release_late(rec);
	at.tv_sec = e->next_ns / 1000000000u;
	at.tv_nsec = e->next_ns % 1000000000u;
	for (size_t i = 0; i < rec->process_count; i++)
		update_process(rec, rec->process[i]);
	set_urgent(e, true);
	interrupted = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
	e->due_ns = e->next_ns;
	e->woken_ns = rec_now_ns();
	if (!interrupted)
		sample_processes(rec);
	set_urgent(e, false);
	if (interrupted)
		return MSP_E_BUSY;
	watch_cost(e);
	return rec->failed;
}

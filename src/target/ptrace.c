/* SPDX-License-Identifier: MIT */
/*
 * Stopping threads. Each stop seizes, and each resume detaches: between stops
 * nobody's signals wait for us, and a group-stop stays one (the kernel
 * reinstates it at the detach). All calls for a process must come from one
 * thread, for that is whom the kernel takes for the tracer.
 */
#include "target/process.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "unwind/tables.h"

#if defined(__aarch64__)
#define HOST_ARCH MSP_ARCH_ARM64
#else
#define HOST_ARCH MSP_ARCH_X86_64
#endif

#define SLEEP_LIMIT_NS 200000000ull /* a thread in uninterruptible sleep is given up after that */
#define BUSY_LIMIT_NS 3000000000ull /* one that waits for a CPU, after that */
#define SPIN_NS 30000ull	    /* a thread on a free CPU stops well within */
#define LOOK_NS 1000000ull	    /* is a thread that has not stopped by then dead? */
#define MAX_ROUNDS 200		    /* of looking for new threads */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static struct msp_stopped *find_thread(struct msp_process *process, pid_t tid)
{
	for (size_t i = 0; i < process->stopped_count; i++)
		if (process->stopped[i].tid == tid)
			return &process->stopped[i];
	return NULL;
}

static int add_thread(struct msp_process *process, pid_t tid)
{
	struct msp_stopped *bigger;
	size_t room;

	if (process->stopped_count == process->stopped_room) {
		room = process->stopped_room ? process->stopped_room * 2 : 16;
		bigger = realloc(process->stopped, room * sizeof(*bigger));
		if (!bigger)
			return MSP_E_NOMEM;
		process->stopped = bigger;
		process->stopped_room = room;
	}
	process->stopped[process->stopped_count++] = (struct msp_stopped){.tid = tid};
	return 0;
}

static void remove_thread(struct msp_process *process, struct msp_stopped *thread)
{
	*thread = process->stopped[--process->stopped_count];
}

/* Why PTRACE_SEIZE failed with EPERM: a dying thread, or a real refusal. */
static int seize_error(struct msp_process *process, pid_t tid)
{
	int state = msp_process_thread_state(process, tid);

	if (state == 'Z' || state == 'X' || state == MSP_E_GONE)
		return MSP_E_GONE;
	return MSP_E_PERMISSION;
}

static int seize(struct msp_process *process, pid_t tid)
{
	int r = add_thread(process, tid);
	int err;

	if (r < 0)
		return r;
	if (ptrace(PTRACE_SEIZE, tid, 0, 0) < 0) {
		err = errno;
		process->stopped_count--;
		return err == EPERM ? seize_error(process, tid) : msp_error_of_errno(err);
	}
	/* From here on the number cannot be used again; was it ours when we took it? */
	if (!msp_process_has_thread(process, tid)) {
		ptrace(PTRACE_INTERRUPT, tid, 0, 0);
		return MSP_E_GONE;
	}
	if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0)
		return msp_error_of_errno(errno);
	return 0;
}

/* A child of ours is reaped by who started it, not by us in passing. */
static bool is_own_child(struct msp_process *process, pid_t tid)
{
	struct msp_stat stat;

	return tid == process->pid && msp_read_stat(process->dir, "stat", &stat) == 0 &&
	       stat.parent == getpid();
}

static void note_death(struct msp_process *process, struct msp_stopped *thread)
{
	siginfo_t info;

	thread->state = MSP_STOP_LOST;
	if (!is_own_child(process, thread->tid))
		waitid(P_PID, thread->tid, &info, WEXITED | WNOHANG | __WALL);
}

/*
 * Looks whether a seized thread stopped or died; never waits. A signal that
 * was about to be delivered is a stop like any other: the signal is kept for
 * the resume, with its siginfo, which stays in the kernel.
 */
static void poll_thread(struct msp_process *process, struct msp_stopped *thread)
{
	siginfo_t info = {0};
	int event;

	if (waitid(P_PID, thread->tid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL) <
	    0) {
		if (errno == ECHILD)
			thread->state = MSP_STOP_LOST;
		return;
	}
	if (!info.si_pid)
		return;
	if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED) {
		note_death(process, thread);
		return;
	}
	if (!process->stopped_since)
		process->stopped_since = now_ns();
	event = info.si_status >> 8;
	thread->sig = event ? 0 : info.si_status & 0x7f;
	thread->state = MSP_STOP_DONE;
	/* Takes the report, so that a parent's wait for its child does not meet it. */
	waitid(P_PID, thread->tid, &info, WSTOPPED | WNOHANG | __WALL);
}

/* Polls all pending threads; returns how many still are. */
static size_t poll_pending(struct msp_process *process)
{
	size_t pending = 0;

	for (size_t i = 0; i < process->stopped_count; i++) {
		struct msp_stopped *thread = &process->stopped[i];

		if (thread->state == MSP_STOP_PENDING)
			poll_thread(process, thread);
		pending += thread->state == MSP_STOP_PENDING;
	}
	return pending;
}

/*
 * What pending threads that did not stop soon are waiting for. A dead leader of
 * a living process never stops and is not to be waited for either. Returns
 * whether one waits for nothing but a CPU.
 */
static bool look_at_pending(struct msp_process *process)
{
	bool runnable = false;

	for (size_t i = 0; i < process->stopped_count; i++) {
		struct msp_stopped *thread = &process->stopped[i];
		int state;

		if (thread->state != MSP_STOP_PENDING)
			continue;
		state = msp_process_thread_state(process, thread->tid);
		if (state == 'Z' || state == 'X' || state < 0)
			thread->state = MSP_STOP_LOST;
		runnable |= state != 'D';
	}
	return runnable;
}

/*
 * Sleeps rather than yields: on a busy machine who yields waits for a whole
 * slice of the others, who sleeps comes first when it wakes.
 */
static void pause_between_looks(uint64_t waited)
{
	struct timespec ts = {.tv_nsec = waited < LOOK_NS ? 5000 : 100000};

	if (waited > SPIN_NS)
		nanosleep(&ts, NULL);
}

/* Is it time to give up, after that long? */
static bool waited_enough(struct msp_process *process, uint64_t waited)
{
	if (waited < LOOK_NS)
		return false;
	if (waited > BUSY_LIMIT_NS)
		return true;
	return !look_at_pending(process) && waited > SLEEP_LIMIT_NS;
}

/* Waits until no thread is pending, or too long. */
static void wait_pending(struct msp_process *process)
{
	uint64_t start = now_ns(), waited;

	while (poll_pending(process)) {
		waited = now_ns() - start;
		if (waited_enough(process, waited))
			return;
		pause_between_looks(waited);
	}
}

static void detach(struct msp_process *process, struct msp_stopped *thread)
{
	if (thread->state == MSP_STOP_DONE)
		ptrace(PTRACE_DETACH, thread->tid, 0, (long)thread->sig);
	if (thread->state != MSP_STOP_PENDING)
		remove_thread(process, thread);
	if (!process->stopped_count)
		process->stopped_since = 0;
}

/* Threads that stopped after we had given them up are let go at the next occasion. */
static size_t release_late(struct msp_process *process, pid_t except)
{
	size_t pending = 0;

	for (size_t i = process->stopped_count; i-- > 0;) {
		struct msp_stopped *thread = &process->stopped[i];

		if (thread->tid == except || thread->state != MSP_STOP_PENDING)
			continue;
		poll_thread(process, thread);
		pending += thread->state == MSP_STOP_PENDING;
		detach(process, thread);
	}
	return pending;
}

size_t msp_process_release_late(struct msp_process *process)
{
	return release_late(process, 0);
}

int msp_thread_stop(struct msp_process *process, pid_t tid)
{
	struct msp_stopped *thread = find_thread(process, tid);
	uint64_t start = now_ns(), waited;
	int r;

	release_late(process, tid);
	thread = find_thread(process, tid);
	if (!thread) {
		r = seize(process, tid);
		if (r < 0) {
			msp_thread_resume(process, tid);
			return r;
		}
		thread = &process->stopped[process->stopped_count - 1];
	}
	for (;;) {
		poll_thread(process, thread);
		waited = now_ns() - start;
		if (thread->state != MSP_STOP_PENDING)
			break;
		if (waited_enough(process, waited))
			return MSP_E_BUSY;
		pause_between_looks(waited);
	}
	if (thread->state == MSP_STOP_DONE)
		return 0;
	remove_thread(process, thread);
	return MSP_E_GONE;
}

uint64_t msp_process_stopped_since(const struct msp_process *process)
{
	return process->stopped_since;
}

int msp_thread_registers(struct msp_process *process, pid_t tid, struct msp_registers *out)
{
	struct msp_stopped *thread = find_thread(process, tid);
	uint64_t set[64];
	struct iovec iov = {.iov_base = set, .iov_len = sizeof(set)};

	if (!thread || thread->state == MSP_STOP_LOST)
		return MSP_E_GONE;
	if (thread->state == MSP_STOP_PENDING)
		return MSP_E_BUSY;
	if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &iov) < 0)
		return msp_error_of_errno(errno);
	return msp_registers_from_regset(HOST_ARCH, set, iov.iov_len, out);
}

int msp_thread_resume(struct msp_process *process, pid_t tid)
{
	struct msp_stopped *thread = find_thread(process, tid);

	if (!thread)
		return MSP_E_NOT_FOUND;
	if (thread->state == MSP_STOP_PENDING)
		poll_thread(process, thread);
	if (thread->state == MSP_STOP_PENDING)
		return MSP_E_BUSY;
	detach(process, thread);
	return 0;
}

/* Seizes the threads that are not yet; returns how many, or an error of more than one thread. */
static int seize_new(struct msp_process *process)
{
	int count, fresh = 0, r = 0;
	pid_t *tids;

	count = msp_process_threads(process, &tids);
	if (count < 0)
		return count;
	for (int i = 0; i < count; i++) {
		if (find_thread(process, tids[i]))
			continue;
		r = seize(process, tids[i]);
		if (r == 0)
			fresh++;
		else if (r != MSP_E_GONE)
			break;
		r = 0;
	}
	free(tids);
	return r < 0 ? r : fresh;
}

int msp_process_stop(struct msp_process *process)
{
	int r, count = 0;

	release_late(process, 0);
	/* A running thread may start others: all are stopped when a look finds none new. */
	for (int round = 0; round < MAX_ROUNDS; round++) {
		r = seize_new(process);
		if (r <= 0)
			break;
		wait_pending(process);
	}
	for (size_t i = process->stopped_count; i-- > 0;) {
		count += process->stopped[i].state == MSP_STOP_DONE;
		if (process->stopped[i].state == MSP_STOP_LOST)
			remove_thread(process, &process->stopped[i]);
	}
	if (r < 0 || !count) {
		msp_process_resume(process);
		return r < 0 ? r : msp_process_alive(process) ? MSP_E_BUSY : MSP_E_GONE;
	}
	return count;
}

void msp_process_resume(struct msp_process *process)
{
	for (size_t i = process->stopped_count; i-- > 0;) {
		if (process->stopped[i].state == MSP_STOP_PENDING)
			poll_thread(process, &process->stopped[i]);
		detach(process, &process->stopped[i]);
	}
}

void msp_stops_release(struct msp_process *process)
{
	msp_process_resume(process);
	if (!process->stopped_count)
		return;
	wait_pending(process);
	msp_process_resume(process);
}

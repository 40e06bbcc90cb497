/* SPDX-License-Identifier: MIT */
/*
 * The profiler's own thread: it takes samples from the rings, names them and writes them. A handler wakes
 * it for a stack with something that has no name yet, which may not be there for long, and when much
 * waits. All signals are blocked in it; it ends with the last session. The process as a target stays,
 * so that the next session starts at once.
 */
#include <errno.h>
#include <link.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

#include "inprocess/internal.h"

#define PASS_NS 200000000ull	/* between looks at the rings, if nobody wakes it; between writes */
#define REFRESH_NS 250000000ull /* between looks at the mappings, which take milliseconds */
#define AT_ONCE 16		/* samples for which the lock is held */

static struct {
	struct msp_target *target;
	struct msp_self *self;
	struct msp_backtrace *backtrace;
	pid_t pid;
	uint64_t refreshed_ns;
	uint64_t loads; /* of libraries, and unloads, when it was last looked */
	bool wanted;	/* a stack ended where something may be new */
	pthread_t thread;
	bool running;
	uint64_t epoch; /* a thread of another one leaves */
	sem_t wake;
	bool ready;	     /* it is there */
	_Atomic(bool) woken; /* it has not looked since */
	pthread_cond_t done;
} worker = {.done = PTHREAD_COND_INITIALIZER};

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

struct msp_self *worker_self(void)
{
	return worker.self;
}

static bool has_proved_vm(void)
{
	const struct msp_vm_info *vm;

	for (size_t i = 0; (vm = msp_target_vm(worker.target, i)); i++)
		if (vm->proved)
			return true;
	return false;
}

static int take_loads(struct dl_phdr_info *info, size_t size, void *loads)
{
	(void)size;
	*(uint64_t *)loads = info->dlpi_adds + info->dlpi_subs;
	return 1;
}

static int open_target(void)
{
	int err;

	if ((err = msp_target_new(NULL, &worker.target)) < 0 ||
	    (err = msp_target_open_self(worker.target)) < 0 ||
	    (err = msp_self_new(worker.target, NULL, &worker.self)) < 0)
		return err;
	worker.pid = getpid();
	worker.refreshed_ns = now_ns();
	dl_iterate_phdr(take_loads, &worker.loads);
	return msp_backtrace_new(worker.target, &worker.backtrace);
}

static void close_target(void)
{
	msp_backtrace_free(worker.backtrace);
	msp_self_free(worker.self);
	msp_target_free(worker.target);
	known_forget();
	worker.backtrace = NULL;
	worker.self = NULL;
	worker.target = NULL;
}

static int refresh(void)
{
	int changed;

	worker.refreshed_ns = now_ns();
	worker.wanted = false;
	dl_iterate_phdr(take_loads, &worker.loads);
	changed = msp_self_refresh(worker.self);
	if (!changed)
		return 0;
	known_forget();
	for (int i = 0; i < SESSIONS; i++)
		memo_forget(sessions[i].stream.memo);
	return changed;
}

/* Libraries come and go; other mappings show when a stack meets them. */
static void refresh_if_new(void)
{
	uint64_t loads = worker.loads;

	dl_iterate_phdr(take_loads, &loads);
	if (loads != worker.loads || (worker.wanted && now_ns() - worker.refreshed_ns > REFRESH_NS))
		refresh();
}

int worker_look(char *why, size_t size)
{
	bool was_open;
	int err;

	if (worker.self && worker.pid != getpid())
		close_target(); /* a fork's: of the parent */
	was_open = worker.self != NULL;
	err = was_open ? refresh() : open_target();
	if (err < 0) {
		if (size)
			snprintf(why, size, "%s",
				 worker.target ? msp_target_error(worker.target)
					       : msp_strerror(err));
		if (!was_open) /* else others sample with it */
			close_target();
		return err == MSP_E_NOMEM ? PROFILE_ERRMEM : PROFILE_ERRUSE;
	}
	if (has_proved_vm())
		return PROFILE_SUCCESS;
	if (size)
		snprintf(why, size,
			 "no LuaJIT that could be proved; moonspy inspect -p %d says why",
			 (int)getpid());
	return PROFILE_ERRUSE;
}

/* ---- The thread ---- */

/* Some samples of a session; true: there are more. */
static bool take_some(struct session *session)
{
	struct sample *sample;

	for (int i = 0; i < AT_ONCE; i++) {
		sample = ring_first(&session->ring);
		if (!sample)
			return false;
		worker.wanted |= sample_may_be_new(sample);
		if (stream_sample(&session->stream, session, sample, worker.backtrace))
			known_add(sample);
		ring_drop(&session->ring, sample);
		if (session->stream.ended)
			atomic_store(&session->sampling, false);
	}
	return true;
}

static void end(struct session *session)
{
	while (take_some(session))
		;
	stream_end(&session->stream, session, (now_ns() - session->began_ns) / 1000000);
}

static void flush(struct session *session)
{
	if (now_ns() - session->flushed_ns < PASS_NS)
		return;
	session->flushed_ns = now_ns();
	stream_flush(&session->stream);
}

/* What a session's state asks for; true: there is more to do. */
static bool look_after(struct session *session)
{
	bool writes = session->mode != LUAM_SYSPROF_DEFAULT, more = false;

	switch (atomic_load(&session->state)) {
	case SESSION_READY:
		if (writes)
			stream_begin(&session->stream, session);
		atomic_store(&session->state, SESSION_RUNNING);
		pthread_cond_broadcast(&worker.done);
		break;
	case SESSION_RUNNING:
		if (writes) {
			more = take_some(session);
			flush(session);
		}
		break;
	case SESSION_STOPPING:
		if (writes)
			end(session);
		atomic_store(&session->state, SESSION_DONE);
		pthread_cond_broadcast(&worker.done);
		break;
	}
	return more;
}

void worker_wake(void)
{
	if (!atomic_exchange(&worker.woken, true))
		sem_post(&worker.wake);
}

/* With the lock held, which is given up meanwhile. */
static void wait_a_pass(void)
{
	uint64_t ns = now_ns() + PASS_NS;
	struct timespec until = {.tv_sec = (time_t)(ns / 1000000000),
				 .tv_nsec = (long)(ns % 1000000000)};

	pthread_mutex_unlock(&sysprof_lock);
	while (sem_clockwait(&worker.wake, CLOCK_MONOTONIC, &until) && errno == EINTR)
		;
	atomic_exchange(&worker.woken, false);
	pthread_mutex_lock(&sysprof_lock);
}

static void *work(void *arg)
{
	uint64_t epoch = (uintptr_t)arg;

	pthread_setname_np(pthread_self(), "moonspy-sysprof");
	pthread_mutex_lock(&sysprof_lock);
	while (worker.epoch == epoch) {
		bool more = false;

		for (int i = 0; i < SESSIONS; i++)
			more |= look_after(&sessions[i]);
		if (more) {
			pthread_mutex_unlock(&sysprof_lock);
			sched_yield();
			pthread_mutex_lock(&sysprof_lock);
			continue;
		}
		if (worker.self)
			refresh_if_new(); /* what waited has its names from what was there */
		wait_a_pass();
	}
	worker_wake(); /* it may have been for the thread of the next epoch */
	pthread_mutex_unlock(&sysprof_lock);
	return NULL;
}

int worker_start(void)
{
	sigset_t all, kept;
	int err;

	if (worker.running)
		return 0;
	worker.epoch++;
	if (!worker.ready)
		sem_init(&worker.wake, 0, 0);
	worker.ready = true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &kept);
	err = pthread_create(&worker.thread, NULL, work, (void *)(uintptr_t)worker.epoch);
	pthread_sigmask(SIG_SETMASK, &kept, NULL);
	worker.running = !err;
	return err;
}

void worker_do(struct session *session, enum session_state until)
{
	worker_wake();
	while (atomic_load(&session->state) != (int)until)
		pthread_cond_wait(&worker.done, &sysprof_lock);
}

void worker_stop(void)
{
	pthread_t thread = worker.thread;

	if (!worker.running)
		return;
	worker.epoch++;
	worker.running = false;
	worker_wake();
	pthread_mutex_unlock(&sysprof_lock);
	pthread_join(thread, NULL);
	pthread_mutex_lock(&sysprof_lock);
}

void worker_forget(void)
{
	worker.running = false;
	worker.ready = false;
	atomic_store(&worker.woken, false);
	pthread_cond_init(&worker.done, NULL);
}

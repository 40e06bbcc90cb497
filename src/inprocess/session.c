/* SPDX-License-Identifier: MIT */
/* Sessions: how they start and end, by whatever ends them: stop, the VM, the program, a fork. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inprocess/internal.h"

struct session sessions[SESSIONS];
pthread_mutex_t sysprof_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t started; /* sessions ever */

/* ---- The table ---- */

static struct session *running_of(const void *vm)
{
	for (int i = 0; i < SESSIONS; i++)
		if (atomic_load(&sessions[i].state) != SESSION_FREE && sessions[i].vm == vm)
			return &sessions[i];
	return NULL;
}

static bool any_session(void)
{
	for (int i = 0; i < SESSIONS; i++)
		if (atomic_load(&sessions[i].state) != SESSION_FREE)
			return true;
	return false;
}

bool session_runs(const void *vm)
{
	bool any;

	pthread_mutex_lock(&sysprof_lock);
	any = vm ? running_of(vm) != NULL : any_session();
	pthread_mutex_unlock(&sysprof_lock);
	return any;
}

/* The place whose counters nobody will ask for the longest. */
static struct session *free_place(void)
{
	struct session *best = NULL;

	for (int i = 0; i < SESSIONS; i++)
		if (atomic_load(&sessions[i].state) == SESSION_FREE &&
		    (!best || sessions[i].order < best->order))
			best = &sessions[i];
	return best;
}

/* ---- Ends ---- */

static void drop(struct session *session)
{
	if (session->ring.bytes)
		munmap(session->ring.bytes, RING_SIZE);
	session->ring.bytes = NULL;
	stream_close(&session->stream);
	atomic_store(&session->state, SESSION_FREE);
}

/* With the lock held, which is given up meanwhile. */
static int finish(struct session *session)
{
	int error;

	handler_stop(session);
	atomic_store(&session->state, SESSION_STOPPING);
	worker_do(session, SESSION_DONE);
	error = session->stream.error;
	drop(session);
	if (!any_session()) {
		handler_remove();
		worker_stop();
	}
	return error;
}

static int leave(const struct session *session, int error)
{
	if (session->on_stop && session->on_stop(session->ctx, session->buffer) && !error)
		error = errno ? errno : EIO;
	if (!error)
		return PROFILE_SUCCESS;
	errno = error;
	return PROFILE_ERRIO;
}

int session_stop(const void *vm)
{
	struct session *session, ended;
	int error;

	pthread_mutex_lock(&sysprof_lock);
	session = running_of(vm);
	if (!session) {
		pthread_mutex_unlock(&sysprof_lock);
		return PROFILE_ERRRUN;
	}
	error = finish(session);
	ended = *session;
	pthread_mutex_unlock(&sysprof_lock);
	return leave(&ended, error);
}

static void stop_all(void)
{
	for (int i = 0; i < SESSIONS; i++)
		if (atomic_load(&sessions[i].state) != SESSION_FREE)
			session_stop(sessions[i].vm);
}

/* ---- Forks: the child has no timer, no thread of ours, and nothing to write ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&sysprof_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&sysprof_lock);
}

static void in_child(void)
{
	for (int i = 0; i < SESSIONS; i++) {
		struct session *session = &sessions[i];

		atomic_store(&session->sampling, false);
		atomic_store(&session->busy, false);
		if (atomic_load(&session->state) == SESSION_FREE)
			continue;
		drop(session); /* with what was not written: that is the parent's */
		if (session->ours && session->on_stop)
			session->on_stop(session->ctx, session->buffer);
	}
	handler_remove();
	worker_forget();
	pthread_mutex_unlock(&sysprof_lock);
}

static void once(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
	atexit(stop_all);
}

/* ---- Starts ---- */

static int check(const void *vm, const struct session_options *o)
{
	const struct luam_Sysprof_Options *options = &o->options;

	if (running_of(vm))
		return PROFILE_ERRRUN;
	if (options->mode > LUAM_SYSPROF_CALLGRAPH || !options->interval ||
	    options->interval > INT32_MAX)
		return PROFILE_ERRUSE;
	if (options->mode != LUAM_SYSPROF_DEFAULT &&
	    (!options->buf || !options->len || !o->writer || !o->on_stop))
		return PROFILE_ERRUSE;
	return PROFILE_SUCCESS;
}

static int prepare(struct session *session, const void *vm, const struct session_options *o)
{
	session->vm = vm;
	session->generation = (session->generation + 1) & 0xffffff;
	session->tid = (pid_t)syscall(SYS_gettid);
	session->mode = o->options.mode;
	session->interval_ms = o->options.interval;
	session->on_stop = o->on_stop;
	session->backtracer = o->backtracer;
	session->ours = o->ours;
	session->ctx = o->options.ctx;
	session->buffer = o->options.buf;
	session->order = ++started;
	session->began_ns = session->flushed_ns = now_ns();
	for (int i = 0; i < SYSPROF_STATE_COUNT; i++)
		atomic_store(&session->counter[i], 0);
	atomic_store(&session->handler_ns, 0);
	atomic_store(&session->handler_most_ns, 0);
	atomic_store(&session->lost, 0);
	session->ring.bytes = mmap(NULL, RING_SIZE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (session->ring.bytes == MAP_FAILED) {
		session->ring.bytes = NULL;
		return PROFILE_ERRMEM;
	}
	atomic_store(&session->ring.head, 0);
	atomic_store(&session->ring.tail, 0);
	return stream_open(&session->stream,
			   o->options.mode == LUAM_SYSPROF_DEFAULT ? NULL : o->writer,
			   o->options.ctx, o->options.buf, o->options.len)
		       ? PROFILE_ERRMEM
		       : PROFILE_SUCCESS;
}

/* With the lock held. *error: errno. */
static int begin(const void *vm, const struct session_options *o, int *error)
{
	struct session *session = free_place();
	int status;

	if (!session) {
		*error = EAGAIN;
		return PROFILE_ERRIO;
	}
	status = worker_look(o->why, o->why_size);
	if (status == PROFILE_SUCCESS)
		status = prepare(session, vm, o);
	if (status != PROFILE_SUCCESS) {
		drop(session);
		return status;
	}
	*error = worker_start();
	if (!*error) {
		atomic_store(&session->state, SESSION_READY);
		worker_do(session, SESSION_RUNNING);
		*error = session->stream.error;
	}
	if (!*error && (handler_install() || handler_timer(session)))
		*error = errno;
	if (!*error)
		return PROFILE_SUCCESS;
	drop(session);
	if (!any_session()) {
		handler_remove();
		worker_stop();
	}
	return PROFILE_ERRIO;
}

int session_start(const void *vm, const struct session_options *o)
{
	static pthread_once_t first = PTHREAD_ONCE_INIT;
	int status, error = 0;

	pthread_once(&first, once);
	pthread_mutex_lock(&sysprof_lock);
	status = check(vm, o);
	if (status == PROFILE_SUCCESS)
		status = begin(vm, o, &error);
	pthread_mutex_unlock(&sysprof_lock);
	if (status != PROFILE_SUCCESS && o->on_stop)
		o->on_stop(o->options.ctx, o->options.buf);
	if (error)
		errno = error;
	return status;
}

/* ---- Counters ---- */

void session_counters(const void *vm, struct luam_Sysprof_Counters *counters)
{
	const struct session *best = NULL;
	uint64_t *to = (uint64_t *)counters;

	memset(counters, 0, sizeof(*counters));
	pthread_mutex_lock(&sysprof_lock);
	for (int i = 0; i < SESSIONS; i++)
		if (sessions[i].order && (!vm || sessions[i].vm == vm) &&
		    (!best || sessions[i].order > best->order))
			best = &sessions[i];
	for (int i = 0; best && i < SYSPROF_STATE_COUNT; i++)
		counters->samples += to[i] = atomic_load(&best->counter[i]);
	pthread_mutex_unlock(&sysprof_lock);
}

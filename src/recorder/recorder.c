/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "recorder/internal.h"

/* Samples are taken from the ring this often: names are read soon after they are first seen. */
#define POLL_MS 5
/* Mappings are read again at most this often for code at unknown addresses. */
#define REFRESH_NS 100000000ull
/* Naming the first samples takes long; what processes do meanwhile is looked at after so long. */
#define KEEP_UP_NS 1000000ull
/* A process of which a thread ended is looked after for so long; all are in this interval. */
#define ENDING_NS 1000000000ull
#define SWEEP_NS 1000000000ull

uint64_t rec_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int watch(struct msp_recorder *rec, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN};

	return epoll_ctl(rec->epoll, EPOLL_CTL_ADD, fd, &ev) ? MSP_E_IO : 0;
}

static int open_bpf(struct msp_recorder *rec, char *error, size_t size)
{
	struct msp_sampler_options opts = {
		.rate = rec->opts.rate,
		.all = rec->opts.all || rec->opts.follow,
		.kernel = rec->opts.kernel,
		.stats = true,
		.cache_dir = rec->opts.cache_dir,
		.mappings = rec->opts.all ? 262144 : 65536,
	};
	int err = msp_sampler_open(&opts, &rec->sampler, error, size);

	if (err)
		return err;
	err = msp_sideband_open(&rec->sideband);
	if (err) {
		snprintf(error, size, "perf events of all CPUs cannot be opened");
		return err;
	}
	err = watch(rec, msp_sampler_fd(rec->sampler));
	return err ? err : watch(rec, msp_sideband_fd(rec->sideband));
}

/* ---- Starting: the kernel checks the program while tables are made ---- */

struct engine_start {
	struct msp_recorder *rec;
	char *error;
	size_t size;
	int result;
};

static void *start_engine(void *arg)
{
	struct engine_start *start = arg;

	start->result = start->rec->opts.engine == MSP_ENGINE_BPF
				? open_bpf(start->rec, start->error, start->size)
				: rec_ptrace_open(start->rec);
	start->rec->times.engine = rec_now_ns();
	return NULL;
}

/* Processes that cannot be opened are told of when they are added. */
static void prepare_processes(struct msp_recorder *rec)
{
	struct rec_process *p;

	if (rec->opts.command)
		msp_images_add_program(rec->images, rec->opts.command);
	for (size_t i = 0; i < rec->opts.pid_count; i++) {
		p = rec_insert(rec, rec->opts.pids[i]);
		if (p && !p->process)
			rec_prepare(rec, p);
	}
}

static int start(struct msp_recorder *rec, char *error, size_t error_size)
{
	struct engine_start engine = {.rec = rec, .error = error, .size = error_size};
	pthread_t thread;
	bool threaded;

	if (rec->opts.kernel && !rec->opts.pid_count)
		rec->kernel = msp_kernel_symbols_load();
	threaded = !pthread_create(&thread, NULL, start_engine, &engine);
	if (!threaded)
		start_engine(&engine);
	prepare_processes(rec);
	rec->times.tables = rec_now_ns();
	if (threaded)
		pthread_join(thread, NULL);
	/* No name is needed before the first samples are read: the tables went first. */
	if (rec->opts.kernel && !rec->kernel && !engine.result)
		rec->kernel = msp_kernel_symbols_load();
	return engine.result;
}

int msp_recorder_open(const struct msp_recorder_options *opts, struct msp_recorder **out,
		      char *error, size_t error_size)
{
	struct msp_images_options images = {.cache_dir = opts->cache_dir,
					    .no_luajit = opts->no_luajit};
	struct msp_recorder *rec = calloc(1, sizeof(*rec));
	int err;

	*out = NULL;
	error[0] = 0;
	if (!rec)
		return MSP_E_NOMEM;
	rec->opts = *opts;
	rec->epoll = epoll_create1(EPOLL_CLOEXEC);
	rec->profile = msp_profile_new();
	rec->ids = calloc(REC_MAX_FRAMES, sizeof(*rec->ids));
	rec->raw = calloc(REC_MAX_FRAMES, sizeof(*rec->raw));
	rec->started_ns = rec_now_ns();
	err = rec->epoll < 0 || !rec->profile || !rec->ids || !rec->raw
		      ? MSP_E_NOMEM
		      : msp_images_new(&images, &rec->images);
	if (!err)
		err = start(rec, error, error_size);
	if (err) {
		if (!error[0])
			snprintf(error, error_size, "%s", msp_strerror(err));
		msp_recorder_close(rec);
		return err;
	}
	*out = rec;
	return 0;
}

void msp_recorder_close(struct msp_recorder *rec)
{
	if (!rec)
		return;
	while (rec->process_count)
		rec_remove(rec, rec->process[rec->process_count - 1]);
	free(rec->process);
	rec_ptrace_close(rec);
	msp_sideband_close(rec->sideband);
	msp_sampler_close(rec->sampler);
	msp_images_free(rec->images);
	msp_kernel_symbols_free(rec->kernel);
	msp_profile_free(rec->profile);
	if (rec->epoll >= 0)
		close(rec->epoll);
	free(rec->deferred);
	free(rec->ids);
	free(rec->raw);
	free(rec);
}

/* ---- What to sample ---- */

int msp_recorder_add(struct msp_recorder *rec, pid_t pid)
{
	struct rec_process *p = rec_insert(rec, pid);
	int err;

	if (!p)
		return MSP_E_NOMEM;
	if (p->added)
		return 0;
	err = rec_load(rec, p);
	if (!err && rec->sampler)
		err = rec_attach_threads(rec, pid);
	if (err) {
		rec_remove(rec, p);
		return err;
	}
	p->added = true;
	return 0;
}

int msp_recorder_add_launched(struct msp_recorder *rec, pid_t pid)
{
	struct rec_process *p = rec_insert(rec, pid);
	int err;

	if (!p)
		return MSP_E_NOMEM;
	p->added = p->waiting = true;
	err = rec->sampler ? msp_sampler_attach_thread(rec->sampler, pid) : 0;
	if (err)
		rec_remove(rec, p);
	return err;
}

/* What runs already is loaded before the first sample; what cannot be opened stays unknown. */
static void load_running(struct msp_recorder *rec)
{
	struct rec_process *p;
	pid_t *pid;
	int n = msp_process_find(NULL, &pid);

	for (int i = 0; i < n; i++) {
		p = rec_insert(rec, pid[i]);
		if (p && !p->process)
			rec_load(rec, p);
	}
	if (n >= 0)
		free(pid);
}

int msp_recorder_add_all(struct msp_recorder *rec)
{
	if (rec->sampler)
		load_running(rec);
	return rec->sampler ? msp_sampler_attach_cpus(rec->sampler) : MSP_E_UNSUPPORTED;
}

/* ---- What happens meanwhile ---- */

/* A process of ours runs another program: nothing that is known of it holds any more. */
static void on_exec(struct msp_recorder *rec, struct rec_process *p)
{
	rec_unload(p);
	p->waiting = false;
	p->parent = 0;
	rec_load(rec, p);
}

static void on_fork(struct msp_recorder *rec, const struct msp_change *change)
{
	const struct rec_process *parent = rec_find(rec, change->ppid);
	struct rec_process *p;

	if (!rec->opts.all && (!parent || !parent->added || !rec->opts.follow))
		return;
	p = rec_find(rec, change->pid);
	if (p && p->process && !msp_process_alive(p->process)) /* the number is another's now */
		rec_remove(rec, p);
	p = rec_insert(rec, change->pid);
	if (!p)
		return;
	p->parent = change->ppid;
	p->added = !rec->opts.all;
	if (!p->process)
		rec_load(rec, p);
}

static void apply_change(struct msp_recorder *rec, const struct msp_change *change)
{
	struct rec_process *p;

	if (change->kind == MSP_CHANGE_FORK)
		on_fork(rec, change);
	if (change->kind == MSP_CHANGE_LOST)
		for (size_t i = 0; i < rec->process_count; i++)
			rec->process[i]->dirty = true;
	p = rec_find(rec, change->pid);
	if (!p && rec->opts.all && change->kind == MSP_CHANGE_EXEC)
		p = rec_insert(rec, change->pid);
	if (!p)
		return;
	if (change->kind == MSP_CHANGE_EXEC)
		on_exec(rec, p);
	else if (change->kind == MSP_CHANGE_MAPPING && !p->waiting)
		p->dirty = true;
	else if (change->kind == MSP_CHANGE_EXIT)
		p->ending_ns = rec_now_ns();
}

/* Would it free what samples of the process are still to be named with? */
static bool must_wait(struct msp_recorder *rec, const struct msp_change *change)
{
	struct rec_process *p = rec_find(rec, change->pid);

	if (!rec->naming || !p)
		return false;
	if (change->kind == MSP_CHANGE_FORK && p->process)
		return !msp_process_alive(p->process);
	if (change->kind == MSP_CHANGE_FORK && p->symbols)
		p->parent = change->ppid; /* whose names it may need meanwhile */
	return (change->kind == MSP_CHANGE_EXEC || change->kind == MSP_CHANGE_FORK) && p->symbols;
}

static void defer_change(struct msp_recorder *rec, const struct msp_change *change)
{
	struct msp_change *bigger;

	if (rec->deferred_count == rec->deferred_room) {
		rec->deferred_room = rec->deferred_room ? 2 * rec->deferred_room : 16;
		bigger = realloc(rec->deferred, rec->deferred_room * sizeof(*bigger));
		if (!bigger) {
			rec->failed = MSP_E_NOMEM;
			return;
		}
		rec->deferred = bigger;
	}
	rec->deferred[rec->deferred_count++] = *change;
}

static void on_change(void *ctx, const struct msp_change *change)
{
	struct msp_recorder *rec = ctx;

	if (change->pid <= 0 && change->kind != MSP_CHANGE_LOST)
		return; /* not of our pid namespace */
	if (must_wait(rec, change))
		defer_change(rec, change);
	else
		apply_change(rec, change);
}

/* The sampler met something that it does not know. */
static int on_event(void *ctx, const struct msp_event *event)
{
	struct msp_recorder *rec = ctx;
	struct rec_process *p = rec_find(rec, event->pid);

	if (event->kind == MSP_RECORD_PROCESS) {
		if (!p)
			p = rec_insert(rec, event->pid);
		if (p && !p->process)
			rec_load(rec, p);
	} else if (p && rec_now_ns() - p->refreshed_ns > REFRESH_NS) {
		p->dirty = true;
	}
	return 0;
}

static void refresh_dirty(struct msp_recorder *rec)
{
	for (size_t i = 0; i < rec->process_count; i++)
		if (rec->process[i]->dirty)
			rec_refresh(rec, rec->process[i]);
}

static void take_changes(struct msp_recorder *rec)
{
	for (size_t i = 0; !rec->naming && i < rec->deferred_count; i++)
		apply_change(rec, &rec->deferred[i]);
	if (!rec->naming)
		rec->deferred_count = 0;
	if (rec->sideband)
		msp_sideband_consume(rec->sideband, on_change, rec);
	refresh_dirty(rec);
	rec->changes_ns = rec_now_ns();
}

void rec_keep_up(struct msp_recorder *rec)
{
	if (rec->naming && rec_now_ns() - rec->changes_ns > KEEP_UP_NS)
		take_changes(rec);
}

void rec_wait_for_kernel(struct msp_recorder *rec)
{
	const struct timespec step = {.tv_nsec = 500000};

	while (rec->kernel && !msp_kernel_symbols_ready(rec->kernel)) {
		rec_keep_up(rec);
		nanosleep(&step, NULL);
	}
}

static bool has_ended(const struct rec_process *p)
{
	if (p->process)
		return !msp_process_alive(p->process);
	return kill(p->pid, 0) && errno == ESRCH;
}

/*
 * Processes that have ended are forgotten: each holds files open. Called after
 * the samples up to the end were taken. A change may have been missed: all are
 * looked at once in a while.
 */
static void forget_ended(struct msp_recorder *rec, bool sweep)
{
	uint64_t now = rec_now_ns();
	struct rec_process *p;

	for (size_t i = rec->process_count; i-- > 0;) {
		p = rec->process[i];
		if (p->ending_ns && has_ended(p))
			rec_remove(rec, p);
		else if (sweep && has_ended(p))
			p->ending_ns = now;
		else if (now - p->ending_ns > ENDING_NS)
			p->ending_ns = 0;
	}
}

/* For which there was no room: others may have ended. */
static void try_again(struct msp_recorder *rec)
{
	struct rec_process *p;

	for (size_t i = 0; i < rec->process_count; i++) {
		p = rec->process[i];
		p->dirty |= p->unsent;
		if (p->failed && !p->process)
			rec_load(rec, p);
	}
}

static int take_samples(struct msp_recorder *rec)
{
	struct msp_sampler_handlers handlers = {rec_on_sample, on_event, rec};
	int n;

	rec->naming = true;
	n = rec->sampler ? msp_sampler_consume(rec->sampler, &handlers) : 0;
	rec->naming = false;
	return rec->failed ? rec->failed : n < 0 && n != -EAGAIN ? MSP_E_IO : 0;
}

static int ask_late_names(struct msp_recorder *rec, bool all)
{
	int err = 0;

	for (size_t i = 0; !err && i < rec->process_count; i++)
		err = rec_late_ask(rec, rec->process[i], all);
	return err;
}

static int work(struct msp_recorder *rec)
{
	bool sweep = rec_now_ns() - rec->swept_ns > SWEEP_NS;
	int err = take_samples(rec); /* before most changes: these were taken under what is known */

	if (!err)
		err = ask_late_names(rec, false);
	forget_ended(rec, sweep);
	if (sweep) {
		rec->swept_ns = rec_now_ns();
		rec_trim_images(rec, false);
		try_again(rec);
	}
	take_changes(rec);
	return err;
}

int msp_recorder_poll(struct msp_recorder *rec, int timeout_ms)
{
	uint64_t end = rec_now_ns() + timeout_ms * 1000000ull;
	struct epoll_event ev[8];
	int n, err;

	if (!rec->polled) /* the time that getting ready took is none of sampling */
		rec->started_ns = rec_now_ns();
	rec->polled = true;
	do {
		if (rec->opts.engine == MSP_ENGINE_PTRACE) {
			n = rec_ptrace_tick(rec);
			if (n < 0 && n != MSP_E_BUSY)
				return n;
		} else {
			n = epoll_wait(rec->epoll, ev, 8,
				       timeout_ms < POLL_MS ? timeout_ms : POLL_MS);
			if (n < 0 && errno == EINTR)
				return 0;
		}
		err = work(rec);
		if (err)
			return err;
	} while (rec_now_ns() < end);
	return 0;
}

int msp_recorder_stop(struct msp_recorder *rec)
{
	int err = 0;

	if (rec->sampler) {
		msp_sampler_stop(rec->sampler);
		err = work(rec);
	}
	if (!err)
		err = ask_late_names(rec, true);
	rec_fill_quality(rec);
	return err;
}

size_t msp_recorder_alive(const struct msp_recorder *rec)
{
	size_t alive = 0;

	for (size_t i = 0; i < rec->process_count; i++)
		if (rec->process[i]->added &&
		    (rec->process[i]->waiting ||
		     (rec->process[i]->process && msp_process_alive(rec->process[i]->process))))
			alive++;
	return alive;
}

const struct msp_recorder_times *msp_recorder_times(const struct msp_recorder *rec)
{
	return &rec->times;
}

size_t msp_recorder_builds(const struct msp_recorder *rec)
{
	return msp_images_builds(rec->images);
}

const char *msp_recorder_refused(const struct msp_recorder *rec)
{
	return rec->refused[0] ? rec->refused : NULL;
}

pid_t msp_recorder_denied(const struct msp_recorder *rec)
{
	return rec->denied;
}

struct msp_profile *msp_recorder_profile(struct msp_recorder *rec)
{
	return rec->profile;
}

void msp_recorder_update_quality(struct msp_recorder *rec)
{
	rec_fill_quality(rec);
}

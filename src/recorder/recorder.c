/* SPDX-License-Identifier: MIT */
#include <errno.h>
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
/* All processes are looked at in this interval. */
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
	if (rec->opts.probes)
		rec_probes_open(rec);
	err = watch(rec, msp_sampler_fd(rec->sampler));
	if (!err && rec_probes_fd(rec) >= 0)
		err = watch(rec, rec_probes_fd(rec));
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
		msp_images_add_program(rec->images, rec->opts.command, NULL, NULL);
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
	rec_probes_close(rec);
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
	if (!err && rec->sampler) {
		msp_sampler_keep_apart(rec->sampler, pid);
		err = rec_attach_threads(rec, pid);
	}
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
	rec_probes_launch(rec, p);
	rec_probes_start(rec);
	if (rec->sampler)
		msp_sampler_keep_apart(rec->sampler, pid);
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

/* ---- While it runs ---- */

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
	int err;

	rec_probes_take(rec);
	err = take_samples(rec); /* before most changes: these were taken under what is known */
	rec_probes_settle(rec);
	if (!err)
		err = ask_late_names(rec, false);
	rec_forget_ended(rec, sweep);
	if (sweep) {
		rec->swept_ns = rec_now_ns();
		rec_trim_images(rec, false);
		rec_try_again(rec);
	}
	rec_take_changes(rec);
	return err;
}

int msp_recorder_poll(struct msp_recorder *rec, int timeout_ms)
{
	uint64_t end = rec_now_ns() + timeout_ms * 1000000ull;
	struct epoll_event ev[8];
	int n, err;

	if (!rec->polled)
		rec_probes_start(rec);
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

	rec_probes_hush(rec);
	if (rec->sampler) {
		msp_sampler_stop(rec->sampler);
		err = work(rec);
	}
	if (!err)
		err = ask_late_names(rec, true);
	rec_fill_quality(rec);
	rec_probes_stop(rec);
	return err ? err : rec->failed;
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

size_t msp_recorder_probes_left(struct msp_recorder *rec, int timeout_ms, size_t *processes)
{
	return rec_probes_left(rec, rec_now_ns() + timeout_ms * 1000000ull, processes);
}

const char *msp_recorder_probes_why(struct msp_recorder *rec)
{
	return rec->opts.probes ? rec_probes_why(rec) : NULL;
}

pid_t msp_recorder_denied(const struct msp_recorder *rec)
{
	return rec->denied;
}

uint64_t msp_recorder_stops(const struct msp_recorder *rec)
{
	return rec->stops;
}

struct msp_profile *msp_recorder_profile(struct msp_recorder *rec)
{
	return rec->profile;
}

void msp_recorder_update_quality(struct msp_recorder *rec)
{
	rec_fill_quality(rec);
}

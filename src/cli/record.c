/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cachedir.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/live.h"
#include "cli/messages.h"
#include "cli/quality.h"
#include "cli/save.h"
#include "moonspy/moonspy.h"
#include "recorder/recorder.h"

#define STEP_MS 100
#define LAST_MOMENTS 1.0 /* seconds that a command has to end in after a signal */

struct record {
	const struct msp_options *options;
	const struct msp_format *format;
	struct cli_output output;
	bool output_open;
	struct cli_launch launch;
	bool launched;
	struct msp_recorder *recorder;
	pid_t *pids; /* the processes to sample at the start */
	size_t pid_count;
	char name[64];	       /* of the first one, or of the command */
	struct timespec start; /* of everything */
	struct timespec begin, wall;
	double signalled; /* when the first signal was seen; 0: none */
};

static double elapsed(const struct record *r)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - r->begin.tv_sec + (now.tv_nsec - r->begin.tv_nsec) / 1e9;
}

static int exit_code(int error)
{
	return error == MSP_E_PERMISSION ? CLI_PERMISSION : CLI_FAILED;
}

/* ---- Who is sampled ---- */

static int add_pid(struct record *r, pid_t pid)
{
	pid_t *bigger = realloc(r->pids, (r->pid_count + 1) * sizeof(*bigger));

	if (!bigger)
		return CLI_FAILED;
	r->pids = bigger;
	for (size_t i = 0; i < r->pid_count; i++)
		if (r->pids[i] == pid)
			return 0;
	r->pids[r->pid_count++] = pid;
	return 0;
}

static int add_children(struct record *r)
{
	size_t parents = r->pid_count;
	pid_t *child;
	int n;

	for (size_t i = 0; i < parents; i++) {
		n = msp_process_children(r->pids[i], &child);
		for (int j = 0; j < n; j++)
			add_pid(r, child[j]);
		if (n >= 0)
			free(child);
	}
	return 0;
}

static int find_named(struct record *r)
{
	pid_t *pid = NULL;
	int n = msp_process_find(r->options->name, &pid);

	for (int i = 0; i < n; i++)
		if (pid[i] != getpid())
			add_pid(r, pid[i]);
	free(pid);
	if (r->pid_count)
		return 0;
	cli_error(cli_fmt("no process is called %s", r->options->name),
		  "neither the name nor the program of any is that", "moonspy list");
	return CLI_FAILED;
}

static void set_name(struct record *r, const char *text)
{
	const char *slash = strrchr(text, '/');

	snprintf(r->name, sizeof(r->name), "%s", slash && slash[1] ? slash + 1 : text);
}

static int find_targets(struct record *r)
{
	const struct msp_options *o = r->options;
	struct msp_process_info info = {.size = sizeof(info)};
	int rc;

	for (size_t i = 0; i < o->pid_count; i++)
		add_pid(r, o->pids[i]);
	rc = o->name ? find_named(r) : 0;
	if (rc)
		return rc;
	if (o->subprocesses)
		add_children(r);
	set_name(r, o->command ? o->command[0] : o->all ? "all" : "moonspy");
	if (r->pid_count && !msp_process_look(r->pids[0], &info))
		set_name(r, info.name);
	return 0;
}

/* ---- Starting ---- */

static int open_output(struct record *r)
{
	char path[256];
	const char *name = r->options->output;
	int rc;

	r->format = cli_save_format(r->options->format, name);
	if (!r->format)
		return CLI_USAGE;
	if (!name)
		name = cli_output_name(path, sizeof(path), r->name, r->pid_count ? r->pids[0] : 0,
				       r->format->endings[0]);
	rc = cli_output_open(&r->output, name, r->options->force);
	r->output_open = !rc;
	r->output.announce = !r->options->output;
	return rc;
}

static int open_engine(struct record *r, enum msp_engine engine, char *why, size_t size)
{
	const struct msp_options *o = r->options;
	char dir[4096];
	struct msp_recorder_options opts = {
		.engine = engine,
		.rate = o->rate,
		.all = o->all,
		.follow = o->subprocesses,
		.kernel = !o->view.no_kernel,
		.stats = true,
		.probes = o->probes,
		.cache_dir = cli_cache_dir(dir, sizeof(dir)),
		.pids = r->pids,
		.pid_count = r->pid_count,
		.command = o->command ? o->command[0] : NULL,
	};

	return msp_recorder_open(&opts, &r->recorder, why, size);
}

static int open_recorder(struct record *r)
{
	enum cli_engine wanted = r->options->engine;
	char why[512] = "", second[512] = "";
	int err = MSP_E_UNSUPPORTED;

	if (wanted != CLI_ENGINE_PTRACE)
		err = open_engine(r, MSP_ENGINE_BPF, why, sizeof(why));
	if (err && wanted != CLI_ENGINE_BPF && !r->options->all) {
		if (wanted == CLI_ENGINE_AUTO)
			cli_note("BPF cannot be used (%s): each sample stops its thread for a "
				 "moment instead",
				 why);
		err = open_engine(r, MSP_ENGINE_PTRACE, second, sizeof(second));
	}
	if (!err)
		return 0;
	cli_error("cannot start sampling", second[0] ? second : why,
		  err == MSP_E_PERMISSION ? "sudo moonspy record ..." : "moonspy doctor");
	return exit_code(err);
}

static int attach_pid(struct record *r, pid_t pid)
{
	int err = msp_recorder_add(r->recorder, pid);
	struct rlimit files = {0};

	if (!err)
		return 0;
	if (err == MSP_E_GONE || err == MSP_E_NOT_FOUND || err == MSP_E_PERMISSION)
		return cli_process_error("record", pid, err == MSP_E_NOT_FOUND ? MSP_E_GONE : err);
	getrlimit(RLIMIT_NOFILE, &files);
	if (err == MSP_E_LIMIT)
		cli_error(cli_fmt("cannot sample process %d", pid),
			  cli_fmt("it has too many threads for the %llu files that may be open",
				  (unsigned long long)files.rlim_cur),
			  "ulimit -n 100000");
	else
		cli_error(cli_fmt("cannot sample process %d", pid), msp_strerror(err),
			  cli_fmt("moonspy doctor -p %d", pid));
	return exit_code(err);
}

static int attach_all(struct record *r)
{
	int err = msp_recorder_add_all(r->recorder);

	if (!err)
		return 0;
	cli_error("cannot sample the whole machine", msp_strerror(err),
		  err == MSP_E_PERMISSION ? "sudo moonspy record -a" : "moonspy doctor");
	return exit_code(err);
}

/* New mappings have to be known before the code in them is sampled; little is to be done, but soon. */
static void be_prompt(void)
{
	setpriority(PRIO_PROCESS, 0, -10);
}

static int start_command(struct record *r)
{
	int rc = cli_launch_start(&r->launch, r->options->command), err;

	if (rc)
		return rc;
	r->launched = true;
	be_prompt(); /* not the command: it was forked before */
	cli_signals_install(r->launch.pid);
	err = msp_recorder_add_launched(r->recorder, r->launch.pid);
	if (err) {
		cli_error(cli_fmt("cannot sample %s", r->options->command[0]), msp_strerror(err),
			  "moonspy doctor");
		return exit_code(err);
	}
	return cli_launch_go(&r->launch, r->options->command);
}

/* A process that ends while a list of several is attached is no error; a single one is. */
static int attach(struct record *r)
{
	int rc, first = 0;
	size_t attached = 0;

	cli_files_raise();
	if (r->options->command)
		return start_command(r);
	be_prompt();
	cli_signals_install(0);
	if (r->options->all)
		return attach_all(r);
	for (size_t i = 0; i < r->pid_count; i++) {
		rc = attach_pid(r, r->pids[i]);
		attached += !rc;
		first = first ? first : rc;
	}
	return attached ? 0 : first;
}

/* ---- Running ---- */

static void show_progress(struct record *r)
{
	const struct msp_quality *q;
	char count[CLI_COUNT_SIZE];

	if (!cli_progress_wanted())
		return;
	msp_recorder_update_quality(r->recorder);
	q = msp_profile_quality(msp_recorder_profile(r->recorder));
	cli_progress("%.0f s, %s samples, %.1f %% whole, %llu lost (Ctrl-C ends)", elapsed(r),
		     cli_count(q->samples, count),
		     q->samples ? 100.0 * q->whole / q->samples : 100.0,
		     (unsigned long long)q->lost);
}

/* The command has the signal too; its last moments belong to the profile, but it may ignore it. */
static bool command_goes_on(struct record *r)
{
	if (!r->signalled)
		r->signalled = elapsed(r);
	return cli_signals_seen(NULL) > 1 || elapsed(r) - r->signalled > LAST_MOMENTS;
}

static bool finished(struct record *r)
{
	if (cli_signals_seen(NULL))
		return !r->launched || cli_launch_ended(&r->launch) || command_goes_on(r);
	if (r->options->duration_ns && elapsed(r) * 1e9 >= r->options->duration_ns)
		return true;
	if (r->launched)
		return cli_launch_ended(&r->launch) &&
		       !(r->options->subprocesses && msp_recorder_alive(r->recorder));
	return !r->options->all && !msp_recorder_alive(r->recorder);
}

/* How long until the next look at the clock. */
static int step_ms(const struct record *r)
{
	double left = r->options->duration_ns / 1e9 - elapsed(r);

	if (!r->options->duration_ns || left * 1000 > STEP_MS)
		return STEP_MS;
	return left > 0 ? left * 1000 + 1 : 1;
}

/* After a failure too there may be samples to be kept. */
static int run(struct record *r)
{
	int err = 0, rc;

	while (!finished(r)) {
		err = msp_recorder_poll(r->recorder, step_ms(r));
		if (err)
			break;
		show_progress(r);
	}
	cli_progress_clear();
	if (err)
		cli_error("sampling failed", msp_strerror(err), "moonspy doctor");
	rc = err ? CLI_FAILED : 0;
	err = msp_recorder_stop(r->recorder);
	if (err && !rc)
		cli_error("the last samples could not be read", msp_strerror(err),
			  "moonspy doctor");
	return rc;
}

/* ---- Ending ---- */

static void set_meta(struct record *r, struct msp_profile *profile)
{
	char text[1024] = "";
	struct tm tm;
	size_t n = 0;

	gmtime_r(&r->wall.tv_sec, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	msp_profile_set_meta(profile, "start", text);
	msp_profile_set_meta(profile, "version", MOONSPY_VERSION);
	msp_profile_set_meta(profile, "event", "cpu");
	text[0] = 0;
	for (char **arg = r->options->command; arg && *arg && n < sizeof(text); arg++)
		n += snprintf(text + n, sizeof(text) - n, "%s%s", n ? " " : "", *arg);
	if (!r->options->command && r->pid_count == 1)
		snprintf(text, sizeof(text), "%s (pid %d)", r->name, r->pids[0]);
	else if (!r->options->command)
		snprintf(text, sizeof(text), "%s", r->name);
	msp_profile_set_meta(profile, "command", text);
}

static void say_what_was_found(const struct record *r)
{
	const char *unheard = msp_recorder_probes_why(r->recorder);

	if (unheard)
		cli_note("the VM's probes were not all heard: %s", unheard);
	if (msp_recorder_refused(r->recorder))
		cli_note("Lua is not shown: %s; please report it with the output of moonspy "
			 "inspect -j",
			 msp_recorder_refused(r->recorder));
	else if (!msp_recorder_builds(r->recorder))
		cli_note("no LuaJIT in %s: its native stacks only",
			 r->options->all ? "any process" : r->name);
}

/* What a process does that uses no CPU. Its first thread stands for all. */
static const char *what_it_does(struct record *r, const char **todo)
{
	struct msp_process_info info = {.size = sizeof(info)};
	pid_t pid = r->pid_count == 1 ? r->pids[0] : 0;
	const char *waited =
		cli_fmt("no thread used the %.3g ms of CPU time that a sample stands for",
			1000.0 / r->options->rate);

	*todo = cli_fmt("moonspy record -d 60s -r %u ...",
			r->options->rate < 999 ? 999 : r->options->rate);
	if (!pid)
		return r->options->all ? "no CPU ran a program" : waited;
	if (msp_process_look(pid, &info))
		return "it ended";
	if (info.state == 'S')
		*todo = cli_fmt("moonspy dump -p %d", pid);
	if (info.state == 'T') {
		*todo = cli_fmt("kill -CONT %d", pid);
		return "it is stopped, by a signal or with Ctrl-Z";
	}
	return info.state == 't' ? "a debugger holds it" : waited;
}

static int nothing(struct record *r, double seconds)
{
	pid_t denied = msp_recorder_denied(r->recorder);
	const char *why, *todo;

	if (denied)
		return cli_process_error("record", denied, MSP_E_PERMISSION);
	why = what_it_does(r, &todo);
	cli_error(cli_fmt("0 samples: the %s used no CPU in %.1f s",
			  r->options->all ? "machine" : "process", seconds),
		  why, todo);
	return CLI_NOTHING;
}

/* What came when, in ms since the start. */
static void start_stats(const struct record *r)
{
	char text[CLI_COUNT_SIZE];
	const struct msp_recorder_times *t = msp_recorder_times(r->recorder);
	double start = r->start.tv_sec * 1e3 + r->start.tv_nsec / 1e6;

	if (msp_recorder_stops(r->recorder))
		fprintf(stderr, "%12s  stops of a thread\n",
			cli_count(msp_recorder_stops(r->recorder), text));
	fprintf(stderr, "%12.1f  ms until the engine was ready\n", t->engine / 1e6 - start);
	if (r->pid_count)
		fprintf(stderr, "%12.1f  ms until the tables were ready\n",
			t->tables / 1e6 - start);
	if (t->first_sample)
		fprintf(stderr, "%12.1f  ms to the first sample\n", t->first_sample / 1e6 - start);
}

static int save(struct record *r)
{
	struct msp_profile *profile = msp_recorder_profile(r->recorder);
	struct msp_quality quality = *msp_profile_quality(profile);
	int rc;

	say_what_was_found(r);
	if (!quality.samples)
		return nothing(r, quality.seconds);
	if (msp_recorder_denied(r->recorder))
		cli_note("threads of process %d are missing: they must not be stopped",
			 msp_recorder_denied(r->recorder));
	set_meta(r, profile);
	r->output_open = false; /* cli_save() ends it */
	rc = cli_save(&r->output, r->format, profile, &r->options->view);
	if (r->options->stats) {
		cli_profile_stats(profile);
		start_stats(r);
	}
	cli_quality_line(&quality);
	return rc;
}

/* The end waits for that. */
static void say_what_is_left(struct record *r)
{
	size_t processes, left = msp_recorder_probes_left(r->recorder, 1000, &processes);

	if (left)
		cli_note("taking %zu probes out of %zu processes", left, processes);
}

static int record(struct record *r)
{
	int rc = find_targets(r), saved;

	if (!rc)
		rc = open_output(r);
	if (!rc)
		rc = open_recorder(r);
	if (!rc)
		rc = attach(r);
	/* Getting ready takes seconds on a slow machine: the duration is of what follows. */
	clock_gettime(CLOCK_MONOTONIC, &r->begin);
	clock_gettime(CLOCK_REALTIME, &r->wall);
	if (rc)
		return rc;
	rc = run(r);
	saved = save(r);
	say_what_is_left(r);
	return rc ? rc : saved;
}

int cmd_record(const struct msp_options *options)
{
	struct record r = {.options = options};
	int rc, status;

	clock_gettime(CLOCK_MONOTONIC, &r.start);
	rc = record(&r);
	if (r.output_open)
		cli_output_abandon(&r.output);
	if (r.launched && (!rc || rc == CLI_NOTHING)) {
		/* With a duration the command goes on, and so do we: its status is ours. */
		status = cli_launch_wait(&r.launch);
		rc = status ? status : rc;
	} else if (r.launched) {
		cli_launch_abandon(&r.launch);
	}
	msp_recorder_close(r.recorder);
	free(r.pids);
	return rc;
}

/* SPDX-License-Identifier: MIT */
#include "cli/live.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cachedir.h"
#include "cli/messages.h"
#include "cli/sudo.h"
#include "output/buffer.h"

static int out_of_memory(void)
{
	cli_error("out of memory", strerror(ENOMEM), "ulimit -v unlimited");
	return CLI_FAILED;
}

int cli_registry_open(struct msp_target **out)
{
	char dir[512];
	struct msp_target_options options = {.size = sizeof(options),
					     .cache_dir = cli_cache_dir(dir, sizeof(dir))};

	return msp_target_new(&options, out) < 0 ? out_of_memory() : 0;
}

static int not_permitted(const char *verb, int pid)
{
	struct msp_process_info info = {.size = sizeof(info)};
	char user[64], proc[32];
	struct stat st;

	msp_process_look(pid, &info);
	if (info.tracer) {
		cli_error(cli_fmt("process %d is being traced", pid),
			  cli_fmt("process %d, a debugger or strace, holds it", (int)info.tracer),
			  cli_fmt("end process %d first", (int)info.tracer));
		return CLI_PERMISSION;
	}
	snprintf(proc, sizeof(proc), "/proc/%d", pid);
	if (stat(proc, &st) < 0)
		st.st_uid = 0;
	cli_error(cli_fmt("not permitted to look into process %d", pid),
		  cli_fmt("it runs as %s, or the system restricts tracing",
			  cli_user_name(st.st_uid, user, sizeof(user))),
		  geteuid() ? cli_fmt("sudo moonspy %s -p %d", verb, pid) : "moonspy doctor");
	return CLI_PERMISSION;
}

static int gone(int pid, const char *why)
{
	cli_error(cli_fmt("there is no process %d", pid), why, "moonspy list");
	return CLI_FAILED;
}

int cli_process_error(const char *verb, pid_t process, int error)
{
	int pid = process;

	switch (error) {
	case MSP_E_GONE:
		return gone(pid, cli_fmt("/proc/%d is not there", pid));
	case MSP_E_PERMISSION:
		return not_permitted(verb, pid);
	case MSP_E_BUSY:
		cli_error(cli_fmt("process %d does not stop", pid),
			  "all its threads are in uninterruptible sleep",
			  cli_fmt("cat /proc/%d/stack", pid));
		return CLI_FAILED;
	default:
		cli_error(cli_fmt("cannot look into process %d", pid), msp_strerror(error),
			  cli_fmt("moonspy doctor -p %d", pid));
		return CLI_FAILED;
	}
}

int cli_live_error(const char *verb, const struct cli_live *live, int error)
{
	if (error == MSP_E_GONE)
		return gone(live->pid, "it ended meanwhile");
	return cli_process_error(verb, live->pid, error);
}

static int not_opened(const char *verb, pid_t pid, int error)
{
	if (error != MSP_E_UNSUPPORTED)
		return cli_process_error(verb, pid, error);
	cli_error(cli_fmt("process %d is a 32-bit program", (int)pid),
		  "only 64-bit programs are supported", cli_fmt("perf record -g -p %d", (int)pid));
	return CLI_FAILED;
}

int cli_live_open(const char *verb, pid_t pid, struct msp_target *registry, struct cli_live *out)
{
	struct msp_target_options options = {.size = sizeof(options), .share = registry};
	int r, rc;

	*out = (struct cli_live){.pid = pid};
	if (msp_target_new(&options, &out->target) < 0)
		return out_of_memory();
	r = msp_target_open_pid(out->target, pid);
	if (!r) {
		out->pid = msp_target_info(out->target)->pid; /* it may have been a thread's */
		return 0;
	}
	rc = not_opened(verb, pid, r);
	cli_live_close(out);
	return rc;
}

static int cannot_read(const char *path, const char *why)
{
	cli_error(cli_fmt("cannot read %s", path), why, cli_fmt("file %s", path));
	return CLI_FAILED;
}

int cli_live_open_core(const char *path, const char *exe, const char *sysroot,
		       struct msp_target *registry, struct cli_live *out)
{
	struct msp_target_options options = {
		.size = sizeof(options), .share = registry, .exe = exe, .sysroot = sysroot};
	int fd, rc;

	*out = (struct cli_live){.core = true};
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		cli_error(cli_fmt("cannot read %s", path), strerror(errno),
			  cli_fmt("ls -l %s", path));
		return errno == EACCES ? CLI_PERMISSION : CLI_FAILED;
	}
	if (msp_target_new(&options, &out->target) < 0) {
		close(fd);
		return out_of_memory();
	}
	if (!msp_target_open_core(out->target, fd)) {
		out->pid = msp_target_info(out->target)->pid;
		return 0;
	}
	rc = cannot_read(path, msp_target_error(out->target));
	cli_live_close(out);
	return rc;
}

static void note_gap(const struct msp_gap *gap)
{
	char digits[CLI_COUNT_SIZE];

	switch (gap->kind) {
	case MSP_GAP_FILE:
		cli_note("missing: %s%s%s: %s", gap->name, gap->build_id ? ", build id " : "",
			 gap->build_id ? gap->build_id : "", gap->why);
		return;
	case MSP_GAP_MEMORY:
		cli_note("missing: %s bytes of memory: %s", cli_count(gap->bytes, digits),
			 gap->why);
		return;
	case MSP_GAP_NOTES:
		cli_note("missing: %s", gap->why);
		return;
	}
}

size_t cli_live_note_gaps(const struct cli_live *live)
{
	size_t unchecked = msp_target_info(live->target)->unchecked, count = 0;
	const struct msp_gap *gap;

	for (; (gap = msp_target_gap(live->target, count)); count++)
		note_gap(gap);
	if (unchecked)
		cli_note("%zu files were taken by their paths: the core does not say which builds "
			 "they were",
			 unchecked);
	return count;
}

void cli_live_close(struct cli_live *live)
{
	msp_target_free(live->target);
	*live = (struct cli_live){0};
}

const char *cli_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

const char *cli_machine_name(int machine)
{
	return machine == MSP_MACHINE_X86_64  ? "x86-64"
	       : machine == MSP_MACHINE_ARM64 ? "arm64"
					      : "?";
}

const char *cli_build_text(const struct msp_build *build, char *buf, size_t size)
{
	if (build)
		snprintf(buf, size, "%s (%s, %s%s)", build->version ? build->version : "LuaJIT",
			 cli_base_name(build->object), cli_machine_name(build->machine),
			 build->gc64 ? ", GC64" : "");
	else
		snprintf(buf, size, "LuaJIT (of a file that is mapped no more)");
	return buf;
}

const char *cli_proof_text(const struct cli_live *live, size_t i, char *buf, size_t size)
{
	const struct msp_check *check;

	if (msp_target_vm(live->target, i)->proved) {
		snprintf(buf, size, "layout proved by code analysis and live memory");
		return buf;
	}
	for (size_t n = 0; (check = msp_target_check(live->target, i, n)); n++) {
		if (check->result != MSP_CHECK_FAILED)
			continue;
		snprintf(buf, size, "layout not proved: not true that %s (%s)", check->text,
			 check->detail);
		return buf;
	}
	snprintf(buf, size, "layout not proved");
	return buf;
}

void cli_put_text(const char *text)
{
	struct msp_buffer buffer = {0};

	msp_buffer_escaped(&buffer, text, "");
	fwrite(buffer.data, 1, buffer.size, stdout); /* not flushed: there may be many */
	msp_buffer_free(&buffer);
}

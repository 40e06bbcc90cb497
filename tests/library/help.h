/* SPDX-License-Identifier: MIT */
/* A Lua program to look into. Tests of the library know nothing but its public headers. */
#ifndef LIBRARY_HELP_H
#define LIBRARY_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the above first */
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <moonspy/moonspy.h>

/* Says "ready" and then stays in inner() called by outer(), beside a coroutine that waits. */
#define PROGRAM \
	"local function inner(n)\n" \
	"  local name, list = 'moon', {10, 20, key = 'value', f = string.rep}\n" \
	"  while true do for i = 1, 1e6 do n = n + i % 7 end end\n" \
	"  return name, list\n" \
	"end\n" \
	"local function waits(a) local kept = a; coroutine.yield(kept) return kept end\n" \
	"CO = coroutine.create(waits)\n" \
	"coroutine.resume(CO, 42)\n" \
	"local function outer() local x = inner(0) return x end\n" \
	"io.write('ready\\n') io.flush()\n" \
	"outer()\n"

struct program {
	pid_t pid;
};

/* Runs luajit with that option ("-joff", "-jon") and a script that says when it is ready, until stop_program(). */
static inline void start_script(struct program *program, const char *option, const char *script)
{
	int out[2];
	char line[8];

	assert_int_equal(pipe(out), 0);
	program->pid = fork();
	if (program->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		execlp("luajit", "luajit", option, "-e", script, NULL);
		_exit(127);
	}
	close(out[1]);
	if (read(out[0], line, sizeof(line)) < 6) {
		waitpid(program->pid, NULL, 0);
		printf("SKIP: luajit is not installed\n");
		exit(77);
	}
	close(out[0]);
}

static inline void start_program(struct program *program, const char *option)
{
	start_script(program, option, PROGRAM);
}

static inline void stop_program(struct program *program)
{
	kill(program->pid, SIGKILL);
	waitpid(program->pid, NULL, 0);
}

static inline struct msp_target *open_target(pid_t pid)
{
	struct msp_target *target;

	assert_int_equal(msp_target_new(NULL, &target), 0);
	if (msp_target_open_pid(target, pid) < 0)
		fail_msg("%s", msp_target_error(target));
	return target;
}

/* The named frame of that function, leaf first; -1: there is none. */
static inline int frame_called(const struct msp_backtrace *backtrace, const char *name)
{
	const struct msp_frame *frame;

	for (int i = 0; (frame = msp_backtrace_frame(backtrace, (size_t)i)); i++)
		if (frame->name && !strcmp(frame->name, name))
			return i;
	return -1;
}

/* inner() is called by outer(), that by the main chunk, and main() comes last but for its callers. */
static inline void check_stack(struct msp_backtrace *backtrace)
{
	int inner, outer, chunk, start;

	assert_true(msp_backtrace_name(backtrace) > 0);
	if (msp_backtrace_reason(backtrace))
		fail_msg("%s", msp_backtrace_reason(backtrace));
	inner = frame_called(backtrace, "inner");
	outer = frame_called(backtrace, "outer");
	chunk = frame_called(backtrace, "main chunk");
	start = frame_called(backtrace, "_start");
	assert_true(inner >= 0 && inner < outer && outer < chunk && chunk < start);
	assert_int_equal(msp_backtrace_frame(backtrace, (size_t)inner)->defined, 1);
	assert_int_equal(msp_backtrace_frame(backtrace, (size_t)outer)->defined, 9);
	assert_int_equal(msp_backtrace_frame(backtrace, (size_t)outer)->line, 9);
}

/* ---- Leaks: what is in use, after some rounds and after many more ---- */

struct in_use {
	size_t bytes; /* 0: a sanitizer has the heap, and looks for leaks itself */
	int files;
};

static inline struct in_use now_in_use(void)
{
	struct in_use now = {0};
	DIR *dir = opendir("/proc/self/fd");

	while (dir && readdir(dir))
		now.files++;
	if (dir)
		closedir(dir);
#if !defined(__SANITIZE_ADDRESS__) && __GLIBC_PREREQ(2, 33)
	now.bytes = mallinfo2().uordblks + mallinfo2().hblkhd;
#endif
	return now;
}

/* Without the caches of threads (the tests' GLIBC_TUNABLES) it is the same to the byte; they hold up to 250 KB. */
static inline void check_in_use(const struct in_use *before)
{
	struct in_use now = now_in_use();

	print_message("%zu bytes in use, %zu before\n", now.bytes, before->bytes);
	assert_int_equal(now.files, before->files);
	assert_true(now.bytes < before->bytes + (getenv("GLIBC_TUNABLES") ? 4096 : 1 << 19));
}

#endif

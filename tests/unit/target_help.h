/* SPDX-License-Identifier: MIT */
/* Child processes for the tests of src/target. */
#ifndef TARGET_HELP_H
#define TARGET_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the above first */
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "target/target.h"

/* Memory that child and test share. */
struct shared {
	volatile int ready, stop;
	volatile long count, errors;
	volatile long value[64];
	int in[2], out[2]; /* pipes: test to child, child to test */
};

struct child {
	pid_t pid;
	struct shared *shared;
	struct msp_process *process;
};

static inline void nap(void)
{
	struct timespec ts = {.tv_nsec = 1000000};

	nanosleep(&ts, NULL);
}

static inline uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000ull + ts.tv_nsec / 1000;
}

/* Waits up to 10 s for something to become true. */
#define wait_for(condition) \
	do { \
		uint64_t until_ = now_us() + 10000000; \
		while (!(condition) && now_us() < until_) \
			nap(); \
		assert_true(condition); \
	} while (0)

/* Forks a child that runs run() and is ready once that says so. */
static inline void spawn(struct child *child, void (*run)(struct shared *))
{
	struct shared *shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(shared, MAP_FAILED);
	assert_int_equal(pipe2(shared->in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(shared->out, O_CLOEXEC), 0);
	child->shared = shared;
	child->pid = fork();
	if (child->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(shared);
		_exit(0);
	}
	wait_for(shared->ready);
	assert_int_equal(msp_process_open(child->pid, &child->process), 0);
}

static inline void finish(struct child *child)
{
	msp_process_close(child->process);
	if (child->pid > 0) {
		kill(child->pid, SIGKILL);
		waitpid(child->pid, NULL, 0);
	}
	for (int i = 0; i < 2; i++) {
		close(child->shared->in[i]);
		close(child->shared->out[i]);
	}
	munmap(child->shared, sizeof(*child->shared));
}

static inline void sleep_forever(struct shared *shared)
{
	shared->ready = 1;
	for (;;)
		pause();
}

/* Runs test() in a child of its own, where it may give up rights; 0 if all is well. */
static inline int in_child(int (*test)(void *), void *arg)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(test(arg));
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

#endif

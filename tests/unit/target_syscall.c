// SPDX-License-Identifier: MIT
/*
 * A thread in a system call: its pc is behind the instruction, which in the
 * trampoline that returns from a signal handler is behind the function's end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "target/snapshot.h"
#include "target/space.h"
#include "target/target.h"

static void on_signal(int number)
{
	(void)number;
}

static void __attribute__((noreturn)) child(void)
{
	signal(SIGUSR1, on_signal);
	ptrace(PTRACE_TRACEME, 0, 0, 0);
	raise(SIGSTOP);
	raise(SIGUSR1);
	_exit(0);
}

static struct user_regs_struct registers(pid_t pid)
{
	struct user_regs_struct set;
	struct iovec io = {&set, sizeof(set)};

	assert_int_equal(ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &io), 0);
	return set;
}

/* A child that has just called rt_sigreturn(). */
static pid_t stopped_in_sigreturn(struct user_regs_struct *set)
{
	pid_t pid = fork();
	int status, signal;

	if (pid == 0)
		child();
	do {
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSTOPPED(status));
		*set = registers(pid);
		signal = WSTOPSIG(status) == SIGUSR1 ? SIGUSR1 : 0;
		if (WSTOPSIG(status) == SIGTRAP && set->orig_rax == SYS_rt_sigreturn)
			return pid;
	} while (ptrace(PTRACE_SYSCALL, pid, 0, signal) == 0);
	fail();
	return 0;
}

struct walked {
	size_t count;
	int error;
};

static struct walked walk(pid_t pid, const struct user_regs_struct *set)
{
	struct msp_images_options opts = {.no_luajit = true};
	struct msp_registers regs;
	struct msp_process *process;
	struct msp_images *images;
	struct msp_walker *walker;
	struct msp_space *space;
	struct msp_stack stack;

	assert_int_equal(msp_registers_from_regset(MSP_ARCH_X86_64, set, sizeof(*set), &regs), 0);
	assert_int_equal(regs.syscall, (int64_t)set->orig_rax >= 0);
	assert_int_equal(msp_images_new(&opts, &images), 0);
	assert_int_equal(msp_process_open(pid, &process), 0);
	assert_int_equal(msp_space_new(images, process, &space), 0);
	assert_true(msp_space_refresh(space) >= 0);
	assert_int_equal(msp_walker_new(space, &walker), 0);
	msp_walker_walk(walker, NULL, &regs, &stack);
	msp_walker_free(walker);
	msp_space_free(space);
	msp_process_close(process);
	msp_images_free(images);
	return (struct walked){stack.count, stack.error};
}

static void returning_from_a_handler(void **state)
{
	struct user_regs_struct set;
	struct walked walked;
	pid_t pid;

	(void)state;
#ifndef __x86_64__
	skip();
#endif
	pid = stopped_in_sigreturn(&set);
	set.rbp = 0; /* a register like others in code without frame pointers */
	walked = walk(pid, &set);
	assert_int_equal(walked.error, MSP_ERR_NONE);
	assert_true(walked.count > 4); /* trampoline, raise(), child(), ..., main(), _start() */
	/* The same place without a call of the kernel: nothing is known there, and that is said. */
	set.orig_rax = -1;
	walked = walk(pid, &set);
	assert_int_equal(walked.error, MSP_ERR_NO_RULE);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(returning_from_a_handler),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

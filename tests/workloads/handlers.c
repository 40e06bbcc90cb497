/* SPDX-License-Identifier: MIT */
/*
 * Loaded into any program (LD_PRELOAD): it then survives SIGUSR1 and SIGUSR2, whose
 * handlers make a system call, that of SIGUSR2 on a stack of its own.
 */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile long signals;

static void on_signal(int number)
{
	signals += syscall(SYS_getppid) + number;
}

__attribute__((constructor)) static void handle_signals(void)
{
	static char room[65536];
	stack_t own = {.ss_sp = room, .ss_size = sizeof(room)};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	on_signal(0); /* finds its function now */
	sigaltstack(&own, NULL);
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR2, &action, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * usage: signals LIBRARY SCRIPT COUNT. Helpers in a signal handler that interrupts a VM at any instruction, COUNT times:
 * whole stacks, or a defined error. Meanwhile another thread lists the VMs and asks for addresses that mean nothing.
 * Says so at each 100,000.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "moments.h"

static struct kit kit;
static struct ljvm_memory own;
static struct kit_counts counts;
static timer_t timer;
static unsigned long wanted, handled;

/* The timer is set once more: whatever the load of the machine is, the VM has run a while when it is interrupted. */
static void on_signal(int number, siginfo_t *info, void *context)
{
	struct ljvm_registers registers;
	int saved = errno;

	(void)number;
	(void)info;
	registers_of(context, &registers);
	kit_walk(&kit, &own, &registers, &counts);
	if (__atomic_add_fetch(&handled, 1, __ATOMIC_RELEASE) < wanted)
		moment_soon(timer);
	errno = saved;
}

/* Whatever they are asked, from a thread that runs no VM. */
static void ask_nonsense(unsigned int *seed)
{
	struct ljvm_function function;
	struct ljvm_trace trace;
	struct ljvm_vm vm;
	uint64_t g = 0, address = (uint64_t)(uintptr_t)&vm + (uint64_t)rand_r(seed) * 8 -
				  ((uint64_t)1 << 33);

	if (kit.helpers->trace && kit.helpers->vm && kit.helpers->vm(&own, 0, &vm) == 0)
		kit.helpers->trace(&own, vm.g, address, &trace);
	kit.helpers->owner(&own, address, &g, &trace);
	kit.helpers->function(&own, address & ~(uint64_t)3, (int32_t)rand_r(seed), &function);
}

static void *asker(void *unused)
{
	const struct timespec pause = {0, 200000};
	unsigned int seed = 1;

	while (__atomic_load_n(&handled, __ATOMIC_ACQUIRE) < wanted) {
		ask_nonsense(&seed);
		nanosleep(&pause, NULL);
	}
	return unused;
}

/* The list of VMs has L's alone, or, NULL, none. Builds without the list have no helper for it. */
static void check_list(const void *L)
{
	struct ljvm_vm vm;

	if (!kit.helpers->vm)
		return;
	if (L && (kit.helpers->vm(&own, 0, &vm) < 0 || vm.main != (uint64_t)(uintptr_t)L))
		kit_die("the VM is not in the list");
	if (kit.helpers->vm(&own, L ? 1 : 0, &vm) != LJVM_E_NONE)
		kit_die("a VM in the list that is not there");
}

/* Runs the script until there were enough. */
static void run(void *L, const char *script)
{
	unsigned long so_far, said = 0;

	while ((so_far = __atomic_load_n(&handled, __ATOMIC_ACQUIRE)) < wanted) {
		kit_run(&kit, L, script, 200);
		if (so_far / 100000 > said) {
			said = so_far / 100000;
			printf("signals: %lu so far\n", so_far);
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
	pthread_t thread;
	void *L;

	if (argc != 4)
		kit_die("usage: signals LIBRARY SCRIPT COUNT");
	kit_open(&kit, argv[1]);
	kit_graph_read(argv[2]);
	wanted = strtoul(argv[3], NULL, 10);
	kit_reader(&kit, &own);
	check_list(NULL);
	L = kit.newstate();
	kit.openlibs(L);
	check_list(L);
	sigaction(SIGUSR1, &action, NULL);
	if (pthread_create(&thread, NULL, asker, NULL) != 0)
		kit_die("no thread");
	moment_timer(&timer);
	moment_soon(timer);
	run(L, argv[2]);
	pthread_join(thread, NULL);
	kit.close(L);
	check_list(NULL);
	kit_judge(&counts, "signals");
	if (!counts.interpreter || (kit.constants->jit && !counts.trace))
		kit_die("never seen: the interpreter, or a trace");
	return 0;
}

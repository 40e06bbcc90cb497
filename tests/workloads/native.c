/* SPDX-License-Identifier: MIT */
/*
 * usage: native SECONDS
 * A program without Lua whose call chains are known, compiled without frame
 * pointers: plain calls, a stack that grows by alloca, a realigned stack, a
 * signal handler that interrupts work, and threads.
 */
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))
/* Keeps a call from becoming a jump. */
#define AFTER_CALL() __asm__ volatile("" ::: "memory")

static volatile uint64_t sink;

static NOINLINE double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static NOINLINE void spin(unsigned n)
{
	uint64_t x = sink;

	for (unsigned i = 0; i < n; i++)
		x = x * 6364136223846793005u + i;
	sink = x;
}

static NOINLINE void gamma_call(unsigned n)
{
	spin(n);
	AFTER_CALL();
}

static NOINLINE void beta_call(unsigned n)
{
	char pad[240];

	memset(pad, (int)n, sizeof(pad));
	__asm__ volatile("" ::"r"(pad) : "memory");
	gamma_call(n);
	AFTER_CALL();
}

static NOINLINE void alpha_call(unsigned n)
{
	beta_call(n);
	AFTER_CALL();
}

/* The frame's size is known only at run time. */
static NOINLINE void grown_call(unsigned n)
{
	char *space = alloca(64 + n % 4096);

	space[0] = (char)n;
	__asm__ volatile("" ::"r"(space) : "memory");
	gamma_call(n);
	AFTER_CALL();
}

static NOINLINE void aligned_call(unsigned n)
{
	_Alignas(128) char space[256];

	space[0] = (char)n;
	__asm__ volatile("" ::"r"(space) : "memory");
	gamma_call(n);
	AFTER_CALL();
}

static NOINLINE void handler_work(unsigned n)
{
	spin(n + 1);
	AFTER_CALL();
}

static void on_signal(int number)
{
	(void)number;
	handler_work(2000000);
	AFTER_CALL();
}

/* Work that a timer interrupts every 2 ms of CPU time. */
static NOINLINE void interrupted_call(unsigned n)
{
	struct itimerval on = {{0, 2000}, {0, 2000}}, off = {{0, 0}, {0, 0}};

	setitimer(ITIMER_VIRTUAL, &on, NULL);
	gamma_call(n * 10);
	setitimer(ITIMER_VIRTUAL, &off, NULL);
	AFTER_CALL();
}

static NOINLINE void thread_work(double until)
{
	while (cpu_seconds() < until)
		alpha_call(200000);
	AFTER_CALL();
}

static void *thread_main(void *seconds)
{
	thread_work(*(double *)seconds);
	AFTER_CALL();
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 2, half = seconds / 4;
	struct sigaction action = {.sa_handler = on_signal};
	pthread_t threads[2];

	sigaction(SIGVTALRM, &action, NULL);
	while (cpu_seconds() < seconds / 2) {
		alpha_call(400000);
		grown_call(400001);
		aligned_call(400000);
		interrupted_call(400000);
	}
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, thread_main, &half);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("done %llu\n", (unsigned long long)sink);
	return 0;
}

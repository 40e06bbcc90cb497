/* SPDX-License-Identifier: MIT */
/*
 * usage: field WHAT NUMBER SECONDS [PROGRAM ARGS...]
 * A target that makes it hard to be followed. Each has work() in its stacks.
 *   spin N S       N threads that work all the time
 *   mappings N S   N mappings with code of a file, then work
 *   threads N S    N threads, each busy for 1 ms now and then
 *   churn N S      threads born and dying, N alive at a time, each for 1 ms
 *   exec N S       becomes itself N times, each time after S seconds of work
 *   become 0 S PROGRAM ARGS...   works for S, then becomes PROGRAM
 *   children N S   N children at a time that work for 1 ms each, for S
 *   hidden 0 S     not dumpable, as after a change of the user
 *   calls N S      N threads in a pipe read that is woken every 10 ms; counts calls that ended early
 *   pauses 0 S     measures its own pauses while it works; prints the longest and the 99th percentile
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds;
static int number;
static double started;

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int over(void)
{
	return now(CLOCK_MONOTONIC) - started > seconds;
}

/* Uses the CPU for a time. */
__attribute__((noinline)) static void work(double cpu)
{
	double end = now(CLOCK_THREAD_CPUTIME_ID) + cpu;
	volatile double x = 1;

	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		for (int i = 0; i < 1000; i++)
			x = x * 1.0000001;
}

__attribute__((noinline)) static void work_on(void)
{
	while (!over())
		work(0.005);
}

static void sleep_ms(long ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

/* ---- Threads ---- */

static void *busy_thread(void *arg)
{
	work_on();
	return arg;
}

static void *idle_thread(void *arg)
{
	while (!over()) {
		work(0.001);
		sleep_ms(4 * number); /* together a quarter of a CPU */
	}
	return arg;
}

static void *short_thread(void *arg)
{
	work(0.001);
	return arg;
}

static int with_threads(void *(*fn)(void *))
{
	pthread_attr_t attr;
	pthread_t *thread = calloc((size_t)number, sizeof(*thread));
	int n = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 128 << 10);
	while (thread && n < number && !pthread_create(&thread[n], &attr, fn, NULL))
		n++;
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	free(thread);
	printf("threads %d\n", n);
	return n != number;
}

static int churn(void)
{
	long rounds = 0;

	while (!over()) {
		if (with_threads(short_thread))
			return 1;
		rounds++;
	}
	return 0;
}

/* ---- Processes ---- */

static int children(void)
{
	long count = 0, failed = 0;
	int status;

	while (!over()) {
		for (int i = 0; i < number; i++) {
			pid_t pid = fork();

			if (!pid) {
				work(0.001);
				_exit(0);
			}
			count += pid > 0;
		}
		while (wait(&status) > 0)
			failed += status != 0;
	}
	printf("children %ld failed %ld\n", count, failed);
	return failed != 0;
}

static int exec_self(char **argv)
{
	char left[16];

	work(seconds);
	if (number <= 0) {
		printf("execs done\n");
		return 0;
	}
	snprintf(left, sizeof(left), "%d", number - 1);
	argv[2] = left;
	execv("/proc/self/exe", argv);
	return 1;
}

/* ---- Mappings ---- */

/* Every second page is left free: no two become one. */
static int mappings(void)
{
	int fd = open("/proc/self/exe", O_RDONLY), made = 0;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *room = mmap(NULL, 2 * page * (size_t)number, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	if (fd < 0 || room == MAP_FAILED)
		return 1;
	for (int i = 0; i < number; i++)
		made += mmap(room + 2 * page * (size_t)i, page, PROT_READ | PROT_EXEC,
			     MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED;
	printf("mappings %d\n", made);
	fflush(stdout);
	started = now(CLOCK_MONOTONIC);
	work_on();
	return made != number;
}

/* ---- What a stop does ---- */

static int pipe_fd[2];
static long calls, early;

static void *reader(void *arg)
{
	char byte;

	for (;;) {
		ssize_t n = read(pipe_fd[0], &byte, 1);

		if (n == 1 && byte == 'q')
			return arg;
		__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
		if (n < 0)
			__atomic_add_fetch(&early, 1, __ATOMIC_RELAXED);
		work(0.002);
	}
}

static void *writer(void *arg)
{
	while (!over()) {
		struct timespec t = {.tv_nsec = 10000000};

		early += nanosleep(&t, NULL) != 0;
		if (write(pipe_fd[1], "xxxxxxxx", 8) != 8)
			early++;
	}
	for (int i = 0; i < number; i++)
		if (write(pipe_fd[1], "q", 1) != 1)
			early++;
	return arg;
}

static int blocked_calls(void)
{
	pthread_t thread;
	int rc;

	if (pipe(pipe_fd) || pthread_create(&thread, NULL, writer, NULL))
		return 1;
	rc = with_threads(reader);
	pthread_join(thread, NULL);
	printf("calls %ld early %ld\n", calls, early);
	return rc;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#define MAX_GAPS 1000000

/* Gaps between two looks at the clock, of 5 us and more. */
__attribute__((noinline)) static int pauses(void)
{
	double *gap = calloc(MAX_GAPS, sizeof(*gap)), last = now(CLOCK_MONOTONIC), at, sum = 0;
	size_t n = 0;

	while (gap && !over() && n < MAX_GAPS) {
		at = now(CLOCK_MONOTONIC);
		if (at - last > 5e-6) {
			sum += at - last;
			gap[n++] = at - last;
		}
		last = at;
	}
	if (!gap || !n)
		return 1;
	qsort(gap, n, sizeof(*gap), compare);
	printf("pauses %zu total_ms %.3f median_us %.1f p99_us %.1f max_us %.1f\n", n, sum * 1e3,
	       gap[n / 2] * 1e6, gap[n * 99 / 100] * 1e6, gap[n - 1] * 1e6);
	free(gap);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc >= 4 ? argv[1] : "";

	if (argc < 4)
		return 2;
	number = atoi(argv[2]);
	seconds = atof(argv[3]);
	started = now(CLOCK_MONOTONIC);
	if (!strcmp(what, "spin"))
		return with_threads(busy_thread);
	if (!strcmp(what, "mappings"))
		return mappings();
	if (!strcmp(what, "threads"))
		return with_threads(idle_thread);
	if (!strcmp(what, "churn"))
		return churn();
	if (!strcmp(what, "exec"))
		return exec_self(argv);
	if (!strcmp(what, "children"))
		return children();
	if (!strcmp(what, "calls"))
		return blocked_calls();
	if (!strcmp(what, "pauses"))
		return pauses();
	if (!strcmp(what, "hidden")) {
		prctl(PR_SET_DUMPABLE, 0);
		work_on();
		return 0;
	}
	if (!strcmp(what, "become") && argc > 4) {
		work(seconds);
		execvp(argv[4], argv + 4);
	}
	return 2;
}

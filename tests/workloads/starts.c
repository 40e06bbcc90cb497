/* SPDX-License-Identifier: MIT */
/*
 * usage: starts threads|vfork|spawn|fork SECONDS
 * Starts threads or processes that end at once, until the first thread has used SECONDS of CPU time; prints them.
 */
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *nothing(void *argument)
{
	return argument;
}

__attribute__((noinline)) static void start_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, nothing, NULL))
		abort();
	pthread_join(thread, NULL);
}

static void wait_for(pid_t pid)
{
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		abort();
}

__attribute__((noinline)) static void start_vfork(void)
{
	pid_t pid = vfork();

	if (!pid)
		_exit(0);
	wait_for(pid);
}

__attribute__((noinline)) static void start_fork(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	wait_for(pid);
}

__attribute__((noinline)) static void start_spawn(void)
{
	static char *const argv[] = {"true", NULL};
	pid_t pid;

	if (posix_spawnp(&pid, "true", NULL, NULL, argv, NULL))
		abort();
	wait_for(pid);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*start)(void);
	} ways[] = {{"threads", start_thread},
		    {"vfork", start_vfork},
		    {"spawn", start_spawn},
		    {"fork", start_fork}};
	void (*start)(void) = NULL;
	double seconds = argc > 2 ? atof(argv[2]) : 0;

	for (size_t i = 0; argc > 2 && i < sizeof(ways) / sizeof(ways[0]); i++)
		if (!strcmp(argv[1], ways[i].name))
			start = ways[i].start;
	if (!start) {
		fprintf(stderr, "usage: starts threads|vfork|spawn|fork SECONDS\n");
		return 2;
	}
	while (cpu_seconds() < seconds)
		start();
	printf("first thread %.3f\n", cpu_seconds());
	return 0;
}

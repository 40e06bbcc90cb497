/* SPDX-License-Identifier: MIT */
/*
 * usage: switches switch               two threads hand a byte to and fro; ns a context switch, each half second
 *        switches periodic ON PERIOD SECONDS    busy for ON us of CPU time every PERIOD us; CPU seconds used
 *                                      once there is something to read
 * On one CPU, which whoever starts it chooses.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TURNS 100
#define WINDOWS 4096
#define HALF_SECOND 5e8

static int there[2], back[2];

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *echo(void *arg)
{
	char byte;

	while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
		;
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* ns a switch, of the windows of half a second the lower quartile: others take the CPU in some. */
static double half_second(void)
{
	static double window[WINDOWS];
	double end = now(CLOCK_MONOTONIC) + HALF_SECOND, start;
	size_t n = 0;
	char byte = 0;

	while (n < WINDOWS && (start = now(CLOCK_MONOTONIC)) < end) {
		for (int i = 0; i < TURNS; i++)
			if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
				return 0;
		window[n++] = (now(CLOCK_MONOTONIC) - start) / (2 * TURNS);
	}
	qsort(window, n, sizeof(*window), compare);
	return window[n / 4];
}

static int hand_over(void)
{
	pthread_t thread;

	if (pipe(there) || pipe(back) || pthread_create(&thread, NULL, echo, NULL))
		return 1;
	while (printf("%.0f\n", half_second()) > 0 && !fflush(stdout))
		;
	return 1;
}

static int periodic(double on, double period, double seconds)
{
	double next, end, until;
	struct timespec t;
	char byte;

	if (read(0, &byte, 1) != 1)
		return 1;
	next = now(CLOCK_MONOTONIC);
	end = next + seconds * 1e9;

	while (next < end) {
		until = now(CLOCK_PROCESS_CPUTIME_ID) + on;
		while (now(CLOCK_PROCESS_CPUTIME_ID) < until)
			;
		next += period;
		t.tv_sec = (time_t)(next / 1e9);
		t.tv_nsec = (long)(next - (double)t.tv_sec * 1e9);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	}
	printf("%.3f\n", now(CLOCK_PROCESS_CPUTIME_ID) / 1e9);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "switch"))
		return hand_over();
	if (argc == 5 && !strcmp(argv[1], "periodic"))
		return periodic(atof(argv[2]) * 1e3, atof(argv[3]) * 1e3, atof(argv[4]));
	return 2;
}

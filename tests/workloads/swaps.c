/* SPDX-License-Identifier: MIT */
/*
 * usage: swaps SECONDS FILE FILE
 * Opens two libraries of equal size (swapped.c) in turn, for 10 ms of work each: the second comes to lie
 * where the first was. Ends with 1 if they never lay at one address.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Who calls tells which library it is. */
#define RUN(name) \
	static __attribute__((noinline, noclone)) void run_##name(unsigned (*work)(unsigned)) \
	{ \
		double until = now(CLOCK_PROCESS_CPUTIME_ID) + 0.01; \
		while (now(CLOCK_PROCESS_CPUTIME_ID) < until) \
			work(20000); \
		__asm__ volatile("" ::: "memory"); \
	}

RUN(first)
RUN(second)

int main(int argc, char **argv)
{
	double end = now(CLOCK_MONOTONIC) + (argc > 1 ? atof(argv[1]) : 1);
	void *before = NULL;
	int turn = 0, same = 0;

	if (argc < 4) {
		fprintf(stderr, "usage: swaps SECONDS FILE FILE\n");
		return 2;
	}
	for (; now(CLOCK_MONOTONIC) < end; turn++) {
		void *handle = dlopen(argv[2 + turn % 2], RTLD_NOW | RTLD_LOCAL), *at;
		unsigned (*work)(unsigned) = NULL;

		if (handle)
			work = (unsigned (*)(unsigned))dlsym(handle, "swapped");
		if (!work) {
			fprintf(stderr, "swaps: %s\n", dlerror());
			return 1;
		}
		at = dlsym(handle, "swapped_page");
		same += turn && at == before;
		before = at;
		(turn % 2 ? run_second : run_first)(work);
		dlclose(handle);
	}
	fprintf(stderr, "swaps: %d turns, %d at the address of the one before\n", turn, same);
	return same < turn / 2;
}

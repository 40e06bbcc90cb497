/* SPDX-License-Identifier: MIT */
/*
 * usage: comes LIBRARY SCRIPT: waits for a line with a number, makes and closes as many VMs and makes one more, which stays and runs the
 * script; tells by probes of its own twenty times as many lies of each kind; runs the script in that VM again; prints how many VMs it
 * has made and closed, and lies told; and so on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kit.h"
#include "../../instrument/vm/ljvm_probes.h"

/* Of VMs where there are none: at all kinds of addresses, and in the program's own memory. */
static void lie(long n)
{
	static uint64_t memory[512];

	for (long i = 0; i < n; i++) {
		uint64_t g =
			i & 1 ? (uint64_t)(uintptr_t)&memory[i % 512] : (uint64_t)i << (i % 64);

		LJVM_PROBE2("vm_created", g, g + 8);
		LJVM_PROBE6("trace_stop", g, i, g, g, g, g);
	}
}

int main(int argc, char **argv)
{
	struct kit kit;
	char line[32];
	void *L = NULL;

	if (argc != 3)
		kit_die("usage: comes LIBRARY SCRIPT");
	kit_open(&kit, argv[1]);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		long n = strtol(line, NULL, 10);

		for (long i = 0; i <= n; i++) {
			L = kit.newstate();
			if (!L)
				kit_die("no VM");
			kit.openlibs(L);
			if (i < n)
				kit.close(L);
		}
		kit_run(&kit, L, argv[2], n);
		lie(20 * n);
		kit_run(&kit, L, argv[2], n);
		/* for samples: without one there is no profile */
		for (clock_t began = clock(); clock() - began < CLOCKS_PER_SEC / 5;)
			;
		printf("%ld made\n%ld closed\n%ld lies\n0 done\n", n + 1, n, 40 * n);
		fflush(stdout);
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * usage: comes LIBRARY: waits for a line with a number, makes and closes as many VMs and makes one more, which stays; prints how
 * many it has made and closed; and so on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kit.h"

int main(int argc, char **argv)
{
	struct kit kit;
	char line[32];
	void *L;

	if (argc != 2)
		kit_die("usage: comes LIBRARY");
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
		/* for samples: without one there is no profile */
		for (clock_t began = clock(); clock() - began < CLOCKS_PER_SEC / 5;)
			;
		printf("%ld made\n%ld closed\n0 done\n", n + 1, n);
		fflush(stdout);
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * usage: oracle [options] PROGRAM ARGS...
 *   -n STEPS      in all [200000]
 *   -b STEPS      in a row; then the process runs freely for a while [4000]
 *   -f MS         at most how long it runs freely [12]
 *   -w MS         how much CPU time it has before: it has then loaded its libraries and entered its script [60]
 *   -k STEPS      every how many steps BPF is asked too; 0: never [997]
 *   -d STEPS      every how many steps a core file is asked too; 0: never [19940]
 *   -s STEPS      every how many steps a signal comes, SIGUSR1 or SIGUSR2; 0: never [0]
 *   -p FILE       a library that is loaded into the program
 *   -o FILE       every distinct stack with names, as json: for tests/e2e/check.py
 *   -c FILE       adds the interpreter's instructions that were seen to those in FILE
 *   -t TEXT       names the line of figures
 *   -u            lists the interpreter's instructions that were not seen (with -c: in no run)
 *   -v            prints faults that were printed already, and marked stacks
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "oracle.h"
#include "oracle_run.h"

static bool parse(struct oracle_options *o, int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "+n:b:f:w:k:d:s:p:o:c:t:uv")) != -1) {
		switch (c) {
		case 'n':
			o->steps = strtoull(optarg, NULL, 0);
			break;
		case 'b':
			o->burst = strtoull(optarg, NULL, 0);
			break;
		case 'f':
			o->free_ms = (unsigned int)strtoul(optarg, NULL, 0);
			break;
		case 'w':
			o->start_ms = (unsigned int)strtoul(optarg, NULL, 0);
			break;
		case 'k':
			o->kernel_every = strtoull(optarg, NULL, 0);
			break;
		case 'd':
			o->core_every = strtoull(optarg, NULL, 0);
			break;
		case 's':
			o->signal_every = strtoull(optarg, NULL, 0);
			break;
		case 'p':
			o->preload = optarg;
			break;
		case 'o':
			o->json = optarg;
			break;
		case 'c':
			o->coverage = optarg;
			break;
		case 't':
			o->title = optarg;
			break;
		case 'u':
			o->unseen = true;
			break;
		case 'v':
			o->verbose = true;
			break;
		default:
			return false;
		}
	}
	o->argv = argv + optind;
	return optind < argc && o->steps && o->burst;
}

int main(int argc, char **argv)
{
	struct oracle_options opts = {.steps = 200000,
				      .burst = 4000,
				      .free_ms = 12,
				      .start_ms = 60,
				      .kernel_every = 997,
				      .core_every = 19940,
				      .title = ""};

	if (!parse(&opts, argc, argv)) {
		fprintf(stderr,
			"usage: oracle [-n STEPS] [-b STEPS] [-f MS] [-w MS] [-k STEPS] "
			"[-d STEPS] [-s STEPS] [-p FILE] [-o FILE] [-c FILE] [-t TEXT] [-u] [-v] "
			"PROGRAM ARGS...\n");
		return 2;
	}
	return oracle_run(&opts);
}

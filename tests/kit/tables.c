/* SPDX-License-Identifier: MIT */
/*
 * usage: tables LIBRARY SCRIPT ROUNDS. The tables of traces of a LuaJIT that also records its traces for the tests
 * (tests/traces/truth_record.c): for every byte of code of each trace that is there in the end, the bytecode positions,
 * with inlined frames, are those that were recorded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kit.h"

#define MOST_TRACES 1000
#define MOST_FRAMES 64

static struct kit kit;
static struct ljvm_memory own;
static long last_at[MOST_TRACES]; /* where in the file what holds of a trace begins */
static unsigned long judged, same_functions, same_places, unknown, traces;

/* A line "range OFFSET END PROTO:POS ...", against the table, at both ends. */
static void check_range(const char *line, uint64_t g, const struct ljvm_trace *trace)
{
	struct ljvm_place truth[MOST_FRAMES], place[MOST_FRAMES];
	unsigned int offset, end, n = 0, pos;
	int used, count, functions = 1, places = 1;
	unsigned long long pt;

	if (sscanf(line, "range %u %u%n", &offset, &end, &used) != 2 || offset >= end)
		return;
	for (line += used; n < MOST_FRAMES && sscanf(line, " %llx:%u%n", &pt, &pos, &used) == 2;
	     line += used) {
		truth[n].pt = pt;
		truth[n++].pos = pos;
	}
	/* Nothing was recorded: the trace goes on in another at once. */
	if (n == 0)
		return;
	judged += end - offset;
	count = kit.helpers->trace_places(&own, g, trace, offset, place, MOST_FRAMES);
	if (count < 0) {
		unknown += end - offset;
		return;
	}
	functions = places = (unsigned int)count == n;
	for (int i = 0; i < count && functions; i++) {
		functions = place[i].pt == truth[i].pt;
		places = places && functions && place[i].pos == truth[i].pos;
	}
	same_functions += functions ? end - offset : 0;
	same_places += functions && places ? end - offset : 0;
}

static void check_trace(FILE *file, uint64_t g)
{
	static char line[16384];
	unsigned int number, size;
	unsigned long long mcode;
	struct ljvm_trace trace;

	if (!fgets(line, sizeof(line), file) ||
	    sscanf(line, "trace %u %llx %u", &number, &mcode, &size) != 3)
		kit_die("no trace where one was: %s", line);
	/* Those that were flushed are gone. */
	if (kit.helpers->trace(&own, g, mcode, &trace) < 0 || trace.number != number ||
	    trace.szmcode != size)
		return;
	traces++;
	while (fgets(line, sizeof(line), file) && strncmp(line, "range ", 6) == 0)
		check_range(line, g, &trace);
}

static void find_last(FILE *file)
{
	static char line[16384];
	unsigned int number;
	long at = 0;

	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "trace %u ", &number) == 1 && number < MOST_TRACES)
			last_at[number] = at + 1;
		at = ftell(file);
	}
}

int main(int argc, char **argv)
{
	char path[] = "/tmp/moonspy-kit-truth.XXXXXX";
	int fd = mkstemp(path);
	struct ljvm_vm vm;
	FILE *file;
	void *L;

	if (argc != 4 || fd < 0)
		kit_die("usage: tables LIBRARY SCRIPT ROUNDS");
	setenv("MOONSPY_TRUTH", path, 1);
	setenv("LUAJIT_TRACE_TABLES", "1", 1);
	kit_open(&kit, argv[1]);
	kit_reader(&kit, &own);
	L = kit.newstate();
	kit.openlibs(L);
	kit_run(&kit, L, argv[2], strtol(argv[3], NULL, 10));
	file = fdopen(fd, "r");
	unlink(path);
	if (!file || kit.helpers->vm(&own, 0, &vm) < 0)
		kit_die("nothing was recorded, or there is no VM");
	find_last(file);
	for (unsigned int i = 0; i < MOST_TRACES; i++)
		if (last_at[i] && fseek(file, last_at[i] - 1, SEEK_SET) == 0)
			check_trace(file, vm.g);
	fclose(file);
	printf("tables: %lu traces; of %lu bytes of code %.2f %% have the functions, "
	       "%.2f %% the places "
	       "that were recorded, %.2f %% none; %lu bytes of tables\n",
	       traces, judged, 100.0 * (double)same_functions / (double)judged,
	       100.0 * (double)same_places / (double)judged,
	       100.0 * (double)unknown / (double)judged,
	       (unsigned long)kit.addresses->live->table_bytes);
	if (traces < 5 || same_functions != judged || (double)same_places < 0.99 * (double)judged)
		kit_die("not all are right");
	kit.close(L);
	if (kit.addresses->live->table_bytes)
		kit_die("tables of a closed VM are left");
	return 0;
}

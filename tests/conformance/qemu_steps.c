/* SPDX-License-Identifier: MIT */
/*
 * usage: qemu-steps [options] EMULATOR ROOT PROGRAM ARGS...
 *   -n STEPS   in all [100000]
 *   -b STEPS   in a row; then the program runs freely for a while [500]
 *   -w MS      CPU time that it has used before it is stepped [0]
 *   -f MS      at most how long it runs freely [30]
 *   -o FILE    every distinct stack with names, as json: for oracle_check.py
 *   -t TEXT    names the line of figures
 *   -v         prints each stack that is not whole, else the first at each place
 * Steps an arm64 program and unwinds at each instruction. Exit status: 0 the stacks are whole, or cut at
 * the walker's limit, but for a few, 1 not, 2 it could not be done.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "oracle.h"
#include "oracle_run.h"
#include "qemu_guest.h"

/* Until it has loaded its libraries, emulated. */
#define START_MS 400
#define START_TRIES 100
/* Steps after which its mappings are read again. */
#define REFRESH_STEPS 500

struct options {
	uint64_t steps, burst;
	unsigned int free_ms, wait_ms;
	const char *json, *title;
	bool verbose;
	char **argv;
};

static bool parse(struct options *o, int argc, char **argv)
{
	int c;

	*o = (struct options){.steps = 100000, .burst = 500, .free_ms = 30, .title = "arm64"};
	while ((c = getopt(argc, argv, "+n:b:w:f:o:t:v")) != -1) {
		switch (c) {
		case 'n':
			o->steps = strtoull(optarg, NULL, 0);
			break;
		case 'b':
			o->burst = strtoull(optarg, NULL, 0);
			break;
		case 'w':
			o->wait_ms = (unsigned int)strtoul(optarg, NULL, 0);
			break;
		case 'f':
			o->free_ms = (unsigned int)strtoul(optarg, NULL, 0);
			break;
		case 'o':
			o->json = optarg;
			break;
		case 't':
			o->title = optarg;
			break;
		case 'v':
			o->verbose = true;
			break;
		default:
			return false;
		}
	}
	o->argv = argv + optind;
	return argc - optind >= 3 && o->burst;
}

struct run {
	struct options options;
	struct qemu_guest guest;
	struct oracle_process process; /* only what shows stacks with names */
	struct oracle_report report;
	struct oracle_stack stack;
	uint64_t steps, whole, cut; /* cut: at the walker's limit */
};

static bool open_guest(struct run *r)
{
	struct oracle_process *p = &r->process;

	return msp_space_new_host(p->images, &r->guest.host, &p->space) == 0 &&
	       msp_symbolizer_new(p->images, p->space, NULL, &p->symbols) == 0 &&
	       msp_walker_new(p->space, &p->walker) == 0;
}

/* CPU time in ms that the emulator has used; 0: not known. */
static unsigned int used_ms(pid_t pid)
{
	char path[32], line[512], *from = NULL;
	unsigned long user = 0, kernel = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (fgets(line, sizeof(line), f))
		from = strrchr(line, ')');
	fclose(f);
	if (!from || sscanf(from, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
			    &kernel) != 2)
		return 0;
	return (unsigned int)((user + kernel) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK));
}

/* Runs until it has a VM that is proved, and has worked for a while. */
static bool wait_for_vm(struct run *r)
{
	int vms = 0;

	for (int i = 0; i < START_TRIES && vms <= 0; i++) {
		if (!qemu_guest_run(&r->guest, i ? 20 : START_MS))
			return false;
		while (used_ms(r->guest.pid) < r->options.wait_ms) {
			if (!qemu_guest_run(&r->guest, 100))
				return false;
		}
		msp_space_refresh(r->process.space);
		vms = msp_space_find_vms(r->process.space);
	}
	return vms > 0;
}

static void show(struct run *r, const struct msp_registers *regs, const char *why)
{
	struct oracle_process *p = &r->process;
	const struct msp_mapping *map = msp_space_find(p->space, regs->pc);

	printf("%s at %s+0x%" PRIx64 " (0x%" PRIx64 ")\n", why,
	       map ? msp_space_mapping_name(p->space, map) : "?", regs->pc - (map ? map->base : 0),
	       regs->pc);
	for (int i = 0; i < MSP_REG_COUNT; i++)
		printf(" x%d %" PRIx64 "%s", i, regs->reg[i], i % 8 == 7 ? "\n" : "");
	oracle_report_print(p, "now:", &r->stack);
	fflush(stdout);
}

static void look(struct run *r, const struct msp_registers *regs)
{
	struct oracle_process *p = &r->process;
	const struct msp_mapping *map;
	struct msp_stack stack;

	msp_walker_walk(p->walker, NULL, regs, &stack);
	oracle_stack_take(&r->stack, &stack);
	r->steps++;
	r->whole += !stack.error;
	r->cut += stack.error == MSP_ERR_TRUNCATED;
	for (int i = 0; i < MSP_WAY_COUNT; i++)
		r->report.ways[i] += stack.ways >> i & 1;
	if (stack.error) {
		r->report.marked[stack.error]++;
		map = msp_space_find(p->space, regs->pc);
		if (stack.error != MSP_ERR_TRUNCATED &&
		    (oracle_report_kind(&r->report, "not whole",
					regs->pc - (map ? map->base : 0)) ||
		     r->options.verbose))
			show(r, regs, "not whole");
	}
	oracle_report_stack(&r->report, p, &r->stack);
}

static void run(struct run *r)
{
	const struct options *o = &r->options;
	struct msp_registers regs;

	while (r->steps < o->steps) {
		if (r->steps && !qemu_guest_run(&r->guest, 1 + (unsigned int)rand() % o->free_ms))
			break;
		msp_space_refresh(r->process.space);
		for (uint64_t i = 0; i < o->burst; i++) {
			if (!qemu_guest_registers(&r->guest, &regs))
				return;
			look(r, &regs);
			if (!qemu_guest_step(&r->guest))
				return;
			if (i % REFRESH_STEPS == REFRESH_STEPS - 1)
				msp_space_refresh(r->process.space);
		}
	}
}

static void close_run(struct run *r)
{
	struct oracle_process *p = &r->process;

	msp_walker_free(p->walker);
	msp_symbolizer_free(p->symbols);
	msp_space_free(p->space);
	msp_images_free(p->images);
	oracle_report_free(&r->report);
	qemu_guest_end(&r->guest);
}

/* Of a Lua stack that is just being moved more than one in 200: than a place of some instructions, once. */
static bool too_many_marks(const struct run *r)
{
	uint64_t moving = r->report.marked[MSP_ERR_LUA_MOVING];

	return moving * 200 > r->steps || r->steps - r->whole - r->cut - moving > 2;
}

int main(int argc, char **argv)
{
	static struct run r;
	const struct msp_images_options image_options = {0};
	char marks[512];
	int rc = 2;

	if (!parse(&r.options, argc, argv)) {
		fprintf(stderr, "usage: qemu-steps [-n STEPS] [-b STEPS] [-w MS] [-f MS] [-o FILE] "
				"[-t TEXT] [-v] "
				"EMULATOR ROOT PROGRAM ARGS...\n");
		return 2;
	}
	argv = r.options.argv;
	if (oracle_report_new(&r.report, r.options.verbose) ||
	    msp_images_new(&image_options, &r.process.images) ||
	    qemu_guest_start(&r.guest, argv[0], argv[1], argv + 2) || !open_guest(&r) ||
	    !wait_for_vm(&r)) {
		fprintf(stderr, "qemu-steps: %s could not be brought to run LuaJIT\n", argv[2]);
	} else {
		run(&r);
		oracle_report_marks(&r.report, marks, sizeof(marks));
		printf("%s: %" PRIu64 " steps, %" PRIu64 " not whole%s\n", r.options.title, r.steps,
		       r.steps - r.whole, marks);
		oracle_report_ways(&r.report);
		rc = r.steps < r.options.steps ? 2 : too_many_marks(&r);
		if (r.options.json && oracle_report_write(&r.report, r.options.json) != 0)
			rc = 2;
	}
	close_run(&r);
	return rc;
}

/* SPDX-License-Identifier: MIT */
/*
 * Stopped processes: each stack as the rows have it against libdwfl's, and
 * each step of it against libdw's description of that frame.
 */
#include <elfutils/libdwfl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <time.h>
#include <unistd.h>

#include "cfi_compare.h"
#include "cfi_process.h"

#define FRAMES_MAX 300
#define MAPS_MAX 512
#define PLACES 10

struct map {
	uint64_t start, end, base;
	struct msp_image *image;
	const struct msp_unwind_table *table;
};

struct frame {
	struct regs regs; /* pc in value[16] */
	bool exact;	  /* pc is of an instruction, not behind a call */
};

struct stack {
	struct frame frames[FRAMES_MAX];
	int count;
	enum step_result end;
};

struct session {
	pid_t pid;
	Dwfl *dwfl;
	struct map maps[MAPS_MAX];
	int map_count;
	struct stack ours, theirs;
	int places, frames, registers, steps, signals, rbx_default;
	int lost; /* registers that libdw knows and a row cannot say: explained, and few */
	int unsupported, frame_pointer, only_ours, differ, landings;
	bool landing; /* this stack goes through the end of a function that lands an exception */
};

static bool read_process(void *ctx, uint64_t addr, uint64_t *value)
{
	struct session *s = ctx;
	struct iovec to = {value, 8}, from = {(void *)addr, 8};

	return process_vm_readv(s->pid, &to, 1, &from, 1, 0) == 8;
}

static struct msp_image *image_of_memory(const struct session *s, uint64_t start, uint64_t end)
{
	struct msp_image_options opts = {.name = "[vdso]"};
	size_t size = end - start;
	char *bytes = malloc(size);
	struct iovec to = {bytes, size}, from = {(void *)start, size};
	struct msp_image *image = NULL;

	if (process_vm_readv(s->pid, &to, 1, &from, 1, 0) != (ssize_t)size ||
	    msp_image_open_memory(bytes, size, &opts, &image))
		image = NULL;
	free(bytes);
	return image;
}

static void add_map(struct session *s, uint64_t start, uint64_t end, uint64_t offset,
		    const char *path)
{
	struct map *map = &s->maps[s->map_count];
	bool vdso = !strcmp(path, "[vdso]");
	uint64_t addr;

	map->start = start;
	map->end = end;
	map->image = vdso ? image_of_memory(s, start, end) : open_image(path);
	if (!map->image)
		return;
	if (msp_image_unwind(map->image, &map->table) ||
	    !msp_image_offset_to_addr(map->image, offset, &addr)) {
		msp_image_close(map->image);
		return;
	}
	map->base = start - addr;
	s->map_count++;
}

static void read_maps(struct session *s)
{
	char path[64], line[1024], perms[8], name[512];
	unsigned long start, end, offset;
	FILE *file;

	for (int i = 0; i < s->map_count; i++)
		msp_image_close(s->maps[i].image);
	s->map_count = 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", s->pid);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file)) {
		name[0] = '\0';
		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %511s", &start, &end, perms, &offset,
			   name) < 4)
			continue;
		if (perms[2] == 'x' && s->map_count < MAPS_MAX &&
		    (name[0] == '/' || !strcmp(name, "[vdso]")))
			add_map(s, start, end, offset, name);
	}
	if (file)
		fclose(file);
}

static const struct map *find_map(const struct session *s, uint64_t pc)
{
	for (int i = 0; i < s->map_count; i++)
		if (pc >= s->maps[i].start && pc < s->maps[i].end)
			return &s->maps[i];
	return NULL;
}

static int no_debuginfo(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base,
			const char *file, const char *link, GElf_Word crc, char **found)
{
	return -1;
}

static bool open_dwfl(struct session *s)
{
	static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
						 .find_debuginfo = no_debuginfo};

	s->dwfl = dwfl_begin(&callbacks);
	return s->dwfl && !dwfl_linux_proc_report(s->dwfl, s->pid) &&
	       !dwfl_report_end(s->dwfl, NULL, NULL) &&
	       !dwfl_linux_proc_attach(s->dwfl, s->pid, true);
}

static int on_frame(Dwfl_Frame *state, void *arg)
{
	struct stack *stack = arg;
	struct frame *frame = &stack->frames[stack->count];
	Dwarf_Word value;

	memset(frame, 0, sizeof(*frame));
	if (!dwfl_frame_pc(state, &frame->regs.value[MSP_X64_RA], &frame->exact))
		return DWARF_CB_ABORT;
	frame->regs.known = 1u << MSP_X64_RA;
	for (int i = 0, reg; (reg = compared_reg(&cpu_x64, i)) >= 0; i++) {
		if (reg == MSP_X64_RA || dwfl_frame_reg(state, (unsigned)reg, &value))
			continue;
		frame->regs.value[reg] = value;
		frame->regs.known |= 1u << reg;
	}
	return ++stack->count == FRAMES_MAX ? DWARF_CB_ABORT : DWARF_CB_OK;
}

static bool first_registers(const struct session *s, struct regs *regs)
{
	struct user_regs_struct u;

	if (ptrace(PTRACE_GETREGS, s->pid, 0, &u))
		return false;
	*regs = (struct regs){{u.rax, u.rdx, u.rcx, u.rbx, u.rsi, u.rdi, u.rbp, u.rsp, u.r8, u.r9,
			       u.r10, u.r11, u.r12, u.r13, u.r14, u.r15, u.rip},
			      0x1ffff};
	return true;
}

static void print_where(const struct session *s, int i, const char *what)
{
	const struct frame *frame = &s->ours.frames[i];
	const struct map *map = find_map(s, frame->regs.value[MSP_X64_RA]);
	struct msp_symbol symbol = {.name = "?"};
	uint64_t addr = map ? frame->regs.value[MSP_X64_RA] - map->base : 0;

	if (map)
		msp_image_symbol(map->image, addr, &symbol);
	printf("    frame %d at %s+%#lx (%s): %s\n", i, map ? msp_image_name(map->image) : "?",
	       (unsigned long)addr, symbol.name, what);
}

static void count_difference(struct session *s, int i, const char *what)
{
	if (s->differ++ < 10)
		print_where(s, i, what);
}

/* This one step again, as libdw describes the frame, from the same registers. */
static void compare_step(struct session *s, int i, const struct regs *caller, bool landing)
{
	const struct frame *frame = &s->ours.frames[i];
	uint64_t pc = frame->regs.value[MSP_X64_RA] - !frame->exact;
	Dwfl_Module *module = dwfl_addrmodule(s->dwfl, pc);
	GElf_Addr bias = 0;
	Dwarf_CFI *eh = module ? dwfl_module_eh_cfi(module, &bias) : NULL;
	struct regs theirs;
	bool rbx_default = false;
	char text[64];

	if (!eh || step_by_libdw(&cpu_x64, eh, NULL, pc - bias, &frame->regs, read_process, s,
				 &theirs, &rbx_default) != STEP_OK)
		return;
	s->steps++;
	s->rbx_default += rbx_default;
	for (int r = 0, reg; (reg = compared_reg(&cpu_x64, r)) >= 0; r++) {

		if (!has_reg(&theirs, reg))
			continue;
		/* gcc's CFI forgets that __builtin_eh_return has restored the others by then. */
		if (landing && reg != MSP_X64_RA && reg != MSP_X64_RSP)
			continue;
		s->registers++;
		s->lost += !has_reg(caller, reg);
		if (!has_reg(caller, reg) || caller->value[reg] == theirs.value[reg])
			continue;
		snprintf(text, sizeof(text), "DIFFERENT register %d of the caller", reg);
		count_difference(s, i, text);
	}
}

static void walk_ours(struct session *s)
{
	struct stack *stack = &s->ours;

	s->landing = false;
	stack->frames[0].exact = true;
	for (stack->count = 1; stack->count < FRAMES_MAX; stack->count++) {
		struct frame *frame = &stack->frames[stack->count - 1];
		uint64_t pc = frame->regs.value[MSP_X64_RA], look = pc - !frame->exact;
		const struct map *map = find_map(s, look);
		const struct msp_rule *rule = map ? rule_at(map->table, look - map->base) : NULL;

		stack->end = rule ? step_by_rule(&cpu_x64, rule, &frame->regs, pc, read_process, s,
						 &frame[1].regs)
				  : STEP_NO_RULE;
		if (stack->end != STEP_OK)
			return;
		frame[1].exact = rule->cfa_kind == MSP_CFA_SIGNAL;
		s->signals += frame[1].exact;
		s->landing |= (rule->flags & MSP_RULE_LANDS) != 0;
		compare_step(s, stack->count - 1, &frame[1].regs, rule->flags & MSP_RULE_LANDS);
		if (!frame[1].regs.value[MSP_X64_RA]) {
			stack->end = STEP_END;
			return;
		}
	}
}

/* Whether libdwfl has no description of the frame either. */
static bool no_cfi(const struct session *s, const struct frame *frame)
{
	uint64_t pc = frame->regs.value[MSP_X64_RA] - !frame->exact;
	Dwfl_Module *module = dwfl_addrmodule(s->dwfl, pc);
	GElf_Addr bias = 0;
	Dwarf_CFI *eh = module ? dwfl_module_eh_cfi(module, &bias) : NULL;
	Dwarf_Frame *described = NULL;
	bool none = !eh || dwarf_cfi_addrframe(eh, pc - bias, &described);

	free(described);
	return none;
}

/*
 * Whether libdwfl lacks rbx where the frame is found by it: it forgets rbx in each function that
 * has not saved it yet, and the dynamic linker's lazy binding has its frame there. Our step from
 * here was compared by itself.
 */
static bool forgot_rbx(const struct session *s, int i)
{
	const struct frame *frame = &s->ours.frames[i];
	uint64_t look = frame->regs.value[MSP_X64_RA] - !frame->exact;
	const struct map *map = find_map(s, look);

	return map && rule_at(map->table, look - map->base)->cfa_reg == MSP_X64_RBX &&
	       !has_reg(&s->theirs.frames[i].regs, MSP_X64_RBX);
}

/* Both have the same frames; where one is longer there must be a reason. */
static void compare_lengths(struct session *s)
{
	const struct stack *ours = &s->ours, *theirs = &s->theirs;
	int last = (ours->count < theirs->count ? ours->count : theirs->count) - 1;

	if (ours->end == STEP_UNSUPPORTED) {
		if (s->unsupported++ < 3)
			print_where(s, ours->count - 1, "explained: no row can say this rule");
	} else if (ours->count == theirs->count) {
		return;
	} else if (ours->count > theirs->count && forgot_rbx(s, last)) {
		s->rbx_default++;
	} else if (no_cfi(s, &ours->frames[last])) {
		/* libdwfl then tries the frame pointer; rows have stubs that it does not know. */
		int *count = ours->count < theirs->count ? &s->frame_pointer : &s->only_ours;

		if ((*count)++ < 3 && find_map(s, ours->frames[last].regs.value[MSP_X64_RA]))
			print_where(s, last, "explained: no CFI here");
		else if (*count <= 3 && last)
			print_where(s, last - 1,
				    "explained: its CFI leads both to where no code is");
	} else {
		count_difference(s, last,
				 ours->count < theirs->count
					 ? "DIFFERENT: libdwfl has more frames"
					 : "DIFFERENT: libdwfl has fewer frames");
	}
}

static void compare_stacks(struct session *s)
{
	const struct stack *ours = &s->ours, *theirs = &s->theirs;
	char text[64];

	if (s->landing) { /* libdwfl goes on with wrong registers: each of our steps was compared */
		s->landings++;
		return;
	}
	for (int i = 0; i < ours->count && i < theirs->count; i++) {
		const struct regs *we = &ours->frames[i].regs, *they = &theirs->frames[i].regs;

		s->frames++;
		for (int r = 0, reg; (reg = compared_reg(&cpu_x64, r)) >= 0; r++) {

			if (!has_reg(they, reg))
				continue;
			s->registers++;
			s->lost += !has_reg(we, reg);
			if (!has_reg(we, reg) || we->value[reg] == they->value[reg])
				continue;
			snprintf(text, sizeof(text), "DIFFERENT register %d", reg);
			count_difference(s, i, text);
			return; /* all further frames follow from this one */
		}
	}
	compare_lengths(s);
}

static bool compare_here(struct session *s)
{
	s->theirs.count = 0;
	if (!first_registers(s, &s->ours.frames[0].regs))
		return false;
	dwfl_getthread_frames(s->dwfl, s->pid, on_frame, &s->theirs);
	walk_ours(s);
	compare_stacks(s);
	s->places++;
	return true;
}

/* One stop, and several places from there, some instructions apart. */
static bool compare_some(struct session *s)
{
	if (!stop_somewhere(s->pid))
		return false;
	if (!s->dwfl) {
		read_maps(s);
		if (!open_dwfl(s))
			return false;
	}
	for (int i = 0; i < PLACES; i++)
		if (!step_on(s->pid) || !compare_here(s))
			return false;
	return go_on(s->pid);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int compare_workload(const struct workload *load, double seconds)
{
	struct session *s = calloc(1, sizeof(*s));
	struct running run;
	bool started = load->argv ? start_command(load->argv, &run) : start_nginx(&run);
	double end = now() + seconds * load->seconds;
	int differ;

	s->pid = run.pid;
	if (started && seize(s->pid))
		while (now() < end && compare_some(s))
			;
	if (!s->places)
		printf("  %-10s skipped: it cannot be run or traced here\n", load->name);
	else
		printf("  %-10s %d places, %d frames, %d single steps, %d registers, %d signal "
		       "frames: "
		       "%d unsupported, %d ended on a frame pointer, %d only ours, %d differ; "
		       "%d registers lost that libdw knows (no row can say where they are), "
		       "%d times rbx by libdw's defaults, %d times where an exception lands\n",
		       load->name, s->places, s->frames, s->steps, s->registers, s->signals,
		       s->unsupported, s->frame_pointer, s->only_ours, s->differ, s->lost,
		       s->rbx_default, s->landings);
	stop_running(&run);
	dwfl_end(s->dwfl);
	for (int i = 0; i < s->map_count; i++)
		msp_image_close(s->maps[i].image);
	differ = s->differ;
	if (s->lost > s->registers / 1000) /* rows that said nothing would agree with everything */
		differ += s->lost;
	free(s);
	return differ;
}

int compare_dynamic(const char *self_dir, double seconds)
{
	static const char python[] =
		"import json, re, zlib, hashlib\n"
		"def f(n): return n if n < 2 else f(n - 1) + f(n - 2)\n"
		"while True:\n"
		"  d = {str(i): [i, str(i) * 3, {'a': i / 7}] for i in range(200)}\n"
		"  s = json.dumps(d); json.loads(s)\n"
		"  re.sub('[0-9]+', lambda m: m.group()[::-1], s[:2000])\n"
		"  zlib.compress(s.encode()); hashlib.sha256(s.encode()).digest(); f(12)\n"
		"  sorted(d.items(), key=lambda x: x[1][1])\n";
	static const char lua[] =
		"local function f(n) return n < 2 and n or f(n - 1) + f(n - 2) end\n"
		"while true do local t = {}\n"
		"for i = 1, 300 do t[i] = tostring(i * 7919 % 1000) end\n"
		"table.sort(t, function(a, b) return a < b end)\n"
		"local s = table.concat(t, ','):gsub('%d+', string.reverse) pcall(f, 12) end\n";
	char target[512];
	const char *const cpp_argv[] = {target, NULL};
	const char *const python_argv[] = {"/usr/bin/python3", "-c", python, NULL};
	const char *const lua_argv[] = {"/usr/bin/luajit", "-joff", "-e", lua, NULL};
	const char *const sleep_argv[] = {"/bin/sleep", "1000", NULL};
	const struct workload loads[] = {{"c++", cpp_argv, 1.5},
					 {"python3", python_argv, 1},
					 {"nginx", NULL, 1},
					 {"luajit", lua_argv, 0.5},
					 {"sleep", sleep_argv, 0.1}};
	int bad = 0;

	snprintf(target, sizeof(target), "%s/cfi-target", self_dir);
	printf("stacks of stopped processes against libdwfl:\n");
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
		bad += compare_workload(&loads[i], seconds);
	return bad;
}

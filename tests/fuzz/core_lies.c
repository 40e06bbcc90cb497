/* SPDX-License-Identifier: MIT */
/*
 * A real VM, words of which are lies: the walker, values, names and coroutines meet memory in
 * which anything may point anywhere. The VM was proved before the lies began, so that no check
 * of the proof stands between them and the readers. Some inputs are proved with the lies.
 */
#include "core_fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "luajit/jit.h"
#include "moonspy/moonspy.h"
#include "target/snapshot_internal.h"
#include "target/space_internal.h"

#define LIES_MAX 64
#define LIE_SIZE 11
#define REGISTERS 18
#define SEEN_MAX 8192
#define PAGES 4096
#define PAGE 4096ull
#define COROUTINES_MAX 64
#define VALUES 400 /* of one input: what is beyond is cut, as it is at a thousand times as many */

/* Of so many inputs, one is looked at in this way; the rest are a thread's stack, and its values. */
#define EVERYTHING_EVERY 4096
#define LISTING_EVERY 512
#define NAMES_EVERY 32
#define JIT_EVERY 64
#define COROUTINE_EVERY 3

static struct {
	struct msp_core *core;
	struct msp_images *images;
	struct {
		uint64_t number;
		uint8_t *bytes; /* NULL: free */
	} page[PAGES];		/* of the core, once they were read */
	size_t pages;
	struct msp_memory honest;
	struct msp_memory memory; /* honest, but for the lies */
	struct msp_host host;	  /* the core's, with that memory */
	struct msp_space *space;  /* its VMs are proved */
	size_t vms;
	struct taking taking;
	const struct msp_core_thread *thread;
	size_t threads;
	uint64_t coroutine[COROUTINES_MAX];
	size_t coroutines;

	uint64_t seen[SEEN_MAX]; /* addresses that are read without lies: what is worth changing */
	size_t seen_count;
	bool noting;
	struct {
		uint64_t addr, value;
	} lie[LIES_MAX];
	size_t count;
	struct msp_registers regs;
} f;

/* A page of the core; NULL: it has none there. */
static const uint8_t *honest_page(uint64_t number)
{
	size_t i = (number ^ number >> 12) % PAGES;
	uint8_t *bytes;

	while (f.page[i].bytes && f.page[i].number != number)
		i = (i + 1) % PAGES;
	if (f.page[i].bytes)
		return f.page[i].bytes;
	bytes = malloc(PAGE);
	if (!bytes || msp_read(msp_core_host(f.core)->memory, number * PAGE, bytes, PAGE)) {
		free(bytes);
		return NULL;
	}
	if (++f.pages == PAGES) /* the cores that are used have hundreds */
		abort();
	f.page[i].number = number;
	f.page[i].bytes = bytes;
	return bytes;
}

static int read_honest(void *ctx, uint64_t addr, void *buf, size_t size)
{
	uint8_t *to = buf;

	(void)ctx;
	if (addr + size < addr)
		return MSP_E_FAULT;
	while (size) {
		const uint8_t *page = honest_page(addr / PAGE);
		size_t part = PAGE - addr % PAGE < size ? PAGE - addr % PAGE : size;

		if (!page)
			return MSP_E_FAULT;
		memcpy(to, page + addr % PAGE, part);
		to += part;
		addr += part;
		size -= part;
	}
	return 0;
}

static void note(uint64_t addr)
{
	for (size_t i = 0; i < f.seen_count; i++)
		if (f.seen[i] == addr)
			return;
	if (f.seen_count < SEEN_MAX)
		f.seen[f.seen_count++] = addr;
}

/* Notes the words that are asked for, which the memory below does not hear of: it reads pages. */
static int read_noted(void *ctx, uint64_t addr, void *buf, size_t size)
{
	note(addr & ~7ull);
	return msp_read(ctx, addr, buf, size);
}

static int read_lies(void *ctx, uint64_t addr, void *buf, size_t size)
{
	int r = msp_read(ctx, addr, buf, size);

	if (f.noting && size < 4096)
		note(addr & ~7ull);
	for (size_t i = 0; r == 0 && i < f.count; i++) {
		uint64_t at = f.lie[i].addr;

		if (at >= addr && at - addr <= size && size - (at - addr) >= 8)
			memcpy((char *)buf + (at - addr), &f.lie[i].value, 8);
	}
	return r;
}

static uint64_t pick(uint64_t word)
{
	return f.seen_count ? f.seen[word % f.seen_count] + (word >> 13 & 0x78) : 0;
}

static uint64_t lie_value(uint8_t kind, uint64_t addr, uint64_t truth, uint64_t given)
{
	switch (kind & 3) {
	case 0: /* anything */
		return given;
	case 1: /* an address that is read, too */
		return pick(given);
	case 2: /* near what is there */
		return truth + (int8_t)given;
	default: /* its own address: a circle */
		return addr;
	}
}

static void tell_lie(uint16_t where, uint8_t kind, uint64_t given)
{
	uint64_t addr = pick(where | (uint64_t)kind << 12), truth = 0;
	uint64_t *reg;

	if (kind & 0x80) {
		reg = where % REGISTERS < MSP_REG_COUNT ? &f.regs.reg[where % REGISTERS]
							: &f.regs.pc;
		*reg = lie_value(kind, *reg, *reg, given);
		return;
	}
	if ((kind & 3) == 2 && msp_read(&f.honest, addr, &truth, 8))
		return;
	f.lie[f.count].addr = addr;
	f.lie[f.count++].value = lie_value(kind, addr, truth, given);
}

/* Each 11 bytes of the input are a lie: where, what kind of value, and the value. */
static void take_lies(const uint8_t *data, size_t size)
{
	for (f.count = 0; size >= LIE_SIZE && f.count < LIES_MAX;
	     data += LIE_SIZE, size -= LIE_SIZE) {
		uint64_t given;
		uint16_t where;

		memcpy(&where, data, 2);
		memcpy(&given, data + 3, 8);
		tell_lie(where, data[2], given);
	}
}

/* ---- What is done with them ---- */

static void keep(const struct msp_stack *stack, bool names)
{
	struct msp_variables *variables = NULL;
	struct msp_symbolizer *symbols;
	struct msp_raw_frame *frames;
	size_t count;

	if (stack->count > MSP_MAX_FRAMES)
		abort();
	if (snapshot_keep(&f.taking, stack, &frames, &variables, &count) < 0)
		abort();
	if (names && msp_symbolizer_new(f.images, f.space, NULL, &symbols) == 0) {
		fuzz_name_stack(symbols, frames, variables, count);
		msp_symbolizer_free(symbols);
	}
	snapshot_drop(frames, variables, count);
}

static void walk_thread(uint32_t which, bool names)
{
	struct msp_stack stack;

	msp_walker_walk(f.taking.walker, msp_memory_cache_memory(f.taking.cache), &f.regs, &stack);
	keep(&stack, names);
	snapshot_meet(&f.taking, (pid_t)which + 1, &stack);
	snapshot_forget(&f.taking);
}

static void walk_coroutine(uint32_t which)
{
	struct msp_stack stack;

	msp_walker_coroutine(f.taking.walker, msp_memory_cache_memory(f.taking.cache), f.space->vm,
			     f.coroutine[which % f.coroutines], &stack);
	keep(&stack, false);
}

static void list_coroutines(void)
{
	struct msp_snapshot out = {0};

	f.taking.out = &out;
	snapshot_coroutines(&f.taking);
	msp_snapshot_free(&out);
	snapshot_forget(&f.taking);
}

static void no_place(void *ctx, const struct msp_lj_code_place *place)
{
	(void)ctx;
	(void)place;
}

static void list_traces(uint32_t which)
{
	const struct msp_image_entry *entry = msp_images_get(f.images, f.space->vm[0].image);
	uint64_t g = f.space->vm[0].g;
	struct msp_lj_jit jit;

	if (msp_lj_jit_read(entry->build, &f.memory, g, &jit))
		return;
	if (jit.traces)
		msp_lj_trace_places(entry->build, &f.memory, &jit.trace[which % jit.traces],
				    no_place, NULL);
	msp_lj_jit_free(&jit);
}

static void prove_all(void)
{
	struct msp_space *space;

	if (msp_space_new_host(f.images, &f.host, &space) < 0)
		return;
	if (msp_space_refresh(space) >= 0)
		fuzz_space(space, f.images, f.core);
	msp_space_free(space);
}

/* The next input finds all as this one did: VMs that the lies made, and names, are forgotten. */
static void forget(void)
{
	for (size_t i = 0; i < f.space->vms; i++) {
		struct msp_vm *vm = &f.space->vm[i];

		msp_lj_names_free(vm->names);
		msp_lj_traces_free(vm->traces);
		vm->names = NULL;
		vm->traces = NULL;
		if (i >= f.vms) {
			msp_lj_values_free(vm->values);
			memset(vm, 0, sizeof(*vm));
		}
	}
	f.space->vms = f.vms;
}

void fuzz_lies(const uint8_t *data, size_t size)
{
	uint32_t hash = fuzz_hash(data, size), which = hash / EVERYTHING_EVERY;

	f.regs = f.thread[which % f.threads].regs;
	take_lies(data, size);
	msp_memory_cache_clear(f.taking.cache);
	f.taking.values_left = VALUES;
	if (hash % EVERYTHING_EVERY == 0)
		prove_all();
	else if (hash % LISTING_EVERY == 0)
		list_coroutines();
	else if (hash % JIT_EVERY == 0)
		list_traces(which);
	else if (f.coroutines && hash % COROUTINE_EVERY == 0)
		walk_coroutine(which);
	else
		walk_thread(which, hash % NAMES_EVERY == 0);
	forget();
}

/* ---- Before the first ---- */

static void no_luajit(const char *path)
{
	fprintf(stderr, "core_fuzz: no LuaJIT in %s\n", path);
	exit(1);
}

static void open_core(const char *path)
{
	const struct msp_core_options options = {.exe = NULL};
	char why[MSP_CORE_WHY_SIZE];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || msp_core_open(fd, &options, &f.core, why) < 0) {
		fprintf(stderr, "core_fuzz: cannot read %s\n", path);
		exit(1);
	}
	f.images = fuzz_images(true);
	f.host = *msp_core_host(f.core);
	f.honest = (struct msp_memory){read_honest, NULL};
	f.memory = (struct msp_memory){read_lies, &f.honest};
	f.host.memory = &f.memory;
	f.thread = msp_core_threads(f.core, &f.threads);
}

static int note_coroutine(void *ctx, const struct msp_lj_coroutine *coroutine)
{
	(void)ctx;
	f.coroutine[f.coroutines++] = coroutine->l;
	return f.coroutines == COROUTINES_MAX;
}

/* Makes what is kept from one input to the next. */
static void prepare(const char *path)
{
	const struct msp_image_entry *entry;

	if (msp_space_new_host(f.images, &f.host, &f.space) < 0 || msp_space_refresh(f.space) < 0 ||
	    msp_space_find_vms(f.space) < 1 || !f.threads)
		no_luajit(path);
	f.vms = f.space->vms;
	for (size_t i = 0; i < f.vms; i++)
		if (!f.space->vm[i].proof.heap || !msp_space_vm_values(f.space, &f.space->vm[i]))
			no_luajit(path);
	f.taking = (struct taking){.space = f.space, .options = {.coroutines = true, .values = 2}};
	if (msp_walker_new(f.space, &f.taking.walker) < 0 ||
	    msp_memory_cache_new(&f.memory, &f.taking.cache) < 0)
		abort();
	entry = msp_images_get(f.images, f.space->vm[0].image);
	msp_lj_coroutines(entry->build, &f.memory, f.space->vm[0].g, note_coroutine, NULL);
}

/* Walks without lies, to see what is read. */
static void look(const char *path)
{
	struct msp_memory *cache = (struct msp_memory *)msp_memory_cache_memory(f.taking.cache);
	struct msp_memory below = *cache;
	struct msp_stack stack;

	f.noting = true;
	*cache = (struct msp_memory){read_noted, &below};
	f.taking.values_left = VALUES;
	for (size_t i = 0; i < f.threads; i++) {
		msp_walker_walk(f.taking.walker, cache, &f.thread[i].regs, &stack);
		keep(&stack, true);
	}
	for (size_t i = 0; i < f.coroutines; i++) {
		msp_walker_coroutine(f.taking.walker, cache, f.space->vm, f.coroutine[i], &stack);
		keep(&stack, false);
	}
	list_traces(0);
	f.noting = false;
	*cache = below;
	forget();
	if (f.seen_count < 50)
		no_luajit(path);
}

void fuzz_lies_begin(const char *path)
{
	open_core(path);
	prepare(path);
	look(path);
}

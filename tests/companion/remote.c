/* SPDX-License-Identifier: MIT */
/*
 * remote COMPANION.so PID|CORE DESCRIPTOR: helpers that are loaded here look at another process or at a core file, whose
 * descriptor is at that address: its VMs, and the stack of the coroutine that each runs. It may be of another architecture.
 * remote COMPANION.so: they look at memory that lies, and come back.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <moonspy/vm_descriptor.h>

#include "../kit/core.h"

static int read_process(void *context, uint64_t address, void *buffer, size_t size)
{
	struct iovec local = {buffer, size}, remote = {(void *)(uintptr_t)address, size};

	return process_vm_readv(*(pid_t *)context, &local, 1, &remote, 1, 0) == (ssize_t)size ? 0
											      : -1;
}

/* A member of the constants of the other's descriptor. */
static int32_t constant(const struct ljvm_memory *m, size_t at)
{
	struct ljvm_descriptor d;
	int32_t value = -1;

	m->read(m->context, m->descriptor, &d, sizeof(d));
	m->read(m->context, m->descriptor + d.constants.offset + at, &value, sizeof(value));
	return value;
}

static void print_stack(const struct ljvm_helpers *h, const struct ljvm_memory *m,
			const struct ljvm_vm *vm)
{
	struct ljvm_context context = {.g = vm->g};
	struct ljvm_function function;
	struct ljvm_cframe cframe;
	struct ljvm_frame frame;
	uint64_t place = (uint64_t)constant(m, offsetof(struct ljvm_constants, g_cur_L));
	int got;

	m->read(m->context, vm->g + place, &context.L, 8);
	place = (uint64_t)constant(m, offsetof(struct ljvm_constants, L_cframe));
	m->read(m->context, context.L + place, &context.cframe, 8);
	context.cframe &= ~3ull;
	if (h->cframe(m, context.cframe, &cframe) == 0 && cframe.L == context.L)
		printf("a C frame of that coroutine\n");
	for (got = h->frame_first(m, &context, &frame); got == 1; got = h->frame_next(m, &frame))
		if (h->function(m, frame.pt, frame.pos, &function) == 0)
			printf("%s:%u\n", function.chunk, function.line);
		else
			printf("function %u\n", frame.ffid);
	printf("end %d\n", got);
}

/* Nothing but a descriptor's head is right; the rest changes with each read, and often looks like an address. */
static int read_lies(void *context, uint64_t address, void *buffer, size_t size)
{
	static uint32_t seed = 1;
	uint8_t *to = buffer;

	if (address == 0x1000) {
		memcpy(buffer, context, size);
		return 0;
	}
	for (size_t i = 0; i < size; i++) {
		seed = seed * 1664525 + 1013904223;
		to[i] = seed >> 29 ? 0 : (uint8_t)(seed >> 16 & 0x1f);
	}
	return seed >> 8 & 63 ? 0 : -1;
}

static int look_at_lies(const struct ljvm_helpers *h, const struct ljvm_descriptor *own)
{
	struct ljvm_descriptor d = *own;
	struct ljvm_memory memory = {read_lies, &d, 0x1000};
	struct ljvm_registers registers = {.pc = 0x100, .sp = 0x1000};
	struct ljvm_context context = {.g = 8, .L = 16};
	struct ljvm_frame frame = {.L = 16, .base = 64};
	struct ljvm_function function;
	struct ljvm_cframe cframe;
	struct ljvm_trace trace;
	struct ljvm_vm vm;
	unsigned long answers[4] = {0};
	uint64_t g;

	d.constants.size = sizeof(struct ljvm_constants);
	d.addresses.size = sizeof(struct ljvm_addresses);
	for (int i = 0; i < 20000; i++) {
		int got[] = {h->vm(&memory, (uint32_t)i % 3, &vm),
			     h->owner(&memory, 0x100, &g, &trace),
			     h->context(&memory, &registers, &context),
			     h->frame_first(&memory, &context, &frame),
			     h->frame_next(&memory, &frame),
			     h->function(&memory, 64, i, &function),
			     h->trace(&memory, 8, 0x100, &trace),
			     h->cframe(&memory, 64, &cframe)};

		for (size_t k = 0; k < sizeof(got) / sizeof(got[0]); k++) {
			if (got[k] < LJVM_E_NOT_MINE || got[k] > LJVM_PC_TRACE)
				return 1;
			answers[got[k] < -2 ? 2 : got[k] < 0 ? 1 : 0]++;
		}
	}
	printf("lies: %lu answers, %lu none or not readable, %lu broken\n", answers[0], answers[1],
	       answers[2]);
	return answers[0] && answers[1] && answers[2] ? 0 : 1;
}

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	const char *at = library ? dlsym(library, "luaJIT_vm_descriptor") : NULL;
	const struct ljvm_descriptor *d = (const void *)at;
	pid_t pid = argc > 3 ? atoi(argv[2]) : 0;
	struct ljvm_memory memory = {read_process, &pid, argc > 3 ? strtoull(argv[3], NULL, 0) : 0};
	const struct ljvm_helpers *h;
	struct core core;
	struct ljvm_vm vm;

	if (!at || d->helpers.size < sizeof(*h))
		return 1;
	h = (const void *)(at + d->helpers.offset);
	if (argc == 2)
		return look_at_lies(h, d);
	if (pid <= 0) {
		if (!core_map(&core, argv[2]))
			return 1;
		memory.read = core_read;
		memory.context = &core;
	}
	for (uint32_t n = 0; h->vm(&memory, n, &vm) == 0; n++) {
		printf("VM %u: 0x%llx\n", vm.serial, (unsigned long long)vm.g);
		print_stack(h, &memory, &vm);
	}
	memory.descriptor += 8; /* none is there */
	printf("not a descriptor: %d\n", h->vm(&memory, 0, &vm));
	memory.descriptor = 16;
	printf("not readable: %d\n", h->vm(&memory, 0, &vm));
	memory.descriptor = 0;
	printf("none here: %d\n", h->vm(&memory, 0, &vm));
	return 0;
}

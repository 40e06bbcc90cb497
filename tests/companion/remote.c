/* SPDX-License-Identifier: MIT */
/*
 * remote COMPANION.so PID DESCRIPTOR: helpers that are loaded here look at another process, whose descriptor is at that
 * address: its VMs, and the stack of the coroutine that each runs.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

#include <moonspy/vm_descriptor.h>

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

	read_process(m->context, m->descriptor, &d, sizeof(d));
	read_process(m->context, m->descriptor + d.constants.offset + at, &value, sizeof(value));
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

	read_process(m->context, vm->g + place, &context.L, 8);
	place = (uint64_t)constant(m, offsetof(struct ljvm_constants, L_cframe));
	read_process(m->context, context.L + place, &context.cframe, 8);
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

int main(int argc, char **argv)
{
	void *library = argc > 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	const char *at = library ? dlsym(library, "luaJIT_vm_descriptor") : NULL;
	const struct ljvm_descriptor *d = (const void *)at;
	pid_t pid = argc > 3 ? atoi(argv[2]) : 0;
	struct ljvm_memory memory = {read_process, &pid, argc > 3 ? strtoull(argv[3], NULL, 0) : 0};
	const struct ljvm_helpers *h;
	struct ljvm_vm vm;

	if (!at || d->helpers.size < sizeof(*h))
		return 1;
	h = (const void *)(at + d->helpers.offset);
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

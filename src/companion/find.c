/* SPDX-License-Identifier: MIT */
/* The LuaJIT of the own process: found by its files and proved on a VM, as that of any other process is. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "companion/companion.h"
#include "moonspy/moonspy.h"
#include "target/space.h"

/* The VM of L if L is a lua_State of the build with that layout. */
static const struct msp_vm *vm_of(struct msp_space *space, uint32_t layout, uint64_t L)
{
	const struct msp_image_entry *entry = msp_images_by_layout(msp_space_images(space), layout);
	const struct msp_memory *memory = msp_space_host(space)->memory;
	const struct msp_lj_layout *l;
	const struct msp_vm *vm;
	uint64_t g = 0;

	if (!entry || !entry->build)
		return NULL;
	l = msp_lj_build_layout(entry->build);
	if (msp_read(memory, L + (uint64_t)(int64_t)l->L_glref, &g, l->gc64 ? 8 : 4))
		return NULL;
	vm = msp_space_vm_at(space, layout, g);
	return vm && vm->proof.proved ? vm : NULL;
}

static int look(struct msp_space *space, uint64_t L, companion_found_fn fn)
{
	struct msp_images *images = msp_space_images(space);
	const struct msp_vm *vm;

	if (msp_images_builds(images) == 0)
		return MSP_E_NO_LUAJIT;
	for (uint32_t i = 1; i < MSP_LAYOUT_SLOTS; i++) {
		vm = vm_of(space, i, L);
		if (!vm)
			continue;
		fn(&(struct companion_found){msp_images_by_layout(images, i)->build, vm->image_base,
					     vm->g});
		return 0;
	}
	return MSP_E_NOT_PROVED;
}

/* ---- On a stack of our own: threads of the program may have small ones ---- */

#define STACK_SIZE (1u << 20)

struct search {
	uint64_t L;
	companion_found_fn fn;
	int result;
	ucontext_t caller, own;
};

static void search_all(struct search *search)
{
	struct msp_images_options options = {.threads = 1}; /* no threads of ours in a stranger */
	struct msp_images *images = NULL;
	struct msp_process *process = NULL;
	struct msp_space *space = NULL;
	int err = msp_images_new(&options, &images);

	if (err >= 0)
		err = msp_process_open(getpid(), &process);
	if (err >= 0)
		err = msp_space_new(images, process, &space);
	if (err >= 0)
		err = msp_space_refresh(space);
	if (err >= 0)
		err = look(space, search->L, search->fn);
	msp_space_free(space);
	msp_process_close(process);
	msp_images_free(images);
	search->result = err < 0 ? err : 0;
}

/* makecontext() passes integers only. */
static void enter(unsigned int high, unsigned int low)
{
	search_all((struct search *)((uintptr_t)high << 32 | low));
}

static void search_on(struct search *search, void *stack)
{
	uintptr_t address = (uintptr_t)search;

	if (getcontext(&search->own)) {
		search->result = MSP_E_NOMEM;
		return;
	}
	search->own.uc_stack.ss_sp = stack;
	search->own.uc_stack.ss_size = STACK_SIZE;
	search->own.uc_link = &search->caller;
	makecontext(&search->own, (void (*)(void))enter, 2, (unsigned int)(address >> 32),
		    (unsigned int)address);
	swapcontext(&search->caller, &search->own);
}

/* Signals wait meanwhile: a handler may ask how much of the thread's stack is left, or look at all of it. */
int companion_find(uint64_t L, companion_found_fn fn, char *why, size_t size)
{
	struct search *search = calloc(1, sizeof(*search));
	void *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	sigset_t all, before;
	int err = MSP_E_NOMEM;

	if (search && stack != MAP_FAILED) {
		search->L = L;
		search->fn = fn;
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		search_on(search, stack);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		err = search->result;
	}
	if (stack != MAP_FAILED)
		munmap(stack, STACK_SIZE);
	free(search);
	snprintf(why, size, "%s", err < 0 ? msp_strerror(err) : "");
	return err;
}

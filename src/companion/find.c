/* SPDX-License-Identifier: MIT */
/* The LuaJIT of the own process: found by its files and proved on a VM, as that of any other process is. */
#include <stdio.h>
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

int companion_find(uint64_t L, companion_found_fn fn, char *why, size_t size)
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
		err = look(space, L, fn);
	snprintf(why, size, "%s", err < 0 ? msp_strerror(err) : "");
	msp_space_free(space);
	msp_process_close(process);
	msp_images_free(images);
	return err < 0 ? err : 0;
}

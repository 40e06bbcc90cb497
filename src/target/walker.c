/* SPDX-License-Identifier: MIT */
/* The walker's user-space host: how it reads memory and finds tables here. */
#include "target/snapshot.h"

#include <stdlib.h>

#include "moonspy/moonspy.h"
#include "unwind/walk.h"

struct msp_walker {
	struct msp_space *space;
	const struct msp_memory *mem;
	struct msp_host_vm vm[MSP_MAX_HOST_VMS];
	uint32_t vms;
	struct msp_lj_place place[MSP_MAX_FRAMES]; /* of each Lua frame */
	struct msp_walk walk;
};

#define host_lua_frame(w, f) note_place(w, f)

static struct msp_walker *host_of(const struct msp_walk *w)
{
	return (struct msp_walker *)(uintptr_t)w->host;
}

static int host_read(struct msp_walk *w, void *dst, size_t size, uint64_t addr)
{
	return msp_read(host_of(w)->mem, addr, dst, size);
}

/* Where the frame just put out is. The one inside of it, if it is on the same coroutine, ends it. */
static void note_place(struct msp_walk *w, const struct msp_raw_frame *f)
{
	struct msp_lj_place *place = host_of(w)->place;
	size_t i = f - w->frame;

	place[i] = (struct msp_lj_place){.l = w->l, .fn = w->fn, .base = w->lua_base};
	for (size_t j = i; j-- > 0;) {
		if (w->frame[j].kind == MSP_RAW_VM || w->frame[j].kind == MSP_RAW_NATIVE)
			break;
		if (w->frame[j].kind != MSP_RAW_STATE && place[j].l == w->l) {
			place[i].limit = place[j].base;
			break;
		}
	}
}

static const struct msp_lj_layout *host_layout(struct msp_walk *w, uint32_t index)
{
	const struct msp_image_entry *entry;

	entry = msp_images_by_layout(msp_space_images(host_of(w)->space), index);
	return entry ? msp_lj_build_layout(entry->build) : NULL;
}

static const struct msp_host_vm *host_vms(const struct msp_walk *w, uint32_t *count)
{
	*count = host_of(w)->vms;
	return host_of(w)->vm;
}

static const struct msp_mapping *host_find(const struct msp_walk *w, uint64_t pc)
{
	return msp_space_find(host_of(w)->space, pc);
}

static const struct msp_unwind_table *host_table(const struct msp_walk *w, uint32_t image,
						 uint32_t *layout)
{
	const struct msp_image_entry *entry =
		msp_images_get(msp_space_images(host_of(w)->space), image);

	if (!entry || !entry->table)
		return NULL;
	*layout = entry->layout;
	return entry->table;
}

#include "target/lookup.h"
#include "unwind/walker.h"
#include "unwind/coroutine.h"

#define host_memory(w) (host_of(w)->mem)
#include "target/leave.h"

int msp_walker_new(struct msp_space *space, struct msp_walker **out)
{
	struct msp_walker *walker = calloc(1, sizeof(*walker));

	if (!walker)
		return MSP_E_NOMEM;
	walker->space = space;
	walker->walk.arch = msp_space_host(space)->arch;
	*out = walker;
	return 0;
}

void msp_walker_free(struct msp_walker *walker)
{
	free(walker);
}

static void give(struct msp_walker *walker, struct msp_stack *out)
{
	struct msp_walk *w = &walker->walk;

	*out = (struct msp_stack){.frames = w->frame,
				  .places = walker->place,
				  .count = w->frame_count,
				  .error = w->error,
				  .ways = w->ways,
				  .has_vm = w->has_vm,
				  .vmstate = w->vmstate};
}

void msp_walker_coroutine(struct msp_walker *walker, const struct msp_memory *mem,
			  const struct msp_vm *vm, uint64_t l, struct msp_stack *out)
{
	struct msp_walk *w = &walker->walk;
	int done;

	walker->mem = mem ? mem : msp_space_host(walker->space)->memory;
	w->host = (uintptr_t)walker;
	w->layout = vm->layout;
	w->vm_base = vm->image_base;
	done = coroutine_begin(w, l);
	for (int i = 0; done == MSP_STEP_MORE && i < 8 * MSP_MAX_FRAMES; i++)
		done = coroutine_step(w);
	if (done == MSP_STEP_MORE)
		walk_error(w, MSP_ERR_INTERNAL);
	give(walker, out);
}

void msp_walker_walk(struct msp_walker *walker, const struct msp_memory *mem,
		     const struct msp_registers *regs, struct msp_stack *out)
{
	struct msp_walk *w = &walker->walk;

	walker->mem = mem ? mem : msp_space_host(walker->space)->memory;
	walker->vms = msp_space_host_vms(walker->space, walker->vm);
	w->host = (uintptr_t)walker;
	walk_set_registers(w, regs);
	walk_begin(w);
	leave_nowhere(w, regs);
	/* Steps without a frame are few, but a target could make them many. */
	for (int i = 0; i < 8 * MSP_MAX_FRAMES; i++)
		if (walk_step(w) != MSP_STEP_MORE)
			break;
		else if (i == 8 * MSP_MAX_FRAMES - 1)
			walk_error(w, MSP_ERR_INTERNAL);
	give(walker, out);
}

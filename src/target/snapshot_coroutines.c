/* SPDX-License-Identifier: MIT */
/*
 * All coroutines of a process. Those on the stack of a thread have the frames that were found
 * there; what their VM has saved of them is stale. All others are walked from what is saved.
 */
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"
#include "target/snapshot_internal.h"

/* Memory stays bounded: what is beyond is counted. */
#define COROUTINES_MAX 200000
#define FRAMES_MAX 1500000

static struct msp_coroutine_stack *find_met(struct taking *taking, pid_t tid, uint64_t l)
{
	for (size_t i = taking->met_count; i-- > 0;)
		if (taking->met[i].l == l && (!tid || taking->met[i].tid == tid))
			return &taking->met[i];
	return NULL;
}

/* The innermost of its VM on a thread runs; the others have resumed it, or wait for C code. */
static int status_on(const struct taking *taking, pid_t tid, uint64_t g)
{
	for (size_t i = 0; i < taking->met_count; i++)
		if (taking->met[i].tid == tid && taking->met[i].g == g)
			return MSP_COROUTINE_NORMAL;
	return MSP_COROUTINE_RUNNING;
}

static bool has_place(const struct msp_raw_frame *frame)
{
	return (frame->kind == MSP_RAW_LUA && !(frame->flags & MSP_RAWF_INLINED)) ||
	       frame->kind == MSP_RAW_FAST || frame->kind == MSP_RAW_CFUNC;
}

/* The frames of one coroutine of a stack, behind a VM frame. */
static int copy_frames(const struct msp_stack *stack, size_t vm, uint64_t l,
		       struct msp_coroutine_stack *out)
{
	out->frames = malloc((stack->count - vm) * sizeof(*out->frames));
	if (!out->frames)
		return MSP_E_NOMEM;
	out->frames[out->count++] = stack->frames[vm];
	for (size_t i = vm; i < stack->count; i++)
		if (has_place(&stack->frames[i]) && stack->places[i].l == l)
			out->frames[out->count++] = stack->frames[i];
	return 0;
}

static int meet(struct taking *taking, pid_t tid, const struct msp_stack *stack, size_t vm,
		uint64_t l)
{
	struct msp_coroutine_stack *bigger, *met;
	size_t room;

	if (taking->met_count == taking->met_room) {
		room = taking->met_room ? taking->met_room * 2 : 16;
		bigger = reallocarray(taking->met, room, sizeof(*bigger));
		if (!bigger)
			return MSP_E_NOMEM;
		taking->met = bigger;
		taking->met_room = room;
	}
	met = &taking->met[taking->met_count];
	*met = (struct msp_coroutine_stack){
		.g = stack->frames[vm].addr,
		.l = l,
		.tid = tid,
		.status = status_on(taking, tid, stack->frames[vm].addr),
	};
	taking->met_count++;
	return copy_frames(stack, vm, l, met);
}

int snapshot_meet(struct taking *taking, pid_t tid, const struct msp_stack *stack)
{
	size_t vm = SIZE_MAX, before = taking->met_count;
	uint64_t last = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < stack->count; i++) {
		const struct msp_raw_frame *frame = &stack->frames[i];

		if (frame->kind == MSP_RAW_VM)
			vm = i;
		if (vm == SIZE_MAX || !has_place(frame) || stack->places[i].l == last)
			continue;
		last = stack->places[i].l;
		if (!find_met(taking, tid, last))
			r = meet(taking, tid, stack, vm, last);
	}
	/* Where the stack breaks off, so does the coroutine that it was in. */
	if (taking->met_count > before)
		taking->met[taking->met_count - 1].error = stack->error;
	return r;
}

/* ---- All of a VM ---- */

struct listing {
	struct taking *taking;
	const struct msp_vm *vm;
};

static struct msp_coroutine_stack *new_coroutine(struct taking *taking)
{
	struct msp_snapshot *out = taking->out;
	struct msp_coroutine_stack *bigger;
	size_t room;

	if (out->coroutines == taking->coroutine_room) {
		room = taking->coroutine_room ? taking->coroutine_room * 2 : 64;
		bigger = reallocarray(out->coroutine, room, sizeof(*bigger));
		if (!bigger)
			return NULL;
		out->coroutine = bigger;
		taking->coroutine_room = room;
	}
	memset(&out->coroutine[out->coroutines], 0, sizeof(*out->coroutine));
	return &out->coroutine[out->coroutines++];
}

/* One that has not started has no frame yet: its function stands for it. */
static int keep_new(const struct listing *listing, const struct msp_lj_coroutine *coroutine,
		    struct msp_coroutine_stack *out)
{
	uint16_t layout = (uint16_t)listing->vm->layout;

	out->frames = calloc(2, sizeof(*out->frames));
	if (!out->frames)
		return MSP_E_NOMEM;
	out->frames[0] =
		(struct msp_raw_frame){.kind = MSP_RAW_VM, .addr = listing->vm->g, .image = layout};
	out->frames[1] = (struct msp_raw_frame){.kind = MSP_RAW_LUA,
						.addr = coroutine->pt,
						.ident = coroutine->ident,
						.image = layout,
						.flags = MSP_RAWF_NOPC};
	out->count = coroutine->pt ? 2 : 1;
	return 0;
}

static int keep_walked(const struct listing *listing, const struct msp_lj_coroutine *coroutine,
		       struct msp_coroutine_stack *out)
{
	struct taking *taking = listing->taking;
	struct msp_stack stack;

	msp_walker_coroutine(taking->walker, msp_memory_cache_memory(taking->cache), listing->vm,
			     coroutine->l, &stack);
	out->error = stack.error;
	if (stack.count > taking->frames_left) {
		out->error = MSP_ERR_TRUNCATED;
		return 0;
	}
	taking->frames_left -= stack.count;
	return snapshot_keep(taking, &stack, &out->frames, &out->variables, &out->count);
}

static int list_coroutine(void *ctx, const struct msp_lj_coroutine *coroutine)
{
	const struct listing *listing = ctx;
	struct taking *taking = listing->taking;
	struct msp_coroutine_stack *met = find_met(taking, 0, coroutine->l), *out;

	/* A VM that does nothing: its main thread is no coroutine that anybody made. */
	if (coroutine->main && !met && coroutine->status != MSP_COROUTINE_NORMAL)
		return 0;
	if (taking->out->coroutines == COROUTINES_MAX) {
		taking->out->left_out++;
		return 0;
	}
	out = new_coroutine(taking);
	if (!out)
		return MSP_E_NOMEM;
	if (met) {
		*out = *met;
		met->frames = NULL;
		met->l = 0;
	}
	out->g = listing->vm->g;
	out->l = coroutine->l;
	out->main = coroutine->main;
	if (met)
		return 0;
	out->status = coroutine->status;
	/* With all stacks whole it is on one that nobody runs (a fiber's), as it was saved. */
	out->stale = coroutine->status == MSP_COROUTINE_NORMAL && taking->broken;
	return coroutine->status == MSP_COROUTINE_NEW ? keep_new(listing, coroutine, out)
						      : keep_walked(listing, coroutine, out);
}

int snapshot_coroutines(struct taking *taking)
{
	const struct msp_memory *mem = msp_memory_cache_memory(taking->cache);
	const struct msp_image_entry *entry;
	const struct msp_vm *vms;
	size_t count;
	int r = 0;

	taking->frames_left = FRAMES_MAX;
	vms = msp_space_vms(taking->space, &count);
	for (size_t i = 0; i < count && r != MSP_E_NOMEM; i++) {
		struct listing listing = {.taking = taking, .vm = &vms[i]};

		entry = msp_images_get(msp_space_images(taking->space), vms[i].image);
		if (vms[i].gone || !vms[i].proof.heap || vms[i].layout == MSP_LAYOUT_NONE || !entry)
			continue;
		r = msp_lj_coroutines(entry->build, mem, vms[i].g, list_coroutine, &listing);
		taking->out->broken_heaps += r == MSP_E_FORMAT || r == MSP_E_LIMIT;
	}
	return r == MSP_E_NOMEM ? r : 0;
}

void snapshot_forget(struct taking *taking)
{
	for (size_t i = 0; i < taking->met_count; i++)
		free(taking->met[i].frames);
	free(taking->met);
	taking->met = NULL;
	taking->met_count = taking->met_room = taking->coroutine_room = 0;
}

/* SPDX-License-Identifier: MIT */
/* Traces of a VM, and what its compiler gave up on. */
#include <stdlib.h>

#include "library/internal.h"
#include "luajit/jit.h"

struct msp_jit {
	struct msp_target *target;
	uint32_t layout;
	uint64_t g;
	struct msp_lj_jit found;
	struct msp_jit_info info;
	struct msp_jit_trace trace;
	struct msp_jit_refusal refusal;
};

int msp_jit_read(struct msp_target *target, size_t vm, struct msp_jit **out)
{
	const struct msp_vm *from = lib_vm(target, vm);
	const struct msp_image_entry *entry;
	struct msp_jit *jit;
	int err;

	*out = NULL;
	if (!from)
		return lib_error(target, MSP_E_NOT_FOUND, "there is no VM %zu", vm);
	if (!from->proof.heap)
		return lib_error(target, MSP_E_NOT_PROVED, "the layout of the VM is not proved");
	entry = msp_images_get(target->registry->images, from->image);
	jit = calloc(1, sizeof(*jit));
	if (!jit)
		return lib_error(target, MSP_E_NOMEM, "out of memory");
	err = msp_lj_jit_read(entry->build, msp_space_host(target->space)->memory, from->g,
			      &jit->found);
	if (err < 0) {
		free(jit);
		return lib_error(target, err, "%s",
				 err == MSP_E_UNSUPPORTED ? "the VM has no JIT compiler"
							  : msp_strerror(err));
	}
	jit->target = target;
	jit->layout = from->layout;
	jit->g = from->g;
	jit->info = (struct msp_jit_info){.traces = jit->found.traces,
					  .refusals = jit->found.refusals,
					  .mcode = jit->found.mcode,
					  .all_functions = jit->found.all_functions,
					  .aborts_known = jit->found.aborts_known,
					  .flushed = jit->found.flushed};
	*out = jit;
	return 0;
}

void msp_jit_free(struct msp_jit *jit)
{
	if (!jit)
		return;
	msp_lj_jit_free(&jit->found);
	free(jit);
}

const struct msp_jit_info *msp_jit_info(const struct msp_jit *jit)
{
	return &jit->info;
}

static void name_place(struct msp_jit *jit, const struct msp_lj_code_place *place,
		       struct msp_frame *out)
{
	struct msp_raw_frame raw[2] = {
		{.kind = MSP_RAW_VM, .addr = jit->g, .image = (uint16_t)jit->layout},
		{.kind = MSP_RAW_LUA,
		 .addr = place->pt,
		 .ident = place->ident,
		 .pos = place->pos,
		 .image = (uint16_t)jit->layout}};

	if (!place->pt || msp_symbolizer_frame(jit->target->symbols, raw, 2, 1, out) < 0)
		*out = (struct msp_frame){.kind = MSP_FRAME_LUA};
}

const struct msp_jit_trace *msp_jit_trace(struct msp_jit *jit, size_t i)
{
	const struct msp_lj_trace *from = &jit->found.trace[i];

	if (i >= jit->found.traces)
		return NULL;
	jit->trace = (struct msp_jit_trace){.number = from->number,
					    .root = from->root,
					    .parent = from->parent,
					    .exit = from->exit,
					    .stitched = from->stitched,
					    .link = from->link,
					    .linktype = msp_lj_link_name(from->linktype),
					    .gives_up = msp_lj_link_gives_up(from),
					    .bytes = from->szmcode,
					    .snapshots = from->snapshots};
	name_place(jit, &from->start, &jit->trace.start);
	return &jit->trace;
}

const struct msp_jit_refusal *msp_jit_refusal(struct msp_jit *jit, size_t i)
{
	const struct msp_lj_refusal *from = &jit->found.refusal[i];

	if (i >= jit->found.refusals)
		return NULL;
	jit->refusal = (struct msp_jit_refusal){
		.loop = from->loop,
		.reason = from->reason == MSP_LJ_REASON_NONE ? NULL
							     : msp_lj_reason_text(from->reason),
		.penalty = from->penalty};
	jit->refusal.kind = from->kind == MSP_LJ_GIVEN_UP  ? MSP_JIT_GIVEN_UP
			    : from->kind == MSP_LJ_ABORTED ? MSP_JIT_ABORTED
							   : MSP_JIT_SWITCHED_OFF;
	name_place(jit, &from->place, &jit->refusal.place);
	return &jit->refusal;
}

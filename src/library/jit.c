/* SPDX-License-Identifier: MIT */
/* Traces of a VM, and what its compiler gave up on. */
#include <stdlib.h>
#include <string.h>

#include "library/internal.h"
#include "luajit/jit.h"

/* Names of functions are looked for that long; what is not found by then is named as well as it can be. */
#define INDEX_US 2000000

struct msp_jit {
	struct msp_target *target;
	uint32_t image;
	uint64_t g;
	struct msp_jit_line *line; /* of msp_jit_lines() */
	size_t lines, line_room;
	struct msp_lj_jit found;
	struct msp_jit_info info;
	struct msp_jit_trace trace;
	struct msp_jit_refusal refusal;
};

int msp_jit_read(struct msp_target *target, size_t vm, struct msp_jit **out)
{
	const struct msp_vm *from = lib_vm(target, vm);
	const struct msp_image_entry *entry;
	struct msp_lj_names *names;
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
	jit->image = from->image;
	jit->g = from->g;
	jit->info = (struct msp_jit_info){.traces = jit->found.traces,
					  .refusals = jit->found.refusals,
					  .mcode = jit->found.mcode,
					  .all_functions = jit->found.all_functions,
					  .aborts_known = jit->found.aborts_known,
					  .flushed = jit->found.flushed};
	names = msp_space_vm_names(target->space, from);
	if (names)
		msp_lj_names_index(names, INDEX_US);
	*out = jit;
	return 0;
}

void msp_jit_free(struct msp_jit *jit)
{
	if (!jit)
		return;
	msp_lj_jit_free(&jit->found);
	free(jit->line);
	free(jit);
}

const struct msp_jit_info *msp_jit_info(const struct msp_jit *jit)
{
	return &jit->info;
}

/* The names of its VM; NULL: it is not there any more. */
static struct msp_lj_names *names_of(const struct msp_jit *jit)
{
	size_t count = 0;
	const struct msp_vm *vms = msp_space_vms(jit->target->space, &count);

	for (size_t i = 0; i < count; i++)
		if (!vms[i].gone && vms[i].g == jit->g && vms[i].image == jit->image)
			return msp_space_vm_names(jit->target->space, &vms[i]);
	return NULL;
}

static bool name_place(struct msp_lj_names *names, const struct msp_lj_code_place *place,
		       struct msp_jit_line *out)
{
	const struct msp_lj_function *function;

	*out = (struct msp_jit_line){.place.kind = MSP_FRAME_LUA, .place.certain = true};
	if (!names || !place->pt ||
	    msp_lj_names_function(names, place->pt, place->ident, 0, 0, &function))
		return false;
	out->chunk = function->chunk;
	out->place.name = function->name;
	out->place.file = function->file;
	out->place.defined = function->defined;
	out->place.line = msp_lj_names_line(names, place->pt, place->ident, place->pos);
	return true;
}

/* Where a function is entered there may be no line: that of its definition is it. */
static bool name_start(struct msp_lj_names *names, const struct msp_lj_code_place *place,
		       struct msp_jit_line *out)
{
	if (!name_place(names, place, out))
		return false;
	if (!out->place.line)
		out->place.line = out->place.defined;
	return true;
}

const struct msp_jit_trace *msp_jit_trace(struct msp_jit *jit, size_t i)
{
	const struct msp_lj_trace *from;
	struct msp_jit_line start;

	if (i >= jit->found.traces)
		return NULL;
	from = &jit->found.trace[i];
	name_start(names_of(jit), &from->start, &start);
	jit->trace = (struct msp_jit_trace){.number = from->number,
					    .root = from->root,
					    .parent = from->parent,
					    .exit = from->exit,
					    .stitched = from->stitched,
					    .link = from->link,
					    .linktype = msp_lj_link_name(from->linktype),
					    .linkcode = from->linktype,
					    .gives_up = msp_lj_link_gives_up(from),
					    .bytes = from->szmcode,
					    .snapshots = from->snapshots,
					    .start = start.place};
	return &jit->trace;
}

const struct msp_jit_refusal *msp_jit_refusal(struct msp_jit *jit, size_t i)
{
	const struct msp_lj_refusal *from;
	struct msp_jit_line place;

	if (i >= jit->found.refusals)
		return NULL;
	from = &jit->found.refusal[i];
	name_start(names_of(jit), &from->place, &place);
	jit->refusal = (struct msp_jit_refusal){
		.loop = from->loop,
		.reason = from->reason == MSP_LJ_REASON_NONE ? NULL
							     : msp_lj_reason_text(from->reason),
		.penalty = from->penalty,
		.place = place.place};
	jit->refusal.kind = from->kind == MSP_LJ_GIVEN_UP  ? MSP_JIT_GIVEN_UP
			    : from->kind == MSP_LJ_ABORTED ? MSP_JIT_ABORTED
							   : MSP_JIT_SWITCHED_OFF;
	return &jit->refusal;
}

/* ---- The lines of a trace ---- */

static int compare_lines(const void *a, const void *b)
{
	const struct msp_frame *x = &((const struct msp_jit_line *)a)->place;
	const struct msp_frame *y = &((const struct msp_jit_line *)b)->place;
	int r = strcmp(x->file, y->file);

	if (!r)
		r = (x->defined > y->defined) - (x->defined < y->defined);
	if (!r)
		r = strcmp(x->name, y->name);
	return r ? r : (x->line > y->line) - (x->line < y->line);
}

static int add_line(struct msp_jit *jit, const struct msp_jit_line *line)
{
	struct msp_jit_line *bigger;

	if (!line->place.line)
		return 0;
	for (size_t i = 0; i < jit->lines; i++)
		if (!compare_lines(&jit->line[i], line))
			return 0;
	if (jit->lines == jit->line_room) {
		size_t room = jit->line_room ? 2 * jit->line_room : 64;

		bigger = reallocarray(jit->line, room, sizeof(*bigger));
		if (!bigger)
			return MSP_E_NOMEM;
		jit->line = bigger;
		jit->line_room = room;
	}
	jit->line[jit->lines++] = *line;
	return 0;
}

struct places {
	struct msp_jit *jit;
	struct msp_lj_names *names;
	int error;
};

static void on_place(void *ctx, const struct msp_lj_code_place *place)
{
	struct places *p = ctx;
	struct msp_jit_line line;

	if (!p->error && name_place(p->names, place, &line))
		p->error = add_line(p->jit, &line);
}

int msp_jit_lines(struct msp_jit *jit, size_t i)
{
	struct places p = {.jit = jit, .names = names_of(jit)};
	struct msp_target *target = jit->target;
	const struct msp_image_entry *entry = msp_images_get(target->registry->images, jit->image);
	const struct msp_lj_trace *trace;
	struct msp_jit_line start;
	int err;

	jit->lines = 0;
	if (i >= jit->found.traces)
		return lib_error(target, MSP_E_NOT_FOUND, "there is no %zu-th trace", i);
	trace = &jit->found.trace[i];
	if (name_start(p.names, &trace->start, &start))
		p.error = add_line(jit, &start);
	err = msp_lj_trace_places(entry->build, msp_space_host(target->space)->memory, trace,
				  on_place, &p);
	if (err == MSP_E_NOMEM || p.error)
		return lib_error(target, MSP_E_NOMEM, "out of memory");
	if (jit->lines)
		qsort(jit->line, jit->lines, sizeof(*jit->line), compare_lines);
	return (int)jit->lines;
}

const struct msp_jit_line *msp_jit_line(struct msp_jit *jit, size_t n)
{
	return n < jit->lines ? &jit->line[n] : NULL;
}

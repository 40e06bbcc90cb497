/* SPDX-License-Identifier: MIT */
/* Traces as JSON (docs/formats.md, "Traces"). */
#include <stdio.h>

#include "cli/traces.h"

static void put_text(struct msp_json *json, const char *key, const char *text)
{
	msp_json_key(json, key);
	msp_json_string(json, text);
}

static void put_uint(struct msp_json *json, const char *key, uint64_t value, bool known)
{
	msp_json_key(json, key);
	if (known)
		msp_json_uint(json, value);
	else
		msp_json_null(json);
}

static void put_bool(struct msp_json *json, const char *key, bool value)
{
	msp_json_key(json, key);
	msp_json_bool(json, value);
}

/* The members of a place: a function, and a line in it. */
static void put_place(struct msp_json *json, const struct msp_frame *place)
{
	put_text(json, "name", place->name);
	put_text(json, "file", place->file);
	put_uint(json, "defined", place->defined, place->name != NULL);
	put_uint(json, "line", place->line, place->line != 0);
}

static void put_lines(struct msp_json *json, const struct traces *t,
		      const struct traces_trace *trace)
{
	msp_json_key(json, "lines");
	msp_json_array(json);
	for (size_t i = 0; i < trace->lines; i++) {
		msp_json_object(json);
		put_place(json, &trace->line[i].at.place);
		put_uint(json, "samples", trace->line[i].samples, t->sampled);
		msp_json_end(json);
	}
	msp_json_end(json);
}

static void put_trace(struct msp_json *json, const struct traces *t,
		      const struct traces_trace *trace)
{
	const struct msp_jit_trace *T = &trace->trace;

	msp_json_object(json);
	msp_json_key(json, "number");
	msp_json_uint(json, T->number);
	put_uint(json, "root", T->root, T->root != 0);
	put_uint(json, "parent", T->parent, T->parent != 0);
	put_uint(json, "exit", T->exit, T->parent && !T->stitched);
	put_text(json, "link_type", T->linktype);
	put_uint(json, "link", T->link, T->link != 0);
	put_bool(json, "gives_up", T->gives_up);
	put_place(json, &T->start);
	msp_json_key(json, "bytes");
	msp_json_uint(json, T->bytes);
	msp_json_key(json, "snapshots");
	msp_json_uint(json, T->snapshots);
	put_uint(json, "samples", trace->samples, t->sampled);
	if (t->options->annotate == T->number)
		put_lines(json, t, trace);
	msp_json_end(json);
}

static void put_refusal(struct msp_json *json, const struct traces *t,
			const struct traces_refusal *refusal)
{
	const struct msp_jit_refusal *r = &refusal->refusal;

	msp_json_object(json);
	put_text(json, "state", traces_refusal_name(r->kind));
	put_text(json, "what", r->loop ? "loop" : "function");
	put_place(json, &r->place);
	put_text(json, "reason", r->reason);
	put_uint(json, "penalty", r->penalty, r->penalty != 0);
	put_uint(json, "samples", refusal->samples, t->sampled);
	msp_json_end(json);
}

/* Of the time that the profile is of. */
static void put_events(struct msp_json *json, const struct traces *t, const struct traces_vm *vm)
{
	msp_json_key(json, "events");
	msp_json_array(json);
	for (size_t i = 0; i < t->events; i++) {
		if (t->event[i].g != vm->info.g)
			continue;
		msp_json_object(json);
		put_text(json, "event", t->event[i].event);
		put_uint(json, "count", t->event[i].count, true);
		msp_json_end(json);
	}
	msp_json_end(json);
}

static void put_vm(struct msp_json *json, const struct traces *t, const struct traces_vm *vm)
{
	const struct msp_build *build = msp_target_build(t->live->target, vm->info.build);

	msp_json_object(json);
	msp_json_key(json, "g");
	msp_json_hex(json, vm->info.g);
	put_text(json, "version", build ? build->version : NULL);
	put_text(json, "object", build ? cli_base_name(build->object) : NULL);
	msp_json_key(json, "machine_code");
	msp_json_uint(json, vm->made->mcode);
	put_bool(json, "complete", vm->made->all_functions);
	put_bool(json, "aborts_known", vm->made->aborts_known);
	msp_json_key(json, "flushed");
	if (vm->made->flushed)
		msp_json_bool(json, true);
	else
		msp_json_null(json);
	put_events(json, t, vm);
	msp_json_key(json, "not_compiled");
	msp_json_array(json);
	for (size_t i = 0; i < vm->made->refusals; i++)
		put_refusal(json, t, &vm->refusal[i]);
	msp_json_end(json);
	msp_json_key(json, "traces");
	msp_json_array(json);
	for (size_t i = 0; i < vm->made->traces; i++)
		put_trace(json, t, &vm->trace[i]);
	msp_json_end(json);
	msp_json_end(json);
}

int traces_json(const struct traces *t)
{
	const struct msp_target_info *info = msp_target_info(t->live->target);
	struct msp_json json = {.buffer.out = stdout};

	msp_json_object(&json);
	msp_json_key(&json, "schema");
	msp_json_uint(&json, 1);
	put_text(&json, "type", "traces");
	msp_json_key(&json, "process");
	msp_json_object(&json);
	msp_json_key(&json, "pid");
	msp_json_int(&json, t->live->pid);
	put_text(&json, "name", info->name);
	put_text(&json, "command", info->command);
	msp_json_end(&json);
	put_uint(&json, "samples", t->total, t->sampled);
	put_uint(&json, "samples_of_other_traces", t->others, t->sampled);
	msp_json_key(&json, "vms");
	msp_json_array(&json);
	for (size_t i = 0; i < t->vms; i++)
		put_vm(&json, t, &t->vm[i]);
	msp_json_end(&json);
	msp_json_end(&json);
	return msp_json_finish(&json);
}

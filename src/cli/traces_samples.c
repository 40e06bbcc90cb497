/* SPDX-License-Identifier: MIT */
/* Which samples of a profile belong to which trace, function and line. */
#include "cli/traces.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/messages.h"
#include "output/output.h"

/* ---- From the profile ---- */

struct reading {
	struct traces *t;
	const struct msp_profile *profile;
	size_t room;
};

static bool is_lua(const struct msp_frame *f)
{
	return f->kind == MSP_FRAME_LUA || f->kind == MSP_FRAME_JIT || f->kind == MSP_FRAME_INLINED;
}

static int add(struct reading *r, const struct msp_frame *f, uint64_t count)
{
	struct traces *t = r->t;
	struct traces_sample *grown;
	const char *file = f->file ? f->file : "";

	for (size_t i = 0; i < t->samples; i++) {
		struct traces_sample *s = &t->sample[i];

		if (s->trace == f->trace && s->line == f->line && s->defined == f->defined &&
		    !strcmp(s->file, file)) {
			s->count += count;
			return 0;
		}
	}
	if (t->samples == r->room) {
		r->room = r->room ? 2 * r->room : 256;
		grown = reallocarray(t->sample, r->room, sizeof(*grown));
		if (!grown)
			return MSP_E_NOMEM;
		t->sample = grown;
	}
	t->sample[t->samples] = (struct traces_sample){.file = strdup(file),
						       .defined = f->defined,
						       .line = f->line,
						       .trace = f->trace,
						       .count = count};
	return t->sample[t->samples].file ? (t->samples++, 0) : MSP_E_NOMEM;
}

/* A stack, root first: where its innermost Lua function is. */
static int on_stack(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
		    uint64_t count)
{
	struct reading *r = ctx;
	const struct msp_frame *f;

	(void)tid;
	if (pid != r->t->live->pid)
		return 0;
	r->t->total += count;
	while (n--) {
		f = msp_profile_frame_at(r->profile, ids[n]);
		if (f && is_lua(f))
			return add(r, f, count);
	}
	return 0;
}

static int copy_events(struct traces *t, const struct msp_profile *profile)
{
	const struct msp_vm_events *from;
	struct traces_event *grown;

	for (size_t i = 0; (from = msp_profile_vm_events(profile, i)); i++) {
		if (from->pid != t->live->pid)
			continue;
		grown = reallocarray(t->event, t->events + 1, sizeof(*grown));
		if (!grown)
			return MSP_E_NOMEM;
		t->event = grown;
		grown[t->events] = (struct traces_event){from->g, from->count, strdup(from->event)};
		if (!grown[t->events].event)
			return MSP_E_NOMEM;
		t->events++;
	}
	return 0;
}

int traces_samples_read(struct traces *t)
{
	const char *path = t->options->samples;
	FILE *in = strcmp(path, "-") ? fopen(path, "re") : stdin;
	struct msp_profile *profile = NULL;
	struct reading r = {.t = t};
	char reason[256] = "";
	int error;

	if (!in) {
		cli_error(cli_fmt("cannot read %s", path), strerror(errno),
			  cli_fmt("ls -l %s", path));
		return CLI_FAILED;
	}
	error = msp_read_msp(in, &profile, reason, sizeof(reason));
	if (in != stdin)
		fclose(in);
	r.profile = profile;
	if (!error)
		error = msp_profile_each(profile, on_stack, &r);
	if (!error)
		error = copy_events(t, profile);
	msp_profile_free(profile);
	if (error) {
		cli_error(cli_fmt("cannot read %s", path), *reason ? reason : msp_strerror(error),
			  error == MSP_E_FORMAT ? "record with -o FILE.msp" : "ulimit -a");
		return CLI_FAILED;
	}
	t->sampled = true;
	if (!t->total)
		cli_note("%s has no samples of process %d", path, (int)t->live->pid);
	return 0;
}

void traces_samples_free(struct traces *t)
{
	for (size_t i = 0; i < t->samples; i++)
		free(t->sample[i].file);
	for (size_t i = 0; i < t->events; i++)
		free(t->event[i].event);
	free(t->event);
	free(t->sample);
	t->sample = NULL;
	t->samples = 0;
}

/* ---- To the traces ---- */

static bool is_of(const struct traces_sample *s, const struct msp_frame *place)
{
	return place->name && s->defined == place->defined && !strcmp(s->file, place->file);
}

/* A line of the function that a sample was in; NULL: it was in another trace with that number. */
static const struct msp_jit_line *function_of(const struct traces_trace *trace,
					      const struct traces_sample *s)
{
	for (size_t i = 0; i < trace->lines; i++)
		if (is_of(s, &trace->line[i].at.place))
			return &trace->line[i].at;
	return NULL;
}

static int by_line(const void *a, const void *b)
{
	const struct msp_frame *x = &((const struct traces_line *)a)->at.place;
	const struct msp_frame *y = &((const struct traces_line *)b)->at.place;
	int r = strcmp(x->file, y->file);

	if (!r)
		r = (x->defined > y->defined) - (x->defined < y->defined);
	if (!r)
		r = strcmp(x->name, y->name);
	return r ? r : (x->line > y->line) - (x->line < y->line);
}

/* The line of a trace; NULL: out of memory. */
static struct traces_line *line_of(struct traces_trace *trace, const struct msp_jit_line *at)
{
	struct traces_line line = {.at = *at}, *grown;

	for (size_t i = 0; i < trace->lines; i++)
		if (!by_line(&trace->line[i], &line))
			return &trace->line[i];
	grown = reallocarray(trace->line, trace->lines + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	trace->line = grown;
	grown[trace->lines] = line;
	return &grown[trace->lines++];
}

/* The lines that the library knows of it. */
static int lines_of(struct traces_vm *vm, struct traces_trace *trace)
{
	int count = msp_jit_lines(vm->jit, trace->index);

	for (int i = 0; i < count; i++)
		if (!line_of(trace, msp_jit_line(vm->jit, (size_t)i)))
			return MSP_E_NOMEM;
	return count < 0 ? count : 0;
}

static struct traces_trace *trace_by_number(struct traces_vm *vm, uint32_t number)
{
	for (size_t i = 0; i < vm->made->traces; i++)
		if (vm->trace[i].trace.number == number)
			return &vm->trace[i];
	return NULL;
}

static int count_in_trace(struct traces *t, const struct traces_sample *s)
{
	struct traces_trace *trace;
	int r = 0;

	for (size_t i = 0; !r && i < t->vms; i++) {
		trace = trace_by_number(&t->vm[i], s->trace);
		if (trace && !trace->lines)
			r = lines_of(&t->vm[i], trace);
		if (r || !trace || !function_of(trace, s))
			continue;
		trace->samples += s->count;
		return 0;
	}
	t->others += s->count;
	return r;
}

static void count_in_interpreter(struct traces *t, const struct traces_sample *s)
{
	for (size_t i = 0; i < t->vms; i++)
		for (size_t k = 0; k < t->vm[i].made->refusals; k++)
			if (is_of(s, &t->vm[i].refusal[k].refusal.place))
				t->vm[i].refusal[k].samples += s->count;
}

int traces_samples_count(struct traces *t)
{
	int r = 0;

	for (size_t i = 0; !r && i < t->samples; i++) {
		if (t->sample[i].trace)
			r = count_in_trace(t, &t->sample[i]);
		else
			count_in_interpreter(t, &t->sample[i]);
	}
	return r;
}

int traces_lines(struct traces *t, struct traces_vm *vm, struct traces_trace *trace)
{
	int r = trace->lines ? 0 : lines_of(vm, trace);

	for (size_t i = 0; !r && i < t->samples; i++) {
		const struct traces_sample *s = &t->sample[i];
		const struct msp_jit_line *function =
			s->trace == trace->trace.number ? function_of(trace, s) : NULL;
		struct msp_jit_line at;
		struct traces_line *line;

		if (!function || !s->line)
			continue;
		at = *function;
		at.place.line = s->line;
		line = line_of(trace, &at);
		if (!line)
			return MSP_E_NOMEM;
		line->samples += s->count;
	}
	if (!r && trace->lines)
		qsort(trace->line, trace->lines, sizeof(*trace->line), by_line);
	return r;
}

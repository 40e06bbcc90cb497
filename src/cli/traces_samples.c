/* SPDX-License-Identifier: MIT */
/* Which samples of a profile belong to which trace, function and line. */
#include "cli/traces.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/messages.h"
#include "moonspy/moonspy.h"
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
	free(t->sample);
	t->sample = NULL;
	t->samples = 0;
}

/* ---- To the traces ---- */

static bool is_of(const struct traces_sample *s, const struct msp_lj_function *fn)
{
	return fn && s->defined == fn->defined && !strcmp(s->file, fn->file);
}

static struct traces_line *find_line(const struct traces_trace *trace,
				     const struct msp_lj_function *fn, uint32_t line)
{
	for (size_t i = 0; i < trace->lines; i++)
		if (trace->line[i].function == fn && trace->line[i].line == line)
			return &trace->line[i];
	return NULL;
}

static int add_line(struct traces_trace *trace, const struct msp_lj_function *fn, uint32_t line)
{
	struct traces_line *grown;

	if (!fn || !line || find_line(trace, fn, line))
		return 0;
	grown = reallocarray(trace->line, trace->lines + 1, sizeof(*grown));
	if (!grown)
		return MSP_E_NOMEM;
	trace->line = grown;
	trace->line[trace->lines++] = (struct traces_line){.function = fn, .line = line};
	return 0;
}

struct places {
	struct msp_lj_names *names;
	struct traces_trace *trace;
	int error;
};

static void on_place(void *ctx, const struct msp_lj_code_place *place)
{
	struct places *p = ctx;
	const struct msp_lj_function *fn;

	if (p->error || msp_lj_names_function(p->names, place->pt, place->ident, 0, 0, &fn))
		return;
	p->error = add_line(p->trace, fn,
			    msp_lj_names_line(p->names, place->pt, place->ident, place->pos));
}

static int by_line(const void *a, const void *b)
{
	const struct traces_line *x = a, *y = b;
	int r = strcmp(x->function->file, y->function->file);

	if (!r)
		r = (x->function->defined > y->function->defined) -
		    (x->function->defined < y->function->defined);
	return r ? r : (x->line > y->line) - (x->line < y->line);
}

/* The lines that the snapshots show; the trace may be gone meanwhile: then that of its start. */
static int lines_of(struct traces *t, struct traces_vm *vm, struct traces_trace *trace)
{
	const struct msp_image_entry *entry = msp_images_get(t->live->images, vm->vm->image);
	struct places p = {.names = msp_space_vm_names(t->live->space, vm->vm), .trace = trace};
	int r = add_line(trace, trace->start.function, trace->start.line);

	if (r || !p.names)
		return r;
	r = msp_lj_trace_places(entry->build, msp_space_host(t->live->space)->memory, trace->trace,
				on_place, &p);
	return r == MSP_E_NOMEM ? r : p.error;
}

/* The function of a trace that a sample was in; NULL: it was in another trace with that number. */
static const struct msp_lj_function *function_of(const struct traces_trace *trace,
						 const struct traces_sample *s)
{
	for (size_t i = 0; i < trace->lines; i++)
		if (is_of(s, trace->line[i].function))
			return trace->line[i].function;
	return NULL;
}

static struct traces_trace *trace_by_number(struct traces_vm *vm, uint32_t number)
{
	for (size_t i = 0; i < vm->jit.traces; i++)
		if (vm->trace[i].trace->number == number)
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
			r = lines_of(t, &t->vm[i], trace);
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
		for (size_t k = 0; k < t->vm[i].jit.refusals; k++)
			if (is_of(s, t->vm[i].refusal[k].place.function))
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
	const struct msp_lj_function *fn;
	int r = trace->lines ? 0 : lines_of(t, vm, trace);

	for (size_t i = 0; !r && i < t->samples; i++) {
		const struct traces_sample *s = &t->sample[i];

		fn = s->trace == trace->trace->number ? function_of(trace, s) : NULL;
		if (!fn || !s->line)
			continue;
		r = add_line(trace, fn, s->line);
		if (!r)
			find_line(trace, fn, s->line)->samples += s->count;
	}
	if (!r && trace->lines)
		qsort(trace->line, trace->lines, sizeof(*trace->line), by_line);
	return r;
}

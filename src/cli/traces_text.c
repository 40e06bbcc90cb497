/* SPDX-License-Identifier: MIT */
/* Traces as text: what is not compiled, then what is. */
#include <stdio.h>
#include <string.h>

#include "cli/messages.h"
#include "cli/traces.h"

static double percent(const struct traces *t, uint64_t samples)
{
	return t->total ? 100.0 * samples / t->total : 0;
}

/* "handler (app.lua:33)", with the line that is meant behind it if it is another. */
static void put_place(const struct msp_frame *place)
{
	if (!place->name) {
		printf("a function that is not known");
		return;
	}
	cli_put_text(place->name);
	printf(" (");
	cli_put_text(place->file);
	printf(":%u)", place->defined);
	if (place->line && place->line != place->defined)
		printf(":%u", place->line);
}

static void put_refusal(const struct traces *t, const struct traces_refusal *refusal)
{
	const struct msp_jit_refusal *r = &refusal->refusal;

	printf("    ");
	if (t->sampled)
		printf("%5.1f %%  ", percent(t, refusal->samples));
	printf("%-9s", r->loop ? "loop" : "function");
	put_place(&r->place);
	if (r->reason)
		printf(": %s", r->reason);
	putchar('\n');
}

static void put_refusals(const struct traces *t, const struct traces_vm *vm)
{
	int kind = -1;

	for (size_t i = 0; i < vm->made->refusals; i++) {
		if ((int)vm->refusal[i].refusal.kind != kind) {
			kind = (int)vm->refusal[i].refusal.kind;
			printf("Not compiled, %s:\n", traces_refusal_text(kind));
		}
		put_refusal(t, &vm->refusal[i]);
	}
}

static const char *origin(const struct msp_jit_trace *T, char buf[32])
{
	if (T->stitched)
		snprintf(buf, 32, "%u/stitch", T->parent);
	else if (T->root && T->parent)
		snprintf(buf, 32, "%u/%u", T->parent, T->exit);
	else
		snprintf(buf, 32, "%s", T->root ? "side" : "root");
	return buf;
}

static const char *link_text(const struct msp_jit_trace *T, char buf[40])
{
	const char *name = T->linktype;

	if (!name)
		snprintf(buf, 40, "link type %u", T->linkcode);
	else if (T->link && T->link != T->number)
		snprintf(buf, 40, "%s %u", name, T->link);
	else
		snprintf(buf, 40, "%s%s", name, T->link && T->gives_up ? ", given up" : "");
	return buf;
}

static void put_trace(const struct traces *t, const struct traces_trace *trace)
{
	const struct msp_jit_trace *T = &trace->trace;
	char from[32], link[40], samples[16] = "";

	if (t->sampled)
		snprintf(samples, sizeof(samples), "%5.1f %%  ", percent(t, trace->samples));
	printf("    %s%6u  %-10s  %-16s  %7u  %9u  ", samples, T->number, origin(T, from),
	       link_text(T, link), T->bytes, T->snapshots);
	put_place(&T->start);
	putchar('\n');
}

static void put_counts(const struct traces_vm *vm)
{
	char digits[CLI_COUNT_SIZE];
	size_t of[MSP_JIT_SWITCHED_OFF + 1] = {0};

	for (size_t i = 0; i < vm->made->refusals; i++)
		of[vm->refusal[i].refusal.kind]++;
	printf("VM 0x%llx: %zu traces, %s bytes of machine code", (unsigned long long)vm->info.g,
	       vm->made->traces, cli_count(vm->made->mcode, digits));
	for (int kind = 0; kind <= MSP_JIT_SWITCHED_OFF; kind++)
		if (of[kind])
			printf(", %zu %s %s", of[kind], of[kind] == 1 ? "place" : "places",
			       traces_refusal_name(kind));
	if (vm->made->flushed)
		printf(", flushed at least once");
	putchar('\n');
}

/* Of the time that the profile is of. */
static void put_events(const struct traces *t, const struct traces_vm *vm)
{
	char digits[CLI_COUNT_SIZE];
	bool said = false;

	for (size_t i = 0; i < t->events; i++) {
		if (t->event[i].g != vm->info.g)
			continue;
		printf("%s%12s  ", said ? "" : "While it was recorded, by its probes:\n",
		       cli_count(t->event[i].count, digits));
		cli_put_text(t->event[i].event);
		putchar('\n');
		said = true;
	}
}

static void put_vm(const struct traces *t, const struct traces_vm *vm)
{
	put_counts(vm);
	put_events(t, vm);
	put_refusals(t, vm);
	if (!vm->made->all_functions)
		printf("[error: the list of objects changed: more may not be compiled]\n");
	if (!vm->made->traces)
		return;
	printf("Traces:\n    %s%6s  %-10s  %-16s  %7s  %9s  start\n", t->sampled ? "samples  " : "",
	       "number", "from", "goes on", "bytes", "snapshots");
	for (size_t i = 0; i < vm->made->traces; i++)
		put_trace(t, &vm->trace[i]);
}

/* The trace asked for alone, with its lines. */
static void put_annotated(const struct traces *t, const struct traces_vm *vm)
{
	for (size_t i = 0; i < vm->made->traces; i++)
		if (vm->trace[i].trace.number == t->options->annotate) {
			put_trace(t, &vm->trace[i]);
			traces_source(t, &vm->trace[i]);
		}
}

void traces_text(const struct traces *t)
{
	printf("Process %d: ", (int)t->live->pid);
	cli_put_text(msp_target_info(t->live->target)->name);
	putchar('\n');
	for (size_t i = 0; i < t->vms; i++) {
		if (t->options->annotate)
			put_annotated(t, &t->vm[i]);
		else
			put_vm(t, &t->vm[i]);
	}
	if (t->sampled && t->others)
		printf("%.1f %% of the samples are of traces that are not there any more\n",
		       percent(t, t->others));
}

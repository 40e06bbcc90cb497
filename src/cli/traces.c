/* SPDX-License-Identifier: MIT */
/* What the JIT compiler made, and what it gave up on. */
#include "cli/traces.h"

#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/messages.h"
#include "moonspy/moonspy.h"

/* Names of functions are looked for that long; what is not found by then is named as well as it can be. */
#define INDEX_US 2000000

const char *traces_refusal_name(uint8_t kind)
{
	static const char *const names[] = {
#define _(id, name, text) name,
		MSP_LJ_REFUSALS(_)
#undef _
	};

	return names[kind];
}

const char *traces_refusal_text(uint8_t kind)
{
	static const char *const texts[] = {
#define _(id, name, text) text,
		MSP_LJ_REFUSALS(_)
#undef _
	};

	return texts[kind];
}

/* ---- Gathering ---- */

static void name_place(struct msp_lj_names *names, const struct msp_lj_code_place *place,
		       struct traces_place *out)
{
	*out = (struct traces_place){0};
	if (!names || !place->pt ||
	    msp_lj_names_function(names, place->pt, place->ident, 0, 0, &out->function))
		return;
	out->line = msp_lj_names_line(names, place->pt, place->ident, place->pos);
	if (!out->line) /* stripped, or a header */
		out->line = out->function->defined;
}

static int name_all(struct traces_vm *vm, struct msp_lj_names *names)
{
	vm->trace = calloc(vm->jit.traces + 1, sizeof(*vm->trace));
	vm->refusal = calloc(vm->jit.refusals + 1, sizeof(*vm->refusal));
	if (!vm->trace || !vm->refusal)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < vm->jit.traces; i++) {
		vm->trace[i].trace = &vm->jit.trace[i];
		name_place(names, &vm->jit.trace[i].start, &vm->trace[i].start);
	}
	for (size_t i = 0; i < vm->jit.refusals; i++) {
		vm->refusal[i].refusal = &vm->jit.refusal[i];
		name_place(names, &vm->jit.refusal[i].place, &vm->refusal[i].place);
	}
	return 0;
}

static int gather_vm(struct traces *t, const struct msp_vm *vm)
{
	const struct msp_image_entry *entry = msp_images_get(t->live->images, vm->image);
	const struct msp_memory *mem = msp_space_host(t->live->space)->memory;
	struct msp_lj_names *names = msp_space_vm_names(t->live->space, vm);
	struct traces_vm *out = &t->vm[t->vms];
	int r = msp_lj_jit_read(entry->build, mem, vm->g, &out->jit);

	if (r)
		return r;
	out->vm = vm;
	t->vms++;
	if (names)
		msp_lj_names_index(names, INDEX_US);
	return name_all(out, names);
}

/* All VMs that can be read; what is wrong with the others is said. 0 or the exit code. */
static int gather(struct traces *t)
{
	const struct msp_vm *vms;
	char proof[256];
	size_t count;
	int r;

	vms = msp_space_vms(t->live->space, &count);
	t->vm = calloc(count + 1, sizeof(*t->vm));
	if (!t->vm)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < count; i++) {
		if (vms[i].gone)
			continue;
		if (!vms[i].proof.heap) {
			cli_note("the VM at 0x%llx is left out: %s", (unsigned long long)vms[i].g,
				 cli_proof_text(&vms[i].proof, proof, sizeof(proof)));
			continue;
		}
		r = gather_vm(t, &vms[i]);
		if (r == MSP_E_NOMEM)
			return r;
		if (r)
			cli_note("the VM at 0x%llx is left out: %s", (unsigned long long)vms[i].g,
				 r == MSP_E_UNSUPPORTED ? "it has no JIT compiler"
							: msp_strerror(r));
	}
	return 0;
}

static void release(struct traces *t)
{
	for (size_t i = 0; i < t->vms; i++) {
		for (size_t k = 0; k < t->vm[i].jit.traces && t->vm[i].trace; k++)
			free(t->vm[i].trace[k].line);
		free(t->vm[i].trace);
		free(t->vm[i].refusal);
		msp_lj_jit_free(&t->vm[i].jit);
	}
	free(t->vm);
	traces_samples_free(t);
}

/* ---- Order ---- */

static int by_number(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Most samples first; then what ends in the interpreter; then what is biggest. */
static int compare_traces(const void *a, const void *b)
{
	const struct traces_trace *x = a, *y = b;
	int r = by_number(y->samples, x->samples);

	if (!r)
		r = msp_lj_link_gives_up(y->trace) - msp_lj_link_gives_up(x->trace);
	if (!r)
		r = by_number(y->trace->szmcode, x->trace->szmcode);
	return r ? r : by_number(x->trace->number, y->trace->number);
}

static int compare_refusals(const void *a, const void *b)
{
	const struct traces_refusal *x = a, *y = b;
	int r = x->refusal->kind - y->refusal->kind;

	if (!r)
		r = by_number(y->samples, x->samples);
	/* as the library has them: the array is one */
	return r ? r : by_number((uintptr_t)x->refusal, (uintptr_t)y->refusal);
}

static void sort(struct traces_vm *vm)
{
	qsort(vm->trace, vm->jit.traces, sizeof(*vm->trace), compare_traces);
	qsort(vm->refusal, vm->jit.refusals, sizeof(*vm->refusal), compare_refusals);
}

/* ---- The verb ---- */

/* The lines of the trace asked for, in each VM that has it. MSP_E_NOT_FOUND: none has. */
static int annotate(struct traces *t)
{
	int r = MSP_E_NOT_FOUND;

	for (size_t i = 0; i < t->vms; i++)
		for (size_t k = 0; k < t->vm[i].jit.traces; k++) {
			if (t->vm[i].trace[k].trace->number != t->options->annotate)
				continue;
			r = traces_lines(t, &t->vm[i], &t->vm[i].trace[k]);
			if (r)
				return r;
		}
	return r;
}

static int no_trace(const struct traces *t)
{
	cli_error(cli_fmt("there is no trace %u", t->options->annotate),
		  "it was never made, or was flushed", "the same without --annotate");
	return CLI_FAILED;
}

static int show(struct traces *t)
{
	int r = gather(t);

	if (!r && t->sampled)
		r = traces_samples_count(t);
	for (size_t i = 0; !r && i < t->vms; i++)
		sort(&t->vm[i]);
	if (!r && !t->vms) {
		cli_note("no LuaJIT with a JIT compiler in %s",
			 t->options->pid_count ? cli_fmt("process %d", (int)t->live->pid)
					       : t->options->files[0]);
		return CLI_NO_LUAJIT;
	}
	if (!r && t->options->annotate)
		r = annotate(t);
	if (r == MSP_E_NOT_FOUND)
		return no_trace(t);
	if (r) {
		cli_error("cannot list the traces", msp_strerror(r), "ulimit -v unlimited");
		return CLI_FAILED;
	}
	if (t->options->json)
		return traces_json(t) ? CLI_FAILED : CLI_OK;
	traces_text(t);
	return CLI_OK;
}

static int open_target(const struct msp_options *options, struct msp_images *images,
		       struct cli_live *live)
{
	struct msp_core_options core = {.exe = options->exe, .sysroot = options->sysroot};

	if (options->pid_count)
		return cli_live_open("traces", options->pids[0], images, live);
	return cli_live_open_core(options->files[0], &core, images, live);
}

int cmd_traces(const struct msp_options *options)
{
	struct cli_live live;
	struct traces t = {.options = options, .live = &live};
	struct msp_images *images;
	int rc = cli_images_open(&images);

	if (rc)
		return rc;
	rc = open_target(options, images, &live);
	if (rc == 0) {
		rc = options->samples ? traces_samples_read(&t) : CLI_OK;
		if (!rc)
			rc = show(&t);
		if (live.core && cli_live_note_gaps(&live) && rc == CLI_OK)
			rc = CLI_PARTIAL;
		release(&t);
		cli_live_close(&live);
	}
	msp_images_free(images);
	return rc;
}

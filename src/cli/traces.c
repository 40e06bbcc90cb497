/* SPDX-License-Identifier: MIT */
/* What the JIT compiler made, and what it gave up on. */
#include "cli/traces.h"

#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/messages.h"

const char *traces_refusal_name(int kind)
{
	static const char *const names[] = {[MSP_JIT_GIVEN_UP] = "given up",
					    [MSP_JIT_ABORTED] = "aborted",
					    [MSP_JIT_SWITCHED_OFF] = "switched off"};

	return names[kind];
}

const char *traces_refusal_text(int kind)
{
	static const char *const texts[] = {[MSP_JIT_GIVEN_UP] = "given up for good",
					    [MSP_JIT_ABORTED] = "aborted, will be tried again",
					    [MSP_JIT_SWITCHED_OFF] = "switched off by the program"};

	return texts[kind];
}

/* ---- Gathering ---- */

static int gather_vm(struct traces *t, size_t i, const struct msp_vm_info *info)
{
	struct traces_vm *vm = &t->vm[t->vms];
	int r = msp_jit_read(t->live->target, i, &vm->jit);

	if (r)
		return r;
	t->vms++;
	vm->info = *info;
	vm->made = msp_jit_info(vm->jit);
	vm->trace = calloc(vm->made->traces + 1, sizeof(*vm->trace));
	vm->refusal = calloc(vm->made->refusals + 1, sizeof(*vm->refusal));
	if (!vm->trace || !vm->refusal)
		return MSP_E_NOMEM;
	for (size_t k = 0; k < vm->made->traces; k++)
		vm->trace[k] =
			(struct traces_trace){.trace = *msp_jit_trace(vm->jit, k), .index = k};
	for (size_t k = 0; k < vm->made->refusals; k++)
		vm->refusal[k] = (struct traces_refusal){.refusal = *msp_jit_refusal(vm->jit, k),
							 .index = k};
	return 0;
}

/* All VMs that can be read; what is wrong with the others is said. 0 or the exit code. */
static int gather(struct traces *t)
{
	size_t count = msp_target_info(t->live->target)->vms;
	char proof[256];

	t->vm = calloc(count + 1, sizeof(*t->vm));
	if (!t->vm)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < count; i++) {
		struct msp_vm_info info = *msp_target_vm(t->live->target, i);
		int r = gather_vm(t, i, &info);

		if (r == MSP_E_NOMEM)
			return r;
		if (r)
			cli_note("the VM at 0x%llx is left out: %s", (unsigned long long)info.g,
				 r == MSP_E_NOT_PROVED
					 ? cli_proof_text(t->live, i, proof, sizeof(proof))
				 : r == MSP_E_UNSUPPORTED ? "it has no JIT compiler"
							  : msp_strerror(r));
	}
	return 0;
}

static void release(struct traces *t)
{
	for (size_t i = 0; i < t->vms; i++) {
		for (size_t k = 0; k < t->vm[i].made->traces && t->vm[i].trace; k++)
			free(t->vm[i].trace[k].line);
		free(t->vm[i].trace);
		free(t->vm[i].refusal);
		msp_jit_free(t->vm[i].jit);
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
		r = y->trace.gives_up - x->trace.gives_up;
	if (!r)
		r = by_number(y->trace.bytes, x->trace.bytes);
	return r ? r : by_number(x->trace.number, y->trace.number);
}

static int compare_refusals(const void *a, const void *b)
{
	const struct traces_refusal *x = a, *y = b;
	int r = (int)x->refusal.kind - (int)y->refusal.kind;

	if (!r)
		r = by_number(y->samples, x->samples);
	return r ? r : by_number(x->index, y->index);
}

static void sort(struct traces_vm *vm)
{
	qsort(vm->trace, vm->made->traces, sizeof(*vm->trace), compare_traces);
	qsort(vm->refusal, vm->made->refusals, sizeof(*vm->refusal), compare_refusals);
}

/* ---- The verb ---- */

/* The lines of the trace asked for, in each VM that has it. MSP_E_NOT_FOUND: none has. */
static int annotate(struct traces *t)
{
	int r = MSP_E_NOT_FOUND;

	for (size_t i = 0; i < t->vms; i++)
		for (size_t k = 0; k < t->vm[i].made->traces; k++) {
			if (t->vm[i].trace[k].trace.number != t->options->annotate)
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

static int open_target(const struct msp_options *options, struct msp_target *registry,
		       struct cli_live *live)
{
	if (options->pid_count)
		return cli_live_open("traces", options->pids[0], registry, live);
	return cli_live_open_core(options->files[0], options->exe, options->sysroot, registry,
				  live);
}

int cmd_traces(const struct msp_options *options)
{
	struct cli_live live;
	struct traces t = {.options = options, .live = &live};
	struct msp_target *registry;
	int rc = cli_registry_open(&registry);

	if (rc)
		return rc;
	rc = open_target(options, registry, &live);
	if (rc == 0) {
		rc = options->samples ? traces_samples_read(&t) : CLI_OK;
		if (!rc)
			rc = show(&t);
		if (live.core && cli_live_note_gaps(&live) && rc == CLI_OK)
			rc = CLI_PARTIAL;
		release(&t);
		cli_live_close(&live);
	}
	msp_target_free(registry);
	return rc;
}

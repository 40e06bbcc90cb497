/* SPDX-License-Identifier: MIT */
/* All threads and coroutines of a target at one moment. */
#include <stdlib.h>

#include "library/internal.h"

struct msp_dump {
	struct msp_snapshot snapshot;
	struct msp_dump_info info;
	struct msp_thread *thread;
	struct msp_coroutine *coroutine;
};

/* A VM that was busy while VMs were looked for is known by the stacks it is on. */
static void add_met_vms(struct msp_target *target, const struct msp_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->count; i++)
		for (size_t j = 0; j < snapshot->thread[i].count; j++) {
			const struct msp_raw_frame *f = &snapshot->thread[i].frames[j];

			if (f->kind == MSP_RAW_VM)
				msp_space_vm_at(target->space, f->image, f->addr);
		}
}

static int take_thread(struct msp_target *target, const struct msp_thread_stack *from,
		       struct msp_thread *out)
{
	*out = (struct msp_thread){.tid = from->tid,
				   .name = from->name,
				   .state = from->state,
				   .result = from->result,
				   .has_vm = from->has_vm,
				   .vmstate = from->vmstate,
				   .registers = from->regs};
	return lib_backtrace_of(target, from->frames, from->count, from->error, from->variables,
				&out->backtrace);
}

static int take_coroutine(struct msp_target *target, const struct msp_coroutine_stack *from,
			  struct msp_coroutine *out)
{
	*out = (struct msp_coroutine){.g = from->g,
				      .l = from->l,
				      .status = from->status,
				      .main = from->main,
				      .tid = from->tid,
				      .stale = from->stale};
	return lib_backtrace_of(target, from->frames, from->count, from->error, from->variables,
				&out->backtrace);
}

static int fill(struct msp_target *target, struct msp_dump *dump)
{
	const struct msp_snapshot *snapshot = &dump->snapshot;
	int err = 0;

	dump->info = (struct msp_dump_info){.threads = snapshot->count,
					    .coroutines = snapshot->coroutines,
					    .left_out = snapshot->left_out,
					    .broken_heaps = snapshot->broken_heaps,
					    .stopped_ns = snapshot->stopped_ns};
	dump->thread = calloc(snapshot->count + 1, sizeof(*dump->thread));
	dump->coroutine = calloc(snapshot->coroutines + 1, sizeof(*dump->coroutine));
	if (!dump->thread || !dump->coroutine)
		return MSP_E_NOMEM;
	for (size_t i = 0; !err && i < snapshot->count; i++)
		err = take_thread(target, &snapshot->thread[i], &dump->thread[i]);
	for (size_t i = 0; !err && i < snapshot->coroutines; i++)
		err = take_coroutine(target, &snapshot->coroutine[i], &dump->coroutine[i]);
	return err;
}

static int snapshot(struct msp_target *target, const struct msp_snapshot_options *options,
		    struct msp_snapshot *out)
{
	if (target->core)
		return msp_snapshot_of_core(target->space, target->core, options, out);
	if (target->process && !target->self)
		return msp_snapshot_take(target->space, options, out);
	return MSP_E_UNSUPPORTED;
}

static int not_taken(struct msp_target *target, int err)
{
	int pid = target->process ? (int)msp_process_pid(target->process) : 0;

	switch (err) {
	case MSP_E_GONE:
		return lib_error(target, err, "process %d has ended", pid);
	case MSP_E_PERMISSION:
		return lib_error(target, err,
				 "not permitted to stop process %d: another user's, or a debugger "
				 "holds it",
				 pid);
	case MSP_E_BUSY:
		return lib_error(target, err,
				 "process %d does not stop: all its threads are in "
				 "uninterruptible sleep",
				 pid);
	case MSP_E_UNSUPPORTED:
		return lib_error(target, err,
				 "neither another process nor a core: its threads are not known");
	default:
		return lib_error(target, err, "%s", msp_strerror(err));
	}
}

int msp_dump_take(struct msp_target *target, const struct msp_dump_options *given,
		  struct msp_dump **out)
{
	struct msp_snapshot_options wanted;
	struct msp_dump_options options;
	struct msp_dump *dump;
	int err;

	*out = NULL;
	if (!target->space)
		return lib_error(target, MSP_E_INVALID, "the target is not open");
	if (!lib_take(&options, sizeof(options), given))
		return lib_error(target, MSP_E_INVALID, "options of another version");
	dump = calloc(1, sizeof(*dump));
	if (!dump)
		return not_taken(target, MSP_E_NOMEM);
	wanted = (struct msp_snapshot_options){.coroutines = options.coroutines,
					       .values = options.values};
	err = snapshot(target, &wanted, &dump->snapshot);
	if (err == 0) {
		add_met_vms(target, &dump->snapshot);
		err = fill(target, dump);
	}
	if (err < 0) {
		msp_dump_free(dump);
		return not_taken(target, err);
	}
	*out = dump;
	return 0;
}

void msp_dump_free(struct msp_dump *dump)
{
	if (!dump)
		return;
	for (size_t i = 0; dump->thread && i < dump->info.threads; i++)
		msp_backtrace_free(dump->thread[i].backtrace);
	for (size_t i = 0; dump->coroutine && i < dump->info.coroutines; i++)
		msp_backtrace_free(dump->coroutine[i].backtrace);
	free(dump->thread);
	free(dump->coroutine);
	msp_snapshot_free(&dump->snapshot);
	free(dump);
}

const struct msp_dump_info *msp_dump_info(const struct msp_dump *dump)
{
	return &dump->info;
}

const struct msp_thread *msp_dump_thread(const struct msp_dump *dump, size_t i)
{
	return i < dump->info.threads ? &dump->thread[i] : NULL;
}

const struct msp_coroutine *msp_dump_coroutine(const struct msp_dump *dump, size_t i)
{
	return i < dump->info.coroutines ? &dump->coroutine[i] : NULL;
}

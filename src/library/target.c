/* SPDX-License-Identifier: MIT */
/* Targets: opened in one of four ways, then all the same. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library/internal.h"

int lib_error(struct msp_target *target, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(target->error, sizeof(target->error), format, args);
	va_end(args);
	return code;
}

bool lib_take(void *to, size_t to_size, const void *from)
{
	size_t size;
	const unsigned char *bytes = from;

	memset(to, 0, to_size);
	if (!from)
		return true;
	memcpy(&size, from, sizeof(size));
	if (size < sizeof(size))
		return false;
	/* A newer caller may know more options, as long as it asks for none of them. */
	for (size_t i = to_size; i < size; i++)
		if (bytes[i])
			return false;
	memcpy(to, from, size < to_size ? size : to_size);
	return true;
}

static int registry_new(const struct msp_target_options *options, struct lib_registry **out)
{
	struct msp_images_options images = {.cache_dir = options->cache_dir,
					    .threads = options->threads,
					    .no_luajit = options->no_luajit};
	struct lib_registry *registry = calloc(1, sizeof(*registry));
	int err = registry ? msp_images_new(&images, &registry->images) : MSP_E_NOMEM;

	if (err < 0)
		free(registry);
	else
		*out = registry;
	return err;
}

static void registry_release(struct lib_registry *registry)
{
	if (!registry || --registry->users)
		return;
	msp_images_free(registry->images);
	msp_kernel_symbols_free(registry->kernel);
	free(registry);
}

int msp_target_new(const struct msp_target_options *given, struct msp_target **out)
{
	struct msp_target_options options;
	struct msp_target *target;
	int err = 0;

	*out = NULL;
	if (!lib_take(&options, sizeof(options), given))
		return MSP_E_INVALID;
	target = calloc(1, sizeof(*target));
	if (!target)
		return MSP_E_NOMEM;
	if (options.share)
		target->registry = options.share->registry;
	else
		err = registry_new(&options, &target->registry);
	if (!err)
		target->registry->users++;
	if (!err && options.exe)
		err = (target->exe = strdup(options.exe)) ? 0 : MSP_E_NOMEM;
	if (!err && options.sysroot)
		err = (target->sysroot = strdup(options.sysroot)) ? 0 : MSP_E_NOMEM;
	if (err)
		msp_target_free(target);
	else
		*out = target;
	return err;
}

static void close_target(struct msp_target *target)
{
	msp_walker_free(target->walker);
	msp_symbolizer_free(target->symbols);
	msp_space_free(target->space);
	msp_process_close(target->process);
	msp_core_close(target->core);
	lib_reader_free(target->reader);
	target->walker = NULL;
	target->symbols = NULL;
	target->space = NULL;
	target->process = NULL;
	target->core = NULL;
	target->reader = NULL;
	target->self = false;
}

void msp_target_free(struct msp_target *target)
{
	if (!target)
		return;
	close_target(target);
	registry_release(target->registry);
	free(target->file);
	free(target->exe);
	free(target->sysroot);
	free(target);
}

const char *msp_target_error(const struct msp_target *target)
{
	return target->error;
}

int lib_find_vms(struct msp_target *target)
{
	return target->few_vms ? msp_space_find_host_vms(target->space)
			       : msp_space_find_vms(target->space);
}

int lib_prepare_names(struct msp_target *target)
{
	return target->symbols ? 0
			       : msp_symbolizer_new(target->registry->images, NULL,
						    target->registry->kernel, &target->symbols);
}

/* Everything that the space, made if err is 0, is filled with. */
static int load(struct msp_target *target, int err)
{
	if (err == 0) {
		msp_symbolizer_free(target->symbols);
		target->symbols = NULL;
		err = msp_symbolizer_new(target->registry->images, target->space,
					 target->registry->kernel, &target->symbols);
	}
	if (err == 0)
		err = msp_space_refresh(target->space);
	if (err >= 0)
		err = lib_find_vms(target);
	if (err < 0)
		close_target(target);
	else
		target->error[0] = 0;
	return err < 0 ? err : 0;
}

static int open_already(struct msp_target *target)
{
	return lib_error(target, MSP_E_INVALID, "the target is open already");
}

static int not_opened(struct msp_target *target, int err, pid_t pid)
{
	switch (err) {
	case MSP_E_GONE:
		return lib_error(target, err, "there is no process %d", (int)pid);
	case MSP_E_PERMISSION:
		return lib_error(target, err,
				 "not permitted to look into process %d: another user's, or the "
				 "system restricts tracing",
				 (int)pid);
	default:
		return lib_error(target, err, "cannot look into process %d: %s", (int)pid,
				 msp_strerror(err));
	}
}

int msp_target_open_pid(struct msp_target *target, pid_t pid)
{
	int err;

	if (target->space)
		return open_already(target);
	err = msp_process_open(pid, &target->process);
	if (err == 0 && msp_process_bits(target->process) == 32) {
		close_target(target);
		return lib_error(target, MSP_E_UNSUPPORTED, "process %d is a 32-bit program",
				 (int)pid);
	}
	if (err == 0)
		err = msp_space_new(target->registry->images, target->process, &target->space);
	err = load(target, err);
	return err ? not_opened(target, err, pid) : 0;
}

int msp_target_open_self(struct msp_target *target)
{
	int err = msp_target_open_pid(target, getpid());

	target->self = !err;
	return err;
}

int msp_target_open_core(struct msp_target *target, int fd)
{
	struct msp_core_options options = {.exe = target->exe, .sysroot = target->sysroot};
	char why[MSP_CORE_WHY_SIZE];
	int err;

	if (target->space) {
		close(fd);
		return open_already(target);
	}
	err = msp_core_open(fd, &options, &target->core, why);
	if (err < 0)
		return lib_error(target, err, "%s", why);
	err = msp_space_new_host(target->registry->images, msp_core_host(target->core),
				 &target->space);
	err = load(target, err);
	return err ? lib_error(target, err, "%s", msp_strerror(err)) : 0;
}

int msp_target_open_reader(struct msp_target *target, const struct msp_reader *reader)
{
	int err;

	if (target->space)
		return open_already(target);
	err = lib_reader_new(reader, &target->reader);
	if (err == MSP_E_INVALID)
		return lib_error(target, err, "a reader needs read() and region()");
	if (err == 0)
		err = msp_space_new_host(target->registry->images, lib_reader_host(target->reader),
					 &target->space);
	err = load(target, err);
	return err ? lib_error(target, err, "cannot read the target: %s", msp_strerror(err)) : 0;
}

int msp_target_refresh(struct msp_target *target)
{
	int changed, err;

	if (!target->space)
		return lib_error(target, MSP_E_INVALID, "the target is not open");
	changed = msp_space_refresh(target->space);
	err = changed < 0 ? changed : lib_find_vms(target);
	if (err < 0)
		return lib_error(target, err, "cannot read the target: %s", msp_strerror(err));
	return changed;
}

static void fill_core(const struct msp_target *target, struct msp_target_info *info)
{
	const struct msp_core_signal *signal = msp_core_signal(target->core);

	info->pid = msp_core_pid(target->core);
	info->name = msp_core_comm(target->core);
	info->command = msp_core_command(target->core);
	msp_core_gaps(target->core, &info->gaps);
	info->unchecked = msp_core_unchecked(target->core);
	info->signal = signal->number;
	info->code = signal->code;
	info->signal_tid = signal->tid;
	info->signal_sender = signal->sender;
	info->has_address = signal->has_address;
	info->address = signal->address;
}

const struct msp_target_info *msp_target_info(struct msp_target *target)
{
	struct msp_target_info *info = &target->info;

	if (!target->space)
		return NULL;
	*info = (struct msp_target_info){
		.machine = msp_space_host(target->space)->arch, .name = "", .command = ""};
	if (target->core)
		fill_core(target, info);
	if (target->process) {
		info->pid = msp_process_pid(target->process);
		info->name = msp_process_comm(target->process);
		info->command = msp_process_cmdline(target->process);
		info->tracer = msp_process_tracer(target->process);
	}
	info->builds = lib_count_builds(target);
	info->vms = lib_count_vms(target);
	return info;
}

const struct msp_gap *msp_target_gap(struct msp_target *target, size_t i)
{
	const struct msp_core_gap *gaps;
	size_t count = 0;

	if (!target->core)
		return NULL;
	gaps = msp_core_gaps(target->core, &count);
	if (i >= count)
		return NULL;
	target->gap = (struct msp_gap){.name = *gaps[i].name ? gaps[i].name : NULL,
				       .build_id = *gaps[i].build_id ? gaps[i].build_id : NULL,
				       .why = gaps[i].why,
				       .bytes = gaps[i].bytes};
	target->gap.kind = gaps[i].kind == MSP_CORE_GAP_FILE	 ? MSP_GAP_FILE
			   : gaps[i].kind == MSP_CORE_GAP_MEMORY ? MSP_GAP_MEMORY
								 : MSP_GAP_NOTES;
	return &target->gap;
}

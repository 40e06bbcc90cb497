/* SPDX-License-Identifier: MIT */
/* What there is of LuaJIT in a target, and how that is known. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "library/internal.h"

/* ---- Builds: those that are mapped, then those of files that were added ---- */

static bool is_mapped(const struct msp_target *target, const struct msp_image_entry *entry)
{
	uint64_t base[MSP_MAX_BASES];

	return entry && entry->build && target->space &&
	       msp_space_image_bases(target->space, entry->index, base);
}

static const struct msp_image_entry *build_entry(const struct msp_target *target, size_t i)
{
	const struct msp_images *images = target->registry->images;

	for (uint32_t k = 1; k <= msp_images_count(images); k++) {
		const struct msp_image_entry *entry = msp_images_get(images, k);

		if (is_mapped(target, entry) && i-- == 0)
			return entry;
	}
	return i < target->files ? msp_images_get(images, target->file[i]) : NULL;
}

size_t lib_count_builds(const struct msp_target *target)
{
	size_t n = 0;

	while (build_entry(target, n))
		n++;
	return n;
}

const struct msp_build *msp_target_build(struct msp_target *target, size_t i)
{
	const struct msp_image_entry *entry = build_entry(target, i);
	const struct msp_lj_evidence *evidence;
	const struct msp_lj_vm_rows *rows;
	const struct msp_lj_layout *layout;
	struct msp_build *out = &target->build;
	const char *version;

	if (!entry)
		return NULL;
	layout = msp_lj_build_layout(entry->build);
	rows = msp_lj_build_vm_rows(entry->build);
	version = msp_lj_build_version(entry->build);
	*out = (struct msp_build){
		.version = version && *version ? version : NULL,
		.object = msp_image_name(entry->image),
		.build_id = msp_image_build_id(entry->image),
		.machine = msp_image_arch(entry->image),
		.ffi = msp_lj_build_ffi(entry->build),
		.complete = entry->build_error == 0,
		.evidence = msp_lj_build_evidence(entry->build, &evidence),
	};
	if (layout) {
		out->gc64 = layout->gc64;
		out->jit = layout->jit;
	}
	if (layout && rows && rows->instructions) {
		out->vm_start = layout->vm_start;
		out->vm_end = layout->vm_end;
		out->instructions = rows->instructions;
		out->analysed = rows->reached;
	}
	return out;
}

const struct msp_evidence *msp_target_evidence(struct msp_target *target, size_t i, size_t n)
{
	const struct msp_image_entry *entry = build_entry(target, i);
	const struct msp_lj_evidence *evidence;

	if (!entry || n >= msp_lj_build_evidence(entry->build, &evidence))
		return NULL;
	target->evidence = (struct msp_evidence){.field = evidence[n].field,
						 .source = evidence[n].source,
						 .found = evidence[n].found,
						 .value = evidence[n].value,
						 .why = evidence[n].why};
	return &target->evidence;
}

static bool is_first_of_name(const struct msp_probe *probe, int i)
{
	for (int k = 0; k < i; k++)
		if (!strcmp(probe[k].name, probe[i].name))
			return false;
	return true;
}

const char *msp_target_probe(struct msp_target *target, size_t i, size_t n)
{
	const struct msp_image_entry *entry = build_entry(target, i);
	struct msp_probe *probe = NULL;
	int count = entry ? msp_image_probes(entry->image, MSP_PROBE_PROVIDER, &probe) : 0;
	const char *found = NULL;

	for (int k = 0; !found && k < count; k++)
		if (is_first_of_name(probe, k) && n-- == 0) {
			memcpy(target->probe, probe[k].name, sizeof(target->probe));
			found = target->probe;
		}
	free(probe);
	return found;
}

static int keep_file(struct msp_target *target, uint32_t index)
{
	uint32_t *bigger = reallocarray(target->file, target->files + 1, sizeof(*bigger));

	if (!bigger)
		return lib_error(target, MSP_E_NOMEM, "out of memory");
	target->file = bigger;
	target->file[target->files++] = index;
	return 1;
}

int msp_target_add_file(struct msp_target *target, int fd, const char *name)
{
	const struct msp_image_entry *entry;
	int err = msp_images_add_file(target->registry->images, fd, name, &entry);

	if (err == MSP_E_FORMAT)
		return lib_error(target, err,
				 "it is no program or library for this kind of machine");
	if (err < 0)
		return lib_error(target, err, "%s", msp_strerror(err));
	return entry->build ? keep_file(target, entry->index) : 0;
}

struct adding {
	struct msp_target *target;
	int count; /* or an error */
};

static void on_file(void *ctx, const struct msp_image_entry *entry)
{
	struct adding *adding = ctx;
	int err;

	if (!entry->build || adding->count < 0)
		return;
	err = keep_file(adding->target, entry->index);
	adding->count = err < 0 ? err : adding->count + 1;
}

int msp_target_add_program(struct msp_target *target, const char *command)
{
	struct adding adding = {.target = target};
	int err = msp_images_add_program(target->registry->images, command, on_file, &adding);

	if (err == MSP_E_NOT_FOUND)
		return lib_error(target, err, "there is no program %s", command);
	if (err < 0)
		return lib_error(target, err, "%s", msp_strerror(err));
	return adding.count;
}
/* ---- VMs ---- */

const struct msp_vm *lib_vm(const struct msp_target *target, size_t i)
{
	size_t count = 0;
	const struct msp_vm *vms = target->space ? msp_space_vms(target->space, &count) : NULL;

	for (size_t k = 0; k < count; k++)
		if (!vms[k].gone && i-- == 0)
			return &vms[k];
	return NULL;
}

size_t lib_count_vms(const struct msp_target *target)
{
	size_t n = 0;

	while (lib_vm(target, n))
		n++;
	return n;
}

const struct msp_vm_info *msp_target_vm(struct msp_target *target, size_t i)
{
	const struct msp_vm *vm = lib_vm(target, i);
	const struct msp_image_entry *entry;
	size_t build = 0;

	if (!vm)
		return NULL;
	while ((entry = build_entry(target, build)) && entry->index != vm->image)
		build++;
	target->vm = (struct msp_vm_info){.g = vm->g,
					  .build = build,
					  .proved = vm->proof.proved,
					  .readable = vm->proof.heap,
					  .checks = MSP_LJ_CHECK_COUNT,
					  .listed = vm->listed};
	return &target->vm;
}

static const char *const check_name[] = {
#define _(id, text) #id,
	MSP_LJ_CHECKS(_)
#undef _
};

static const char *const check_text[] = {
#define _(id, text) text,
	MSP_LJ_CHECKS(_)
#undef _
};

const struct msp_check *msp_target_check(struct msp_target *target, size_t i, size_t n)
{
	const struct msp_vm *vm = lib_vm(target, i);
	struct msp_check *out = &target->check;
	size_t k;

	if (n >= MSP_LJ_CHECK_COUNT)
		return NULL;
	for (k = 0; check_name[n][k] && k < sizeof(target->check_name) - 1; k++)
		target->check_name[k] = (char)tolower((unsigned char)check_name[n][k]);
	target->check_name[k] = 0;
	*out = (struct msp_check){.name = target->check_name,
				  .text = check_text[n],
				  .result = MSP_CHECK_NOT_RUN,
				  .detail = vm ? vm->proof.check[n].detail : ""};
	if (vm && vm->proof.check[n].result == MSP_LJ_PASSED)
		out->result = MSP_CHECK_PASSED;
	if (vm && vm->proof.check[n].result == MSP_LJ_FAILED)
		out->result = MSP_CHECK_FAILED;
	return out;
}

/* SPDX-License-Identifier: MIT */
/* Is there a LuaJIT in it, which, and how is that known (docs/formats.md, "Inspect"). */
#include "cli/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/live.h"
#include "cli/messages.h"
#include "moonspy/moonspy.h"
#include "output/json_writer.h"

/* A build, and the VMs that run it; none for a file. */
struct subject {
	const struct msp_image_entry *entry;
	const struct msp_vm *vms;
	size_t vm_count;
	bool file;
};

static bool runs(const struct subject *subject, const struct msp_vm *vm)
{
	return vm->image == subject->entry->index && !vm->gone;
}

/* At least one VM of it, and all are proved. */
static bool is_proved(const struct subject *subject)
{
	bool proved = false;

	for (size_t i = 0; i < subject->vm_count; i++) {
		if (!runs(subject, &subject->vms[i]))
			continue;
		if (!subject->vms[i].proof.proved)
			return false;
		proved = true;
	}
	return proved;
}

/* ---- Text ---- */

static const char *result_text(int result)
{
	return result == MSP_LJ_PASSED ? "ok" : result == MSP_LJ_FAILED ? "FAILED" : "not run";
}

static void print_evidence(const struct msp_lj_build *build, bool all)
{
	const struct msp_lj_evidence *evidence;
	size_t count = msp_lj_build_evidence(build, &evidence), found = 0;

	for (size_t i = 0; i < count; i++)
		found += evidence[i].found;
	printf("Evidence: %zu of %zu fields found\n", found, count);
	for (size_t i = 0; i < count; i++) {
		const struct msp_lj_evidence *e = &evidence[i];

		if (!e->found)
			printf("    %-20s not found by %s: %s\n", e->field, e->source,
			       e->why ? e->why : "");
		else if (all)
			printf("    %-20s %8lld  %s: %s\n", e->field, (long long)e->value,
			       e->source, e->why ? e->why : "");
	}
}

static void print_vm_rows(const struct msp_lj_build *build)
{
	const struct msp_lj_layout *layout = msp_lj_build_layout(build);
	const struct msp_lj_vm_rows *rows = msp_lj_build_vm_rows(build);

	if (!layout || !rows || !rows->instructions)
		return;
	printf("Interpreter: 0x%x to 0x%x, %u of %u instructions analysed\n", layout->vm_start,
	       layout->vm_end, rows->reached, rows->instructions);
}

static void print_vm(const struct msp_vm *vm)
{
	printf("VM at 0x%llx: %s\n", (unsigned long long)vm->g,
	       vm->proof.proved ? "proved" : "not proved");
	for (int i = 0; i < MSP_LJ_CHECK_COUNT; i++)
		printf("    %-8s %s%s%s%s\n", result_text(vm->proof.check[i].result),
		       cli_check_text(i), vm->proof.check[i].detail[0] ? " (" : "",
		       vm->proof.check[i].detail, vm->proof.check[i].detail[0] ? ")" : "");
}

static void print_subject(const struct msp_options *options, const struct subject *subject)
{
	const struct msp_lj_layout *layout = msp_lj_build_layout(subject->entry->build);
	char text[256];
	size_t shown = 0;

	cli_put_text(cli_build_text(subject->entry, text, sizeof(text)));
	printf("%s%s\n", layout && layout->jit ? ", with JIT compiler" : "",
	       subject->entry->build_error ? ": not all of its layout was found" : "");
	print_vm_rows(subject->entry->build);
	print_evidence(subject->entry->build, options->verbose || subject->entry->build_error != 0);
	for (size_t i = 0; i < subject->vm_count; i++)
		if (runs(subject, &subject->vms[i])) {
			print_vm(&subject->vms[i]);
			shown++;
		}
	if (!shown)
		printf("%s\n", subject->file ? "A file has no VM to prove the layout with"
					     : "No VM runs it now");
}

/* ---- JSON ---- */

static void put_bool(struct msp_json *json, const char *key, bool value)
{
	msp_json_key(json, key);
	msp_json_bool(json, value);
}

static void put_string(struct msp_json *json, const char *key, const char *value)
{
	msp_json_key(json, key);
	msp_json_string(json, value);
}

static void put_evidence(struct msp_json *json, const struct msp_lj_build *build)
{
	const struct msp_lj_evidence *evidence;
	size_t count = msp_lj_build_evidence(build, &evidence);

	msp_json_key(json, "evidence");
	msp_json_array(json);
	for (size_t i = 0; i < count; i++) {
		msp_json_object(json);
		put_string(json, "field", evidence[i].field);
		put_string(json, "source", evidence[i].source);
		put_bool(json, "found", evidence[i].found);
		msp_json_key(json, "value");
		if (evidence[i].found)
			msp_json_int(json, evidence[i].value);
		else
			msp_json_null(json);
		put_string(json, "why", evidence[i].why);
		msp_json_end(json);
	}
	msp_json_end(json);
	msp_json_key(json, "layout");
	msp_json_object(json);
	for (size_t i = 0; i < count; i++) {
		if (!evidence[i].found)
			continue;
		msp_json_key(json, evidence[i].field);
		msp_json_int(json, evidence[i].value);
	}
	msp_json_end(json);
}

/* How a check went for all VMs together: the worst counts. */
static const struct msp_lj_proof *worst_of(const struct subject *subject, int check)
{
	const struct msp_lj_proof *worst = NULL;

	for (size_t i = 0; i < subject->vm_count; i++) {
		const struct msp_lj_proof *proof = &subject->vms[i].proof;

		if (!runs(subject, &subject->vms[i]))
			continue;
		if (!worst || (worst->check[check].result == MSP_LJ_PASSED &&
			       proof->check[check].result != MSP_LJ_PASSED))
			worst = proof;
	}
	return worst;
}

static void put_checks(struct msp_json *json, const struct subject *subject)
{
	static const char *const results[] = {[MSP_LJ_PASSED] = "passed",
					      [MSP_LJ_FAILED] = "failed",
					      [MSP_LJ_NOT_RUN] = "not run"};

	msp_json_key(json, "checks");
	msp_json_array(json);
	for (int i = 0; i < MSP_LJ_CHECK_COUNT; i++) {
		const struct msp_lj_proof *proof = worst_of(subject, i);

		msp_json_object(json);
		put_string(json, "name", cli_check_name(i));
		put_string(json, "text", cli_check_text(i));
		put_string(json, "result",
			   results[proof ? proof->check[i].result : MSP_LJ_NOT_RUN]);
		put_string(json, "detail",
			   proof && proof->check[i].detail[0] ? proof->check[i].detail : NULL);
		msp_json_end(json);
	}
	msp_json_end(json);
	msp_json_key(json, "vms");
	msp_json_array(json);
	for (size_t i = 0; i < subject->vm_count; i++) {
		if (!runs(subject, &subject->vms[i]))
			continue;
		msp_json_object(json);
		msp_json_key(json, "g");
		msp_json_hex(json, subject->vms[i].g);
		put_bool(json, "proved", subject->vms[i].proof.proved);
		msp_json_end(json);
	}
	msp_json_end(json);
}

static void put_subject(struct msp_json *json, const struct subject *subject)
{
	const struct msp_lj_build *build = subject->entry->build;
	const struct msp_lj_layout *layout = msp_lj_build_layout(build);

	put_string(json, "version", msp_lj_build_version(build));
	put_string(json, "object", msp_image_name(subject->entry->image));
	put_string(json, "build_id", msp_image_build_id(subject->entry->image));
	put_string(json, "arch", cli_arch_name(msp_image_arch(subject->entry->image)));
	put_bool(json, "gc64", layout && layout->gc64);
	put_bool(json, "jit", layout && layout->jit);
	put_bool(json, "ffi", msp_lj_build_ffi(build));
	put_bool(json, "complete", subject->entry->build_error == 0);
	put_bool(json, "proved", is_proved(subject));
	put_evidence(json, build);
	put_checks(json, subject);
}

/* ---- Both ---- */

/* The first build stands for the answer; a process with several has the rest in a list. */
static int show(const struct msp_options *options, const struct subject *subjects, size_t count)
{
	struct msp_json json = {.buffer.out = stdout};

	if (!options->json) {
		for (size_t i = 0; i < count; i++)
			print_subject(options, &subjects[i]);
		return 0;
	}
	msp_json_object(&json);
	msp_json_key(&json, "schema");
	msp_json_uint(&json, 1);
	put_string(&json, "type", "inspect");
	put_bool(&json, "luajit", count > 0);
	if (count)
		put_subject(&json, &subjects[0]);
	msp_json_key(&json, "others");
	msp_json_array(&json);
	for (size_t i = 1; i < count; i++) {
		msp_json_object(&json);
		put_subject(&json, &subjects[i]);
		msp_json_end(&json);
	}
	msp_json_end(&json);
	msp_json_end(&json);
	return msp_json_finish(&json);
}

static int conclude(const struct msp_options *options, const struct subject *subjects, size_t count,
		    const char *where)
{
	if (show(options, subjects, count) < 0)
		return CLI_FAILED;
	if (!count) {
		cli_note("no LuaJIT in %s", where);
		return CLI_NO_LUAJIT;
	}
	for (size_t i = 0; i < count; i++)
		if (subjects[i].file ? subjects[i].entry->build_error != 0
				     : !is_proved(&subjects[i]))
			return CLI_NO_LUAJIT;
	return CLI_OK;
}

static int inspect_process(const struct msp_options *options, struct msp_images *images)
{
	struct subject subjects[MSP_MAX_BUILDS];
	const struct msp_image_entry *entry;
	struct cli_live live;
	size_t count = 0;
	uint64_t base[MSP_MAX_BASES];
	int rc;

	rc = cli_live_open("inspect", options->pids[0], images, &live);
	if (rc)
		return rc;
	for (uint32_t i = 1; i <= msp_images_count(images) && count < MSP_MAX_BUILDS; i++) {
		entry = msp_images_get(images, i);
		if (!entry || !entry->build || !msp_space_image_bases(live.space, i, base))
			continue;
		subjects[count] = (struct subject){.entry = entry};
		subjects[count].vms = msp_space_vms(live.space, &subjects[count].vm_count);
		count++;
	}
	rc = conclude(options, subjects, count, cli_fmt("process %d", (int)live.pid));
	cli_live_close(&live);
	return rc;
}

static int cannot_read(const char *path, const char *why, const char *todo)
{
	cli_error(cli_fmt("cannot read %s", path), why, todo);
	return CLI_FAILED;
}

/* A program without a LuaJIT of its own may load one; which, is seen in the library itself. */
static void note_library(struct msp_images *images, const char *path)
{
	char program[PATH_MAX];
	const struct msp_image_entry *entry;

	if (!realpath(path, program) || msp_images_add_program(images, program))
		return;
	for (uint32_t i = 1; i <= msp_images_count(images); i++) {
		entry = msp_images_get(images, i);
		if (entry && entry->build)
			cli_note("it loads one: moonspy inspect %s", msp_image_name(entry->image));
	}
}

static int inspect_file(const struct msp_options *options, struct msp_images *images)
{
	const char *path = options->files[0];
	const struct msp_image_entry *entry;
	struct subject subject;
	int fd, r, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return cannot_read(path, strerror(errno), cli_fmt("ls -l %s", path));
	r = msp_images_add_file(images, fd, path, &entry);
	if (r == MSP_E_FORMAT)
		return cannot_read(path, "it is no program or library for this kind of machine",
				   cli_fmt("file %s", path));
	if (r < 0)
		return cannot_read(path, msp_strerror(r), cli_fmt("ls -l %s", path));
	subject = (struct subject){.entry = entry, .file = true};
	rc = conclude(options, &subject, entry->build != NULL, path);
	if (!entry->build)
		note_library(images, path);
	return rc;
}

int cmd_inspect(const struct msp_options *options)
{
	struct msp_images *images;
	int rc = cli_images_open(&images);

	if (rc)
		return rc;
	rc = options->pid_count ? inspect_process(options, images) : inspect_file(options, images);
	msp_images_free(images);
	return rc;
}

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
#include "output/json_writer.h"

/* One build of a target, and the VMs that run it; a file has none. */
struct subject {
	struct msp_target *target;
	size_t number; /* of the build */
	bool file;
};

static const struct msp_build *build_of(const struct subject *subject)
{
	return msp_target_build(subject->target, subject->number);
}

/* The next of its VMs, from *i on, which moves on; NULL: there are no more. */
static const struct msp_vm_info *next_vm(const struct subject *subject, size_t *i)
{
	const struct msp_vm_info *vm;

	while ((vm = msp_target_vm(subject->target, (*i)++)))
		if (vm->build == subject->number)
			return vm;
	return NULL;
}

/* At least one VM of it, and all are proved. */
static bool is_proved(const struct subject *subject)
{
	const struct msp_vm_info *vm;
	bool proved = false;

	for (size_t i = 0; (vm = next_vm(subject, &i));) {
		if (!vm->proved)
			return false;
		proved = true;
	}
	return proved;
}

/* ---- Text ---- */

static const char *result_text(int result)
{
	return result == MSP_CHECK_PASSED   ? "ok"
	       : result == MSP_CHECK_FAILED ? "FAILED"
					    : "not run";
}

static void print_evidence(const struct subject *subject, bool all)
{
	const struct msp_evidence *e;
	size_t count = 0, found = 0;

	for (; (e = msp_target_evidence(subject->target, subject->number, count)); count++)
		found += e->found;
	printf("Evidence: %zu of %zu fields found\n", found, count);
	for (size_t i = 0; i < count; i++) {
		e = msp_target_evidence(subject->target, subject->number, i);
		if (!e->found)
			printf("    %-20s not found by %s: %s\n", e->field, e->source,
			       e->why ? e->why : "");
		else if (all)
			printf("    %-20s %8lld  %s: %s\n", e->field, (long long)e->value,
			       e->source, e->why ? e->why : "");
	}
}

static void print_probes(const struct subject *subject)
{
	const char *name;
	size_t n = 0;

	for (; (name = msp_target_probe(subject->target, subject->number, n)); n++) {
		printf("%s", n ? ", " : "Probes: ");
		cli_put_text(name);
	}
	printf(n ? "; record --probes listens to those that tell of VMs and of traces made or "
		   "given up\n"
		 : "Probes: none\n");
}

static void print_vm(const struct subject *subject, size_t i)
{
	const struct msp_vm_info *vm = msp_target_vm(subject->target, i);
	const struct msp_check *check;

	printf("VM at 0x%llx: %s%s\n", (unsigned long long)vm->g,
	       vm->proved ? "proved" : "not proved", vm->listed ? ", in the list of live VMs" : "");
	for (size_t n = 0; (check = msp_target_check(subject->target, i, n)); n++)
		printf("    %-8s %s%s%s%s\n", result_text(check->result), check->text,
		       check->detail[0] ? " (" : "", check->detail, check->detail[0] ? ")" : "");
}

static void print_subject(const struct msp_options *options, const struct subject *subject)
{
	const struct msp_build *build = build_of(subject);
	char text[256];
	size_t shown = 0;

	cli_put_text(cli_build_text(build, text, sizeof(text)));
	printf("%s%s\n", build->jit ? ", with JIT compiler" : "",
	       build->complete ? "" : ": not all of its layout was found");
	if (build->instructions)
		printf("Interpreter: 0x%llx to 0x%llx, %u of %u instructions analysed\n",
		       (unsigned long long)build->vm_start, (unsigned long long)build->vm_end,
		       build->analysed, build->instructions);
	print_evidence(subject, options->verbose || !build->complete);
	print_probes(subject);
	for (size_t i = 0; next_vm(subject, &i); shown++)
		print_vm(subject, i - 1);
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

static void put_evidence(struct msp_json *json, const struct subject *subject)
{
	const struct msp_evidence *e;

	msp_json_key(json, "evidence");
	msp_json_array(json);
	for (size_t i = 0; (e = msp_target_evidence(subject->target, subject->number, i)); i++) {
		msp_json_object(json);
		put_string(json, "field", e->field);
		put_string(json, "source", e->source);
		put_bool(json, "found", e->found);
		msp_json_key(json, "value");
		if (e->found)
			msp_json_int(json, e->value);
		else
			msp_json_null(json);
		put_string(json, "why", e->why);
		msp_json_end(json);
	}
	msp_json_end(json);
	msp_json_key(json, "layout");
	msp_json_object(json);
	for (size_t i = 0; (e = msp_target_evidence(subject->target, subject->number, i)); i++) {
		if (!e->found)
			continue;
		msp_json_key(json, e->field);
		msp_json_int(json, e->value);
	}
	msp_json_end(json);
}

static bool passed(const struct subject *subject, size_t vm, size_t check)
{
	return msp_target_check(subject->target, vm, check)->result == MSP_CHECK_PASSED;
}

/* How a check went for all VMs together: that of the worst; past the last: of none. */
static size_t worst_of(const struct subject *subject, size_t check)
{
	size_t worst = SIZE_MAX;

	for (size_t i = 0; next_vm(subject, &i);)
		if (worst == SIZE_MAX ||
		    (passed(subject, worst, check) && !passed(subject, i - 1, check)))
			worst = i - 1;
	return worst;
}

static void put_checks(struct msp_json *json, const struct subject *subject)
{
	static const char *const results[] = {[MSP_CHECK_PASSED] = "passed",
					      [MSP_CHECK_FAILED] = "failed",
					      [MSP_CHECK_NOT_RUN] = "not run"};
	const struct msp_check *check;

	msp_json_key(json, "checks");
	msp_json_array(json);
	for (size_t n = 0; msp_target_check(subject->target, SIZE_MAX, n); n++) {
		check = msp_target_check(subject->target, worst_of(subject, n), n);
		msp_json_object(json);
		put_string(json, "name", check->name);
		put_string(json, "text", check->text);
		put_string(json, "result", results[check->result]);
		put_string(json, "detail", check->detail[0] ? check->detail : NULL);
		msp_json_end(json);
	}
	msp_json_end(json);
}

static void put_vms(struct msp_json *json, const struct subject *subject)
{
	const struct msp_vm_info *vm;

	msp_json_key(json, "vms");
	msp_json_array(json);
	for (size_t i = 0; (vm = next_vm(subject, &i));) {
		msp_json_object(json);
		msp_json_key(json, "g");
		msp_json_hex(json, vm->g);
		put_bool(json, "proved", vm->proved);
		put_bool(json, "listed", vm->listed);
		msp_json_end(json);
	}
	msp_json_end(json);
}

static void put_probes(struct msp_json *json, const struct subject *subject)
{
	const char *name;

	msp_json_key(json, "probes");
	msp_json_array(json);
	for (size_t n = 0; (name = msp_target_probe(subject->target, subject->number, n)); n++)
		msp_json_string(json, name);
	msp_json_end(json);
}

static void put_subject(struct msp_json *json, const struct subject *subject)
{
	const struct msp_build *build = build_of(subject);

	put_string(json, "version", build->version);
	put_string(json, "object", build->object);
	put_string(json, "build_id", build->build_id);
	put_string(json, "arch", cli_machine_name(build->machine));
	put_bool(json, "gc64", build->gc64);
	put_bool(json, "jit", build->jit);
	put_bool(json, "ffi", build->ffi);
	put_bool(json, "complete", build->complete);
	put_bool(json, "proved", is_proved(subject));
	put_evidence(json, subject);
	put_checks(json, subject);
	put_vms(json, subject);
	put_probes(json, subject);
}

/* ---- Both ---- */

/* The first build stands for the answer; a process with several has the rest in a list. */
static int show(const struct msp_options *options, struct subject subject, size_t count)
{
	struct msp_json json = {.buffer.out = stdout};

	if (!options->json) {
		for (; subject.number < count; subject.number++)
			print_subject(options, &subject);
		return 0;
	}
	msp_json_object(&json);
	msp_json_key(&json, "schema");
	msp_json_uint(&json, 1);
	put_string(&json, "type", "inspect");
	put_bool(&json, "luajit", count > 0);
	if (count)
		put_subject(&json, &subject);
	msp_json_key(&json, "others");
	msp_json_array(&json);
	while (++subject.number < count) {
		msp_json_object(&json);
		put_subject(&json, &subject);
		msp_json_end(&json);
	}
	msp_json_end(&json);
	msp_json_end(&json);
	return msp_json_finish(&json);
}

/* Of builds 0 to count. */
static int conclude(const struct msp_options *options, struct msp_target *target, size_t count,
		    const char *where)
{
	struct subject subject = {.target = target, .file = !options->pid_count};

	if (show(options, subject, count) < 0)
		return CLI_FAILED;
	if (!count) {
		cli_note("no LuaJIT in %s", where);
		return CLI_NO_LUAJIT;
	}
	for (; subject.number < count; subject.number++)
		if (subject.file ? !build_of(&subject)->complete : !is_proved(&subject))
			return CLI_NO_LUAJIT;
	return CLI_OK;
}

static int inspect_process(const struct msp_options *options, struct msp_target *registry)
{
	struct cli_live live;
	int rc = cli_live_open("inspect", options->pids[0], registry, &live);

	if (rc)
		return rc;
	rc = conclude(options, live.target, msp_target_info(live.target)->builds,
		      cli_fmt("process %d", (int)live.pid));
	cli_live_close(&live);
	return rc;
}

static int cannot_read(const char *path, const char *why, const char *todo)
{
	cli_error(cli_fmt("cannot read %s", path), why, todo);
	return CLI_FAILED;
}

/* A program without a LuaJIT of its own may load one; which, is seen in the library itself. */
static void note_library(struct msp_target *target, const char *path)
{
	char program[PATH_MAX];
	int count = realpath(path, program) ? msp_target_add_program(target, program) : 0;

	for (int i = 0; i < count; i++)
		cli_note("it loads one: moonspy inspect %s",
			 msp_target_build(target, (size_t)i)->object);
}

static int inspect_file(const struct msp_options *options, struct msp_target *target)
{
	const char *path = options->files[0];
	int fd, r, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return cannot_read(path, strerror(errno), cli_fmt("ls -l %s", path));
	r = msp_target_add_file(target, fd, path);
	if (r < 0)
		return cannot_read(path, msp_target_error(target),
				   cli_fmt(r == MSP_E_FORMAT ? "file %s" : "ls -l %s", path));
	rc = conclude(options, target, (size_t)r, path);
	if (!r)
		note_library(target, path);
	return rc;
}

int cmd_inspect(const struct msp_options *options)
{
	struct msp_target *registry;
	int rc = cli_registry_open(&registry);

	if (rc)
		return rc;
	rc = options->pid_count ? inspect_process(options, registry)
				: inspect_file(options, registry);
	msp_target_free(registry);
	return rc;
}

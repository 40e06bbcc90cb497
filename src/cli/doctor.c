/* SPDX-License-Identifier: MIT */
/* Runs the checks, prints a line for each, and says which engines work. */
#include "cli/doctor.h"

#include <stdio.h>

#include "cli/commands.h"
#include "cli/messages.h"
#include "output/json_writer.h"

enum { NONE = 0, BPF = 1, PTRACE = 2, BOTH = BPF | PTRACE };

struct check {
	const char *name;
	doctor_check_fn run;
	unsigned needed_by; /* these engines do not work if it fails */
	bool process;
};

static const struct check checks[] = {
#define _(id, engine) {#id, doctor_check_##id, engine, false},
	DOCTOR_CHECKS(_)
#undef _
#define _(id, engine) {#id, doctor_check_##id, engine, true},
		DOCTOR_PROCESS_CHECKS(_)
#undef _
};

static const char *const level_names[] = {"OK", "WARN", "FAIL"};

static void put_json(struct msp_json *json, const char *name, const struct doctor_result *result)
{
	msp_json_object(json);
	msp_json_key(json, "check");
	msp_json_string(json, name);
	msp_json_key(json, "level");
	msp_json_string(json, level_names[result->level]);
	msp_json_key(json, "text");
	msp_json_string(json, result->text);
	msp_json_key(json, "try");
	msp_json_string(json, *result->todo ? result->todo : NULL);
	msp_json_end(json);
}

static void put_line(const struct doctor_result *result)
{
	printf("%-4s  %s\n", level_names[result->level], result->text);
	if (*result->todo)
		printf("      try: %s\n", result->todo);
}

static void begin(const struct msp_options *options, struct msp_json *json)
{
	if (!options->json)
		return;
	msp_json_object(json);
	msp_json_key(json, "schema");
	msp_json_uint(json, 1);
	msp_json_key(json, "type");
	msp_json_string(json, "doctor");
	msp_json_key(json, "checks");
	msp_json_array(json);
}

static int end(const struct msp_options *options, struct msp_json *json, unsigned lost, bool unfit)
{
	bool bpf = !(lost & BPF), ptrace = !(lost & PTRACE);

	if (options->json) {
		msp_json_end(json);
		msp_json_key(json, "bpf");
		msp_json_bool(json, bpf);
		msp_json_key(json, "ptrace");
		msp_json_bool(json, ptrace);
		msp_json_end(json);
		if (msp_json_finish(json))
			return CLI_FAILED;
	} else if (bpf) {
		puts("\nmoonspy record can sample in the kernel here (--engine=bpf).");
	} else if (ptrace) {
		puts("\nmoonspy record can stop and read here (--engine=ptrace), not sample in the "
		     "kernel.");
	} else if (options->pid_count) {
		puts("\nmoonspy record cannot sample that process.");
	} else {
		puts("\nmoonspy record cannot work here.");
	}
	return unfit ? CLI_FAILED : bpf || ptrace ? CLI_OK : CLI_PERMISSION;
}

int cmd_doctor(const struct msp_options *options)
{
	struct msp_json json = {.buffer.out = stdout};
	unsigned lost = 0;
	bool unreadable = false; /* the process: its other checks would say the same */
	bool unfit = false;

	begin(options, &json);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		struct doctor_result result = {.level = DOCTOR_OK};

		if (checks[i].process && (!options->pid_count || unreadable))
			continue;
		checks[i].run(options->pid_count ? options->pids[0] : 0, &result);
		if (result.level == DOCTOR_FAIL) {
			lost |= checks[i].needed_by;
			unfit |= result.unfit;
			unreadable = checks[i].run == doctor_check_process;
		}
		if (options->json)
			put_json(&json, checks[i].name, &result);
		else
			put_line(&result);
	}
	return end(options, &json, lost, unfit);
}

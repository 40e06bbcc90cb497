/* SPDX-License-Identifier: MIT */
/* The checks of one process. */
#include "cli/doctor.h"

#include <stdio.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

/* Looks at the process; what is wrong with it goes into result. */
static bool look_at(pid_t pid, struct msp_process_info *info, struct doctor_result *result)
{
	int error;

	*info = (struct msp_process_info){.size = sizeof(*info)};
	error = msp_process_look(pid, info);
	if (!error)
		return true;
	result->level = DOCTOR_FAIL;
	result->unfit = error != MSP_E_PERMISSION;
	if (error == MSP_E_GONE)
		snprintf(result->text, sizeof(result->text), "there is no process %d", pid);
	else
		snprintf(result->text, sizeof(result->text), "process %d: %s", pid,
			 msp_strerror(error));
	if (error == MSP_E_PERMISSION && geteuid())
		snprintf(result->todo, sizeof(result->todo), "sudo moonspy doctor -p %d", pid);
	return false;
}

void doctor_check_process(pid_t pid, struct doctor_result *result)
{
	struct msp_process_info info;

	if (!look_at(pid, &info, result))
		return;
	snprintf(result->text, sizeof(result->text), "process %d (%s) can be read", pid, info.name);
	if (info.bits != 64) {
		result->level = DOCTOR_FAIL;
		result->unfit = true;
		snprintf(result->text, sizeof(result->text), "process %d is a 32-bit program", pid);
	}
}

void doctor_check_tracer(pid_t pid, struct doctor_result *result)
{
	struct msp_process_info info;

	if (!look_at(pid, &info, result))
		return;
	if (!info.tracer) {
		snprintf(result->text, sizeof(result->text), "no debugger is attached to it");
		return;
	}
	result->level = DOCTOR_FAIL;
	snprintf(result->text, sizeof(result->text),
		 "process %d traces it: dump and --engine=ptrace cannot", info.tracer);
	snprintf(result->todo, sizeof(result->todo), "end the debugger, process %d", info.tracer);
}

void doctor_check_luajit(pid_t pid, struct doctor_result *result)
{
	const struct msp_found *found = NULL;
	struct msp_finder *finder = NULL;
	struct msp_process_info info;

	if (!look_at(pid, &info, result))
		return;
	if (msp_finder_new(&finder) == 0)
		msp_finder_look(finder, pid, &found);
	if (found && found->complete) {
		snprintf(result->text, sizeof(result->text), "%s in %s", found->version,
			 found->object);
	} else if (found) {
		result->level = DOCTOR_WARN;
		snprintf(result->text, sizeof(result->text),
			 "%s in %s, but its layout was not found", found->version, found->object);
		snprintf(result->todo, sizeof(result->todo), "moonspy inspect -p %d", pid);
	} else {
		result->level = DOCTOR_WARN;
		snprintf(result->text, sizeof(result->text),
			 "no LuaJIT in it: its native stacks can be profiled");
	}
	msp_finder_free(finder);
}

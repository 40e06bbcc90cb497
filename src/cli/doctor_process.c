/* SPDX-License-Identifier: MIT */
/* The checks of one process. */
#include "cli/doctor.h"

#include <stdio.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "target/target.h"

/* Opens the process; what is wrong with it goes into result. */
static struct msp_process *open_process(pid_t pid, struct doctor_result *result)
{
	struct msp_process *process;
	int error = msp_process_open(pid, &process);

	if (!error)
		return process;
	result->level = DOCTOR_FAIL;
	result->unfit = error != MSP_E_PERMISSION;
	if (error == MSP_E_GONE)
		snprintf(result->text, sizeof(result->text), "there is no process %d", pid);
	else
		snprintf(result->text, sizeof(result->text), "process %d: %s", pid,
			 msp_strerror(error));
	if (error == MSP_E_PERMISSION && geteuid())
		snprintf(result->todo, sizeof(result->todo), "sudo moonspy doctor -p %d", pid);
	return NULL;
}

void doctor_check_process(pid_t pid, struct doctor_result *result)
{
	struct msp_process *process = open_process(pid, result);

	if (!process)
		return;
	snprintf(result->text, sizeof(result->text), "process %d (%s) can be read", pid,
		 msp_process_comm(process));
	if (msp_process_bits(process) != 64) {
		result->level = DOCTOR_FAIL;
		result->unfit = true;
		snprintf(result->text, sizeof(result->text), "process %d is a 32-bit program", pid);
	}
	msp_process_close(process);
}

void doctor_check_tracer(pid_t pid, struct doctor_result *result)
{
	struct msp_process *process = open_process(pid, result);
	pid_t tracer = process ? msp_process_tracer(process) : 0;

	if (tracer) {
		result->level = DOCTOR_FAIL;
		snprintf(result->text, sizeof(result->text),
			 "process %d traces it: dump and --engine=ptrace cannot", tracer);
		snprintf(result->todo, sizeof(result->todo), "end the debugger, process %d",
			 tracer);
	} else if (process) {
		snprintf(result->text, sizeof(result->text), "no debugger is attached to it");
	}
	msp_process_close(process);
}

void doctor_check_luajit(pid_t pid, struct doctor_result *result)
{
	struct msp_process *process = open_process(pid, result);
	const struct msp_found *found = NULL;
	struct msp_finder *finder = NULL;

	if (process && msp_finder_new(&finder) == 0)
		msp_finder_look(finder, pid, &found);
	if (found && found->complete) {
		snprintf(result->text, sizeof(result->text), "%s in %s", found->version,
			 found->object);
	} else if (found) {
		result->level = DOCTOR_WARN;
		snprintf(result->text, sizeof(result->text),
			 "%s in %s, but its layout was not found", found->version, found->object);
		snprintf(result->todo, sizeof(result->todo), "moonspy inspect -p %d", pid);
	} else if (process) {
		result->level = DOCTOR_WARN;
		snprintf(result->text, sizeof(result->text),
			 "no LuaJIT in it: its native stacks can be profiled");
	}
	msp_finder_free(finder);
	msp_process_close(process);
}

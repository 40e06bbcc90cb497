/* SPDX-License-Identifier: MIT */
/* The checks of one process. */
#include "cli/doctor.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/finder.h"
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
	struct cli_finder finder = {0};
	const struct cli_file *file = process ? cli_finder_look(&finder, process) : NULL;

	if (file && file->complete) {
		snprintf(result->text, sizeof(result->text), "%s in %s", file->version, file->name);
	} else if (file) {
		result->level = DOCTOR_WARN;
		snprintf(result->text, sizeof(result->text),
			 "%s in %s, but its layout was not found", file->version, file->name);
		snprintf(result->todo, sizeof(result->todo), "moonspy inspect -p %d", pid);
	} else if (process) {
		result->level = DOCTOR_WARN;
		snprintf(result->text, sizeof(result->text),
			 "no LuaJIT in it: its native stacks can be profiled");
	}
	cli_finder_free(&finder);
	msp_process_close(process);
}

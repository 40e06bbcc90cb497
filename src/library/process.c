/* SPDX-License-Identifier: MIT */
/* What there is to know of a process that is not opened. */
#include <stdio.h>
#include <string.h>

#include "moonspy/moonspy.h"
#include "target/target.h"

int msp_process_look(pid_t pid, struct msp_process_info *info)
{
	struct msp_process_info out = {.size = info->size};
	struct msp_process *process;
	int err;

	if (out.size < sizeof(out.size))
		return MSP_E_INVALID;
	memset((char *)info + sizeof(out.size), 0, out.size - sizeof(out.size));
	err = msp_process_open(pid, &process);
	if (err < 0)
		return err;
	out.pid = msp_process_pid(process);
	snprintf(out.name, sizeof(out.name), "%s", msp_process_comm(process));
	out.bits = msp_process_bits(process);
	out.state = msp_process_thread_state(process, pid);
	out.tracer = msp_process_tracer(process);
	msp_process_close(process);
	if (out.bits < 0)
		out.bits = 0;
	if (out.state < 0)
		out.state = 0;
	memcpy(info, &out, out.size < sizeof(out) ? out.size : sizeof(out));
	return 0;
}

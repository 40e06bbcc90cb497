/* SPDX-License-Identifier: MIT */
/* The engine for where BPF is not allowed: stop a thread, read its stack, let it go. */
#include "moonspy/moonspy.h"
#include "recorder/internal.h"

int rec_ptrace_open(struct msp_recorder *rec)
{
	return MSP_E_UNSUPPORTED;
}

void rec_ptrace_close(struct msp_recorder *rec)
{
}

int rec_ptrace_tick(struct msp_recorder *rec)
{
	return MSP_E_UNSUPPORTED;
}

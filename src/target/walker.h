/* SPDX-License-Identifier: MIT */
/* Beside the walker's user-space host; internal to src/target/. */
#ifndef MSP_TARGET_WALKER_H
#define MSP_TARGET_WALKER_H

#include "target/target.h"

/* Was the pc, where there is no code, just called on x86-64? *ret: where the call returns to. */
bool msp_call_to_nowhere(const struct msp_memory *mem, const struct msp_registers *regs,
	uint64_t *ret);

#endif

/* SPDX-License-Identifier: MIT */
/* What the machine code of a bytecode instruction is like. Internal to src/luajit/. */
#ifndef MSP_LUAJIT_TRACE_ALIGN_H
#define MSP_LUAJIT_TRACE_ALIGN_H

#include "luajit/bytecode.h"
#include "luajit/trace_code.h"

/* enum msp_trace_does: what it is there for, and what it may do besides. */
struct msp_expected {
	uint32_t strong, weak;
};

extern const struct msp_expected msp_expected[MSP_BC_COUNT];
/* A call of a function of the VM's own or in C: any of these. */
extern const struct msp_expected msp_expected_builtin;

#endif

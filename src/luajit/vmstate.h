/* SPDX-License-Identifier: MIT */
/*
 * Where the interpreter keeps the innermost Lua frame, at each instruction of
 * the VM block: BASE is not always its base, PC not always its position, and
 * a frame that returns is overwritten by its results.
 */
#ifndef MSP_LUAJIT_VMSTATE_H
#define MSP_LUAJIT_VMSTATE_H

#include "luajit/vmflow.h"

struct msp_vm_states;

int msp_vm_states_new(struct msp_vm_flow *flow, struct msp_vm_states **out);
void msp_vm_states_free(struct msp_vm_states *states);
/* MSP_LEAF_* of unwind/tables.h for an instruction; 0: not known. */
uint8_t msp_vm_state_at(const struct msp_vm_states *states, int32_t i);

#endif

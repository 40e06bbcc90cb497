/* SPDX-License-Identifier: MIT */
/*
 * The program that test-traces looks at: a process of this machine, or, with EMULATOR and ROOT in
 * the environment, one of arm64 that runs in qemu's user mode.
 */
#ifndef TRUTH_TARGET_H
#define TRUTH_TARGET_H

#include <stdbool.h>

#include "symbols/symbols.h"

/* Starts it. False: errno or the error of moonspy says why. */
bool truth_target_start(char *argv[]);
/* Its address space. An error code. */
int truth_target_space(struct msp_images *images, struct msp_space **out);
/* Lets it run on for a moment, to an instruction that is none in particular. False: it has ended. */
bool truth_target_run(void);
bool truth_target_registers(struct msp_registers *out);
/* Ends it, whatever state it is in. */
void truth_target_end(void);

#endif

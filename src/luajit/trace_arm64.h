/* SPDX-License-Identifier: MIT */
/* Operands of arm64 instructions, and what registers hold. Internal to trace_*_arm64.c. */
#ifndef MSP_LUAJIT_TRACE_ARM64_H
#define MSP_LUAJIT_TRACE_ARM64_H

#include "luajit/trace_decode.h"

enum { MSP_ARM64_BASE = 19, MSP_ARM64_GL = 22, MSP_ARM64_LR = 30 }; /* lj_target_arm64.h: RID_* */

/* Operand i; one of no type if there is none. */
const cs_arm64_op *msp_arm64_operand(const cs_insn *insn, uint8_t i);
/* Number of a general register; negative: another one, or none. */
int msp_arm64_number(unsigned int reg);
/* Is it a general one with all of its 64 bits? */
bool msp_arm64_is_wide(unsigned int reg);
/* Number of the general register that operand i is; negative: it is none. */
int msp_arm64_general(const cs_insn *insn, uint8_t i);
/* The operand in memory; NULL: there is none. */
const cs_arm64_op *msp_arm64_memory(const cs_insn *insn);

/* What a general register holds. */
struct msp_trace_held msp_arm64_held(const struct msp_trace_decoder *d, int reg);
/* Does the register that operand i is hold a constant? */
bool msp_arm64_constant(const struct msp_trace_decoder *d, const cs_insn *insn, uint8_t i,
			uint64_t *value);
/* What they hold behind an instruction, which does that by itself. */
void msp_arm64_follow_registers(struct msp_trace_decoder *d, const cs_insn *insn, uint32_t does);
/*
 * Where the loop begins: what is an object or a value with its tag is the same each time round; a
 * number may be a variable's first value.
 */
void msp_arm64_begin_loop(struct msp_trace_decoder *d);

#endif

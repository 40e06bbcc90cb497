/* SPDX-License-Identifier: MIT */
/* Instructions of arm64, as far as a stack frame depends on them (Arm ARM, C4.1). */
#ifndef MSP_ELF_ARM64_H
#define MSP_ELF_ARM64_H

#include <stdbool.h>
#include <stdint.h>

#define MSP_A64_FP 29
#define MSP_A64_LR 30
#define MSP_A64_SP 31

enum msp_a64_kind {
	MSP_A64_PLAIN,	/* nothing of all that */
	MSP_A64_CALL,	/* bl, blr */
	MSP_A64_JUMP,	/* b: to imm */
	MSP_A64_BRANCH, /* to imm, or on */
	MSP_A64_LEAVES, /* br; never comes back: brk, udf */
	MSP_A64_RETURN, /* to x30 */
	MSP_A64_ADD_SP, /* sp = sp + imm */
	MSP_A64_SP_FP,	/* sp = x29 + imm */
	MSP_A64_FP_SP,	/* x29 = sp + imm */
	MSP_A64_STORE,	/* at sp + imm, then sp = sp + moves */
	MSP_A64_LOAD,
	MSP_A64_LOSES_SP /* sp is something else, or may be */
};

struct msp_a64_op {
	enum msp_a64_kind kind;
	int32_t imm, moves;
	uint32_t reg_count; /* 64-bit general registers that are stored or loaded, 8 bytes apart */
	uint8_t reg[2];
};

/* Might an instruction that neither jumps nor calls write that register? MSP_A64_LR or MSP_A64_SP. */
bool msp_a64_may_write(uint32_t word, uint32_t reg);
void msp_a64_decode(uint32_t word, struct msp_a64_op *op);

#endif

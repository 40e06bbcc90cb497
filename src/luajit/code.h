/* SPDX-License-Identifier: MIT */
/*
 * Machine code, decoded to what analysis needs: an operation of a small set,
 * operands with DWARF register numbers, where control goes next. The
 * disassembler behind it (capstone) shows nowhere else but in trace_code.c.
 */
#ifndef MSP_LUAJIT_CODE_H
#define MSP_LUAJIT_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/elf.h"

enum msp_op {
	MSP_OP_OTHER, /* only its written registers are known */
	MSP_OP_MOV,   /* copy, zero extension or load and store */
	MSP_OP_MOVSX,
	MSP_OP_LEA,
	MSP_OP_ADD,
	MSP_OP_SUB,
	MSP_OP_MUL,
	MSP_OP_AND,
	MSP_OP_OR,
	MSP_OP_XOR,
	MSP_OP_NOT,
	MSP_OP_SHL,
	MSP_OP_SHR,
	MSP_OP_SAR,
	MSP_OP_CMP,
	MSP_OP_TEST,
	MSP_OP_PUSH,
	MSP_OP_POP,
	MSP_OP_LEAVE,
	MSP_OP_CALL,
	MSP_OP_JMP,
	MSP_OP_JCC,
	MSP_OP_RET,
	MSP_OP_TRAP, /* control does not come out */
};

enum msp_operand_kind { MSP_OPND_NONE, MSP_OPND_REG, MSP_OPND_IMM, MSP_OPND_MEM };

struct msp_operand {
	uint8_t kind;
	uint8_t size;
	uint8_t reg;	     /* REG; MSP_REG_NONE: not a general register */
	bool high_byte;	     /* REG: bits 8 to 15 (ah) */
	uint8_t base, index; /* MEM; base is MSP_REG_NONE for absolute and pc-relative addresses */
	uint8_t scale;
	int64_t value; /* IMM: value; MEM: displacement, or address if there is no base */
};

#define MSP_INSN_OPERANDS 3

struct msp_insn {
	uint64_t addr;
	uint8_t size;
	uint8_t op; /* enum msp_op */
	uint8_t operand_count;
	bool has_target; /* direct branch or call */
	uint64_t target;
	uint32_t writes; /* bit per general register that is written */
	struct msp_operand operand[MSP_INSN_OPERANDS];
};

struct msp_code; /* a disassembler bound to an image */

int msp_code_open(const struct msp_image *image, struct msp_code **out);
void msp_code_close(struct msp_code *code);

/* Decodes at an image-relative address. MSP_E_FORMAT: no instruction there. */
int msp_code_decode(struct msp_code *code, uint64_t addr, struct msp_insn *out);

/* Does control continue behind the instruction? */
static inline bool msp_insn_falls_through(const struct msp_insn *insn)
{
	return insn->op != MSP_OP_JMP && insn->op != MSP_OP_RET && insn->op != MSP_OP_TRAP;
}

/* Registers of the calling convention. */
#define MSP_CODE_ARGS 6
extern const uint8_t msp_x64_args[MSP_CODE_ARGS];
extern const uint32_t msp_x64_caller_saved; /* bit per register that a call may change */

#endif

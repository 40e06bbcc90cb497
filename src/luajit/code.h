/* SPDX-License-Identifier: MIT */
/*
 * Machine code, decoded to what analysis needs: an operation of a small set,
 * operands with DWARF register numbers, where control goes next. The
 * disassembler behind it (capstone) shows nowhere else but in code*.c, code_decode.h, and in what decodes
 * the code of traces: trace_code*.c, trace_{bases,held,joins,numbers}_*.c, trace_decode.h, trace_arm64.h.
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
	MSP_OP_INSERT, /* arm64: 16 bits of a register, those that the constant is shifted to */
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

	/* arm64: what is done to a register or index before it is used. */
	uint8_t shift_op; /* enum msp_op: SHL, SHR, SAR; OTHER: none */
	uint8_t shift;
	uint8_t narrow; /* REG: only so many bytes of it count; 0: all */

	/* arm64, MEM: the base register moves by that, after the access (before it: in value already). */
	int64_t step;
};

#define MSP_INSN_OPERANDS 3

struct msp_insn {
	uint64_t addr;
	uint8_t size;
	uint8_t op; /* enum msp_op */
	uint8_t operand_count;
	uint8_t second;	 /* arm64: the other register of a pair that is loaded or stored; else NONE */
	uint8_t addend;	 /* arm64: the register that is added to the product of MUL; else NONE */
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

/* An operation's inputs: of two operands the first is also where the result goes. */
static inline const struct msp_operand *msp_insn_left(const struct msp_insn *insn)
{
	return &insn->operand[insn->operand_count == 3];
}

static inline const struct msp_operand *msp_insn_right(const struct msp_insn *insn)
{
	return &insn->operand[1 + (insn->operand_count == 3)];
}

/* Registers and the calling convention, by DWARF numbers. */
#define MSP_CODE_ARGS 6
struct msp_code_abi {
	uint8_t arch; /* enum msp_arch */
	uint8_t align; /* of instructions */
	uint8_t regs; /* general registers, with the stack pointer */
	uint8_t sp, fp, lr, result; /* lr: NONE where a call pushes the return address */
	uint8_t pushed; /* bytes that a call pushes */
	uint8_t arg[MSP_CODE_ARGS];
	uint32_t caller_saved; /* bit per register that a call may change */
	uint8_t slot[MSP_SLOT_COUNT]; /* registers of the slots in msp_rule.saved */
	uint8_t slots;
};

/* NULL: unknown architecture. */
const struct msp_code_abi *msp_code_abi_of(int arch);
const struct msp_code_abi *msp_code_abi(const struct msp_code *code);

#endif

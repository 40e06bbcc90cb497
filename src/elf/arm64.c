/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "elf/arm64.h"

static uint32_t field(uint32_t word, unsigned int at)
{
	return word >> at & 31;
}

/* The size bits from at on, as a signed number. */
static int32_t number(uint32_t word, unsigned int at, unsigned int size)
{
	return (int32_t)(word << (32 - at - size)) >> (32 - size);
}

static bool may_load(uint32_t word, uint32_t reg)
{
	if ((word & 0x3b000000) == 0x18000000) /* from beside the code: no base */
		return field(word, 0) == reg && reg != MSP_A64_SP;
	if (field(word, 5) == reg) /* the base may move */
		return true;
	return reg != MSP_A64_SP && /* of two registers; the status of a store */
	       (field(word, 0) == reg ||
		((word & 0x3a000000) == 0x28000000 && field(word, 10) == reg) ||
		((word & 0x3f000000) == 0x08000000 && field(word, 16) == reg));
}

bool msp_a64_may_write(uint32_t word, uint32_t reg)
{
	uint32_t class = word >> 25 & 15;

	if (class < 4)
		return true;
	if (class == 10 || class == 11) /* hints; mrs writes a register */
		return (word & 0xfff00000) == 0xd5300000 && field(word, 0) == reg &&
		       reg != MSP_A64_SP;
	if ((class & 5) == 4)
		return may_load(word, reg);
	if (reg != MSP_A64_SP) /* vectors may write a general register */
		return field(word, 0) == reg;
	if ((class & 7) == 7 || field(word, 0) != MSP_A64_SP)
		return false;
	/* Mostly 31 is no register, but what a comparison writes; not with these. */
	if ((word & 0x1f800000) == 0x12000000) /* and, orr, eor; tst */
		return (word >> 29 & 3) != 3;
	return !(word >> 29 & 1);
}

/* Of the class of branches and system instructions. */
static void decode_branch(uint32_t word, struct msp_a64_op *op)
{
	if (word >> 26 == 0x25 ||
	    (word & 0xfefff000) == 0xd63f0000) { /* bl; blr, also authenticated */
		op->kind = MSP_A64_CALL;
	} else if (word >> 26 == 0x05) {
		op->kind = MSP_A64_JUMP;
		op->imm = number(word, 0, 26) * 4;
	} else if (word >> 24 == 0x54 ||
		   (word & 0x7e000000) == 0x34000000) { /* b.cond, cbz, cbnz */
		op->kind = MSP_A64_BRANCH;
		op->imm = number(word, 5, 19) * 4;
	} else if ((word & 0x7e000000) == 0x36000000) { /* tbz, tbnz */
		op->kind = MSP_A64_BRANCH;
		op->imm = number(word, 5, 14) * 4;
	} else if (word == 0xd65f03c0 ||
		   (word & 0xfffffbff) == 0xd65f0bff) { /* ret, retaa, retab */
		op->kind = MSP_A64_RETURN;
	} else if (word >> 25 == 0x6b || word >> 21 == 0x6a1 ||
		   word >> 21 == 0x6a2) { /* br, brk, hlt */
		op->kind = MSP_A64_LEAVES;
	}
}

/* add, sub with a constant, from sp or x29 to one of these. */
static void decode_add(uint32_t word, struct msp_a64_op *op)
{
	uint32_t to = field(word, 0), from = field(word, 5);

	if (to == MSP_A64_SP && from == MSP_A64_SP)
		op->kind = MSP_A64_ADD_SP;
	else if (to == MSP_A64_SP && from == MSP_A64_FP)
		op->kind = MSP_A64_SP_FP;
	else if (to == MSP_A64_FP && from == MSP_A64_SP)
		op->kind = MSP_A64_FP_SP;
	else
		return;
	op->imm = (int32_t)(word >> 10 & 0xfff) << (word >> 22 & 1 ? 12 : 0);
	if (word >> 30 & 1)
		op->imm = -op->imm;
}

/* How a base moves: none, after the access, or before it. */
enum move { MOVE_NONE, MOVE_AFTER, MOVE_BEFORE };

static void set_access(struct msp_a64_op *op, bool load, enum move move, int32_t imm)
{
	op->kind = load ? MSP_A64_LOAD : MSP_A64_STORE;
	op->imm = move == MOVE_AFTER ? 0 : imm;
	op->moves = move == MOVE_NONE ? 0 : imm;
}

/* ldp, stp by sp. */
static void decode_pair(uint32_t word, struct msp_a64_op *op)
{
	static const enum move moves[] = {MOVE_NONE, MOVE_AFTER, MOVE_NONE, MOVE_BEFORE};
	uint32_t opc = word >> 30, vector = word >> 26 & 1;
	unsigned int shift = vector ? 2 + opc : 2 + (opc >> 1);

	if (!vector && opc == 1 && !(word >> 22 & 1)) /* stgp: also tags */
		shift = 4;
	set_access(op, word >> 22 & 1, moves[word >> 23 & 3],
		   (int32_t)((uint32_t)number(word, 15, 7) << shift));
	if (vector || opc != 2)
		return;
	op->reg[0] = (uint8_t)field(word, 0);
	op->reg[1] = (uint8_t)field(word, 10);
	op->reg_count = 2;
}

/* ldr, str by sp; scaled: with a constant that counts registers. */
static void decode_single(uint32_t word, bool scaled, struct msp_a64_op *op)
{
	static const enum move moves[] = {MOVE_NONE, MOVE_AFTER, MOVE_NONE, MOVE_BEFORE};
	uint32_t vector = word >> 26 & 1, opc = word >> 22 & 3;
	unsigned int shift = vector && opc & 2 ? 4 : word >> 30;

	if (scaled)
		set_access(op, opc, MOVE_NONE, (int32_t)((word >> 10 & 0xfff) << shift));
	else
		set_access(op, opc, moves[word >> 10 & 3], number(word, 12, 9));
	if (vector || word >> 30 != 3 || opc > 1)
		return;
	op->reg[0] = (uint8_t)field(word, 0);
	op->reg_count = 1;
}

/* Loads and stores by sp. */
static void decode_access(uint32_t word, struct msp_a64_op *op)
{
	uint32_t group = word & 0x3b000000;

	if ((word & 0x3a000000) == 0x28000000)
		decode_pair(word, op);
	else if (group == 0x39000000)
		decode_single(word, true, op);
	else if (group == 0x38000000 && !(word >> 21 & 1))
		decode_single(word, false, op);
	else if (group == 0x38000000 ? word >> 10 & 1 : /* of an authenticated address */
			 (word & 0x3f000000) == 0x19000000 ? word >> 10 & 3
		 : (word & 0x3e000000) == 0x0c000000	   ? word >> 23 & 1
							   : /* vectors */
			 (word & 0x3f000000) != 0x08000000)
		op->kind = MSP_A64_LOSES_SP;
}

void msp_a64_decode(uint32_t word, struct msp_a64_op *op)
{
	uint32_t class = word >> 25 & 15;

	memset(op, 0, sizeof(*op));
	if (word >> 16 == 0) /* udf */
		op->kind = MSP_A64_LEAVES;
	else if (class == 10 || class == 11)
		decode_branch(word, op);
	else if ((class & 5) == 4 && (word & 0x3b000000) != 0x18000000 &&
		 field(word, 5) == MSP_A64_SP)
		decode_access(word, op);
	else if ((word & 0xbf800000) == 0x91000000)
		decode_add(word, op);
	if (op->kind == MSP_A64_PLAIN && class != 10 && class != 11 && (class & 5) != 4 &&
	    msp_a64_may_write(word, MSP_A64_SP))
		op->kind = MSP_A64_LOSES_SP;
}

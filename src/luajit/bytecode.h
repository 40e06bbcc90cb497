/* SPDX-License-Identifier: MIT */
/*
 * LuaJIT's bytecode as data. Opcodes have their own numbers here; a table a
 * generation maps the target's numbers to them, so that the rest of the code
 * never depends on one LuaJIT version. Internal to src/luajit/.
 */
#ifndef MSP_LUAJIT_BYTECODE_H
#define MSP_LUAJIT_BYTECODE_H

#include <stdbool.h>
#include <stdint.h>

#include "unwind/tables.h"

/* What an instruction does with the slots at and above A. */
enum msp_bc_mode {
	MSP_BC_NONE, /* reads at most */
	MSP_BC_DST,  /* writes slot A */
	MSP_BC_TEST, /* writes slot A, if the jump that follows is taken */
	MSP_BC_BASE, /* A is the base of a call, a loop or a range: slots from A on are lost */
	MSP_BC_NILS, /* writes slots A to D */
};

/* Opcodes in the target's order: name, mode, D is a jump. (lj_bc.h) */
#define MSP_BC_COMMON(_) \
	_(ISLT, NONE, 0) _(ISGE, NONE, 0) _(ISLE, NONE, 0) _(ISGT, NONE, 0) \
	_(ISEQV, NONE, 0) _(ISNEV, NONE, 0) _(ISEQS, NONE, 0) _(ISNES, NONE, 0) \
	_(ISEQN, NONE, 0) _(ISNEN, NONE, 0) _(ISEQP, NONE, 0) _(ISNEP, NONE, 0) \
	_(ISTC, TEST, 0) _(ISFC, TEST, 0) _(IST, NONE, 0) _(ISF, NONE, 0) \
	_(ISTYPE, NONE, 0) _(ISNUM, NONE, 0) \
	_(MOV, DST, 0) _(NOT, DST, 0) _(UNM, DST, 0) _(LEN, DST, 0) \
	_(ADDVN, DST, 0) _(SUBVN, DST, 0) _(MULVN, DST, 0) _(DIVVN, DST, 0) _(MODVN, DST, 0) \
	_(ADDNV, DST, 0) _(SUBNV, DST, 0) _(MULNV, DST, 0) _(DIVNV, DST, 0) _(MODNV, DST, 0) \
	_(ADDVV, DST, 0) _(SUBVV, DST, 0) _(MULVV, DST, 0) _(DIVVV, DST, 0) _(MODVV, DST, 0) \
	_(POW, DST, 0) _(CAT, DST, 0) \
	_(KSTR, DST, 0) _(KCDATA, DST, 0) _(KSHORT, DST, 0) _(KNUM, DST, 0) _(KPRI, DST, 0) \
	_(KNIL, NILS, 0) \
	_(UGET, DST, 0) _(USETV, NONE, 0) _(USETS, NONE, 0) _(USETN, NONE, 0) _(USETP, NONE, 0) \
	_(UCLO, NONE, 1) _(FNEW, DST, 0) \
	_(TNEW, DST, 0) _(TDUP, DST, 0) _(GGET, DST, 0) _(GSET, NONE, 0) \
	_(TGETV, DST, 0) _(TGETS, DST, 0) _(TGETB, DST, 0) _(TGETR, DST, 0) \
	_(TSETV, NONE, 0) _(TSETS, NONE, 0) _(TSETB, NONE, 0) _(TSETM, BASE, 0) _(TSETR, NONE, 0) \
	_(CALLM, BASE, 0) _(CALL, BASE, 0) _(CALLMT, BASE, 0) _(CALLT, BASE, 0) \
	_(ITERC, BASE, 0) _(ITERN, BASE, 0) _(VARG, BASE, 0) _(ISNEXT, BASE, 1) \
	_(RETM, NONE, 0) _(RET, NONE, 0) _(RET0, NONE, 0) _(RET1, NONE, 0) \
	_(FORI, BASE, 1) _(JFORI, BASE, 1) _(FORL, BASE, 1) _(IFORL, BASE, 1) _(JFORL, BASE, 0) \
	_(ITERL, BASE, 1) _(IITERL, BASE, 1) _(JITERL, BASE, 0) \
	_(LOOP, NONE, 0) _(ILOOP, NONE, 0) _(JLOOP, NONE, 0) _(JMP, NONE, 1)

#define MSP_BC_BITOPS(_) \
	_(BNOT, DST, 0) _(BAND, DST, 0) _(BOR, DST, 0) _(BXOR, DST, 0) \
	_(BSHL, DST, 0) _(BSHR, DST, 0) _(BSAR, DST, 0)

enum msp_bc_op {
#define _(name, mode, jump) MSP_BC_##name,
	MSP_BC_COMMON(_) MSP_BC_BITOPS(_)
#undef _
	MSP_BC_FUNC, /* any function header */
	MSP_BC_UNKNOWN,
	MSP_BC_COUNT
};

struct msp_bc_ins {
	uint8_t op; /* enum msp_bc_op */
	uint8_t a, b, c;
	uint16_t d;
};

/* A generation of opcode numbers. */
struct msp_bc_set {
	uint8_t funcf; /* number of the first function header: tells the generations apart */
	uint8_t op[256];
};

/* The opcodes of a build; NULL: a generation that is not known, decode nothing. */
const struct msp_bc_set *msp_bc_set_find(const struct msp_lj_layout *layout);

enum msp_bc_mode msp_bc_mode(uint8_t op);
bool msp_bc_is_jump(uint8_t op); /* D is a jump distance; loops that JIT code took over excepted */
bool msp_bc_is_call(uint8_t op); /* calls the function in a slot */
bool msp_bc_is_return(uint8_t op);

/* Which operands are slots that it reads. Of a call, A is the function; its arguments are not told. */
enum { MSP_BC_A = 1, MSP_BC_B = 2, MSP_BC_C = 4, MSP_BC_D = 8 };
uint8_t msp_bc_reads(uint8_t op);

static inline struct msp_bc_ins msp_bc_decode(const struct msp_bc_set *set, uint32_t ins)
{
	return (struct msp_bc_ins){
		.op = set->op[ins & 0xff],
		.a = ins >> 8,
		.b = ins >> 24,
		.c = ins >> 16,
		.d = ins >> 16,
	};
}

/* Target of a jump at pos; may be outside of the function if the bytecode is broken. */
static inline int64_t msp_bc_target(const struct msp_bc_ins *ins, uint32_t pos)
{
	return (int64_t)pos + 1 + ((int32_t)ins->d - 0x8000);
}

#endif

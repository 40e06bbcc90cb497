/* SPDX-License-Identifier: MIT */
/*
 * A trace's instructions (IR). Of one only its type and operands are used, which have been the same
 * in all of LuaJIT 2.x (lj_ir.h):
 *
 *	op1 u16 | op2 u16 | type u8 | opcode u8 | register u8, spill slot u8
 *
 * and, with GC64, the word behind a constant is its object; without, the first half of it. Internal
 * to src/luajit/.
 */
#ifndef MSP_LUAJIT_TRACE_IR_H
#define MSP_LUAJIT_TRACE_IR_H

#include "luajit/trace_reader.h"

#define MSP_IR_TYPE 31
#define MSP_IR_GUARD 0x80
enum {
	MSP_IR_NIL = 0,
	MSP_IR_STR = 4,
	MSP_IR_P32 = 5,
	MSP_IR_PROTO = 7,
	MSP_IR_FUNC = 8,
	MSP_IR_P64 = 9,
	MSP_IR_CDATA = 10,
	MSP_IR_UDATA = 12,
	MSP_IR_NUM = 14,
	MSP_IR_INT = 19,
	MSP_IR_U64 = 22
};

static inline const uint8_t *msp_ir_at(const struct msp_trace_reader *r, uint32_t ref)
{
	return r->data + (size_t)(ref - r->nk) * MSP_IR_SIZE;
}

static inline uint32_t msp_ir_a(const struct msp_trace_reader *r, uint32_t ref)
{
	return msp_get16(msp_ir_at(r, ref));
}

static inline uint32_t msp_ir_b(const struct msp_trace_reader *r, uint32_t ref)
{
	return msp_get16(msp_ir_at(r, ref) + 2);
}

static inline uint8_t msp_ir_type(const struct msp_trace_reader *r, uint32_t ref)
{
	return msp_ir_at(r, ref)[4] & MSP_IR_TYPE;
}

/* The trace goes on only if it is true. */
static inline bool msp_ir_guard(const struct msp_trace_reader *r, uint32_t ref)
{
	return msp_ir_at(r, ref)[4] & MSP_IR_GUARD;
}

static inline bool msp_ir_is_constant(const struct msp_trace_reader *r, uint32_t ref)
{
	return ref >= r->nk && ref < MSP_REF_BIAS;
}

static inline bool msp_ir_is_ins(const struct msp_trace_reader *r, uint32_t ref)
{
	return ref > MSP_REF_BIAS && ref < r->nins;
}

/* Is an operand a constant or an instruction of a type? */
static inline bool msp_ir_has_type(const struct msp_trace_reader *r, uint32_t ref, uint8_t type)
{
	return ref >= r->nk && ref < r->nins && msp_ir_type(r, ref) == type;
}

/* The object that a constant is; 0: none. */
static inline uint64_t msp_ir_object(const struct msp_trace_reader *r, uint32_t ref)
{
	if (!r->layout->gc64)
		return msp_get32(msp_ir_at(r, ref));
	return ref + 1 < MSP_REF_BIAS ? msp_get64(msp_ir_at(r, ref + 1)) : 0;
}

#endif

/* SPDX-License-Identifier: MIT */
/* Machine code of traces, as far as it tells what it is for. Internal to src/luajit/. */
#ifndef MSP_LUAJIT_TRACE_CODE_H
#define MSP_LUAJIT_TRACE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/tables.h"

/* What an instruction does: a bit each, for masks. */
enum msp_trace_does {
	MSP_DOES_ADD = 1 << 0,
	MSP_DOES_SUB = 1 << 1,
	MSP_DOES_MUL = 1 << 2,
	MSP_DOES_DIV = 1 << 3,
	MSP_DOES_SQRT = 1 << 4,
	MSP_DOES_ROUND = 1 << 5,
	MSP_DOES_AND = 1 << 6,
	MSP_DOES_OR = 1 << 7,
	MSP_DOES_XOR = 1 << 8,
	MSP_DOES_SHL = 1 << 9,
	MSP_DOES_SHR = 1 << 10,
	MSP_DOES_SAR = 1 << 11,
	MSP_DOES_ROL = 1 << 12,
	MSP_DOES_NOT = 1 << 13,
	MSP_DOES_COMPARE = 1 << 14,
	MSP_DOES_BRANCH = 1 << 15,
	MSP_DOES_LOAD = 1 << 16,
	MSP_DOES_STORE = 1 << 17,
	MSP_DOES_CALL = 1 << 18,
	MSP_DOES_CONVERT = 1 << 19,
	MSP_DOES_FLOAT = 1 << 20, /* with floating point registers */
	MSP_DOES_COPY = 1 << 21,  /* from a register or constant: for what comes next */
	MSP_DOES_INDEX = 1 << 23, /* besides LOAD or STORE: with an index */
	MSP_DOES_TYPE = 1 << 25,  /* looks at a value's type: for what comes before */
	MSP_DOES_CHECK = 1 << 24, /* is it time for the collector? before all else */
	MSP_DOES_SLOT = 1 << 22,  /* reads a slot of the Lua stack */
	MSP_DOES_FIXED = 1 << 27, /* with a number that is constant, in memory */
	MSP_DOES_FOREIGN =
		1
		<< 28, /* besides CALL: by a register that holds the function, as only the FFI does (asm_callx()) */
	MSP_DOES_BOUND =
		1 << 29, /* compares integers without their sign: is an index within bounds? */
	MSP_DOES_KEY = 1 << 30,	   /* is there a key in a table's hash, and where? */
	MSP_DOES_TOINT = 1u << 31, /* besides CONVERT: a number to an integer */
	MSP_DOES_STATE = 1 << 26,  /* besides CALL: its first argument is the Lua state */
};

/* What else it tells. */
enum msp_trace_tells {
	MSP_TELLS_TOBIT = 1 << 0, /* a number to the integer that the bit operations work with */
	MSP_TELLS_ORDER = 1 << 1, /* which of two numbers is larger? */
	MSP_TELLS_SLOT = 1 << 2,  /* reads a slot of the Lua stack, for nothing but that */
	MSP_TELLS_ENTRY = 1 << 3, /* besides SLOT: if the base was where root traces have it */
	MSP_TELLS_RETURN = 1 << 4, /* returns below the trace's base */
	/* integer arithmetic that checks whether it overflows: of numbers, not a loop's counter */
	MSP_TELLS_OVERFLOW = 1 << 5,
	MSP_TELLS_VARIABLES = 1 << 6, /* computes with numbers of which none is constant */
	MSP_TELLS_HEAD = 1 << 7, /* of the head of the trace, as all before it */
	MSP_TELLS_MOVED = 1 << 8, /* goes with the head, where no C types are worked with */
};

/* Is it of the same instruction of the compiler as the one before? */
enum msp_trace_joined {
	MSP_JOINED_NOT,	    /* not known */
	MSP_JOINED,	    /* it is */
	MSP_JOINED_NUMBERS, /* it is where no C types are worked with */
	MSP_JOINED_ROOT,    /* it is in root traces */
	MSP_JOINED_SPILL,   /* it is if it does not go with a call */
};

struct msp_trace_ins {
	uint32_t code;	/* its offset */
	uint32_t does;	/* of enum msp_trace_does; 0: nothing that tells */
	uint16_t tells; /* of enum msp_trace_tells */
	uint8_t joined; /* enum msp_trace_joined */
	uint64_t imm;	/* a constant in it that may be an object's address; 0: none */
	uint64_t key;	/* KEY: the string, if it is told; 0: it is not */
	uint64_t place; /* where it reads or writes memory at a fixed place; 0: it does not */
	uint64_t jump;	/* where it jumps to, always or not; 0: it does not */
	int32_t slot;	/* SLOT: which one, from the trace's base */
};

/*
 * Decodes code at addr of a trace of the VM g, whose loop begins at an offset of it (0: none). Returns how many;
 * negative: error code. *all: it is the whole, not only up to what is no instruction.
 */
int msp_trace_code_read(const struct msp_lj_layout *layout, uint64_t g, const uint8_t *code,
			size_t size, uint64_t addr, uint32_t loop, struct msp_trace_ins *out,
			size_t room, bool *all);

#endif

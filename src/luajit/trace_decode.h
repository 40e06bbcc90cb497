/* SPDX-License-Identifier: MIT */
/*
 * What the decoders of a trace's code share, a few files an architecture: trace_code_*.c,
 * trace_{bases,joins,numbers}_x64.c, trace_{held,joins}_arm64.c. Internal to these.
 */
#ifndef MSP_LUAJIT_TRACE_DECODE_H
#define MSP_LUAJIT_TRACE_DECODE_H

#include <capstone/capstone.h>

#include "luajit/trace_code.h"

/* What a register holds, where constants are in registers. */
enum msp_trace_held_kind {
	MSP_HELD_UNKNOWN,
	MSP_HELD_CONSTANT, /* value */
	MSP_HELD_WORD,     /* the word at address value, which is constant */
	MSP_HELD_LOADED,   /* 64 bits of an object */
	MSP_HELD_HMASK,    /* 32 bits of one, where a table has the size of its hash */
	MSP_HELD_BASE,     /* the base of the trace's Lua frame */
};

struct msp_trace_held {
	enum msp_trace_held_kind kind;
	uint64_t value;
};

/*
 * An instruction that came before: its first two operands where they are registers, else 0; what it has in
 * memory and as a number.
 */
struct msp_trace_before {
	unsigned int id, to, from;
	bool in_memory, has_number;
	x86_op_mem mem;
	int64_t number;
};

/*
 * Where the head of the trace ends: it has stored the trace's number in the VM's state; and may have
 * moved the base.
 */
enum msp_trace_head { MSP_HEAD_NONE, MSP_HEAD_STORED, MSP_HEAD_MOVED };

/* What is known from one instruction to the next, of x86-64. */
struct msp_trace_decoder_x64 {
	bool base;  /* rdx is the trace's base */
	bool state; /* the register of a call's first argument holds the Lua state */
	/* what the last instruction has loaded from the VM's state: how much is allocated? */
	unsigned int reg;
	int64_t disp;
	uint64_t key; /* the string that the last instruction has loaded, and where to */
	unsigned int key_reg;
	uint32_t bases;	    /* registers that hold the trace's base, by their number */
	bool entered;	    /* and have it from its start */
	uint32_t variables; /* floating point registers whose values are no constants, by their number */
	uint8_t alias;	    /* enum msp_trace_joined: the last instruction goes with a comparison */
	uint8_t head;	    /* enum msp_trace_head */
	struct msp_trace_before before[3]; /* the last one first */
};

/* The same of arm64. */
struct msp_trace_decoder_arm64 {
	struct msp_trace_held held[32];
	bool numbers;	 /* the last instruction has compared floating point numbers */
	bool after_call; /* nothing but moves since */
	/* the register with a value that was just loaded, whose type is then looked at; negative: none */
	int value;
	int tagged;    /* that with one that was just given its type, to be stored */
	bool product;  /* since the last product nothing was done but to look at it */
	bool compared; /* since the last comparison, but for what belongs to it, nothing was done */
};

struct msp_trace_decoder {
	const struct msp_lj_layout *layout;
	uint64_t g, addr; /* of the VM; of the code */
	uint32_t loop;	  /* where the loop begins; 0: there is none */
	csh handle;
	bool compares; /* the last instruction has compared integers */
	bool hmask;    /* or the size of a table's hash */
	int check; /* branches to come until its end: over the collector's step, and behind it */
	struct msp_trace_decoder_x64 x64;
	struct msp_trace_decoder_arm64 arm64;
};

/* Decodes an instruction to *out, which those before it precede. */
void msp_trace_decode_x64(struct msp_trace_decoder *d, const cs_insn *insn,
			  struct msp_trace_ins *out);
void msp_trace_decode_arm64(struct msp_trace_decoder *d, const cs_insn *insn,
			    struct msp_trace_ins *out);
/* Before the first one. */
void msp_trace_begin_arm64(struct msp_trace_decoder *d);
/* trace_joins_x64.c: is it of the same instruction of the compiler as the one before? */
void msp_trace_join_x64(struct msp_trace_decoder *d, const cs_insn *insn,
			struct msp_trace_ins *out);
/* A general register's number, for both its names; 16: it is none of these. */
unsigned int msp_trace_register_x64(unsigned int reg);
/* trace_numbers_x64.c: does it compute with numbers that are no constants? */
void msp_trace_numbers_x64(struct msp_trace_decoder *d, const cs_insn *insn,
			   struct msp_trace_ins *out);
/* trace_bases_x64.c: does it read a slot of the trace's base, or move that? */
void msp_trace_base_x64(struct msp_trace_decoder *d, const cs_insn *insn,
			struct msp_trace_ins *out);

/* arm64: which instructions are one thing with those before (trace_joins_arm64.c). */
void msp_trace_join_arm64(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out);

/* Does an instruction leave a register as it is, which has two names? */
bool msp_trace_keeps(const struct msp_trace_decoder *d, const cs_insn *insn, unsigned int reg,
		     unsigned int low);
/* The string of a tagged value (LJ_TSTR); 0: it is none. */
uint64_t msp_trace_tagged_string(const struct msp_lj_layout *layout, int64_t value);

#endif

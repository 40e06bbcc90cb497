/* SPDX-License-Identifier: MIT */
/*
 * Symbolic reading of a piece of code: what a function loads, stores,
 * compares, calls and returns, in terms of the registers it started with.
 * Independent of registers, order and spelling that a compiler chose.
 */
#ifndef MSP_LUAJIT_SYM_H
#define MSP_LUAJIT_SYM_H

#include "luajit/code.h"

enum msp_sym_kind {
	MSP_SYM_UNKNOWN, /* node 0; equal to nothing */
	MSP_SYM_CONST,	 /* node 1; the value is the offset */
	MSP_SYM_REG,	 /* a register's value at the start; op is its number */
	MSP_SYM_LOAD,	 /* memory of size bytes at a, as it was at the start or is now */
	MSP_SYM_OP,	 /* a op b, op of enum msp_op */
	MSP_SYM_INDEX,	 /* a + b * op */
	MSP_SYM_RESULT,	 /* what a call returned; b is the call's address */
};

/* A value: a node plus an offset. */
struct msp_sym {
	uint16_t node;
	int64_t off;
};

struct msp_sym_node {
	uint8_t kind;
	uint8_t size;
	uint8_t op;
	struct msp_sym a, b;
};

enum msp_sym_event_kind {
	MSP_SYM_AT_LOAD,  /* size bytes at a; b is the loaded value */
	MSP_SYM_AT_STORE, /* b is stored to size bytes at a */
	MSP_SYM_AT_CMP,	  /* a is compared with b (CMP, TEST) */
	MSP_SYM_AT_CALL,  /* a is the callee; also a jump out of the piece */
	MSP_SYM_AT_JUMP,  /* indirect jump to a */
	MSP_SYM_AT_RET,	  /* a is the return value */
	MSP_SYM_AT_RSP,	  /* the stack pointer was loaded with a */
};

struct msp_sym_event {
	uint8_t kind;
	uint8_t size;
	uint64_t addr;
	struct msp_sym a, b;
	const struct msp_sym *reg; /* all registers, before the instruction */
};

#define MSP_SYM_NODES 1024

struct msp_sym_env {
	struct msp_code *code;
	uint64_t start, end; /* the piece: control that leaves it is an event and ends the path */
	unsigned int max_insns;
	unsigned int visits; /* how often paths may come by one instruction; 0: as often as loops need */
	bool early_first;  /* of the branches left to follow, the one met first; else last */
	bool keep_spills; /* what is stored to the stack is what is loaded from there */
	bool refs32; /* references to objects are 32 bits, untagged */
	unsigned int node_count;
	struct msp_sym_node node[MSP_SYM_NODES];
	/* Returns true to stop everything. */
	bool (*event)(struct msp_sym_env *env, const struct msp_sym_event *event);
	void *ctx;
};

/* Runs over all paths from entry, each loop a few times at most, until max_insns. */
void msp_sym_run(struct msp_sym_env *env, uint64_t entry);

/* ---- Questions about values ---- */

static inline bool msp_sym_is(const struct msp_sym_env *env, struct msp_sym v, int kind)
{
	return env->node[v.node].kind == kind;
}

/* v == register reg at the start + off? */
static inline bool msp_sym_is_reg(const struct msp_sym_env *env, struct msp_sym v, int reg)
{
	return msp_sym_is(env, v, MSP_SYM_REG) && env->node[v.node].op == reg;
}

static inline bool msp_sym_equal(struct msp_sym a, struct msp_sym b)
{
	return a.node != 0 && a.node == b.node && a.off == b.off;
}

/* v is memory: gives its address. size 0: any. */
bool msp_sym_is_load(const struct msp_sym_env *env, struct msp_sym v, unsigned int size,
		     struct msp_sym *addr);
/* v == [register at the start + *off]? */
bool msp_sym_is_load_reg(const struct msp_sym_env *env, struct msp_sym v, unsigned int size,
			 int reg, int64_t *off);
/* v == [[register at the start + outer] + *off]? */
bool msp_sym_is_load_load_reg(const struct msp_sym_env *env, struct msp_sym v, unsigned int size,
			      int reg, int64_t outer, int64_t *off);
/* v is a op b (offset 0)? */
bool msp_sym_is_op(const struct msp_sym_env *env, struct msp_sym v, int op, struct msp_sym *a,
		   struct msp_sym *b);
/* v is a pointer taken out of a value: its tag bits were masked or shifted out, or it was loaded as 32 bits. */
bool msp_sym_is_untagged(const struct msp_sym_env *env, struct msp_sym v);

#endif

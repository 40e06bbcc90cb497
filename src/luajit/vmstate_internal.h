/* SPDX-License-Identifier: MIT */
/* What vmstate.c follows from instruction to instruction; what an instruction does is an architecture's. */
#ifndef MSP_LUAJIT_VMSTATE_INTERNAL_H
#define MSP_LUAJIT_VMSTATE_INTERNAL_H

#include "luajit/vmstate.h"

/* What PC is. */
enum pc_kind {
	PC_OWN,	     /* a position, or of no meaning: not the frame's link */
	PC_NEXT,     /* the same, or the link of a frame above that is left or will be called */
	PC_CONT,     /* from a continuation frame: a position, unless that of an FFI callback */
	PC_LINK,     /* the link of the frame at BASE */
	PC_LINK_XOR, /* the same, its type changed by `xor PC, MSP_FT_C` */
	PC_LINK_SUB, /* the same, less MSP_FT_VARG */
	PC_DISTANCE, /* the link without its type: to a frame on this C frame */
	PC_OUTER,    /* the same, or what is computed from it: to what is below this C frame */
};

/* Where the frame's base is. */
enum base_place { BASE_UNKNOWN, BASE_REG, BASE_STORED, BASE_COPY_1, BASE_COPY_2 };

struct state {
	bool reached;
	uint8_t base;	     /* enum base_place */
	uint8_t pc;	     /* enum pc_kind */
	bool stored;	     /* L->base is BASE */
	bool copy_1, copy_2; /* registers that hold BASE: rbp, r15; arm64: RB, a result's address */
	bool saved;	     /* SAVE_PC is the frame's link */
	bool over;	     /* results may lie over function and link */
	bool link_gone;	     /* the link's slot has something else */
	uint8_t built;	     /* register below which a whole frame was written */
	bool result;	     /* a C function was told to put a result over the function */
	bool cont;	     /* a continuation has been taken from the stack */
	bool passed;	     /* BASE went down to a frame that is left as well */
	bool outer;	     /* arm64: L->base is what is below this C frame */
	uint8_t others_top;  /* arm64: the register with another coroutine's L->top */
};

/* What comes next for BASE's frame, on all ways. */
enum next { NEXT_ANY, NEXT_STORE, NEXT_LOAD, NEXT_OTHER };

struct msp_vm_states {
	struct msp_vm_flow *flow;
	const struct msp_lj_layout *y;
	struct state *at; /* before each instruction */
	uint8_t *next;
	int32_t *queue;
	bool *queued;
	uint32_t count;
};

/* x86-64: vmstate.c; arm64: vmstate_arm64.c. */
enum next msp_vm_next_arm64(const struct msp_vm_states *s, int32_t i);
void msp_vm_run_arm64(const struct msp_vm_states *s, int32_t i, struct state *st);
/* The state while what is called runs. */
void msp_vm_call_arm64(const struct msp_vm_states *s, int32_t i, struct state *st);

/* Is BASE loaded anew behind an instruction, before it is used? A call that did not may not move the stack. */
bool msp_vm_reloads_base_arm64(const struct msp_vm_states *s, int32_t i);

bool msp_vm_loads_link(const struct msp_lj_layout *y, const struct msp_insn *insn);
bool msp_vm_stores_link(const struct msp_lj_layout *y, const struct msp_insn *insn);
/* What will be done next with the frame at BASE, behind an instruction. */
enum next msp_vm_next_behind(const struct msp_vm_states *s, int32_t i);
/* BASE is another frame's now: nothing that was known of the old one holds. */
void msp_vm_new_base(struct state *st, enum base_place place);
/* The register is lost to something else: the frame stays. */
void msp_vm_lose_base(struct state *st);

static inline bool is_reg(const struct msp_operand *o, uint8_t reg)
{
	return o->kind == MSP_OPND_REG && o->reg == reg;
}

static inline bool is_mem(const struct msp_operand *o, uint8_t base, int64_t disp)
{
	return o->kind == MSP_OPND_MEM && o->base == base && o->index == MSP_REG_NONE &&
	       o->value == disp;
}

static inline bool writes(const struct msp_insn *insn, uint8_t reg)
{
	return insn->writes >> reg & 1;
}

#endif

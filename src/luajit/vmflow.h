/* SPDX-License-Identifier: MIT */
/*
 * Control flow and stack heights of the VM block. The height of an instruction
 * is how far the stack pointer is below the CFA when it starts. Most pieces of
 * the block do not begin with a known height; they get it from what they are
 * connected to: a return happens at height 8, a dispatch at the frame's size.
 */
#ifndef MSP_LUAJIT_VMFLOW_H
#define MSP_LUAJIT_VMFLOW_H

#include "luajit/build.h"

/* Bits of msp_vm_node.flags. */
#define MSP_VM_ROOT 0x001   /* something enters here that is no edge of the flow */
#define MSP_VM_CALLED 0x002 /* called or jumped to from outside of the block */
#define MSP_VM_SUB 0x004    /* called from inside of the block only: runs on the caller's frame */
#define MSP_VM_REACHED 0x008
#define MSP_VM_BODY 0x010   /* interpreter code gets here: the frame has a Lua frame on it */
#define MSP_VM_LEAVES 0x020 /* nothing but returning to the C caller can follow */
#define MSP_VM_STORES 0x040 /* L->base is stored here or further on */
#define MSP_VM_HANDLER 0x080

struct msp_vm_node {
	int32_t parent; /* union-find: all instructions whose heights are connected */
	int32_t weight; /* own height - parent's height */
	uint16_t flags;
};

/* What is known about a set of connected instructions; kept at its root. */
enum msp_vm_set { MSP_VM_UNKNOWN, MSP_VM_FRAME, MSP_VM_LEAF, MSP_VM_EXIT };

struct msp_vm_flow {
	const struct msp_lj_build *build;
	const struct msp_code_abi *abi;
	struct msp_vm_node *node;
	int32_t *height; /* of the set's root, if its kind is FRAME or LEAF */
	uint8_t *kind;	 /* enum msp_vm_set, of the set's root */
	uint32_t conflicts;
};

/* Successors of an instruction inside the block: at most two. */
unsigned int msp_vm_successors(const struct msp_vm_flow *flow, int32_t i, int32_t next[2]);
/* The block's routine that a call enters, if it runs on this frame; -1 none. */
int32_t msp_vm_callee(const struct msp_vm_flow *flow, int32_t i);

bool msp_vm_is_dispatch(const struct msp_vm_flow *flow, const struct msp_insn *insn);
/* The stack pointer is loaded from somewhere else: mov rsp, reg; and sp, reg, mask. */
bool msp_vm_is_reset(const struct msp_vm_flow *flow, const struct msp_insn *insn);

int32_t msp_vm_root(struct msp_vm_flow *flow, int32_t i);
enum msp_vm_set msp_vm_kind(struct msp_vm_flow *flow, int32_t i);
int32_t msp_vm_height(struct msp_vm_flow *flow, int32_t i);

/* Marks everything reachable from nodes with all bits of from, over flow and calls of subroutines. */
void msp_vm_spread(struct msp_vm_flow *flow, uint16_t from, uint16_t mark, int32_t *queue);

int msp_vm_flow_new(const struct msp_lj_build *build, struct msp_vm_flow *flow);
void msp_vm_flow_free(struct msp_vm_flow *flow);

#endif

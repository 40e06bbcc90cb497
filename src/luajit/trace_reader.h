/* SPDX-License-Identifier: MIT */
/* A trace while it is being read: what the files of src/luajit/trace_*.c share. */
#ifndef MSP_LUAJIT_TRACE_READER_H
#define MSP_LUAJIT_TRACE_READER_H

#include "elf/bytes.h"
#include "luajit/bytecode.h"
#include "luajit/trace_code.h"
#include "luajit/trace_image.h"
#include "unwind/ident.h"

#define MSP_IR_SIZE 8
#define MSP_SNAP_ENTRY 4
#define MSP_TRACE_PROTOS 256 /* of one trace */

/* A prototype whose bytecode a position of the trace lies in. */
struct msp_trace_proto {
	uint64_t addr, ident, bc, end, k;
	uint32_t *ins; /* its bytecode, NULL: not read */
};

struct msp_trace_reader {
	const struct msp_lj_layout *layout;
	const struct msp_memory *mem;
	uint64_t g;
	const struct msp_bc_set *set; /* NULL: opcodes are not known */
	_Alignas(8) uint8_t header[MSP_TRACE_HEADER_MAX];
	uint64_t hash;	/* of header and constants */
	uint64_t block; /* address of IR, snapshots and map */
	uint8_t *data;	/* them */
	size_t ir_size, snaps_size, map_size;
	uint32_t nk, nins;
	uint64_t mcode;
	uint8_t *code; /* the machine code, NULL: not read, or too much */
	struct msp_trace_ins *ins;
	uint32_t ins_count;
	bool ins_all; /* they are all of the code */
	struct msp_trace_proto proto[MSP_TRACE_PROTOS];
	uint32_t proto_count;
	struct msp_trace_image *image;
	uint32_t node_room;
	uint64_t descriptor; /* the VM descriptor's address in the target; 0: there is none */
	const struct msp_lj_build *build; /* names of the VM's own functions; NULL: not known */
};

/* ---- Functions (trace_protos.c) ---- */

/* The prototype that a bytecode position lies in; NULL: in none. */
struct msp_trace_proto *msp_trace_proto_of(struct msp_trace_reader *r, uint64_t pc);
/* The one whose object is at an address; NULL: it is none. */
struct msp_trace_proto *msp_trace_proto_at(struct msp_trace_reader *r, uint64_t addr);
/* Reads its bytecode, if that was not done yet. */
bool msp_trace_need_bytecode(struct msp_trace_reader *r, struct msp_trace_proto *p);
static inline uint32_t msp_trace_proto_size(const struct msp_trace_proto *p)
{
	return (p->end - p->bc) / 4;
}
/* A function of the VM's own or in C, by its object. False: it is none. */
bool msp_trace_builtin(struct msp_trace_reader *r, uint64_t fn, struct msp_trace_node *node);
/*
 * A snapshot at a condition has the position of the branch that the trace does
 * not take: the condition is right before it, or before a jump to it. Its
 * position, else pos.
 */
uint32_t msp_trace_guarded(struct msp_trace_reader *r, struct msp_trace_proto *p, uint32_t pos);
/*
 * Where a loop instruction jumps back to: compiled loops have a trace's number in the place of it.
 * 0: not found.
 */
uint32_t msp_trace_loop_start(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			      uint32_t pos);

/* ---- Snapshots (trace_snaps.c) ---- */

/* Makes the image's snapshots and nodes. MSP_E_GONE: it is no trace; MSP_E_NOMEM. */
int msp_trace_read_snaps(struct msp_trace_reader *r);
/* The image's node with that content. 0: no room. */
uint16_t msp_trace_add_node(struct msp_trace_reader *r, const struct msp_trace_node *node);

/* ---- Code of snapshots (trace_guards.c) ---- */

/* Where snapshots do not say which code is theirs: narrows code and end of each, which are of all of it. */
void msp_trace_place_snaps(struct msp_trace_reader *r);

/* ---- The VM's own table (trace_table.c) ---- */

/* Makes the image's proofs from it. False: there is none that can be read. */
bool msp_trace_read_table(struct msp_trace_reader *r);

/* ---- Proofs (trace_proof.c) ---- */

/* Makes the image's proofs, where it can. */
void msp_trace_prove(struct msp_trace_reader *r);

/* ---- Estimates (trace_align.c) ---- */

/* Makes the image's guesses, where it can. */
void msp_trace_align(struct msp_trace_reader *r);

#endif

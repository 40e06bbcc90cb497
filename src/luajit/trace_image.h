/* SPDX-License-Identifier: MIT */
/* A trace as it was read. Internal to src/luajit/. */
#ifndef MSP_LUAJIT_TRACE_IMAGE_H
#define MSP_LUAJIT_TRACE_IMAGE_H

#include "luajit/build.h"
#include "luajit/traces.h"

/* How a trace ends (lj_jit.h). */
#define MSP_LINK_LOOP 2
#define MSP_LINK_TAILREC 3

/*
 * Frames of all snapshots as a tree: a node is a function at a position,
 * called from its parent. Node 0 stands for what is around the trace.
 */
struct msp_trace_node {
	uint64_t addr, ident; /* as in a raw frame */
	uint32_t pos;
	uint16_t parent;
	uint8_t kind;  /* enum msp_raw_kind */
	uint8_t flags; /* MSP_RAWF_NOPC */
};

struct msp_trace_snap {
	uint64_t pc; /* the word behind the entries, as it is */
	/*
	 * The machine code between these offsets can be its own, and is likely to be from begin on.
	 * Where snapshots say it, begin is code, and end the next one's.
	 */
	uint32_t code, begin, end;
	uint32_t
		guarded; /* position of the condition that it is for, else that of its innermost frame */
	uint16_t leaf;	/* node of its innermost frame, 0: not known */
	bool tail_call; /* the function at the trace's base was replaced */
	bool perhaps;	/* it may have been: without GC64 that is not told */
};

/* From an offset in the code on: the innermost frame that is proved, or the best estimate of it. */
struct msp_trace_piece {
	uint32_t code, pos; /* a position in it that fits */
	uint16_t node;	    /* its pos is of no meaning; 0: there is none */
	bool whole;	    /* of a proof: nothing is below it */
};

struct msp_trace_image {
	struct msp_trace_image *next;
	uint32_t number;
	uint64_t at;
	uint64_t hash;	/* the identity but for what depends on the offset */
	bool by_offset, /* the identity depends on the offset */
		exact,	/* the proofs are of the VM's own table: with their positions */
		placed; /* it is known which code belongs to which snapshot */
	uint32_t szmcode, mcloop;
	uint8_t linktype;
	uint16_t snap_count;
	uint16_t node_count;
	struct msp_trace_snap *snap;
	struct msp_trace_node *node;
	struct msp_trace_piece *guess; /* by code; made by trace_align.c */
	uint32_t guesses;
	struct msp_trace_piece *proof; /* by code; made by trace_proof.c, or trace_table.c */
	uint32_t proofs;
	size_t size; /* bytes that it takes */
};

/*
 * Reads the trace at an address. vm: the frame of a sample that was in it, for which the estimates
 * are made too; with ident 0: any trace, with them; NULL: any, without. descriptor: address of the
 * VM descriptor, by which the VM's own table of the trace is found; 0: there is none. MSP_E_GONE:
 * there is none, or another, or it went meanwhile; MSP_E_NOMEM.
 */
int msp_trace_image_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			 uint64_t g, uint64_t at, const struct msp_raw_frame *vm,
			 const struct msp_lj_build *build, uint64_t descriptor,
			 struct msp_trace_image **out);
/* The object that has a number in the VM g now; 0: none. */
uint64_t msp_trace_find(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			uint64_t g, uint32_t number);
/* Is it the trace that the sample was in? */
bool msp_trace_image_is(const struct msp_trace_image *image, const struct msp_raw_frame *vm);
void msp_trace_image_free(struct msp_trace_image *image);

/* Index of the last snapshot that code at an offset can belong to, and of the first. */
uint32_t msp_trace_interval(const struct msp_trace_image *image, uint32_t offset, uint32_t *first);
/*
 * The frames at the place of vm, as msp_lj_traces_frames() has them (trace_place.c). Returns their
 * number.
 */
uint32_t msp_trace_frames_at(const struct msp_trace_image *image, const struct msp_raw_frame *vm,
			     const struct msp_raw_frame *base,
			     struct msp_raw_frame out[MSP_TRACE_DEPTH]);
/* The raw frame of a node. */
void msp_trace_put_frame(struct msp_raw_frame *out, const struct msp_trace_node *node,
			 const struct msp_raw_frame *vm);
/* Its identity for a sample at that offset, as the walker computes it. */
uint64_t msp_trace_image_ident(const struct msp_trace_image *image, uint32_t offset);

#endif

/* SPDX-License-Identifier: MIT */
/* A walk along a trace's way through the bytecode. Internal to src/luajit/trace_path.c and its parts. */
#ifndef MSP_LUAJIT_TRACE_WALK_H
#define MSP_LUAJIT_TRACE_WALK_H

#include "luajit/bytecode.h"
#include "luajit/trace_path.h"

#define MSP_WALK_CHOICES 512
#define MSP_WALK_KEYS 64
#define MSP_WALK_CALLS 64

/* Where it is. */
struct msp_walk_place {
	uint32_t pos, snap; /* the next snapshot to come by */
	uint32_t last;	    /* step of the one before */
	uint32_t used;	    /* callees met so far, in their order */
	uint16_t frame;
	bool again; /* the loop's second time */
};

/* Where another way may be tried. */
struct msp_walk_choice {
	struct msp_walk_place place;
	uint32_t steps, frames, second, keys;
	uint32_t option; /* the next one to try */
};

struct msp_walk {
	struct msp_trace_reader *r;
	struct msp_trace_path *path, *best;
	struct msp_path_callees callees;
	struct msp_walk_choice choice[MSP_WALK_CHOICES];
	uint32_t choices, work;
	struct {
		uint64_t key;
		uint32_t callee; /* MSP_PATH_NONE: it makes no frame */
	} key[MSP_WALK_KEYS]; /* what a call that gets its function in that way calls */
	uint32_t keys;
	struct {
		const struct msp_trace_proto *proto;
		uint64_t closure, key;
		uint32_t pos, callee;
		uint8_t resolved; /* enum msp_path_resolved */
	} call[MSP_WALK_CALLS]; /* what was found out of a call, the last of them */
	uint32_t calls;
	struct msp_walk_place at;
	uint32_t option; /* to be taken at this place */
	bool loops, done;
};

static inline struct msp_bc_ins msp_walk_ins(const struct msp_walk *w,
					     const struct msp_trace_proto *p, uint32_t pos)
{
	return msp_bc_decode(w->r->set, p->ins[pos]);
}

/* ---- Frames and snapshots (trace_frames.c) ---- */

/* Into a function that is called here. False: no room. */
bool msp_walk_push(struct msp_walk *w, struct msp_trace_proto *proto, uint64_t closure,
		   uint64_t addr);
/* Another function at the trace's base. */
bool msp_walk_new_base(struct msp_walk *w, struct msp_trace_proto *proto, uint64_t closure,
		       uint32_t pos);
/* Back to the caller, behind the call. False: out of the trace's base. */
bool msp_walk_pop(struct msp_walk *w);
/*
 * The ancestor of a snapshot's node that has the frame's depth, if all above it are as here; 0: not
 * so. below: how many are below it.
 */
uint16_t msp_walk_ancestor(const struct msp_walk *w, uint16_t node, uint32_t *below);
/* The innermost node of the next snapshot; 0: there is none. */
uint16_t msp_walk_next_leaf(const struct msp_walk *w);
/* Position of the next snapshot, if its frames are those here; MSP_PATH_NONE else. */
uint32_t msp_walk_next_pos(const struct msp_walk *w);
/* The next snapshot was taken at this step. */
void msp_walk_meet(struct msp_walk *w);

/* ---- Ways (trace_ways.c) ---- */

/* Back to the last place where there was another way. False: there is none. */
bool msp_walk_step_back(struct msp_walk *w);
/* The next snapshot is in something that is called here: goes there. */
bool msp_walk_enter_next(struct msp_walk *w);
/* One instruction on. False: it is no way. */
bool msp_walk_go_on(struct msp_walk *w);

#endif

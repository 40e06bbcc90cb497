/* SPDX-License-Identifier: MIT */
/* The way of a trace through the bytecode. Internal to src/luajit/. */
#ifndef MSP_LUAJIT_TRACE_PATH_H
#define MSP_LUAJIT_TRACE_PATH_H

#include "luajit/trace_reader.h"

#define MSP_PATH_STEPS 4096
#define MSP_PATH_FRAMES 256
#define MSP_PATH_NONE UINT32_MAX

/* A function that is active on a part of the way. */
struct msp_path_frame {
	struct msp_trace_proto *proto; /* NULL: a function of the VM's own that called the next one */
	uint64_t closure;	       /* 0: not known */
	uint64_t addr;		       /* of what has no prototype */
	uint16_t parent;	       /* its own index: it is the trace's base */
	uint16_t depth;
	uint32_t call; /* position in the parent */
};

/* An instruction on the way. */
struct msp_path_step {
	uint16_t frame;
	uint8_t callee; /* of a call that makes no frame: enum msp_path_callee */
	uint8_t ffid;
	uint32_t pos;
};

struct msp_trace_path {
	uint32_t *snap;	 /* for each snapshot the step at which it was taken */
	uint32_t snaps;	 /* of them, from the first on, were met */
	uint32_t second; /* step at which the loop begins again; MSP_PATH_NONE: it does not */
	uint32_t steps, frames;
	struct msp_path_step step[MSP_PATH_STEPS];
	struct msp_path_frame frame[MSP_PATH_FRAMES];
};

/*
 * Follows the bytecode from the first snapshot to the last: at a condition, where the snapshot of
 * its guard says, into a function if the trace knows it. What is ambiguous is tried, within
 * bounds; where that leads nowhere the way ends early. NULL: out of memory, or nothing found.
 */
struct msp_trace_path *msp_trace_path_find(struct msp_trace_reader *r);
void msp_trace_path_free(struct msp_trace_path *path);

/* trace_calls.c: what a call on the way calls. */

#define MSP_PATH_CALLEES 64

/* Functions among the trace's constants, in the order in which the recorder met them. */
struct msp_path_callees {
	struct {
		uint64_t fn;
		struct msp_trace_proto *proto; /* NULL: not in Lua */
		uint8_t ffid;
	} of[MSP_PATH_CALLEES];
	uint32_t count;
};
/* False: there may be more. */
bool msp_path_callees_read(struct msp_trace_reader *r, struct msp_path_callees *out);

/* The object that an instruction of a function names: a string, a prototype. 0: not readable. */
uint64_t msp_trace_object(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			  uint32_t index);

/* How sure it is what a call calls. */
enum msp_path_resolved {
	MSP_PATH_UNKNOWN, /* any of them, or none */
	MSP_PATH_KNOWN,	  /* fn */
};
/*
 * What the call at pos of that frame calls, from the bytecode that gets the function: an upvalue of
 * a known closure, or a local variable with a function made in the same place.
 */
enum msp_path_resolved msp_path_resolve(struct msp_trace_reader *r,
					const struct msp_path_callees *callees,
					const struct msp_path_frame *frame, uint32_t pos,
					uint32_t *callee, uint64_t *key);

#endif

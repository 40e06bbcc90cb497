/* SPDX-License-Identifier: MIT */
/*
 * Traces of one VM: which Lua functions are inlined at a place of compiled
 * code. A trace is read when it is first seen and kept by its identity
 * (unwind/ident.h), so that what was flushed is still known and what took its
 * number is not taken for it. Not thread-safe. The target is only read.
 */
#ifndef MSP_LUAJIT_TRACES_H
#define MSP_LUAJIT_TRACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "luajit/build.h"
#include "moonspy/frame.h"
#include "unwind/memory.h"
#include "unwind/tables.h"

struct msp_lj_traces;

/*
 * NULL: out of memory. mem and build must live longer; build, which may be NULL, has the names of
 * the VM's own functions.
 */
struct msp_lj_traces *msp_lj_traces_new(const struct msp_lj_layout *layout,
					const struct msp_lj_build *build,
					const struct msp_memory *mem, uint64_t g);
/* Where the VM descriptor is in the target: from then on tables of traces are used, if there are any. */
void msp_lj_traces_set_descriptor(struct msp_lj_traces *traces, uint64_t descriptor);
void msp_lj_traces_free(struct msp_lj_traces *traces);

/* Frames of a stack inside of one trace; deeper ones are not shown. */
#define MSP_TRACE_DEPTH 64

/*
 * What a sample's VM frame in compiled code stands for: the frames of its
 * trace, leaf first, as raw frames; the last one is of the function at the
 * trace's base, of which base is what the walker read from the stack. Frames
 * that the snapshots around the place do not agree on have MSP_RAWF_GUESS: they
 * are what fits the machine code there best (docs/jit.md).
 * Returns their number; 0: base is all that can be said at that place. MSP_E_GONE: the
 * trace is not there any more and has not been read; MSP_E_NOMEM. *fresh:
 * the trace was read for this.
 */
int msp_lj_traces_frames(struct msp_lj_traces *traces, const struct msp_raw_frame *vm,
			 const struct msp_raw_frame *base,
			 struct msp_raw_frame out[MSP_TRACE_DEPTH], bool *fresh);

/*
 * Reads a trace that was just made, before any sample of it: so that it is known when it is flushed.
 * mcode, szmcode: what the VM says of it. *vm is then a frame in it. MSP_E_GONE: the VM has no such
 * trace, or no more; MSP_E_NOMEM.
 */
int msp_lj_traces_keep(struct msp_lj_traces *traces, uint64_t number, uint64_t mcode, uint64_t szmcode,
		       struct msp_raw_frame *vm);

/*
 * Each function that the trace of vm has, once: what is not asked for while
 * the trace lives may be gone later. Calls fn for each; parent is its caller,
 * NULL: none known.
 */
void msp_lj_traces_functions(struct msp_lj_traces *traces, const struct msp_raw_frame *vm,
			     void (*fn)(void *ctx, const struct msp_raw_frame *frame,
					const struct msp_raw_frame *parent),
			     void *ctx);

/* Bytes kept. */
size_t msp_lj_traces_memory(const struct msp_lj_traces *traces);

#endif

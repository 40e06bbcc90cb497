/* SPDX-License-Identifier: MIT */
/*
 * What the JIT compiler of one VM has made, and what it gave up on, read from
 * its memory: nothing of the target is stopped or changed. It runs on
 * meanwhile, so what is read may be a moment old, and not all of one moment.
 */
#ifndef MSP_LUAJIT_JIT_H
#define MSP_LUAJIT_JIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "luajit/luajit.h"

/* A place in a Lua function. pt 0: not known. */
struct msp_lj_code_place {
	uint64_t pt, ident;
	uint32_t pos;
};

struct msp_lj_trace {
	uint64_t at;	/* its object */
	uint32_t number;
	uint32_t root;	/* of a side trace: the number of its root trace; 0: it is one itself */
	uint32_t parent; /* of a side trace, and of one that goes on after a call (stitched) */
	uint32_t exit;	/* of the parent, where a side trace begins */
	bool stitched;
	uint32_t link;	/* number of the trace that it goes on in */
	uint8_t linktype;
	uint32_t szmcode, snapshots;
	struct msp_lj_code_place start;
};

/* Name of a link type as jit.util.traceinfo() has it: "loop"; NULL: there is none with that number. */
const char *msp_lj_link_name(uint8_t linktype);
/* Does it end in the interpreter, for want of anything better? */
bool msp_lj_link_gives_up(const struct msp_lj_trace *trace);

/* id, JSON name, text */
#define MSP_LJ_REFUSALS(_) \
	_(GIVEN_UP, "given up", "given up for good") \
	_(ABORTED, "aborted", "aborted, will be tried again") \
	_(SWITCHED_OFF, "switched off", "switched off by the program")

enum msp_lj_refusal_kind {
#define _(id, name, text) MSP_LJ_##id,
	MSP_LJ_REFUSALS(_)
#undef _
	MSP_LJ_REFUSAL_COUNT
};

#define MSP_LJ_REASON_NONE UINT32_MAX

/* A loop or function that is not compiled from its beginning. */
struct msp_lj_refusal {
	uint8_t kind; /* enum msp_lj_refusal_kind */
	bool loop;    /* else a function */
	struct msp_lj_code_place place;
	uint32_t reason;  /* of the last abort that is remembered, or MSP_LJ_REASON_NONE */
	uint32_t penalty; /* how long until it is tried again, rises with each abort; 0: not known */
};

/* "leaving loop in root trace"; NULL: there is no such reason. */
const char *msp_lj_reason_text(uint32_t reason);

struct msp_lj_jit {
	struct msp_lj_trace *trace; /* by number */
	size_t traces;
	struct msp_lj_refusal *refusal; /* by kind, then by place */
	size_t refusals;
	uint64_t mcode;	   /* bytes of machine code */
	bool all_functions; /* false: the list of objects could not be followed to its end */
	bool aborts_known; /* the table of aborts was found: it is only seen when it is not empty */
	bool flushed;	   /* aborts are known, and the traces were flushed at least once */
};

/*
 * Reads all of it from the VM at g, whose layout is proved. MSP_E_UNSUPPORTED: it has no
 * compiler; MSP_E_NOMEM; MSP_E_FORMAT: its table of traces is not one.
 */
int msp_lj_jit_read(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g,
		    struct msp_lj_jit *out);
void msp_lj_jit_free(struct msp_lj_jit *jit);

/*
 * Calls fn for each place in a function that the trace's snapshots show, in the order of its
 * code, several times perhaps. MSP_E_GONE: the trace is not there any more; MSP_E_NOMEM.
 */
int msp_lj_trace_places(const struct msp_lj_build *build, const struct msp_memory *mem,
			const struct msp_lj_trace *trace,
			void (*fn)(void *ctx, const struct msp_lj_code_place *place), void *ctx);

#endif

/* SPDX-License-Identifier: MIT */
/* Which exit of a trace a jump in its code is to: a file an architecture. Internal to trace_guards.c. */
#ifndef MSP_LUAJIT_TRACE_EXITS_H
#define MSP_LUAJIT_TRACE_EXITS_H

#include "luajit/trace_reader.h"

#define MSP_EXITS_WINDOW 256 /* as much as is read at once */
#define MSP_EXITS_READS 20000 /* for one trace at most */

/* What was read last: one where code is, one where its guards lead. */
struct msp_exits_window {
	uint64_t at;
	size_t have; /* so many bytes of it */
	_Alignas(8) uint8_t bytes[MSP_EXITS_WINDOW];
};

struct msp_trace_exits {
	struct msp_trace_reader *r;
	struct msp_exits_window code, led;
	uint32_t reads; /* so many */
	uint64_t first; /* arm64: the first exit */
};

/* n bytes at an address; NULL: not readable, or too much has been read. */
const uint8_t *msp_exits_bytes(struct msp_trace_exits *e, struct msp_exits_window *window,
			       uint64_t at, size_t n);
/*
 * The exit that trace number was made for, whose code begins there; -1: no trace of an exit of this
 * one.
 */
int msp_exits_of_side(struct msp_trace_exits *e, uint32_t number, uint64_t code);

/*
 * Prepares for asking; *begin: index of the first instruction of which a jump is one to an exit of
 * this trace. False: the exits are not known.
 */
bool msp_exits_begin_x64(struct msp_trace_exits *e, uint32_t *begin);
bool msp_exits_begin_arm64(struct msp_trace_exits *e, uint32_t *begin);
/* The exit that a jump out of the code is to, directly or by the trace that was made for it; -1: not known. */
int msp_exits_x64(struct msp_trace_exits *e, uint64_t jump);
int msp_exits_arm64(struct msp_trace_exits *e, uint64_t jump);

#endif

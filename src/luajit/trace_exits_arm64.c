/* SPDX-License-Identifier: MIT */
/*
 * Exits of arm64 traces (unwind/exits.h). A side trace has one more, for the check whether the stack
 * has room.
 */
#include "unwind/exits.h"

#include "luajit/trace_exits.h"

#define NOP 0xd503201fu
#define MAX_NOPS 16
#define SEARCH 1024 /* so far from a trace's beginning a guard is looked for */

static uint32_t word_at(struct msp_trace_exits *e, struct msp_exits_window *window, uint64_t at)
{
	const uint8_t *p = msp_exits_bytes(e, window, at, 4);

	return p ? msp_get32(p) : 0;
}

/* The number of the trace whose exits begin there, and *at behind it; 0: it is something else. */
static uint32_t number_at(struct msp_trace_exits *e, uint64_t *at)
{
	uint32_t word[MSP_EXITS_HEAD], exits, number;

	for (uint32_t i = 0; i < MSP_EXITS_HEAD; i++)
		word[i] = word_at(e, &e->led, *at + 4ull * i);
	number = msp_exits_number(word, &exits);
	*at += 4ull * exits;
	return number;
}

/* The number of the trace whose code begins there, by the exits that its guards go to; 0: not found. */
static uint32_t number_of(struct msp_trace_exits *e, uint64_t code)
{
	uint64_t to;
	uint32_t number;
	int64_t distance;

	for (uint64_t at = code; at < code + SEARCH; at += 4) {
		distance = msp_exits_guard(word_at(e, &e->code, at));
		if (distance <= 0)
			continue;
		to = at + (uint64_t)distance;
		distance = msp_exits_bl(word_at(e, &e->led, to));
		to += (uint64_t)distance;
		number = distance ? number_at(e, &to) : 0;
		if (number)
			return number;
	}
	return 0;
}

bool msp_exits_begin_arm64(struct msp_trace_exits *e, uint32_t *begin)
{
	e->first = e->r->mcode + e->r->image->szmcode;
	for (int i = 0; i < MAX_NOPS && word_at(e, &e->led, e->first) == NOP; i++)
		e->first += 4;
	*begin = 0;
	return number_at(e, &e->first) == e->r->image->number;
}

int msp_exits_arm64(struct msp_trace_exits *e, uint64_t jump)
{
	uint32_t snaps = e->r->image->snap_count;
	uint64_t exit = (jump - e->first) / 4;

	if (jump >= e->first && exit <= snaps)
		return exit < snaps ? (int)exit
				    : -1; /* the check of the stack is at the beginning */
	return msp_exits_of_side(e, number_of(e, jump), jump);
}

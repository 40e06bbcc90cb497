/* SPDX-License-Identifier: MIT */
/*
 * Behind the code of a trace are its exits (lj_asm_arm64.h):
 *
 *	nop ...; str lr, [sp]; bl lj_vm_exit_handler; movz w0, number of the trace; bl str; bl str; ...
 *
 * or ldr lr and blr lr to the handler. A guard jumps to the bl of its snapshot's number or, after
 * that exit has been taken often, to the trace that was made for it. A side trace has one more, for
 * the check whether the stack has room.
 */
#include "luajit/trace_exits.h"

enum { NOP = 0xd503201fu, STR_LR = 0xf90003feu, MOVZ_W0 = 0x52800000u };

#define MAX_NOPS 16
#define SEARCH 1024 /* so far from a trace's beginning a guard is looked for */

static bool is_bl(uint32_t word)
{
	return word >> 26 == 0x25;
}

static uint32_t word_at(struct msp_trace_exits *e, uint64_t at)
{
	const uint8_t *p = msp_exits_bytes(e, at, 4);

	return p ? msp_get32(p) : 0;
}

/* What is behind a trace's code, up to its first exit. Its number; 0: it is something else. */
static uint32_t number_at(struct msp_trace_exits *e, uint64_t *at)
{
	uint32_t word;

	if (word_at(e, *at) != STR_LR)
		return 0;
	*at += is_bl(word_at(e, *at + 4)) ? 8 : 12;
	word = word_at(e, *at);
	*at += 4;
	return (word & 0xffe0001fu) == MOVZ_W0 ? word >> 5 & 0xffff : 0;
}

/* Where a branch that has a condition goes to; 0: it is none. */
static uint64_t branch_target(uint32_t word, uint64_t at)
{
	int64_t to;

	if ((word & 0xff000010u) == 0x54000000u || (word & 0x7e000000u) == 0x34000000u)
		to = (int32_t)(word << 8) >> 13; /* b.cond; cbz, cbnz */
	else if ((word & 0x7e000000u) == 0x36000000u)
		to = (int32_t)(word << 13) >> 18; /* tbz, tbnz */
	else
		return 0;
	return at + (uint64_t)(to * 4);
}

/* The number of the trace whose code begins there, by the exits that its guards go to; 0: not found. */
static uint32_t number_of(struct msp_trace_exits *e, uint64_t code)
{
	uint64_t to;
	uint32_t word, number;

	for (uint64_t at = code; at < code + SEARCH; at += 4) {
		to = branch_target(word_at(e, at), at);
		if (!to || to < at)
			continue;
		word = word_at(e, to);
		if (!is_bl(word))
			continue;
		to += (uint64_t)(((int32_t)(word << 6) >> 6) * 4ll);
		number = number_at(e, &to);
		if (number)
			return number;
	}
	return 0;
}

bool msp_exits_begin_arm64(struct msp_trace_exits *e, uint32_t *begin)
{
	e->first = e->r->mcode + e->r->image->szmcode;
	for (int i = 0; i < MAX_NOPS && word_at(e, e->first) == NOP; i++)
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

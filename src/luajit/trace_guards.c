/* SPDX-License-Identifier: MIT */
/*
 * Which code belongs to which snapshot, where the snapshots do not say it (LuaJIT from before March
 * 2021). A guard jumps to the stub of its exit, which has the snapshot's number (lj_asm_x86.h):
 *
 *	push low; jmp end; push low + 1; jmp end; ... push low + 31
 *	end: push high; [mov [rsp + 16], dispatch;] jmp lj_vm_exit_handler
 *
 * or, after that exit has been taken often, to the trace that was made for it. Along the code the
 * numbers only rise. Code between the guards of two snapshots can belong to either, and to those
 * between them that have no guard.
 */
#include <string.h>

#include "luajit/trace_reader.h"

#define WINDOW 256 /* as much as is read of the stubs at once, and of a trace's head */

enum { PUSH = 0x6a, JMP8 = 0xeb, JMP32 = 0xe9 };

struct guards {
	struct msp_trace_reader *r;
	uint64_t at; /* of the window */
	uint8_t window[WINDOW];
	bool have;
};

/* n bytes at an address; NULL: not readable. */
static const uint8_t *bytes_at(struct guards *g, uint64_t at, size_t n)
{
	if (!g->have || at - g->at > WINDOW - n) {
		g->at = at & ~(uint64_t)(WINDOW / 2 - 1);
		g->have = !msp_read(g->r->mem, g->at, g->window, WINDOW);
	}
	return g->have ? g->window + (at - g->at) : NULL;
}

/* The exit that a stub is for; -1: it is none. */
static int stub_exit(struct guards *g, uint64_t at)
{
	const uint8_t *p = bytes_at(g, at, 4);
	size_t jump = g->r->layout->gc64 ? 2 : 10; /* from the second push on */
	uint32_t low;

	if (!p || p[0] != PUSH)
		return -1;
	low = p[1];
	at += p[2] == JMP8 ? 4 + p[3] : 2;
	p = bytes_at(g, at, jump + 1);
	return p && p[0] == PUSH && p[jump] == JMP32 ? (int)(low | (uint32_t)p[1] << 8) : -1;
}

/* The number that code stores as the VM's state: mov dword [r14 + disp32], imm32; [abs32]. 0: it does not. */
static uint32_t stored_number(const struct msp_lj_layout *y, const uint8_t *p)
{
	static const uint8_t by_register[] = {0x41, 0xc7, 0x86}, absolute[] = {0xc7, 0x04, 0x25};

	return memcmp(p, y->gc64 ? by_register : absolute, 3) ? 0 : msp_get32(p + 7);
}
#define STORE_SIZE 11

/* The exit that the trace whose code begins there was made for; -1: no trace of an exit of this one. */
static int side_exit(struct guards *g, uint64_t code)
{
	const struct msp_trace_reader *r = g->r;
	const struct msp_lj_layout *y = r->layout;
	const uint8_t *head = bytes_at(g, code, WINDOW / 2);
	_Alignas(8) uint8_t header[MSP_TRACE_HEADER_MAX];
	uint8_t base[MSP_IR_SIZE];
	uint32_t number = 0;
	uint64_t at;

	for (size_t i = 0; head && !number && i + STORE_SIZE <= WINDOW / 2; i++)
		number = stored_number(y, head + i);
	at = number ? msp_trace_find(y, r->mem, r->g, number) : 0;
	if (!at || msp_read(r->mem, at, header, sizeof(header)) ||
	    msp_hdr_ref(header, y->T_mcode, 1) != code ||
	    msp_read(r->mem, msp_hdr_ref(header, y->T_ir, 1) + (uint64_t)MSP_REF_BIAS * MSP_IR_SIZE,
		     base, sizeof(base)) ||
	    msp_get16(base) != r->image->number)
		return -1;
	return msp_get16(base + 2);
}

/* Index of the instruction that stores the trace's number; none: their count. */
static uint32_t store_of(const struct msp_trace_reader *r)
{
	uint32_t i = 0;

	while (i < r->ins_count &&
	       (r->ins[i].code + STORE_SIZE > r->image->szmcode ||
		stored_number(r->layout, r->code + r->ins[i].code) != r->image->number))
		i++;
	return i;
}

static int exit_of(struct guards *g, uint64_t jump)
{
	int number;

	if (!jump || jump - g->r->mcode < g->r->image->szmcode)
		return -1;
	number = stub_exit(g, jump);
	return number < 0 ? side_exit(g, jump) : number;
}

/* Offset of the instruction after that one. */
static uint32_t behind(const struct msp_trace_reader *r, uint32_t i)
{
	return i + 1 < r->ins_count ? r->ins[i + 1].code : r->image->szmcode;
}

/*
 * Offset of the instruction that makes a guard's condition: the one before its jumps, of which a
 * loop has two at its end. Not below that one.
 */
static uint32_t condition_of(const struct msp_trace_reader *r, uint32_t guard, uint32_t from)
{
	while (guard && r->ins[guard].jump && r->ins[guard].code > from)
		guard--;
	return r->ins[guard].code;
}

static void place_none(struct msp_trace_image *image)
{
	for (uint32_t k = 0; k < image->snap_count; k++) {
		image->snap[k].code = image->snap[k].begin = 0;
		image->snap[k].end = image->szmcode;
	}
}

/* What is before the store of the trace's number may have a guard with an exit of the parent. */
void msp_trace_place_snaps(struct msp_trace_reader *r)
{
	struct msp_trace_image *image = r->image;
	struct guards g = {.r = r};
	uint32_t begin = store_of(r), last = 0, from = 0;
	bool from_condition;
	int number;

	if (begin >= r->ins_count)
		return;
	for (uint32_t i = begin + 1; i < r->ins_count; i++) {
		number = exit_of(&g, r->ins[i].jump);
		if (number < 0)
			continue;
		if ((uint32_t)number < last || number >= image->snap_count) {
			place_none(image);
			return;
		}
		from_condition = last < (uint32_t)number;
		for (; last < (uint32_t)number; last++) {
			image->snap[last].end = r->ins[i].code;
			image->snap[last + 1].code = from;
			image->snap[last + 1].begin = from;
		}
		if (from_condition)
			image->snap[last].begin = condition_of(r, i, from);
		from = behind(r, i);
	}
	while (++last < image->snap_count)
		image->snap[last].code = image->snap[last].begin = from;
	image->placed = true;
}

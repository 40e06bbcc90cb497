/* SPDX-License-Identifier: MIT */
/*
 * A guard jumps to the stub of its exit, which has the snapshot's number (lj_asm_x86.h):
 *
 *	push low; jmp end; push low + 1; jmp end; ... push low + 31
 *	end: push high; [mov [rsp + 16], dispatch;] jmp lj_vm_exit_handler
 *
 * or, after that exit has been taken often, to the trace that was made for it, which begins by
 * storing its number.
 */
#include <string.h>

#include "luajit/trace_exits.h"

enum { PUSH = 0x6a, JMP8 = 0xeb, JMP32 = 0xe9 };

#define STORE_SIZE 11

/* The exit that a stub is for; -1: it is none. */
static int stub_exit(struct msp_trace_exits *e, uint64_t at)
{
	const uint8_t *p = msp_exits_bytes(e, &e->led, at, 4);
	size_t jump = e->r->layout->gc64 ? 2 : 10; /* from the second push on */
	uint32_t low;

	if (!p || p[0] != PUSH)
		return -1;
	low = p[1];
	at += p[2] == JMP8 ? 4 + p[3] : 2;
	p = msp_exits_bytes(e, &e->led, at, jump + 1);
	return p && p[0] == PUSH && p[jump] == JMP32 ? (int)(low | (uint32_t)p[1] << 8) : -1;
}

/* The number that code stores as the VM's state: mov dword [r14 + disp32], imm32; [abs32]. 0: it does not. */
static uint32_t stored_number(const struct msp_lj_layout *y, const uint8_t *p)
{
	static const uint8_t by_register[] = {0x41, 0xc7, 0x86}, absolute[] = {0xc7, 0x04, 0x25};

	return memcmp(p, y->gc64 ? by_register : absolute, 3) ? 0 : msp_get32(p + 7);
}

/* What is before the store of the trace's number may have a guard with an exit of the parent. */
bool msp_exits_begin_x64(struct msp_trace_exits *e, uint32_t *begin)
{
	const struct msp_trace_reader *r = e->r;
	uint32_t i = 0;

	while (i < r->ins_count &&
	       (r->ins[i].code + STORE_SIZE > r->image->szmcode ||
		stored_number(r->layout, r->code + r->ins[i].code) != r->image->number))
		i++;
	*begin = i + 1;
	return i < r->ins_count;
}

int msp_exits_x64(struct msp_trace_exits *e, uint64_t jump)
{
	int exit = stub_exit(e, jump);
	const uint8_t *head;
	uint32_t number = 0;

	if (exit >= 0)
		return exit;
	head = msp_exits_bytes(e, &e->led, jump, MSP_EXITS_WINDOW / 2);
	for (size_t i = 0; head && !number && i + STORE_SIZE <= MSP_EXITS_WINDOW / 2; i++)
		number = stored_number(e->r->layout, head + i);
	return msp_exits_of_side(e, number, jump);
}

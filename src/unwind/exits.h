/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * arm64: the exits of a trace, which are behind its code (lj_asm_arm64.h):
 *
 *	str lr, [sp]; bl lj_vm_exit_handler; movz w0, number of the trace; bl str; bl str; ...
 *
 * or ldr lr and blr lr to the handler. A guard branches to the bl of its snapshot's number or, after
 * that exit has been taken often, to the trace that was made for it.
 */
#ifndef MSP_UNWIND_EXITS_H
#define MSP_UNWIND_EXITS_H

#include <stdint.h>

#define MSP_EXITS_STR_LR 0xf90003feu
#define MSP_EXITS_HEAD 4 /* words of what may precede the exits: str, two to the handler, movz */

/* How far a bl leads, in bytes; 0: it is none. */
static inline __attribute__((always_inline)) int64_t msp_exits_bl(uint32_t word)
{
	return word >> 26 == 0x25 ? ((int32_t)(word << 6) >> 6) * 4ll : 0;
}

/* How far a branch with a condition leads (b.cond, cbz, cbnz; tbz, tbnz), in bytes; 0: it is none. */
static inline __attribute__((always_inline)) int64_t msp_exits_guard(uint32_t word)
{
	if ((word & 0xff000010u) == 0x54000000u || (word & 0x7e000000u) == 0x34000000u)
		return ((int32_t)(word << 8) >> 13) * 4ll;
	if ((word & 0x7e000000u) == 0x36000000u)
		return ((int32_t)(word << 13) >> 18) * 4ll;
	return 0;
}

/* The trace's number, of the words before the exits; 0: these are others. *exits: how many they are. */
static inline __attribute__((always_inline)) uint32_t msp_exits_number(const uint32_t *word, uint32_t *exits)
{
	uint32_t movz = msp_exits_bl(word[1]) ? word[2] : word[3];

	*exits = msp_exits_bl(word[1]) ? 3 : 4;
	if (word[0] != MSP_EXITS_STR_LR || (movz & 0xffe0001fu) != 0x52800000u)
		return 0;
	return movz >> 5 & 0xffff;
}

#endif

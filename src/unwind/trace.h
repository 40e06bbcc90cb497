/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Compiled code: which trace a pc lies in and what tells it from others
 * (ident.h), which VM it is of, and how the walk goes on to the Lua stack and
 * the C frame below it. Part of lua.h.
 */
#ifndef MSP_UNWIND_TRACE_H
#define MSP_UNWIND_TRACE_H

#include "unwind/exits.h"

/* Mixes words n.. of the w->found at w->cand_base into the trace's identity. */
MSP_SUB_N(lua_mix_words)
{
	uint32_t at = n;

	if (host_read(w, w->buf, MSP_TRACE_PIECE * 8, w->cand_base + at * 8))
		return MSP_ERR_LUA_READ;
	for (uint32_t i = 0; i < MSP_TRACE_PIECE; i++)
		if (at + i < w->found)
			w->trace_ident = msp_ident_mix(w->trace_ident, obj_u64(w, i * 8));
	return 0;
}

/* Mixes the constants of the trace's IR into its identity, a piece at a time. */
MSP_SUB(lua_mix_ir)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint32_t nk;

	if (!y)
		return MSP_ERR_INTERNAL;
	nk = msp_hdr_u32(w->proto, y->T_nk);
	w->found = MSP_REF_BIAS - nk;
	w->cand_base = msp_hdr_ref(w->proto, y->T_ir, 1) + (uint64_t)nk * 8;
	for (uint32_t at = 0; at < MSP_TRACE_IR_WORDS && at < w->found; at += MSP_TRACE_PIECE)
		if (MSP_CALL_N(w, lua_mix_words, at))
			return MSP_ERR_LUA_READ;
	return 0;
}

/* Mixes the map of all snapshots, or pieces from all over it. Of an odd one the first entry is left out. */
MSP_SUB(lua_mix_map)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint32_t entries, at;

	if (!y)
		return MSP_ERR_INTERNAL;
	entries = msp_trace_map_entries(w->proto, y);
	w->found = entries / 2;
	w->cand_base = msp_hdr_ref(w->proto, y->T_snapmap, 1) + (entries & 1) * 4;
	for (uint32_t i = 0; i < MSP_TRACE_MAP_PIECES; i++) {
		at = msp_trace_map_piece(w->found, i);
		if (at < w->found && MSP_CALL_N(w, lua_mix_words, at))
			return MSP_ERR_LUA_READ;
	}
	return 0;
}

/* Reads snapshot i of a trace to w->buf. */
static MSP_INLINE int lua_read_snap(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t snaps,
	uint32_t i)
{
	return host_read(w, w->buf, 12, snaps + (uint64_t)i * (uint32_t)y->snap_size);
}

/* Mixes the position of snapshot i, which stands behind its entries, into the trace's identity. */
static MSP_INLINE int lua_mix_snap(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t snaps,
	uint64_t map, uint32_t i)
{
	uint64_t pc = 0;

	if (lua_read_snap(w, y, snaps, i))
		return MSP_ERR_LUA_READ;
	map += ((uint64_t)obj_u32(w, y->snap_mapofs) + obj_u8(w, y->snap_nent)) * 4;
	if (read_ref(w, y, map, &pc))
		return MSP_ERR_LUA_READ;
	w->trace_ident = msp_ident_mix(w->trace_ident, pc);
	return 0;
}

/* Does the code of snapshot n begin at or before trace_ofs? Negative: it cannot be read. */
MSP_SUB_N(lua_snap_begins)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint32_t unit = host_arch(w) == MSP_ARCH_ARM64 ? 4 : 1;

	if (!y || lua_read_snap(w, y, msp_hdr_ref(w->proto, y->T_snap, 1), n))
		return -1;
	return obj_u16(w, y->snap_mcofs) * unit <= w->trace_ofs;
}

/* Mixes the snapshots around trace_ofs: the last one whose code begins before it, and the next. */
MSP_SUB(lua_mix_snaps)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint32_t lo = 0, hi, count, mid;
	int begins;
	uint64_t snaps, map;

	if (!y)
		return MSP_ERR_INTERNAL;
	count = hi = msp_hdr_u16(w->proto, y->T_nsnap);
	snaps = msp_hdr_ref(w->proto, y->T_snap, 1);
	map = msp_hdr_ref(w->proto, y->T_snapmap, 1);
	for (int i = 0; i < 16 && hi - lo > 1; i++) {
		mid = lo + (hi - lo) / 2;
		begins = MSP_CALL_N(w, lua_snap_begins, mid);
		if (begins < 0)
			return MSP_ERR_LUA_READ;
		if (begins)
			lo = mid;
		else
			hi = mid;
	}
	if (lua_mix_snap(w, y, snaps, map, lo))
		return MSP_ERR_LUA_READ;
	return lo + 1 < count ? lua_mix_snap(w, y, snaps, map, lo + 1) : 0;
}

/*
 * What identifies the trace at trace_at, whose header is in w->proto, beyond its
 * number: w->trace_ident, 0 if it cannot be read.
 */
static MSP_INLINE void lua_identify_trace(struct msp_walk *w, const struct msp_lj_layout *y)
{
	w->trace_ident = msp_trace_ident(w->proto, y, w->trace_at);
	if (MSP_CALL(w, lua_mix_ir) ||
		(y->snap_mcofs < 0 ? MSP_CALL(w, lua_mix_map) : MSP_CALL(w, lua_mix_snaps)))
		w->trace_ident = 0;
	else if (!w->trace_ident)
		w->trace_ident = 1;
}

/* How far before a place in compiled code the start of its trace is looked for. */
#define MSP_TRACE_HEAD_PIECES 17
#define MSP_TRACE_HEAD_PIECE 240

#define MSP_STORE_PIECE 16

/* The last store of a trace's number as the VM's state in a piece of the code at w->buf that ends with place n. */
MSP_SUB_N(lua_stored_in)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint8_t mode = y && y->gc64 ? 0x86 : 0x25; /* mov dword [r14 + disp32], imm32; [abs32] */
	uint32_t place, at;

	if (!y)
		return 0;
	place = y->g_vmstate + (y->gc64 ? -y->dispatch_to_g : (int32_t)w->g);
	for (uint32_t i = 0; i < MSP_STORE_PIECE; i++) {
		at = ((uint32_t)n - i) & 0xff;
		if (at > 2 && *(const msp_word_anywhere *)(w->buf + at) == place && w->buf[at - 1] == mode)
			return *(const msp_word_anywhere *)(w->buf + at + 4) & 0xffff;
	}
	return 0;
}

/* The last store of a number in the code at w->buf; 0: there is none. */
MSP_SUB(lua_stored_number)
{
	uint32_t number = 0;

	for (int at = 248; at > 2 && !number; at -= MSP_STORE_PIECE)
		number = MSP_CALL_N(w, lua_stored_in, at);
	return number;
}

#define MSP_EXITS_PIECE 128 /* aligned, so that no read goes over the end of a page */
#define MSP_EXITS_PIECES 32

/* arm64: the number of the trace whose exit is at w->cand_pc (exits.h); 0: that is none. */
MSP_SUB(lua_exit_number)
{
	uint32_t word[MSP_EXITS_HEAD], exits;
	int64_t distance;

	if (host_read(w, word, 4, w->cand_pc))
		return 0;
	distance = msp_exits_bl(word[0]);
	if (!distance || host_read(w, word, sizeof(word), w->cand_pc + distance))
		return 0;
	return msp_exits_number(word, &exits);
}

/*
 * The number by the exits themselves, the first ones from w->look on; in what follows word n of w->buf, which is at
 * w->cand_base. 0: none; w->cand_pc is then where the guard among these words leads to that leads farthest.
 */
MSP_SUB_N(lua_exits_in)
{
	const uint32_t *word = (const uint32_t *)w->buf;
	uint32_t at, exits, number;
	uint64_t to;

	w->cand_pc = 0;
	for (uint32_t i = 0; i < MSP_STORE_PIECE; i++) {
		at = ((uint32_t)n + i) & 63;
		if (at > MSP_EXITS_PIECE / 4 || w->cand_base + at * 4 < w->look)
			continue;
		number = msp_exits_number(word + at, &exits);
		if (number)
			return number;
		to = w->cand_base + at * 4 + msp_exits_guard(word[at]);
		if (to > w->cand_base + at * 4 && to > w->cand_pc)
			w->cand_pc = to;
	}
	return 0;
}

/* The number in the piece at n, with the last words of the one before it. */
MSP_SUB_N(lua_exits_number)
{
	uint32_t number = 0;

	__builtin_memcpy(w->buf, w->buf + MSP_EXITS_PIECE, 16);
	if (host_read(w, w->buf + 16, MSP_EXITS_PIECE, n))
		return -1;
	w->cand_base = n - 16;
	for (int at = 0; at < 48 && !number; at += MSP_STORE_PIECE) {
		number = MSP_CALL_N(w, lua_exits_in, at);
		if (!number && w->cand_pc)
			number = MSP_CALL(w, lua_exit_number);
	}
	return number;
}

/* From w->look forwards. */
static MSP_INLINE uint32_t lua_number_from_exits(struct msp_walk *w)
{
	uint64_t at = w->look & ~(MSP_EXITS_PIECE - 1ull);
	int number;

	for (int i = 0; i < MSP_EXITS_PIECES; i++) {
		number = MSP_CALL_N(w, lua_exits_number, at);
		if (number)
			return number > 0 ? number : 0;
		at += MSP_EXITS_PIECE;
	}
	return 0;
}

/*
 * While a trace runs a step of the collector, and at its very start, the VM's
 * state is not its number; on arm64 it never is. Its code begins by storing it:
 * looked for from w->look backwards, and proved by the trace's range.
 */
MSP_SUB(lua_number_from_code)
{
	uint64_t at = w->look + 16 - 256; /* the store itself may be what runs next */
	uint32_t number;

	if (host_arch(w) == MSP_ARCH_ARM64)
		return lua_number_from_exits(w);
	for (int i = 0; i < MSP_TRACE_HEAD_PIECES; i++) {
		if (host_read(w, w->buf, 256, at))
			return 0;
		number = MSP_CALL(w, lua_stored_number);
		if (number)
			return number;
		at -= MSP_TRACE_HEAD_PIECE;
	}
	return 0;
}

/* Is w->look in the code of trace n? Sets w->trace*; its header is in w->proto. */
MSP_SUB_N(lua_is_trace)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint32_t number = n, size = 0;
	uint64_t traces = 0, mcode;

	if (!y || !number || host_read(w, &size, 4, w->g + y->g_to_J + y->J_sizetrace) || number >= size)
		return 0;
	if (host_read(w, &traces, 8, w->g + y->g_to_J + y->J_trace) ||
		read_ref(w, y, traces + (uint64_t)number * (y->gc64 ? 8 : 4), &w->trace_at) || !w->trace_at)
		return 0;
	if (host_read(w, w->proto, MSP_TRACE_HEADER_MAX, w->trace_at))
		return 0;
	mcode = msp_hdr_ref(w->proto, y->T_mcode, 1);
	if (w->look - mcode >= msp_hdr_u32(w->proto, y->T_szmcode))
		return 0;
	w->trace = number;
	w->trace_ofs = w->look - mcode;
	w->trace_startpc = msp_hdr_ref(w->proto, y->T_startpc, y->gc64);
	return 1;
}

/* Which trace is it? Its number, by range; else 0. */
static MSP_INLINE void lua_find_trace(struct msp_walk *w, const struct msp_lj_layout *y)
{
	int32_t number = 0;
	uint32_t stored, found;

	w->trace = w->trace_ofs = 0;
	w->trace_startpc = w->trace_ident = 0;
	if (host_read(w, &number, 4, w->g + y->g_vmstate))
		return;
	if (!MSP_CALL_N(w, lua_is_trace, number > 0 ? number : 0)) {
		stored = MSP_CALL(w, lua_number_from_code);
		found = MSP_CALL_N(w, lua_is_trace, stored);
		if (!found || host_arch(w) != MSP_ARCH_ARM64)
			walk_way(w, found ? MSP_WAY_TRACE_BY_CODE : MSP_WAY_TRACE_NO_NUMBER);
		if (!found)
			return;
	}
	lua_identify_trace(w, y);
}

#define MSP_MAX_TRACE_STACK (1u << 16)

/*
 * Without GC64 compiled code has no register for its VM. How far above the
 * stack pointer the innermost C frame of the one that the host knows is.
 */
static MSP_INLINE uint64_t lua_vm_distance(struct msp_walk *w, const struct msp_lj_layout *y)
{
	uint64_t l = 0, cframe = 0, sp = w->reg[arch_sp(w) & 31];

	if (!w->vm_g || MSP_CALL_N(w, lua_prove_g, w->vm_g) || read_ref(w, y, w->vm_g + y->g_cur_L, &l) || !l ||
		host_read(w, &cframe, 8, l + y->L_cframe))
		return ~0ull;
	/* Lua code that it called (finalizers) has made C frames inside; leaving a trace makes one (lj_vm_cpcall). */
	if (w->vm_g == w->walked_g)
		return 0;
	if (cframe < sp && host_read(w, &cframe, 8, (cframe & ~3ull) + y->cf_prev))
		return ~0ull;
	return (cframe & ~3ull) - sp;
}

enum { MSP_VM_OTHER, MSP_VM_THIS, MSP_VM_NONE };

/* Proves g, and sets w->cfa to its interpreter's first dispatch target. 0: it is none. */
static MSP_INLINE int lua_is_vm(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t g)
{
	return !MSP_CALL_N(w, lua_prove_g, g) && !host_read(w, &w->cfa, 8, g + (int64_t)y->dispatch_to_g);
}

/* Does compiled code belong to VM n? Without GC64 the nearest is kept: w->found, as far as w->cand_base. */
MSP_SUB_N(lua_try_vm)
{
	const struct msp_lj_layout *y = host_vm(w, n);
	uint64_t g, distance;

	if (!y)
		return MSP_VM_NONE;
	if (!y->gc64) {
		distance = lua_vm_distance(w, y);
		if (distance < w->cand_base) {
			w->cand_base = distance;
			w->found = n;
		}
		return MSP_VM_OTHER;
	}
	if (!reg_known(w, y->reg_dispatch))
		return MSP_VM_OTHER;
	g = reg_get(w, y->reg_dispatch);
	if (!y->reg_is_g)
		g -= (int64_t)y->dispatch_to_g;
	return lua_is_vm(w, y, g) ? MSP_VM_THIS : MSP_VM_OTHER;
}

/*
 * The VM that compiled code belongs to, by its dispatch register: the first
 * LuaJIT of the process for which it leads to a proved global_State. Sets
 * w->layout, w->vm_base, w->g; w->cfa is the interpreter's first dispatch
 * target. 0: there is none.
 */
MSP_SUB(lua_find_vm)
{
	const struct msp_lj_layout *y;
	int got;

	w->cand_base = MSP_MAX_TRACE_STACK;
	w->found = MSP_MAX_HOST_VMS;
	for (uint32_t i = 0; i < MSP_MAX_HOST_VMS; i++) {
		got = MSP_CALL_N(w, lua_try_vm, i);
		if (got == MSP_VM_THIS)
			return 1;
		if (got == MSP_VM_NONE)
			break;
	}
	y = w->found < MSP_MAX_HOST_VMS ? host_vm(w, w->found) : NULL;
	if (!y || !lua_is_vm(w, y, w->vm_g))
		return 0;
	walk_way(w, MSP_WAY_VM_BY_STACK);
	return 1;
}

/* C frames that Lua code called from a trace (finalizers) has made inside of it: skipped. */
#define MSP_MAX_CFRAMES 16

/* The VM C frame that the trace was entered from: w->l_cframe. */
MSP_SUB(lua_trace_cframe)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t save_l = 0, sp = w->reg[arch_sp(w) & 31];

	if (!y)
		return MSP_ERR_INTERNAL;
	if (w->l_cframe < sp)
		walk_way(w, MSP_WAY_TRACE_CFRAMES);
	for (int i = 0; i < MSP_MAX_CFRAMES && w->l_cframe < sp; i++) {
		if (host_read(w, &w->l_cframe, 8, w->l_cframe + y->cf_prev))
			return MSP_ERR_STACK_READ;
		w->l_cframe &= ~3ull;
	}
	if (w->l_cframe < sp || w->l_cframe - sp > MSP_MAX_TRACE_STACK ||
		read_ref(w, y, w->l_cframe + y->cf_L, &save_l) || save_l != w->l)
		return MSP_ERR_LUA_CFRAME;
	return 0;
}

/*
 * Compiled code uses registers that the interpreter does not, and saves them
 * around its C frame (vm_x64.dasc, BC_JLOOP): without them the C caller's are lost.
 */
static MSP_INLINE void lua_trace_registers(struct msp_walk *w, const struct msp_lj_layout *y)
{
	if (host_arch(w) != MSP_ARCH_X86_64)
		return;
	w->known &= ~(1u << MSP_X64_R12 | 1u << MSP_X64_R13);
	if (!host_read(w, &w->reg[MSP_X64_R12], 8, w->l_cframe))
		w->known |= 1u << MSP_X64_R12;
	if (!host_read(w, &w->reg[MSP_X64_R13], 8, y->gc64 ? w->l_cframe - 8 : w->l_cframe + 8))
		w->known |= 1u << MSP_X64_R13;
}

/*
 * Compiled code that is returned to has made a call (x86-64: call, near or by any operand; arm64: bl, blr). What is
 * no return address at all, for the frame before was not where its row says, leads here, too.
 */
MSP_SUB(lua_trace_calls)
{
	uint32_t word;

	if (w->exact)
		return 1;
	if (host_read(w, w->buf, 8, w->pc - 8))
		return 0;
	if (host_arch(w) == MSP_ARCH_ARM64) {
		word = *(const uint32_t *)(w->buf + 4);
		return !(w->pc & 3) && (word >> 26 == 0x25 || (word & 0xfffffc1f) == 0xd63f0000);
	}
	word = w->buf[3] == 0xe8;
	for (uint32_t at = 1; at < 7; at++) /* without a branch a turn, for the verifier */
		word |= (w->buf[at] == 0xff) & ((w->buf[at + 1] >> 3 & 7) == 2);
	return word;
}

/*
 * w->pc is in compiled code, or in the VM's code between it and the
 * interpreter. L->cframe is the VM C frame that the trace was entered from:
 * continue there, as if the interpreter had been interrupted.
 */
MSP_SUB(lua_enter_trace)
{
	const struct msp_lj_layout *y;
	uint64_t l, jit_base = 0, entry;
	int err;

	if (!MSP_CALL(w, lua_find_vm))
		return MSP_ERR_LUA_NO_VM;
	y = host_layout(w, w->layout);
	if (!y)
		return MSP_ERR_INTERNAL;
	entry = w->cfa;
	l = w->walked_g == w->g ? w->walked_l : 0;
	if (l)
		walk_way(w, MSP_WAY_TRACE_GC);
	if ((!l && read_ref(w, y, w->g + y->g_cur_L, &l)) ||
		read_ref(w, y, w->g + y->g_jit_base, &jit_base))
		return MSP_ERR_LUA_READ;
	err = MSP_CALL_N(w, lua_load_l, l);
	if (err)
		return err;
	err = MSP_CALL(w, lua_trace_cframe);
	if (err)
		return err;
	lua_find_trace(w, y);
	err = MSP_CALL(w, lua_note_state);
	if (err)
		return err;
	if (jit_base && !lua_in_stack(w, jit_base))
		jit_base += w->l_moved;
	if (!jit_base)
		walk_way(w, MSP_WAY_TRACE_NO_BASE);
	w->jit_base = jit_base ? jit_base : w->l_base;
	w->reg[arch_sp(w) & 31] = w->l_cframe;
	w->known |= 1u << arch_sp(w);
	w->known &= ~(1u << (y->reg_pc & 31));
	lua_trace_registers(w, y);
	w->pc = entry;
	w->exact = 1;
	return MSP_STEP_MORE;
}

#endif

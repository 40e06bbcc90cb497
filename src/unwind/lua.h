/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * LuaJIT steps: from a VM C frame or a trace into the Lua stack, along it, and
 * back to the C stack. LuaJIT's lj_frame.h describes both; every word that
 * comes from the target is checked before it is followed.
 *
 *   C stack                         Lua stack of L
 *   ...                             [func|link] slots   <- base, innermost
 *   VM C frame, SAVE_L = L   --->   [func|link] slots
 *   C caller (lua_call, ...)  <---  link of type C: here the C stack goes on
 */
#ifndef MSP_UNWIND_LUA_H
#define MSP_UNWIND_LUA_H

#include "unwind/ident.h"

/* Frame link types: low three bits (lj_frame.h). */
#define MSP_FT_LUA 0
#define MSP_FT_C 1
#define MSP_FT_CONT 2
#define MSP_FT_VARG 3
#define MSP_FT_CPCALL 5

#define MSP_CONT_FFI_CALLBACK 1

/* Bytes between two frames: a Lua stack has at most 65,500 slots and some (LUAI_MAXSTACK, luaconf.h). */
#define MSP_MAX_DISTANCE (1u << 20)

#define MSP_TAG_FUNC (-9)  /* ~LJ_TFUNC = ~8 as the upper 17 bits of a GC64 TValue */
#define MSP_TAG_THREAD (-7)
#define MSP_TAGS_32 0xfff00000u /* without GC64: the upper half of a slot from there on is no link */
#define MSP_GCV_MASK ((1ull << 47) - 1)

#define MSP_OBJ_READ 96 /* covers lua_State and GCfunc of every build */
#define MSP_MAX_PROTO 124

/* The object in w->buf, at offsets that come from a layout. */
static MSP_INLINE uint64_t obj_u64(const struct msp_walk *w, int32_t ofs)
{
	return *(const uint64_t *)(w->buf + ((uint32_t)ofs & 0xfc));
}

static MSP_INLINE uint32_t obj_u32(const struct msp_walk *w, int32_t ofs)
{
	return *(const uint32_t *)(w->buf + ((uint32_t)ofs & 0xfc));
}

static MSP_INLINE uint32_t obj_u16(const struct msp_walk *w, int32_t ofs)
{
	return obj_u32(w, ofs) >> ((uint32_t)ofs & 2) * 8 & 0xffff;
}

static MSP_INLINE uint8_t obj_u8(const struct msp_walk *w, int32_t ofs)
{
	return w->buf[(uint32_t)ofs & 0xff];
}

/* An object reference (GCRef, MRef): 8 bytes with GC64, else 4. */
static MSP_INLINE uint64_t obj_ref(const struct msp_walk *w, const struct msp_lj_layout *y, int32_t ofs)
{
	return y->gc64 ? obj_u64(w, ofs) : obj_u32(w, ofs);
}

static MSP_INLINE int read_ref(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t addr,
	uint64_t *value)
{
	uint32_t v32 = 0;

	if (y->gc64)
		return host_read(w, value, 8, addr);
	if (host_read(w, &v32, 4, addr))
		return -1;
	*value = v32;
	return 0;
}

/* Slots that a frame's function and link take below its base. */
static MSP_INLINE uint32_t frame_head(const struct msp_lj_layout *y)
{
	return y->fr2 ? 16 : 8;
}

#include "unwind/moved.h"

/* Is n a global_State of the VM whose block is at w->vm_base? */
MSP_SUB_N(lua_prove_g)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t g = n, main_l = 0, back = 0, entry = 0;

	if (g && g == w->proved_g)
		return MSP_ERR_NONE;
	if (!y || !g || (g & 7) || read_ref(w, y, g + y->g_mainthref, &main_l) || !main_l ||
		read_ref(w, y, main_l + y->L_glref, &back) || back != g)
		return MSP_ERR_LUA_BAD_G;
	if (host_read(w, &entry, 8, g + (int64_t)y->dispatch_to_g) ||
		entry - w->vm_base - y->vm_start >= y->vm_end - y->vm_start)
		return MSP_ERR_LUA_BAD_G;
	w->g = w->proved_g = g;
	return MSP_ERR_NONE;
}

/* Loads the coroutine at n, and proves it and its VM. */
MSP_SUB_N(lua_load_l)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t l = n, bottom = 0;
	int err;

	if (!y || !l || (l & 7) || host_read(w, w->buf, MSP_OBJ_READ, l) ||
		obj_u8(w, y->gc_gct) != MSP_GCT_THREAD)
		return MSP_ERR_LUA_BAD_L;
	w->l = l;
	w->l_base = obj_u64(w, y->L_base); /* a plain pointer in every build */
	w->l_stack = obj_ref(w, y, y->L_stack);
	w->l_end = w->l_stack + (uint64_t)obj_u32(w, y->L_stacksize) * 8;
	w->l_cframe = obj_u64(w, y->L_cframe) & ~3ull;
	err = MSP_CALL_N(w, lua_prove_g, obj_ref(w, y, y->L_glref));
	if (err)
		return err;
	w->l_moved = 0;
	if (!w->l_stack || (w->l_stack & 7) || w->l_end - w->l_stack > 1ull << 32)
		return MSP_ERR_LUA_BAD_L;
	if (w->l_base - w->l_stack > w->l_end - w->l_stack || host_read(w, &bottom, 8, w->l_stack) ||
		bottom != lua_thread_value(y, l))
		return MSP_CALL(w, lua_find_moved);
	return MSP_ERR_NONE;
}

#include "unwind/landing.h"

/* Remembers the VM's state where a VM is met first; a frame for it if the VM is busy with itself. */
MSP_SUB(lua_note_state)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	struct msp_raw_frame *f;
	int32_t vmstate = 0, busy;

	if (!y || w->has_vm)
		return 0;
	if (host_read(w, &vmstate, 4, w->g + y->g_vmstate))
		return 0;
	w->has_vm = 1;
	w->vmstate = vmstate;
	switch (~vmstate - y->vmstate_gc) {
	case 0:
		busy = MSP_STATE_GC;
		break;
	case 1:
		busy = MSP_STATE_EXIT;
		break;
	case 2: case 3: case 4:
		busy = MSP_STATE_JIT;
		break;
	default:
		return 0;
	}
	/* The VM is busy with itself only in its C code: in the VM block the state is stale. */
	if (w->exact)
		return 0;
	f = emit_frame(w, MSP_RAW_STATE);
	if (!f)
		return MSP_ERR_TRUNCATED;
	f->pos = busy;
	f->addr = w->g;
	f->image = w->layout;
	return 0;
}

/* Reads the prototype of the Lua function at w->fn_pc. */
static MSP_INLINE int lua_read_proto(struct msp_walk *w, const struct msp_lj_layout *y)
{
	if (host_read(w, w->proto, MSP_MAX_PROTO, w->fn_pc - y->pt_size) ||
		w->proto[y->gc_gct & 127] != MSP_GCT_PROTO)
		return MSP_ERR_LUA_BAD_BASE;
	w->fn_sizebc = msp_hdr_u32(w->proto, y->pt_sizebc);
	w->fn_ident = msp_proto_ident(w->proto, y);
	return 0;
}

/* Reads the function object at w->fn, with its prototype, into w->fn_*. 1: it is a coroutine. */
MSP_SUB(lua_read_function)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	struct msp_seen_function *seen = &w->seen[w->fn >> 5 & (MSP_SEEN_FUNCTIONS - 1)];

	if (!y)
		return MSP_ERR_INTERNAL;
	if (seen->walk_id == w->walk_id && seen->fn == w->fn) {
		w->fn_pc = seen->pc;
		w->fn_cfunc = seen->cfunc;
		w->fn_ident = seen->ident;
		w->fn_ffid = seen->ffid;
		w->fn_sizebc = seen->sizebc;
		return 0;
	}
	if (!w->fn || (w->fn & 7) || host_read(w, w->buf, MSP_OBJ_READ / 2, w->fn))
		return -MSP_ERR_LUA_BAD_BASE;
	if (!y->fr2 && obj_u8(w, y->gc_gct) == MSP_GCT_THREAD)
		return 1;
	if (obj_u8(w, y->gc_gct) != MSP_GCT_FUNC)
		return -MSP_ERR_LUA_BAD_BASE;
	w->fn_ffid = obj_u8(w, y->fn_ffid);
	w->fn_pc = obj_ref(w, y, y->fn_pc);
	w->fn_cfunc = obj_u64(w, y->fn_cfunc);
	w->fn_ident = 0;
	w->fn_sizebc = 0;
	if (!w->fn_ffid && lua_read_proto(w, y))
		return -MSP_ERR_LUA_BAD_BASE;
	seen->walk_id = w->walk_id;
	seen->fn = w->fn;
	seen->pc = w->fn_pc;
	seen->cfunc = w->fn_cfunc;
	seen->ident = w->fn_ident;
	seen->ffid = w->fn_ffid;
	seen->sizebc = w->fn_sizebc;
	return 0;
}

/* The two slots below base. A read costs more than what it reads: further slots below are kept. */
static MSP_INLINE int lua_read_head(struct msp_walk *w, uint64_t base, uint64_t word[2])
{
	uint64_t at = base - sizeof(w->slots), i = (base - 16 - w->slots_at) / 8;

	if (i > MSP_SLOTS_READ - 2) {
		w->slots_at = 0;
		if (at < w->l_stack || host_read(w, w->slots, sizeof(w->slots), at))
			return host_read(w, word, 16, base - 16);
		w->slots_at = at;
		i = MSP_SLOTS_READ - 2;
	}
	word[0] = w->slots[i & (MSP_SLOTS_READ - 1)];
	word[1] = w->slots[(i + 1) & (MSP_SLOTS_READ - 1)];
	return 0;
}

/* Reads the function and the link of the frame at base into w->fn_*. 0: a function, 1: a dummy. */
static MSP_INLINE int lua_read_frame(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t base)
{
	uint64_t word[2];

	if ((base & 7) || base < w->l_stack + frame_head(y) || base > w->l_end)
		return -MSP_ERR_LUA_BAD_BASE;
	if (lua_read_head(w, base, word))
		return -MSP_ERR_LUA_READ;
	if (y->fr2) {
		w->fn = word[0] & MSP_GCV_MASK;
		w->fn_link = word[1];
		if ((int64_t)word[0] >> 47 == MSP_TAG_THREAD)
			return 1;
		if ((int64_t)word[0] >> 47 != MSP_TAG_FUNC)
			return -MSP_ERR_LUA_BAD_BASE;
	} else {
		w->fn = (uint32_t)word[1];
		w->fn_link = word[1] >> 32;
	}
	return MSP_CALL(w, lua_read_function);
}

/* Is pc, which points behind the current instruction, within the function's bytecode? */
static MSP_INLINE int lua_pc_inside(const struct msp_walk *w, uint64_t pc)
{
	uint64_t ofs = pc - w->fn_pc;

	return !(ofs & 3) && ofs && ofs <= (uint64_t)w->fn_sizebc * 4;
}

/*
 * Is w->cand_base the running function's base, given the PC register's value
 * w->cand_pc? Then sets lua_base and lua_pc and returns 0. A Lua function
 * proves itself by a PC within its own bytecode. A fast function has PC at its
 * header instruction, or its frame link in it.
 */
MSP_SUB(lua_try_base)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t pc = w->cand_pc;
	int got;

	if (!y)
		return MSP_ERR_INTERNAL;
	got = lua_read_frame(w, y, w->cand_base);
	if (got)
		return got == 1 ? MSP_ERR_LUA_BAD_BASE : -got;
	if (w->fn_ffid) {
		if (pc != w->fn_link && pc != w->fn_pc && pc != w->fn_pc + 4)
			return MSP_ERR_LUA_BAD_BASE;
		w->lua_pc = 0;
	} else {
		if (pc == w->fn_pc) /* about to run the header instruction */
			pc += 4;
		if (!lua_pc_inside(w, pc))
			return MSP_ERR_LUA_BAD_BASE;
		w->lua_pc = pc;
	}
	w->lua_base = w->cand_base;
	return 0;
}

/* The A operand of the instruction before pc; -1 if unreadable. */
static MSP_INLINE int lua_call_a(struct msp_walk *w, uint64_t pc)
{
	uint32_t ins = 0;

	if (!pc || (pc & 3) || host_read(w, &ins, 4, pc - 4))
		return -1;
	return ins >> 8 & 0xff;
}

/* No further Lua frame on this C frame; the coroutine's outer part starts at outer. */
static MSP_INLINE int lua_no_frame(struct msp_walk *w, uint64_t outer)
{
	w->lua_base = 0;
	w->cand_base = outer;
	return 0;
}

/* What a continuation frame has below its base: the position to go on at, and what continues. */
static MSP_INLINE int lua_read_cont(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t base,
	uint64_t *cont)
{
	uint64_t slot = y->fr2 ? 8 : 4, head = frame_head(y);

	return read_ref(w, y, base - head - slot, &w->lua_pc) ||
	       read_ref(w, y, base - head - 2 * slot, cont);
}

/* From the frame at lua_base, whose link is in fn_link, to its caller: lua_base and lua_pc. */
static MSP_INLINE int lua_follow(struct msp_walk *w, const struct msp_lj_layout *y)
{
	uint64_t link = w->fn_link, base = w->lua_base, prev = base - (link & ~7ull), cont = 0;
	int a;

	w->lua_pc = 0;
	w->lua_base = prev;
	if ((link & 3) && (link & ~7ull) < frame_head(y)) /* frames do not overlap */
		return MSP_ERR_LUA_BAD_LINK;
	switch (link & 7) {
	case MSP_FT_LUA:
	case MSP_FT_LUA + 4:
		a = lua_call_a(w, link);
		if (a < 0)
			return MSP_ERR_LUA_BAD_LINK;
		w->lua_base = base - frame_head(y) - 8 * a;
		w->lua_pc = link;
		return 0;
	case MSP_FT_C:
	case MSP_FT_CPCALL:
		return lua_no_frame(w, prev);
	case MSP_FT_CONT:
		if (lua_read_cont(w, y, base, &cont))
			return MSP_ERR_LUA_READ;
		return cont == MSP_CONT_FFI_CALLBACK ? lua_no_frame(w, prev) : 0;
	case MSP_FT_VARG:
		w->lua_flags |= MSP_LUA_SKIP;
		return 0;
	}
	return 0;
}

/* The base that a coroutine's outer part starts from, if an inner part was walked already. */
static MSP_INLINE uint64_t lua_take_suspended(struct msp_walk *w)
{
	uint64_t base = 0;

	for (uint32_t i = 0; i < MSP_MAX_SUSPENDED; i++) {
		if (i >= w->suspended_count || w->suspended[i].l != w->l)
			continue;
		base = w->suspended[i].base + w->l_moved;
		w->suspended[i].l = 0;
	}
	return base;
}

/* Keeps where the outer part of this coroutine's stack starts, unless it ends there. */
static MSP_INLINE int lua_suspend(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t base)
{
	uint32_t i;

	if (base <= w->l_stack + frame_head(y))
		return 0;

	for (i = 0; i < MSP_MAX_SUSPENDED; i++)
		if (i >= w->suspended_count || !w->suspended[i].l)
			break;
	if (i >= MSP_MAX_SUSPENDED)
		return MSP_ERR_LUA_DEPTH;
	w->suspended[i & (MSP_MAX_SUSPENDED - 1)].l = w->l;
	w->suspended[i & (MSP_MAX_SUSPENDED - 1)].base = base - w->l_moved; /* it may be seen where it was next */
	if (i >= w->suspended_count)
		w->suspended_count = i + 1;
	return 0;
}

/* The frame's PC as the VM has stored it, if it is one of this function. */
static MSP_INLINE void lua_stored_pc(struct msp_walk *w)
{
	if (!lua_pc_inside(w, w->save_pc))
		return;
	walk_way(w, MSP_WAY_STORED_PC);
	w->lua_pc = w->save_pc;
}

/* The frame's own PC when C code runs above it: what the VM kept in its register, else in SAVE_PC. */
static MSP_INLINE void lua_outer_pc(struct msp_walk *w)
{
	w->lua_pc = 0;
	if (w->fn_ffid)
		return;
	if (w->jit_base)
		w->lua_pc = w->trace_startpc && lua_pc_inside(w, w->trace_startpc + 4) ? w->trace_startpc + 4 : 0;
	else if (lua_pc_inside(w, w->reg_pc))
		w->lua_pc = w->reg_pc;
	else
		lua_stored_pc(w);
}

/* Starts at a base that is certain (C code runs above it); its PC may be unknown. */
MSP_SUB(lua_known_base)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	int got;

	if (!y)
		return MSP_ERR_INTERNAL;
	w->lua_base = w->cand_base;
	w->lua_pc = 0;
	got = lua_read_frame(w, y, w->cand_base);
	if (got < 0)
		return -got;
	if (got == 1)
		return 0;
	lua_outer_pc(w);
	return 0;
}

/* A word that can be an address in the coroutine's stack. */
static MSP_INLINE int lua_in_stack(const struct msp_walk *w, uint64_t addr)
{
	return addr >= w->l_stack && addr < w->l_end && !(addr & 7);
}

/*
 * Does the link of the frame at lua_base lead to a Lua function that its PC
 * lies in? Between a call's change of BASE and the write of the link it does
 * not: the callee's frame is not there yet. (Links of other kinds are
 * distances, and checked when they are followed.)
 */
MSP_SUB(lua_check_link)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t link = w->fn_link;
	int a;

	if (!y)
		return MSP_ERR_INTERNAL;
	if (link & 3)
		return (link & ~7ull) > w->lua_base - w->l_stack ? MSP_ERR_LUA_BAD_LINK : 0;
	a = lua_call_a(w, link);
	if (a < 0 || lua_read_frame(w, y, w->lua_base - frame_head(y) - 8 * a) || w->fn_ffid ||
		!lua_pc_inside(w, link))
		return MSP_ERR_LUA_BAD_LINK;
	return 0;
}

/* PC is a bytecode position: it is the running function's, or around calls and returns its caller's. */
static MSP_INLINE int lua_base_by_pc(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t base)
{
	int a;

	w->cand_pc = w->reg_pc;
	w->cand_base = base;
	if (!MSP_CALL(w, lua_try_base) && !MSP_CALL(w, lua_check_link))
		return 0;
	walk_way(w, MSP_WAY_CALLER_BASE);
	a = lua_call_a(w, w->reg_pc);
	w->cand_base = base - frame_head(y) - 8 * a;
	if (a >= 0 && !MSP_CALL(w, lua_try_base))
		return 0;
	walk_way(w, MSP_WAY_STORED_BASE);
	w->cand_base = w->l_base; /* right after a helper in C has run */
	if (!MSP_CALL(w, lua_try_base))
		return 0;
	w->cand_pc = w->save_pc;
	return MSP_CALL(w, lua_try_base);
}

/* Is pc that link: as it is, without its type, or with the type bit that a return turns over? */
static MSP_INLINE int lua_is_link(uint64_t pc, uint64_t link)
{
	return (link & ~7ull) == (pc & ~7ull) && (link & 3) && (!(pc & 7) || ((link ^ pc) & 7) <= 1);
}

/*
 * PC holds a frame distance, with the link's type or without: a call from C
 * that is not there yet, a return that is not a plain one, a fast function or
 * a metamethod call that is setting up a frame.
 */
static MSP_INLINE int lua_base_by_distance(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t base)
{
	uint64_t pc = w->reg_pc;
	int got;

	w->fn_link = 0;
	got = lua_read_frame(w, y, base);
	if (lua_is_link(pc, w->fn_link)) {
		w->lua_base = base;
		if (got || ((w->fn_link & 3) == MSP_FT_C && !w->fn_ffid))
			return lua_follow(w, y); /* it returns: results may lie over its function already */
	} else if ((pc & 3) == MSP_FT_C) {
		return lua_no_frame(w, w->l_base);
	}
	if (got)
		return MSP_ERR_LUA_BAD_BASE;
	w->lua_base = base;
	w->lua_pc = 0;
	if (!w->fn_ffid)
		lua_stored_pc(w);
	return 0;
}

/*
 * The innermost frame while the interpreter itself runs. What the PC register
 * holds tells where in a call or return it is: a bytecode position, a distance
 * between frames (less than a stack can be long), or, on the way back to C, a
 * base on the Lua stack.
 */
MSP_SUB(lua_leaf_base)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t base, pc = w->reg_pc;

	if (!y)
		return MSP_ERR_INTERNAL;
	base = reg_known(w, y->reg_base) ? reg_get(w, y->reg_base) : w->l_base;
	if (!y->gc64)
		base = (uint32_t)base;
	if (lua_in_stack(w, pc))
		return lua_no_frame(w, pc);
	if (lua_in_stack(w, -pc)) /* as it is computed */
		return lua_no_frame(w, -pc);
	if (pc < MSP_MAX_DISTANCE)
		return lua_base_by_distance(w, y, base);
	return lua_base_by_pc(w, y, base);
}

/* Where the interpreter keeps BASE over a call of a C function that does not know L, such as pow(). */
static MSP_INLINE uint32_t arch_saved_base(const struct msp_walk *w)
{
	return w->arch == MSP_ARCH_X86_64 ? MSP_X64_RBP : 19; /* RB of vm_x64.dasc; BASE itself on arm64 */
}

/*
 * The innermost frame while C code runs that the interpreter called: L->base,
 * but for C functions that do not know L it may be left over from before. The
 * PC register, which C code preserves, tells.
 */
MSP_SUB(lua_called_base)
{
	uint64_t saved = reg_known(w, arch_saved_base(w)) ? reg_get(w, arch_saved_base(w)) : 0;

	w->cand_pc = w->reg_pc;
	w->cand_base = saved;
	if (lua_in_stack(w, saved) && !MSP_CALL(w, lua_try_base))
		return 0;
	w->cand_base = w->l_base;
	if (!MSP_CALL(w, lua_try_base))
		return 0;
	return MSP_CALL(w, lua_known_base);
}

/* The base that the rule speaks of; its register may be lost when C code runs above. */
static MSP_INLINE uint64_t lua_rule_base(struct msp_walk *w, const struct msp_lj_layout *y)
{
	uint32_t place = w->rule.leaf & MSP_LEAF_BASE_MASK, reg = y->reg_base;
	uint64_t base;

	if (place == MSP_LEAF_BASE_RBP)
		reg = MSP_X64_RBP;
	else if (place == MSP_LEAF_BASE_R15)
		reg = MSP_X64_R15;
	if (place == MSP_LEAF_BASE_STORED)
		return w->l_base;
	if (!reg_known(w, reg)) {
		walk_way(w, MSP_WAY_STORED_BASE);
		return w->l_base;
	}
	base = reg_get(w, reg);
	return y->gc64 ? base : (uint32_t)base;
}

/*
 * PC is a distance between the frame at lua_base and one above it, which is
 * being called or left. A continuation frame has the position below its base.
 */
static MSP_INLINE int lua_next_distance(struct msp_walk *w, const struct msp_lj_layout *y)
{
	uint64_t base = w->lua_base, above = base + (w->reg_pc & ~7ull), cont = 0;

	if ((w->reg_pc & 3) == MSP_FT_C) /* called from C: what is at base belongs to the outer C frame */
		return lua_no_frame(w, base);
	if (w->reg_pc & 7 & ~MSP_FT_CONT)
		return 0;
	if (lua_read_cont(w, y, above, &cont))
		return MSP_ERR_LUA_READ;
	return !(w->reg_pc & 7) && cont == MSP_CONT_FFI_CALLBACK ? lua_no_frame(w, base) : 0;
}

/* The frame at base is complete, and its function has been read. */
static MSP_INLINE int lua_leaf_complete(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t base)
{
	uint64_t pc = w->reg_pc;

	w->lua_base = base;
	w->lua_pc = 0;
	if ((w->rule.leaf & (MSP_LEAF_LINK_MASK | MSP_LEAF_NEXT)) == MSP_LEAF_NEXT && pc < MSP_MAX_DISTANCE)
		return lua_next_distance(w, y);
	if (w->fn_ffid)
		return 0;
	if (lua_pc_inside(w, pc))
		w->lua_pc = pc;
	else if (pc == w->fn_pc || pc == w->fn_link) /* about to run the header instruction */
		w->lua_pc = w->fn_pc + 4;
	else
		lua_stored_pc(w);
	return 0;
}

/* The way out of the frame at base is in PC, as a distance to what is below this C frame. */
static MSP_INLINE int lua_leaf_outer(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t base)
{
	uint64_t pc = w->reg_pc, negative = y->gc64 ? -pc : (uint32_t)-pc;

	if (pc < MSP_MAX_DISTANCE)
		return lua_no_frame(w, base - pc);
	if (lua_in_stack(w, pc))
		return lua_no_frame(w, pc);
	return lua_in_stack(w, negative) ? lua_no_frame(w, negative) : MSP_ERR_LUA_BAD_LINK;
}

/* The link of the frame that w->rule.leaf speaks of; memory: what its slot has. */
static MSP_INLINE uint64_t lua_leaf_link(const struct msp_walk *w, uint64_t memory)
{
	switch (w->rule.leaf & MSP_LEAF_LINK_MASK) {
	case MSP_LEAF_LINK_PC:
		return w->reg_pc;
	case MSP_LEAF_LINK_XOR:
		return w->reg_pc ^ MSP_FT_C;
	case MSP_LEAF_LINK_SUB:
		return w->reg_pc + MSP_FT_VARG;
	case MSP_LEAF_LINK_SAVED:
		return w->save_pc;
	case MSP_LEAF_LINK_DISTANCE: /* like a continuation: its position is looked for there, and checked */
		return (w->reg_pc & ~7ull) | MSP_FT_CONT;
	}
	return memory;
}

/*
 * The innermost frame by what the analysis of the VM block says of this
 * instruction. A function of the VM's own that is about to return still counts
 * while it is intact, a Lua function does not: PC, its position, is lost.
 */
MSP_SUB(lua_leaf_by_rule)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint32_t leaf = w->rule.leaf, link_kind = leaf & MSP_LEAF_LINK_MASK;
	uint64_t base, link;
	int got, intact;

	if (!y)
		return MSP_ERR_INTERNAL;
	base = lua_rule_base(w, y);
	w->lua_base = base;
	w->fn_link = w->reg_pc;
	if (leaf & MSP_LEAF_CALL)
		return lua_follow(w, y);
	if ((leaf & (MSP_LEAF_LINK_MASK | MSP_LEAF_OVER)) == MSP_LEAF_CONT) {
		if (w->reg_pc < MSP_MAX_DISTANCE)
			return lua_no_frame(w, base);
		link_kind = MSP_LEAF_LINK_PLACE;
	}
	if (link_kind == MSP_LEAF_LINK_OUTER)
		return leaf & MSP_LEAF_OVER ? lua_no_frame(w, base) : lua_leaf_outer(w, y, base);
	w->fn_link = 0;
	got = lua_read_frame(w, y, base);
	/* A C function has put another function there, with its tag: it will be called from where PC leads. */
	if (link_kind == MSP_LEAF_LINK_PLACE && !y->fr2 && !got && w->exact && w->fn_link >= MSP_TAGS_32)
		link_kind = MSP_LEAF_LINK_PC;
	if (link_kind == MSP_LEAF_LINK_PLACE)
		return got == 1 ? lua_no_frame(w, base) : got ? -got : lua_leaf_complete(w, y, base);
	link = link_kind == MSP_LEAF_LINK_PC ? w->reg_pc : lua_leaf_link(w, w->fn_link);
	/* C code may have written results: without GC64 over the link, and the function still stands. */
	intact = !got && w->fn_ffid && link_kind != MSP_LEAF_LINK_DISTANCE && link == w->fn_link &&
		!(w->exact && leaf & MSP_LEAF_OVER);
	w->lua_base = base;
	w->lua_pc = 0;
	if (intact)
		return 0;
	/* An error that pcall catches goes on at its caller's frame, before the C stack does. */
	if (!w->exact && !got && link != w->fn_link && !MSP_CALL(w, lua_check_link)) {
		walk_way(w, MSP_WAY_CAUGHT);
		return lua_read_frame(w, y, base) ? MSP_ERR_LUA_BAD_BASE : 0;
	}
	w->fn_link = link;
	return lua_follow(w, y);
}

/* Is the frame at n one that C code called through an FFI callback? */
MSP_SUB_N(lua_is_callback)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t base = n, cont = 0;

	w->fn_link = 0;
	if (!y || lua_read_frame(w, y, base) || (w->fn_link & 7) != MSP_FT_CONT)
		return 0;
	if (y->fr2 ? host_read(w, &cont, 8, base - 32) : read_ref(w, y, base - 16, &cont))
		return 0;
	return cont == MSP_CONT_FFI_CALLBACK;
}

/*
 * The lowest slots of a stack that has been given back are written over one by
 * one (moved.h): was the frame at base one of them? Then the stack is the new one.
 */
static MSP_INLINE int lua_may_be_moved(struct msp_walk *w, uint64_t base)
{
	return !w->l_moved && base - w->l_stack <= MSP_GIVEN_BACK + 16 && !MSP_CALL(w, lua_find_moved);
}

/* From a base that was left or is stored, and may be in a stack that has been given back meanwhile. */
static MSP_INLINE int lua_given_base(struct msp_walk *w, uint64_t base)
{
	int err;

	w->cand_base = base;
	err = MSP_CALL(w, lua_known_base);
	if (!err || !lua_may_be_moved(w, base))
		return err;
	w->cand_base = base + w->l_moved;
	return MSP_CALL(w, lua_known_base);
}

/*
 * An error unwinds the Lua stack ahead of the C stack (err_unwind of lj_err.c):
 * between two instructions L->base is that of the next C frame already, and
 * L->cframe is not yet. That code has L and L->cframe in registers, and in one
 * more (rax) where the link is that it has followed: it leads to L->base.
 */
MSP_SUB(lua_has_unwound)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t at = w->kept[0][MSP_SLOT_RA], link = 0;

	if (!y || !w->kept_count || host_read(w, &link, 8, at))
		return 0;
	if (!y->fr2)
		link >>= 32;
	if (at - (link & ~7ull) + 8 != w->l_base || ((link & 3) != MSP_FT_C && !MSP_CALL_N(w, lua_is_callback, at + 8)))
		return 0;
	w->cand_pc = 0; /* the innermost frame's registers */
	if (!lua_kept_has(w, w->l) || !lua_kept_has(w, w->l_cframe))
		return 0;
	walk_way(w, MSP_WAY_UNWOUND);
	return 1;
}

/*
 * From the VM C frame at n to the innermost Lua frame on it. A frame deeper
 * than L->cframe carries none: it is being entered, or has been left, or an
 * error has unwound the Lua stack already while the C stack still stands.
 */
MSP_SUB_N(lua_find_base)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t suspended;

	if (!y)
		return MSP_ERR_INTERNAL;
	if (n < w->l_cframe)
		return lua_no_frame(w, 0);
	suspended = lua_take_suspended(w);
	if (w->rule.flags & MSP_RULE_VM_CALLBACK) {
		uint64_t base = suspended ? suspended : w->l_base;

		if (!MSP_CALL_N(w, lua_is_callback, base))
			return lua_no_frame(w, base);
	}
	/*
	 * Its frames have been walked down to the last: they were not those of their C frames, because an
	 * error unwinds, as in lua_has_unwound(), and no register told.
	 */
	if (!suspended && !w->jit_base && !w->exact && w->walked_l == w->l && w->walked_g == w->g)
		return MSP_ERR_LUA_THROWN;
	if (w->jit_base) /* after a finalizer that the trace's GC step ran, only the inner frame's link is right */
		w->lua_flags |= MSP_LUA_JIT;
	if (suspended || w->jit_base)
		return lua_given_base(w, suspended ? suspended : w->jit_base);
	if (!w->exact && n == w->l_cframe && lua_in_stack(w, w->kept[0][MSP_SLOT_RA]) && MSP_CALL(w, lua_has_unwound))
		return lua_no_frame(w, w->l_base);
	if (w->rule.leaf & MSP_LEAF_KNOWN)
		return MSP_CALL(w, lua_leaf_by_rule);
	walk_way(w, MSP_WAY_NO_ROW);
	if (w->exact || reg_known(w, y->reg_base))
		return MSP_CALL(w, lua_leaf_base);
	return MSP_CALL(w, lua_called_base);
}

/* Which VM the Lua frames that follow belong to. */
static MSP_INLINE int lua_emit_vm(struct msp_walk *w)
{
	struct msp_raw_frame *f = emit_frame(w, MSP_RAW_VM);

	if (!f)
		return MSP_ERR_TRUNCATED;
	f->addr = w->g;
	f->image = w->layout;
	if (w->jit_base) {
		f->flags = MSP_RAWF_JIT;
		f->ident = w->trace_ident;
		f->trace = w->trace;
		f->tofs = w->trace_ofs;
	} else {
		f->ident = w->look - w->map.base;
		f->pos = w->map.image;
	}
	return 0;
}

/* w->pc is in the interpreter, w->rule is the rule there: go over to the Lua stack. */
MSP_SUB(lua_enter_vm)
{
	const struct msp_lj_layout *y;
	uint64_t cf, l = 0;
	int err;

	w->layout = w->image_layout;
	y = host_layout(w, w->layout);
	if (!y)
		return walk_error(w, MSP_ERR_LUA_NO_VM);
	w->vm_base = w->map.base;
	err = native_cfa(w);
	if (err)
		return walk_error(w, err);
	cf = w->cfa - y->cframe_size;
	w->reg_pc = reg_known(w, y->reg_pc) ? reg_get(w, y->reg_pc) : 0;
	if (!y->gc64)
		w->reg_pc = (uint32_t)w->reg_pc;
	if (read_ref(w, y, cf + y->cf_L, &l) || read_ref(w, y, cf + y->cf_PC, &w->save_pc))
		return walk_error(w, MSP_ERR_STACK_READ);
	err = MSP_CALL_N(w, lua_load_l, l);
	if (err && w->rule.flags & MSP_RULE_VM_CALLBACK) { /* it does not say whose it is yet */
		walk_way(w, MSP_WAY_CALLBACK_EARLY);
		return emit_native(w) ? MSP_STEP_DONE : MSP_CALL(w, native_unwind);
	}
	if (!err)
		err = MSP_CALL(w, lua_note_state);
	if (!err)
		err = lua_emit_vm(w);
	if (!err)
		err = MSP_CALL_N(w, lua_find_base, cf);
	if ((err == MSP_ERR_LUA_BAD_BASE || err == MSP_ERR_LUA_BAD_LINK) && lua_may_be_moved(w, w->l_base))
		err = MSP_CALL_N(w, lua_find_base, cf);
	if (!err && !w->lua_base && w->cand_base)
		err = lua_suspend(w, y, w->cand_base);
	if (err)
		return walk_error(w, err);
	w->mode = w->lua_base ? MSP_WALK_LUA : MSP_WALK_NATIVE;
	return MSP_CALL(w, native_unwind); /* the registers of the VM frame's C caller */
}

#include "unwind/trace.h"

/* The frame at lua_base, whose function is in w->fn*. */
static MSP_INLINE int lua_emit(struct msp_walk *w, const struct msp_lj_layout *y)
{
	struct msp_raw_frame *f;
	uint8_t kind = w->fn_ffid == 0 ? MSP_RAW_LUA : w->fn_ffid == 1 ? MSP_RAW_CFUNC : MSP_RAW_FAST;

	f = emit_frame(w, kind);
	if (!f)
		return walk_error(w, MSP_ERR_TRUNCATED);
	f->image = w->layout;
	if (kind == MSP_RAW_LUA) {
		f->addr = w->fn_pc - y->pt_size;
		f->ident = w->fn_ident;
		if (w->lua_pc && lua_pc_inside(w, w->lua_pc))
			f->pos = (w->lua_pc - w->fn_pc) / 4 - 1;
		else
			f->flags |= MSP_RAWF_NOPC;
	} else {
		f->addr = kind == MSP_RAW_CFUNC ? w->fn_cfunc : w->fn;
		f->pos = w->fn_ffid;
	}
#ifdef host_lua_frame
	host_lua_frame(w, f);
#endif
	if (w->lua_flags & MSP_LUA_JIT) {
		f->flags |= MSP_RAWF_JIT;
		f->trace = w->trace;
		f->tofs = w->trace_ofs;
	}
	return 0;
}

/* The Lua stack of this coroutine ends, or its outer part belongs to another C frame. */
static MSP_INLINE int lua_leave(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t outer_base)
{
	int err = outer_base ? lua_suspend(w, y, outer_base) : 0;

	/* A trace that is met next has called this from its GC step: a finalizer runs on the trace's coroutine. */
	w->walked_l = w->l;
	w->walked_g = w->g;
	if (err)
		return walk_error(w, err);
	w->mode = MSP_WALK_NATIVE;
	return MSP_STEP_MORE;
}

/* The frame at base cannot be read, or leads nowhere: once more where its stack is moved to. */
static MSP_INLINE int lua_step_again(struct msp_walk *w, uint64_t base, int err)
{
	if (!lua_may_be_moved(w, base))
		return walk_error(w, err);
	w->lua_base = base + w->l_moved;
	w->lua_pc = w->step_pc;
	w->lua_flags = w->step_flags;
	w->frame_count = w->step_count;
	return MSP_STEP_MORE;
}

/* One frame on the Lua stack. */
MSP_SUB(lua_step)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t base = w->lua_base;
	int got, dummy;

	w->step_pc = w->lua_pc;
	w->step_flags = w->lua_flags;
	w->step_count = w->frame_count;

	if (!y)
		return walk_error(w, MSP_ERR_INTERNAL);
	if (base <= w->l_stack + frame_head(y)) /* the two lowest slots hold the coroutine itself */
		return base >= w->l_stack ? lua_leave(w, y, 0) : walk_error(w, MSP_ERR_LUA_BAD_LINK);
	got = lua_read_frame(w, y, base);
	if (got < 0)
		return lua_step_again(w, base,
			got == -MSP_ERR_LUA_READ ? MSP_ERR_LUA_READ : MSP_ERR_LUA_BAD_LINK);
	dummy = got == 1 || (w->lua_flags & MSP_LUA_SKIP);
	w->lua_flags &= ~MSP_LUA_SKIP;
	if (!dummy) {
		if (lua_emit(w, y))
			return MSP_STEP_DONE;
		w->lua_flags &= ~MSP_LUA_JIT;
		w->jit_base = 0;
	}
	got = lua_follow(w, y);
	if (got)
		return lua_step_again(w, base, got);
	if (!w->lua_base)
		return lua_leave(w, y, w->cand_base);
	if (w->lua_base >= base)
		return walk_error(w, MSP_ERR_LUA_BAD_LINK); /* links lead down, always */
	return MSP_STEP_MORE;
}

#endif

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A frame on a Lua stack: its function, its link, and the way to its caller (lj_frame.h). Part of lua.h. */
#ifndef MSP_UNWIND_LUAFRAME_H
#define MSP_UNWIND_LUAFRAME_H

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
		if (base == w->stitched_base) {
			w->lua_base = prev + 24;
			return 0;
		}
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

#endif

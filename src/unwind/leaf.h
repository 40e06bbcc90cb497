/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The innermost frame on a Lua stack: where it is, and its position, by what
 * the registers and the VM itself have of it. Part of lua.h.
 */
#ifndef MSP_UNWIND_LEAF_H
#define MSP_UNWIND_LEAF_H

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

/* Where the interpreter may have BASE besides: RB of vm_x64.dasc and vm_arm64.dasc. */
static MSP_INLINE uint32_t arch_base_copy(const struct msp_walk *w)
{
	return host_arch(w) == MSP_ARCH_X86_64 ? MSP_X64_RBP : 17;
}

/* The base that the rule speaks of; its register may be lost when C code runs above. */
static MSP_INLINE uint64_t lua_rule_base(struct msp_walk *w, const struct msp_lj_layout *y)
{
	uint32_t place = w->rule.leaf & MSP_LEAF_BASE_MASK, reg = y->reg_base;
	uint64_t base;

	if (place == MSP_LEAF_BASE_COPY_1)
		reg = arch_base_copy(w);
	else if (place == MSP_LEAF_BASE_COPY_2)
		reg = host_arch(w) == MSP_ARCH_X86_64 ? MSP_X64_R15 : 2;
	if (place == MSP_LEAF_BASE_STORED)
		return w->l_base;
	if (!reg_known(w, reg)) {
		walk_way(w, MSP_WAY_STORED_BASE);
		return w->l_base;
	}
	base = reg_get(w, reg);
	if (place == MSP_LEAF_BASE_COPY_2 && host_arch(w) == MSP_ARCH_ARM64)
		base += 16;
	return y->gc64 ? base : (uint32_t)base;
}

/*
 * PC is a distance between the frame at lua_base and one above it, which is
 * being called or left. A continuation frame has the position below its base; arm64's PC keeps its type.
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
	return cont == MSP_CONT_FFI_CALLBACK ? lua_no_frame(w, base) : 0;
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
		return host_arch(w) == MSP_ARCH_X86_64 ? w->reg_pc + MSP_FT_VARG : w->reg_pc ^ MSP_FT_VARG;
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
 * more (rax, x0) where the link is that it has followed: it leads to L->base.
 * The frame with that link was one of this C frame's, which has called from no
 * lower BASE: else it is what a call that has returned left behind. Negative:
 * which of both cannot be told, for the stack has been moved since, and BASE not.
 */
MSP_SUB(lua_has_unwound)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t at = w->kept[0][MSP_SLOT_RA], link = 0, base;

	if (!y || !w->kept_count || host_read(w, &link, 8, at))
		return 0;
	base = reg_known(w, y->reg_base) ? reg_get(w, y->reg_base) : w->l_end - 8;
	if (lua_in_stack(w, base) && at + 8 > base)
		return 0;
	if (!y->fr2)
		link >>= 32;
	if (at - (link & ~7ull) + 8 != w->l_base || ((link & 3) != MSP_FT_C && !MSP_CALL_N(w, lua_is_callback, at + 8)))
		return 0;
	w->cand_pc = 0; /* the innermost frame's registers; what it need not preserve would be chance: many have L there */
	if (!lua_kept_has(w, w->l) || !lua_kept_has(w, w->l_cframe))
		return 0;
	if (!lua_in_stack(w, base))
		return -1;
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
	if (!suspended && w->walked_l == w->l && w->walked_g == w->g) {
		if (w->jit_base) /* or L->cframe is a frame that was left: LuaJIT until 2020, an error in a trace's exit */
			return MSP_ERR_LUA_CFRAME;
		if (!w->exact)
			return MSP_ERR_LUA_THROWN;
	}
	if (w->jit_base) /* after a finalizer that the trace's GC step ran, only the inner frame's link is right */
		w->lua_flags |= MSP_LUA_JIT;
	if (suspended || w->jit_base)
		return lua_given_base(w, suspended ? suspended : w->jit_base);
	if (!w->exact && n == w->l_cframe && lua_in_stack(w, w->kept[0][MSP_SLOT_RA])) {
		int unwound = MSP_CALL(w, lua_has_unwound);

		if (unwound)
			return unwound < 0 ? MSP_ERR_LUA_THROWN : lua_no_frame(w, w->l_base);
	}
	if (w->rule.leaf & MSP_LEAF_KNOWN)
		return MSP_CALL(w, lua_leaf_by_rule);
	walk_way(w, MSP_WAY_NO_ROW);
	if (w->exact || reg_known(w, y->reg_base))
		return MSP_CALL(w, lua_leaf_base);
	return MSP_CALL(w, lua_called_base);
}

#endif

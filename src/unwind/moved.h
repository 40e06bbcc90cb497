/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A Lua stack that is just being moved (resizestack of lj_state.c): it has been
 * copied, and until L->base is written, what lua_State says does not agree:
 *
 *   1. The old stack has been given back, and the allocator has written over
 *      its lowest slots, or unmapped it; L->stack and L->base still say where it was.
 *   2. L->stack is the new one, L->base still points into the old one, while
 *      the new slots are cleared.
 *
 * Where the other stack is only the registers of the code that moves it tell.
 * It is one of the innermost native frames, whose registers were kept.
 */
#ifndef MSP_UNWIND_MOVED_H
#define MSP_UNWIND_MOVED_H

/* The lowest slots that an allocator may write over: six words for its own lists. */
#define MSP_GIVEN_BACK 48

/* The value in the lowest slot of every stack of l. */
static MSP_INLINE uint64_t lua_thread_value(const struct msp_lj_layout *y, uint64_t l)
{
	return y->gc64 ? (uint64_t)MSP_TAG_THREAD << 47 | l : (uint64_t)(uint32_t)~6u << 32 | l;
}

/* 16 bytes at both addresses are the same. */
static MSP_INLINE int lua_same_words(struct msp_walk *w, uint64_t a, uint64_t b)
{
	const uint64_t *x = (const uint64_t *)w->stack; /* room that no stack has to give */

	return !host_read(w, w->stack, 16, a) && !host_read(w, w->stack + 16, 16, b) && x[0] == x[2] &&
	       x[1] == x[3];
}

/*
 * Is nothing left of the old stack, and does the one at w->cand_base begin as all do, with the
 * coroutine and nil? Then that the links of all frames lead there will show whether it is the new one.
 */
static MSP_INLINE int lua_replaces(struct msp_walk *w, const struct msp_lj_layout *y)
{
	uint64_t nil = 0;

	return y->fr2 && !host_read(w, &nil, 8, w->cand_base + 8) && nil == ~0ull &&
	       host_read(w, w->stack, 16, w->l_stack + MSP_GIVEN_BACK) &&
	       host_read(w, w->stack, 16, w->l_base - 16);
}

/* Case 1: is w->cand_base a copy of the stack of w->l? */
MSP_SUB(lua_is_copy)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t at = w->cand_base, depth = w->l_base - w->l_stack, value = 0;

	if (!y || (at & 7) || at == w->l_stack || host_read(w, &value, 8, at) ||
		value != lua_thread_value(y, w->l))
		return 0;
	if (lua_replaces(w, y))
		return 1;
	return lua_same_words(w, w->l_stack + MSP_GIVEN_BACK, at + MSP_GIVEN_BACK) &&
	       (depth < MSP_GIVEN_BACK + 16 || lua_same_words(w, w->l_base - 16, at + depth - 16));
}

/* Does frame w->cand_pc have that value in a register? */
static MSP_INLINE int lua_kept_has(const struct msp_walk *w, uint64_t value)
{
	for (uint32_t i = 1; i < MSP_SLOT_COUNT; i++)
		if (w->kept[w->cand_pc & (MSP_KEPT_FRAMES - 1)][i] == value)
			return 1;
	return 0;
}

/* Or, if it is the innermost, in one that it need not preserve? */
static MSP_INLINE int lua_leaf_has(const struct msp_walk *w, uint64_t value)
{
	for (uint32_t i = 0; w->cand_pc == 0 && i < MSP_LEAF_REGS; i++)
		if (w->leaf[i] == value)
			return 1;
	return 0;
}

/* Is the stack a copy of what lies at w->cand_base, of which L->base still speaks? */
MSP_SUB(lua_is_copied)
{
	uint64_t old = w->cand_base;

	return lua_same_words(w, old + MSP_GIVEN_BACK, w->l_stack + MSP_GIVEN_BACK) &&
	       lua_same_words(w, w->l_base - 16, w->l_base - 16 + w->l_stack - old);
}

/*
 * Case 2: was the stack at w->cand_base, which frame w->cand_pc has in a
 * register? Then it has the distance to the new one in another, or, before that
 * is computed, the new one. 2: if it is copied.
 */
MSP_SUB(lua_was_stack)
{
	uint64_t distance = w->l_stack - w->cand_base;

	if (lua_kept_has(w, distance) || lua_leaf_has(w, distance))
		return 1;
	return lua_kept_has(w, w->l_stack) || lua_leaf_has(w, w->l_stack) ? 2 : 0;
}

/* Is the n-th of the kept register values the other stack's place? Then sets w->l_moved. */
MSP_SUB_N(lua_try_moved)
{
	uint64_t size = w->l_end - w->l_stack;
	int was;

	w->cand_pc = (uint32_t)n / MSP_KEPT_REGS;
	w->cand_base = w->kept[n / MSP_KEPT_REGS & (MSP_KEPT_FRAMES - 1)][n % MSP_KEPT_REGS];
	if (w->cand_pc >= w->kept_count || !w->cand_base)
		return 0;
	if (w->l_base - w->l_stack <= size) {
		if (!MSP_CALL(w, lua_is_copy))
			return 0;
		w->l_moved = w->cand_base - w->l_stack;
		w->l_stack = w->cand_base;
		w->l_end = w->cand_base + size;
		return 1;
	}
	if (w->l_base - w->cand_base <= size) {
		was = MSP_CALL(w, lua_was_stack);
	} else { /* or it is the distance: the register of the old one is soon used again */
		w->cand_base = w->l_stack - w->cand_base;
		was = w->l_base - w->cand_base <= size ? 2 : 0;
	}
	/* Here, and not deeper: BPF has 8 calls. */
	if (!was || (was == 2 && !MSP_CALL(w, lua_is_copied)))
		return 0;
	w->l_moved = w->l_stack - w->cand_base;
	return 1;
}

/* Sets l_base, l_stack, l_end to what holds: to the new stack. */
MSP_SUB(lua_find_moved)
{
	for (uint32_t i = 0; i < MSP_KEPT_FRAMES * MSP_KEPT_REGS; i++) {
		if (!MSP_CALL_N(w, lua_try_moved, i))
			continue;
		walk_way(w, MSP_WAY_MOVED);
		w->l_base += w->l_moved;
		return MSP_ERR_NONE;
	}
	return MSP_ERR_LUA_MOVING;
}

#endif

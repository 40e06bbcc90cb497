/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Where an error lands. The unwinder of the C library that LuaJIT throws its
 * errors with (libgcc's uw_install_context) writes the return address and the
 * registers of the frame that it goes to over those of its own caller, and
 * moves the stack pointer last of all. In between, its frame seems to be called
 * from the VM block, which never calls it: where that VM frame is, only its own
 * description tells:
 *
 *   struct _Unwind_Context (unwind-dw2.c) {
 *           registers ...
 *           void *cfa;      stack pointer of the VM frame
 *           void *ra;       the landing pad in the VM block
 */
#ifndef MSP_UNWIND_LANDING_H
#define MSP_UNWIND_LANDING_H

/* Words of the unwinder's frame that are looked at, in pieces: arm64 has more registers. */
#define MSP_LANDING_WORDS (host_arch(w) == MSP_ARCH_X86_64 ? 192 : 480)
#define MSP_LANDING_PIECE 16

static MSP_INLINE int vm_contains(const struct msp_lj_layout *y, uint64_t base, uint64_t pc)
{
	return pc - base - y->vm_start < y->vm_end - y->vm_start;
}

/* Two words of the unwinder's frame: does the VM frame at cf land at pc? */
static MSP_INLINE int lua_lands(const struct msp_walk *w, const struct msp_lj_layout *y, uint64_t cf, uint64_t pc)
{
	uint64_t sp = w->reg[arch_sp(w) & 31];

	/* One branch: the verifier follows each both ways, and each turn of the loop. */
	return vm_contains(y, w->map.base, pc) & (cf - sp < 1 << 20) & !(cf & 15);
}

/* Looks at the two words at n. A frame pointer and the return address beside it are no landing. */
MSP_SUB_N(lua_landing_at)
{
	const struct msp_lj_layout *y = host_layout(w, w->image_layout);
	uint64_t word[2];

	if (!y)
		return MSP_ERR_INTERNAL;
	if (host_read(w, word, 16, n))
		return MSP_ERR_STACK_READ;
	if (!lua_lands(w, y, word[0], word[1]) ||
		(w->found && word[0] == w->cand_base && word[1] == w->cand_pc) || n + 8 == w->thrown_ra)
		return MSP_ERR_NONE;
	w->cand_base = word[0];
	w->cand_pc = word[1];
	w->found++;
	return MSP_ERR_NONE;
}

/* Looks at a piece of the unwinder's frame, from n on, up to its caller's. */
MSP_SUB_N(lua_landing_in)
{
	uint64_t end = w->reg[arch_sp(w) & 31];

	for (int i = 0; i < MSP_LANDING_PIECE && n + 16 <= end; i++) {
		if (MSP_CALL_N(w, lua_landing_at, n))
			return MSP_ERR_STACK_READ;
		n += 8;
	}
	return MSP_ERR_NONE;
}

/* Sets cand_base and cand_pc to the VM frame and landing pad in the unwinder's frame, found to how many there are. */
MSP_SUB(lua_find_landing)
{
	w->found = 0;
	for (int i = 0; i < MSP_LANDING_WORDS / MSP_LANDING_PIECE; i++)
		if (MSP_CALL_N(w, lua_landing_in, w->thrown_sp + i * MSP_LANDING_PIECE * 8))
			return MSP_ERR_STACK_READ;
	return MSP_ERR_NONE;
}

/* Where the one landing leads: to a VM frame of a coroutine. */
static MSP_INLINE int lua_land(struct msp_walk *w, const struct msp_lj_layout *y)
{
	uint64_t l = 0, cf, pc;
	int err = MSP_CALL(w, lua_find_landing);

	cf = w->cand_base;
	pc = w->cand_pc;
	if (err || w->found != 1 || read_ref(w, y, cf + y->cf_L, &l) || MSP_CALL_N(w, lua_load_l, l))
		return MSP_ERR_LUA_THROWN;
	walk_way(w, MSP_WAY_LANDING);
	w->reg[arch_sp(w) & 31] = cf;
	w->pc = pc;
	return MSP_ERR_NONE;
}

/* The return address of an unwinder's frame is in the VM block: go on where it lands. */
MSP_SUB(lua_landing)
{
	const struct msp_lj_layout *y = host_layout(w, w->image_layout);
	int err = MSP_ERR_NONE;

	if (!y)
		return walk_error(w, MSP_ERR_LUA_NO_VM);
	w->layout = w->image_layout;
	w->vm_base = w->map.base;
	if (w->thrown & MSP_RULE_THROWS)
		err = lua_land(w, y);
	w->thrown = 0;
	w->exact = 1;
	return err ? walk_error(w, err) : MSP_STEP_MORE;
}

#endif

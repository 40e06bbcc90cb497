/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The frames of a coroutine that no thread runs: of one that has yielded, that has resumed
 * another, or that ended by an error. Lua frames only; included after walker.h, by hosts
 * that can find coroutines.
 */
#ifndef MSP_UNWIND_COROUTINE_H
#define MSP_UNWIND_COROUTINE_H

/*
 * Prepares a walk over the coroutine at l of a VM of w->layout, whose image is at
 * w->vm_base. Starts with a VM frame. MSP_STEP_DONE: there is nothing to walk.
 */
static MSP_INLINE int coroutine_begin(struct msp_walk *w, uint64_t l)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	int err;

	walk_begin(w);
	w->pc = w->look = 0;
	w->map = (struct msp_mapping){0};
	w->reg_pc = w->save_pc = 0;
	w->lua_pc = 0;
	if (!y)
		return walk_error(w, MSP_ERR_INTERNAL);
	err = MSP_CALL_N(w, lua_load_l, l);
	if (!err)
		err = lua_emit_vm(w);
	if (err)
		return walk_error(w, err);
	w->mode = MSP_WALK_LUA;
	w->lua_base = w->l_base;
	return MSP_STEP_MORE;
}

/*
 * One frame further out. At a C frame the coroutine's stack goes on behind it, where the
 * position of the function there is not known.
 */
static MSP_INLINE int coroutine_step(struct msp_walk *w)
{
	if (w->mode == MSP_WALK_LUA)
		return MSP_CALL(w, lua_step);
	w->lua_base = lua_take_suspended(w);
	w->lua_pc = 0;
	if (!w->lua_base)
		return MSP_STEP_DONE;
	w->mode = MSP_WALK_LUA;
	return MSP_STEP_MORE;
}

#endif

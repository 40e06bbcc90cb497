/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The walker. Included once by each host, after the host has defined how it
 * reads memory and finds tables:
 *
 *   int host_read(w, dst, size, addr)     copies all or fails; size is a constant
 *   int host_find_mapping(w)              w->look -> w->map; 0 if found
 *   int host_find_rule(w)                 w->map, w->look -> w->rule, w->image_layout;
 *                                         MSP_ERR_NONE or why there is none
 *   const struct msp_lj_layout *host_layout(w, index)   NULL if unknown
 *   const struct msp_lj_layout *host_vm(w, i)           i-th LuaJIT of the process, sets w->layout
 *                                                       and w->vm_base; without GC64 i-th VM, and
 *                                                       w->vm_g; NULL: no more
 *   host_arch(w)                          optional: enum msp_arch, a constant
 *   host_lua_frame(w, f)                  optional: f, a frame on w->l at w->lua_base, was put out
 *   MSP_SUB(name) / MSP_CALL(w, name)     defines and calls a subprogram int name(w)
 *   MSP_SUB_N(name) / MSP_CALL_N(w, name, n)  the same with a uint64_t n. The BPF verifier goes through a
 *                                         subprogram once: what has branches and stands in a loop is one
 *
 * A step handles one frame, native or Lua, and never loops over target data.
 */
#ifndef MSP_UNWIND_WALKER_H
#define MSP_UNWIND_WALKER_H

#include "unwind/emit.h"
#include "unwind/native.h"
#include "unwind/lua.h"

/* Is w->look in the VM block of its image? */
static MSP_INLINE int in_vm_block(struct msp_walk *w)
{
	const struct msp_lj_layout *y = w->image_layout ? host_layout(w, w->image_layout) : NULL;

	return y && vm_contains(y, w->map.base, w->look);
}

/* Registers that VM helper routines leave alone although C functions may change them: BASE. */
static MSP_INLINE uint32_t kept_by_helper(struct msp_walk *w)
{
	const struct msp_lj_layout *y = w->image_layout ? host_layout(w, w->image_layout) : NULL;

	return y && vm_contains(y, w->map.base, w->look) ? 1u << (y->reg_base & 31) : 0;
}

/* Native code, interpreter, or compiled code? */
MSP_SUB(step_native)
{
	int err;

	w->look = w->exact ? w->pc : w->pc - 1;
	if (MSP_CALL(w, find_mapping)) {
		if (!MSP_CALL(w, native_callback_stub))
			return MSP_CALL(w, native_unwind);
		err = MSP_CALL(w, lua_trace_calls) ? MSP_CALL(w, lua_enter_trace) : MSP_ERR_NO_MAPPING;
		if (!err)
			return MSP_STEP_MORE;
		return walk_error(w, err == MSP_ERR_LUA_NO_VM ? MSP_ERR_NO_MAPPING : err);
	}
	err = MSP_CALL(w, find_rule);
	if (err && err != MSP_ERR_NO_RULE)
		return walk_error(w, err);
	if (w->thrown && in_vm_block(w))
		return MSP_CALL(w, lua_landing);
	if (w->rule.flags & MSP_RULE_VM_EXIT) {
		err = MSP_CALL(w, lua_enter_trace);
		return err ? walk_error(w, err) : MSP_STEP_MORE;
	}
	/* At the call itself nothing has come or gone. */
	if ((w->rule.flags & MSP_RULE_VM) && !(w->exact && (w->rule.flags & MSP_RULE_VM_CALLBACK)))
		return MSP_CALL(w, lua_enter_vm);
	native_keep(w);
	if (emit_native(w))
		return MSP_STEP_DONE;
	w->keep = kept_by_helper(w);
	return MSP_CALL(w, native_unwind);
}

/* One frame further out. MSP_STEP_DONE: the walk is over, w->error says how. */
static MSP_INLINE int walk_step(struct msp_walk *w)
{
	if (w->mode == MSP_WALK_LUA)
		return MSP_CALL(w, lua_step);
	return MSP_CALL(w, step_native);
}

/* Prepares a walk; the host has set the registers, known, exact, arch. */
static MSP_INLINE void walk_begin(struct msp_walk *w)
{
	w->walk_id++;
	w->frame_count = w->first_frame = 0;
	w->error = MSP_ERR_NONE;
	w->ways = 0;
	w->vmstate = 0;
	w->has_vm = 0;
	w->mode = MSP_WALK_NATIVE;
	w->keep = 0;
	w->thrown = 0;
	w->kept_from = w->kept_count = 0;
	w->map.start = w->map.end = 0;
	w->lua_flags = 0;
	w->slots_at = 0;
	w->proved_g = 0;
	w->walked_l = w->walked_g = 0;
	w->jit_base = 0;
	w->trace = 0;
	w->suspended_count = 0;
}

#endif

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
#include "unwind/object.h"
#include "unwind/moved.h"
#include "unwind/vm.h"
#include "unwind/landing.h"
#include "unwind/luaframe.h"
#include "unwind/leaf.h"

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
	if (!err && w->has_vm && ~w->vmstate - y->vmstate_gc == MSP_VMSTATE_RECORD)
		err = MSP_CALL(w, lua_find_stitched);
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

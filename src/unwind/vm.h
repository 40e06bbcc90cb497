/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The VM and the coroutine that are walked: proved, loaded, and what the VM is busy with. Part of lua.h. */
#ifndef MSP_UNWIND_VM_H
#define MSP_UNWIND_VM_H

#define MSP_VMSTATE_RECORD 2 /* behind the state of the collector (lj_obj.h) */

/* The VM's state in the numbers that LuaJIT itself has, whatever a fork has: for the collector's and those behind it. */
static MSP_INLINE int32_t lua_own_vmstate(const struct msp_walk *w, const struct msp_lj_layout *y)
{
	return ~(~w->vmstate - y->vmstate_gc + MSP_VMSTATE_GC);
}

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
	w->stitched_base = 0;
	if (!w->l_stack || (w->l_stack & 7) || w->l_end - w->l_stack > 1ull << 32)
		return MSP_ERR_LUA_BAD_L;
	if (w->l_base - w->l_stack > w->l_end - w->l_stack || host_read(w, &bottom, 8, w->l_stack) ||
		bottom != lua_thread_value(y, l))
		return MSP_CALL(w, lua_find_moved);
	return MSP_ERR_NONE;
}

/*
 * The compiler records a call that a trace cannot contain (recff_stitch of lj_ffrecord.c): the function and its arguments
 * are moved up by three slots and a continuation is put below them, L->base follows; later all goes back, L->base last.
 *
 *   before   [func|link] arguments               <- base
 *   then     [nil|continuation] [pc] [func|link] arguments
 *                                                ^ base + 24
 */
MSP_SUB(lua_find_stitched)
{
	const struct msp_lj_layout *y = host_layout(w, w->layout);
	uint64_t word[5], start, size;

	if (!y || !y->fr2 || host_read(w, word, sizeof(word), w->l_base - sizeof(word)))
		return 0;
	start = w->vm_base + y->vm_start;
	size = y->vm_end - y->vm_start;
	if (word[4] - start < size) { /* L->base still is that of before */
		w->l_base += 24;
		return 0;
	}
	/* Is there no frame: no link, or that of a continuation, and the continuation is gone? */
	if (word[4] && !(word[4] >> 47) && ((word[4] & 7) != MSP_FT_CONT || word[1] - start < size))
		return 0;
	if ((int64_t)word[0] >> 47 != MSP_TAG_FUNC || word[1] <= MSP_CONT_FFI_CALLBACK)
		return 0;
	w->l_base -= 24;
	if ((word[1] & 7) == MSP_FT_CONT && word[1] < MSP_MAX_DISTANCE)
		w->stitched_base = w->l_base;
	return 0;
}

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
	case MSP_VMSTATE_RECORD: case 3: case 4:
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

#endif

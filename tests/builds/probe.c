/* SPDX-License-Identifier: MIT */
/*
 * The truth: compiled in a LuaJIT source tree with that build's options, prints a line for each
 * field of struct msp_lj_layout, with the value that the tree's own headers give it.
 */
#include <stddef.h>
#include <stdio.h>

#include "lj_obj.h"
#include "lj_bc.h"
#include "lj_dispatch.h"
#include "lj_frame.h"
#include "lj_jit.h"
#include "lj_vm.h"

#define P(name, value) printf("%s %ld\n", #name, (long)(value))
#define O(name, type, member) P(name, offsetof(type, member))

static void machine(void)
{
	P(gc64, LJ_GC64);
	P(fr2, LJ_FR2);
	P(jit, LJ_HASJIT);
	P(dualnum, LJ_DUALNUM);
	P(bc_funcf, BC_FUNCF);
	P(bc_funccw, BC_FUNCCW);
	P(vmstate_gc, LJ_VMST_GC);
#if LJ_TARGET_ARM64
	/* vm_arm64.dasc: x19, x21, x22, which is g, x23. */
	P(arch, 2);
	P(reg_base, 19);
	P(reg_pc, 21);
	P(reg_dispatch, 22);
	P(reg_l, 23);
#else
	/* vm_x64.dasc, vm_x86.dasc: edx, ebx, r14; L is in the frame only. */
	P(arch, 1);
	P(reg_base, 1);
	P(reg_pc, 3);
	P(reg_dispatch, 14);
	P(reg_l, 255);
#endif
	P(cframe_size, CFRAME_SIZE);
	P(cf_L, CFRAME_OFS_L);
	P(cf_PC, CFRAME_OFS_PC);
	P(cf_prev, CFRAME_OFS_PREV);
}

static void states(void)
{
	P(dispatch_to_g, GG_G2DISP);
	O(g_mainthref, global_State, mainthref);
	O(g_cur_L, global_State, cur_L);
	O(g_vmstate, global_State, vmstate);
	O(g_strempty, global_State, strempty);
	O(gc_gct, GChead, gct);
	O(L_glref, lua_State, glref);
	O(L_base, lua_State, base);
	O(L_top, lua_State, top);
	O(L_maxstack, lua_State, maxstack);
	O(L_stack, lua_State, stack);
	O(L_cframe, lua_State, cframe);
	O(L_stacksize, lua_State, stacksize);
	O(L_status, lua_State, status);
}

static void objects(void)
{
	O(fn_ffid, GCfuncC, ffid);
	O(fn_pc, GCfuncC, pc);
	O(fn_cfunc, GCfuncC, f);
	P(pt_size, sizeof(GCproto));
	O(pt_numparams, GCproto, numparams);
	O(pt_framesize, GCproto, framesize);
	O(pt_sizebc, GCproto, sizebc);
	O(pt_k, GCproto, k);
	O(pt_sizekgc, GCproto, sizekgc);
	O(pt_sizekn, GCproto, sizekn);
	O(pt_sizept, GCproto, sizept);
	O(pt_sizeuv, GCproto, sizeuv);
	O(pt_flags, GCproto, flags);
	O(pt_trace, GCproto, trace);
	O(pt_chunkname, GCproto, chunkname);
	O(pt_firstline, GCproto, firstline);
	O(pt_numline, GCproto, numline);
	O(pt_lineinfo, GCproto, lineinfo);
	O(pt_uvinfo, GCproto, uvinfo);
	O(pt_varinfo, GCproto, varinfo);
	O(str_len, GCstr, len);
	P(str_data, sizeof(GCstr));
}

#if LJ_HASJIT
static void traces(void)
{
	P(g_to_J, GG_G2J);
	O(g_jit_base, global_State, jit_base);
	O(J_trace, jit_State, trace);
	O(J_sizetrace, jit_State, sizetrace);
	O(T_nsnap, GCtrace, nsnap);
	O(T_nsnapmap, GCtrace, nsnapmap);
	O(T_nins, GCtrace, nins);
	O(T_nk, GCtrace, nk);
	O(T_ir, GCtrace, ir);
	O(T_snap, GCtrace, snap);
	O(T_snapmap, GCtrace, snapmap);
	O(T_startpt, GCtrace, startpt);
	O(T_startpc, GCtrace, startpc);
	O(T_szmcode, GCtrace, szmcode);
	O(T_mcode, GCtrace, mcode);
	O(T_mcloop, GCtrace, mcloop);
	O(T_spadjust, GCtrace, spadjust);
	O(T_traceno, GCtrace, traceno);
	O(T_link, GCtrace, link);
	O(T_root, GCtrace, root);
	O(T_linktype, GCtrace, linktype);
	P(snap_size, sizeof(SnapShot));
	O(snap_mapofs, SnapShot, mapofs);
	O(snap_ref, SnapShot, ref);
#ifdef HAVE_MCOFS
	O(snap_mcofs, SnapShot, mcofs);
#endif
	O(snap_nslots, SnapShot, nslots);
	O(snap_nent, SnapShot, nent);
}
#endif

int main(void)
{
	machine();
	states();
	objects();
#if LJ_HASJIT
	traces();
#endif
	return 0;
}

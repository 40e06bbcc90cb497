/* SPDX-License-Identifier: MIT */
/* Constants of the VM descriptor that moonspy's layout (unwind/tables.h) has too: under the same name, and under others. */
#ifndef MSP_LUAJIT_DESCRIPTOR_FIELDS_H
#define MSP_LUAJIT_DESCRIPTOR_FIELDS_H

#define MSP_LJ_DESCRIPTOR_SAME(_) \
	_(gc64) _(fr2) _(jit) _(dualnum) _(vmstate_gc) \
	_(cf_L) _(cf_PC) _(cf_prev) \
	_(g_vmstate) _(g_cur_L) _(g_jit_base) _(g_mainthref) _(g_strempty) _(J_trace) _(J_sizetrace) _(gc_gct) \
	_(L_glref) _(L_status) _(L_base) _(L_top) _(L_maxstack) _(L_stack) _(L_stacksize) _(L_cframe) \
	_(fn_ffid) _(fn_pc) _(fn_cfunc) \
	_(pt_size) _(pt_numparams) _(pt_framesize) _(pt_sizebc) _(pt_k) _(pt_sizekgc) _(pt_sizekn) _(pt_sizept) \
	_(pt_sizeuv) _(pt_flags) _(pt_trace) _(pt_chunkname) _(pt_firstline) _(pt_numline) _(pt_lineinfo) \
	_(pt_uvinfo) _(pt_varinfo) \
	_(str_len) _(str_data) _(bc_funcf) _(bc_funccw) \
	_(T_traceno) _(T_link) _(T_root) _(T_linktype) _(T_startpt) _(T_startpc) _(T_mcode) _(T_szmcode) _(T_mcloop) \
	_(T_spadjust) _(T_nins) _(T_nk) _(T_ir) _(T_nsnap) _(T_nsnapmap) _(T_snap) _(T_snapmap) \
	_(snap_size) _(snap_mapofs) _(snap_ref) _(snap_mcofs) _(snap_nslots) _(snap_nent)

/* field of the layout, constant of the descriptor */
#define MSP_LJ_DESCRIPTOR_RENAMED(_) \
	_(cframe_size, cf_size) _(dispatch_to_g, g_dispatch) _(g_to_J, g_J) \
	_(reg_dispatch, reg_dispatch) _(reg_base, reg_base) _(reg_pc, reg_pc)

#endif

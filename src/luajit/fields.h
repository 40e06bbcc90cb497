/* SPDX-License-Identifier: MIT */
/* The fields of struct msp_lj_layout as a list: name, type, needed. Needed: 1 always, 2 with the JIT. */
#ifndef MSP_LUAJIT_FIELDS_H
#define MSP_LUAJIT_FIELDS_H

#include <stdbool.h>

#include "unwind/tables.h"

#define MSP_LJ_FIELDS(_) \
	_(arch, uint8_t, 1) \
	_(gc64, uint8_t, 1) \
	_(fr2, uint8_t, 1) \
	_(jit, uint8_t, 1) \
	_(reg_dispatch, uint8_t, 1) \
	_(reg_base, uint8_t, 1) \
	_(reg_pc, uint8_t, 1) \
	_(reg_l, uint8_t, 1) \
	_(bc_funcf, uint8_t, 1) \
	_(bc_funccw, uint8_t, 1) \
	_(dualnum, uint8_t, 1) \
	_(vmstate_gc, uint8_t, 1) \
	_(vm_start, uint32_t, 1) \
	_(vm_end, uint32_t, 1) \
	_(cframe_size, int32_t, 1) \
	_(cf_L, int32_t, 1) \
	_(cf_PC, int32_t, 1) \
	_(cf_prev, int32_t, 1) \
	_(dispatch_to_g, int32_t, 1) \
	_(g_to_J, int32_t, 2) \
	_(g_mainthref, int32_t, 1) \
	_(g_cur_L, int32_t, 1) \
	_(g_jit_base, int32_t, 2) \
	_(g_vmstate, int32_t, 1) \
	_(g_strempty, int32_t, 1) \
	_(J_trace, int32_t, 2) \
	_(J_sizetrace, int32_t, 2) \
	_(gc_gct, int32_t, 1) \
	_(L_glref, int32_t, 1) \
	_(L_base, int32_t, 1) \
	_(L_top, int32_t, 1) \
	_(L_maxstack, int32_t, 1) \
	_(L_stack, int32_t, 1) \
	_(L_cframe, int32_t, 1) \
	_(L_stacksize, int32_t, 1) \
	_(L_status, int32_t, 1) \
	_(fn_ffid, int32_t, 1) \
	_(fn_pc, int32_t, 1) \
	_(fn_cfunc, int32_t, 1) \
	_(pt_size, int32_t, 1) \
	_(pt_numparams, int32_t, 1) \
	_(pt_framesize, int32_t, 1) \
	_(pt_sizebc, int32_t, 1) \
	_(pt_k, int32_t, 1) \
	_(pt_sizekgc, int32_t, 1) \
	_(pt_sizekn, int32_t, 1) \
	_(pt_sizept, int32_t, 1) \
	_(pt_sizeuv, int32_t, 1) \
	_(pt_flags, int32_t, 1) \
	_(pt_trace, int32_t, 1) \
	_(pt_chunkname, int32_t, 1) \
	_(pt_firstline, int32_t, 1) \
	_(pt_numline, int32_t, 1) \
	_(pt_lineinfo, int32_t, 1) \
	_(pt_uvinfo, int32_t, 1) \
	_(pt_varinfo, int32_t, 1) \
	_(str_len, int32_t, 1) \
	_(str_data, int32_t, 1) \
	_(T_nsnap, int32_t, 2) \
	_(T_nsnapmap, int32_t, 2) \
	_(T_nins, int32_t, 2) \
	_(T_nk, int32_t, 2) \
	_(T_ir, int32_t, 2) \
	_(T_snap, int32_t, 2) \
	_(T_snapmap, int32_t, 2) \
	_(T_startpt, int32_t, 2) \
	_(T_startpc, int32_t, 2) \
	_(T_szmcode, int32_t, 2) \
	_(T_mcode, int32_t, 2) \
	_(T_mcloop, int32_t, 2) \
	_(T_spadjust, int32_t, 2) \
	_(T_traceno, int32_t, 2) \
	_(T_link, int32_t, 2) \
	_(T_root, int32_t, 2) \
	_(T_linktype, int32_t, 2) \
	_(snap_size, int32_t, 2) \
	_(snap_mapofs, int32_t, 2) \
	_(snap_ref, int32_t, 2) \
	_(snap_mcofs, int32_t, 2) \
	_(snap_nslots, int32_t, 2) \
	_(snap_nent, int32_t, 2)

enum msp_lj_field {
#define _(name, type, needed) MSP_LJ_FIELD_##name,
	MSP_LJ_FIELDS(_)
#undef _
		MSP_LJ_FIELD_COUNT
};

const char *msp_lj_field_name(enum msp_lj_field field);
int64_t msp_lj_field_get(const struct msp_lj_layout *layout, enum msp_lj_field field);
void msp_lj_field_set(struct msp_lj_layout *layout, enum msp_lj_field field, int64_t value);
/* Is the field needed for that layout? */
bool msp_lj_field_needed(const struct msp_lj_layout *layout, enum msp_lj_field field);

#endif

/* SPDX-License-Identifier: MIT */
/* The VM descriptor (ljvm_descriptor.h) of this LuaJIT. Included at the end of lj_dispatch.c. */
#include "lj_gc.h"
#include "lj_target.h"
#if LJ_HASFFI
#include "lj_ctype.h"
#include "lj_ccall.h"
#endif

#include "ljvm_descriptor.h"
#include "ljvm_tree.h"

#if defined(__GNUC__)
#define LJVM_EXPORTED __attribute__((visibility("default"), used))
#define LJVM_HIDDEN __attribute__((visibility("hidden"), used))
#else
#define LJVM_EXPORTED LUA_API
#define LJVM_HIDDEN
#endif

/* Registers by DWARF number. x86 numbers the first eight in another order than its instructions do. */
#if LJ_TARGET_X64
#define LJVM_ARCH LJVM_ARCH_X64
#define LJVM_REGISTER(rid) \
	((rid) == RID_ECX ? 2 : (rid) == RID_EDX ? 1 : (rid) == RID_ESP ? 7 : (rid) == RID_EBP ? 6 : \
	 (rid) == RID_ESI ? 4 : (rid) == RID_EDI ? 5 : (int32_t)(rid))
#define LJVM_REG_DISPATCH LJVM_REGISTER(RID_DISPATCH)
#define LJVM_REG_BASE LJVM_REGISTER(RID_BASE)
#define LJVM_REG_PC LJVM_REGISTER(RID_LPC)
#define LJVM_REG_L (-1)
#define LJVM_REG_DISPATCH_G GG_G2DISP
#elif LJ_TARGET_ARM64
#define LJVM_ARCH LJVM_ARCH_ARM64
#define LJVM_REG_DISPATCH RID_GL
#define LJVM_REG_BASE RID_BASE
#define LJVM_REG_PC RID_LPC
#define LJVM_REG_L RID_LREG
#define LJVM_REG_DISPATCH_G 0
#else
#define LJVM_ARCH LJVM_ARCH_OTHER
#define LJVM_REG_DISPATCH (-1)
#define LJVM_REG_BASE (-1)
#define LJVM_REG_PC (-1)
#define LJVM_REG_L (-1)
#define LJVM_REG_DISPATCH_G (-1)
#endif

#include "ljvm_live.c"
#include "ljvm_tables.c"
#include "ljvm_helpers.c"

/* ---- Constants ---- */

#define LJVM_OFFSET(type, member) ((int32_t)offsetof(type, member))
#define LJVM_BYTES(type, member) ((int32_t)sizeof(((type *)0)->member))
#define LJVM_GLOBAL(member) LJVM_OFFSET(global_State, member)
#if LJ_HASJIT
#define LJVM_JIT(value) ((int32_t)(value))
#else
#define LJVM_JIT(value) (-1)
#endif
#ifdef LJVM_TREE_MCOFS
#define LJVM_MCOFS LJVM_JIT(offsetof(SnapShot, mcofs))
#else
#define LJVM_MCOFS (-1)
#endif

/* ---- Names ---- */

static const char ljvm_ff_names[] =
	"Lua\0C\0"
#define FFDEF(name) #name "\0"
#include "lj_ffdef.h"
#undef FFDEF
	;

#ifdef LJVM_TREE_LFUNC
LJ_STATIC_ASSERT(LJ_VMST_INTERP == 0 && LJ_VMST_LFUNC == 1 && LJ_VMST_FFUNC == 2 && LJ_VMST_CFUNC == 3 &&
		 LJ_VMST_GC == 4 && LJ_VMST_EXIT == 5 && LJ_VMST_RECORD == 6 && LJ_VMST_OPT == 7 && LJ_VMST_ASM == 8);
static const char ljvm_vmstate_names[] = "INTERP\0LFUNC\0FFUNC\0CFUNC\0GC\0EXIT\0RECORD\0OPT\0ASM\0";
#else
LJ_STATIC_ASSERT(LJ_VMST_INTERP == 0 && LJ_VMST_C == 1 && LJ_VMST_GC == 2 && LJ_VMST_EXIT == 3 &&
		 LJ_VMST_RECORD == 4 && LJ_VMST_OPT == 5 && LJ_VMST_ASM == 6);
static const char ljvm_vmstate_names[] = "INTERP\0C\0GC\0EXIT\0RECORD\0OPT\0ASM\0";
#endif

LJ_STATIC_ASSERT(GCSpause == 0 && GCSpropagate == 1 && GCSatomic == 2 && GCSsweepstring == 3 && GCSsweep == 4 &&
		 GCSfinalize == 5);
static const char ljvm_gc_names[] = "pause\0propagate\0atomic\0sweepstring\0sweep\0finalize\0";

#if LJ_HASJIT
static const char ljvm_trace_errors[] =
#define TREDEF(name, message) message "\0"
#include "lj_traceerr.h"
#undef TREDEF
	;
#define LJVM_TRACE_ERRORS ljvm_trace_errors
#else
#define LJVM_TRACE_ERRORS NULL
#endif

static const char ljvm_bc_names[] =
#define LJVM_BCNAME(name, ma, mb, mc, mt) #name "\0"
	BCDEF(LJVM_BCNAME)
#undef LJVM_BCNAME
	;

/* ---- The descriptor ---- */

#if defined(__ELF__) || defined(__MACH__)
LJ_ASMF char lj_vm_asm_end[];
#define LJVM_CODE_END lj_vm_asm_end
#else
#define LJVM_CODE_END NULL
#endif
#if LJ_HASFFI
#define LJVM_FFI_CALL (const void *)lj_vm_ffi_call
#else
#define LJVM_FFI_CALL NULL
#endif

struct ljvm_whole {
	struct ljvm_descriptor head;
	struct ljvm_constants constants;
	struct ljvm_addresses addresses;
	struct ljvm_helpers helpers;
};

#define LJVM_PART(name) {offsetof(struct ljvm_whole, name), sizeof(((struct ljvm_whole *)0)->name)}

LJVM_HIDDEN const struct ljvm_whole ljvm_descriptor = {
	.head = {
		.magic = {'L', 'u', 'a', 'J', 'I', 'T', 'v', 'm'},
		.major = LJVM_MAJOR,
		.minor = LJVM_MINOR,
		.size = sizeof(struct ljvm_whole),
		.pointer_size = sizeof(void *),
		.constants = LJVM_PART(constants),
		.addresses = LJVM_PART(addresses),
		.helpers = LJVM_PART(helpers),
	},
	.constants = {
		.arch = LJVM_ARCH,
		.gc64 = LJ_GC64,
		.fr2 = LJ_FR2,
		.jit = LJ_HASJIT,
		.ffi = LJ_HASFFI,
		.dualnum = LJ_DUALNUM,
		.version = LUAJIT_VERSION_NUM,

		.reg_dispatch = LJVM_REG_DISPATCH,
		.reg_dispatch_g = LJVM_REG_DISPATCH_G,
		.reg_base = LJVM_REG_BASE,
		.reg_pc = LJVM_REG_PC,
		.reg_L = LJVM_REG_L,

		.cf_size = CFRAME_SIZE,
		.cf_L = CFRAME_OFS_L,
		.cf_PC = CFRAME_OFS_PC,
		.cf_prev = CFRAME_OFS_PREV,
		.cf_errf = CFRAME_OFS_ERRF,
		.cf_nres = CFRAME_OFS_NRES,
		.cf_ref_size = sizeof(GCRef),
		.cf_prev_size = sizeof(void *),

		.gg_size = sizeof(GG_State),
		.gg_g = LJVM_OFFSET(GG_State, g),
		.g_size = sizeof(global_State),
		.g_dispatch = GG_G2DISP,
		.g_J = LJVM_JIT(GG_OFS(J) - GG_OFS(g)),
		.dispatch_entries = GG_LEN_DISP,
		.g_vmstate = LJVM_GLOBAL(vmstate),
		.g_cur_L = LJVM_GLOBAL(cur_L),
		.g_jit_base = LJVM_GLOBAL(jit_base),
		.g_mainthref = LJVM_GLOBAL(mainthref),
		.g_strempty = LJVM_GLOBAL(strempty),
		.g_hookmask = LJVM_GLOBAL(hookmask),
		.g_gc_state = LJVM_GLOBAL(gc.state),
		.g_gc_total = LJVM_GLOBAL(gc.total),
		.g_gc_root = LJVM_GLOBAL(gc.root),
		.J_trace = LJVM_JIT(offsetof(jit_State, trace)),
		.J_sizetrace = LJVM_JIT(offsetof(jit_State, sizetrace)),
		.J_state = LJVM_JIT(offsetof(jit_State, state)),
		.J_cur = LJVM_JIT(offsetof(jit_State, cur)),

		.gc_next = LJVM_OFFSET(GChead, nextgc),
		.gc_gct = LJVM_OFFSET(GChead, gct),
		.gct_str = (uint8_t)~LJ_TSTR,
		.gct_thread = (uint8_t)~LJ_TTHREAD,
		.gct_proto = (uint8_t)~LJ_TPROTO,
		.gct_func = (uint8_t)~LJ_TFUNC,
		.gct_trace = (uint8_t)~LJ_TTRACE,
		.tv_size = sizeof(TValue),
		.tv_shift = LJ_GC64 ? 47 : -1,
		.tv_func = (int32_t)LJ_TFUNC,

		.L_size = sizeof(lua_State),
		.L_glref = LJVM_OFFSET(lua_State, glref),
		.L_status = LJVM_OFFSET(lua_State, status),
		.L_base = LJVM_OFFSET(lua_State, base),
		.L_top = LJVM_OFFSET(lua_State, top),
		.L_maxstack = LJVM_OFFSET(lua_State, maxstack),
		.L_stack = LJVM_OFFSET(lua_State, stack),
		.L_stacksize = LJVM_OFFSET(lua_State, stacksize),
		.L_cframe = LJVM_OFFSET(lua_State, cframe),
		.cframe_flags = (int32_t)~CFRAME_RAWMASK,

		.fn_ffid = LJVM_OFFSET(GCfuncC, ffid),
		.fn_pc = LJVM_OFFSET(GCfuncL, pc),
		.fn_cfunc = LJVM_OFFSET(GCfuncC, f),
		.ff_c = FF_C,

		.pt_size = sizeof(GCproto),
		.pt_numparams = LJVM_OFFSET(GCproto, numparams),
		.pt_framesize = LJVM_OFFSET(GCproto, framesize),
		.pt_sizebc = LJVM_OFFSET(GCproto, sizebc),
		.pt_k = LJVM_OFFSET(GCproto, k),
		.pt_sizekgc = LJVM_OFFSET(GCproto, sizekgc),
		.pt_sizekn = LJVM_OFFSET(GCproto, sizekn),
		.pt_sizept = LJVM_OFFSET(GCproto, sizept),
		.pt_sizeuv = LJVM_OFFSET(GCproto, sizeuv),
		.pt_flags = LJVM_OFFSET(GCproto, flags),
		.pt_trace = LJVM_OFFSET(GCproto, trace),
		.pt_chunkname = LJVM_OFFSET(GCproto, chunkname),
		.pt_firstline = LJVM_OFFSET(GCproto, firstline),
		.pt_numline = LJVM_OFFSET(GCproto, numline),
		.pt_lineinfo = LJVM_OFFSET(GCproto, lineinfo),
		.pt_uvinfo = LJVM_OFFSET(GCproto, uvinfo),
		.pt_varinfo = LJVM_OFFSET(GCproto, varinfo),
		.str_len = LJVM_OFFSET(GCstr, len),
		.str_data = sizeof(GCstr),

		.bc_size = sizeof(BCIns),
		.bc_funcf = BC_FUNCF,
		.bc_funcc = BC_FUNCC,
		.bc_funccw = BC_FUNCCW,

		.frame_typep = FRAME_TYPEP,
		.frame_lua = FRAME_LUA,
		.frame_type = FRAME_TYPE,
		.frame_c = FRAME_C,
		.frame_cont = FRAME_CONT,
		.frame_varg = FRAME_VARG,
		.frame_cp = FRAME_CP,
		.frame_pcall = FRAME_PCALL,
		.frame_pcallh = FRAME_PCALLH,

		.T_size = LJVM_JIT(sizeof(GCtrace)),
		.T_traceno = LJVM_JIT(offsetof(GCtrace, traceno)),
		.T_link = LJVM_JIT(offsetof(GCtrace, link)),
		.T_root = LJVM_JIT(offsetof(GCtrace, root)),
		.T_linktype = LJVM_JIT(offsetof(GCtrace, linktype)),
		.T_startpt = LJVM_JIT(offsetof(GCtrace, startpt)),
		.T_startpc = LJVM_JIT(offsetof(GCtrace, startpc)),
		.T_mcode = LJVM_JIT(offsetof(GCtrace, mcode)),
		.T_szmcode = LJVM_JIT(offsetof(GCtrace, szmcode)),
		.T_mcloop = LJVM_JIT(offsetof(GCtrace, mcloop)),
		.T_spadjust = LJVM_JIT(offsetof(GCtrace, spadjust)),
		.T_nins = LJVM_JIT(offsetof(GCtrace, nins)),
		.T_nk = LJVM_JIT(offsetof(GCtrace, nk)),
		.T_ir = LJVM_JIT(offsetof(GCtrace, ir)),
		.T_nsnap = LJVM_JIT(offsetof(GCtrace, nsnap)),
		.T_nsnapmap = LJVM_JIT(offsetof(GCtrace, nsnapmap)),
		.T_nsnapmap_size = LJVM_JIT(LJVM_BYTES(GCtrace, nsnapmap)),
		.T_snap = LJVM_JIT(offsetof(GCtrace, snap)),
		.T_snapmap = LJVM_JIT(offsetof(GCtrace, snapmap)),
		.snap_size = LJVM_JIT(sizeof(SnapShot)),
		.snap_mapofs = LJVM_JIT(offsetof(SnapShot, mapofs)),
		.snap_mapofs_size = LJVM_JIT(LJVM_BYTES(SnapShot, mapofs)),
		.snap_ref = LJVM_JIT(offsetof(SnapShot, ref)),
		.snap_mcofs = LJVM_MCOFS,
		.snap_nslots = LJVM_JIT(offsetof(SnapShot, nslots)),
		.snap_nent = LJVM_JIT(offsetof(SnapShot, nent)),
		.mcode_unit = LJVM_JIT(sizeof(MCode)),
		.ir_bias = LJVM_JIT(REF_BASE),
		.vmstate_gc = LJ_VMST_GC,
	},
	.addresses = {
		.vm_code = lj_vm_asm_begin,
		.vm_code_end = LJVM_CODE_END,
		.vm_ffi_call = LJVM_FFI_CALL,
		.ff_names = ljvm_ff_names,
		.vmstate_names = ljvm_vmstate_names,
		.gc_names = ljvm_gc_names,
		.trace_errors = LJVM_TRACE_ERRORS,
		.version = LUAJIT_VERSION,
		.bc_names = ljvm_bc_names,
		.live = LJVM_LIVE,
	},
	.helpers = LJVM_HELPERS,
};

/* Tools know it by this name; what is inside does not depend on who wins if two libraries have it. */
extern const struct ljvm_whole LJVM_SYMBOL __attribute__((alias("ljvm_descriptor"), visibility("default")));

#ifndef LJVM_NO_NOTE
__asm__(".pushsection .note.luajit, \"a\", %note\n"
	".balign 4\n"
	".4byte 992f - 991f, 994f - 993f, 1\n"
	"991: .asciz \"LuaJIT\"\n"
	"992: .balign 4\n"
	"993: .8byte ljvm_descriptor - 993b\n"
	"994: .balign 4\n"
	".popsection\n");
#endif

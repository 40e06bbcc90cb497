/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the walker reads: unwind rows, mappings, images and LuaJIT layouts.
 * Made ahead of time in user space, read by every host. Freestanding; all
 * structures have a fixed size and are shared with BPF byte for byte.
 */
#ifndef MSP_UNWIND_TABLES_H
#define MSP_UNWIND_TABLES_H

#include <stdint.h>

/* Registers have their DWARF numbers: x86-64 0..15 (psABI figure 3.36), arm64 x0..x30 and 31 = sp. */
#define MSP_REG_COUNT 32
#define MSP_REG_NONE 255

/* arm64: the bits of a return address that are no pointer authentication code. */
#define MSP_ARM64_ADDRESS ((1ull << 48) - 1)

enum msp_arch { MSP_ARCH_X86_64 = 1, MSP_ARCH_ARM64 = 2 };

enum {
	MSP_X64_RAX = 0, MSP_X64_RDX, MSP_X64_RCX, MSP_X64_RBX, MSP_X64_RSI, MSP_X64_RDI,
	MSP_X64_RBP, MSP_X64_RSP, MSP_X64_R8, MSP_X64_R9, MSP_X64_R10, MSP_X64_R11,
	MSP_X64_R12, MSP_X64_R13, MSP_X64_R14, MSP_X64_R15, MSP_X64_RA,
};

/*
 * The registers that a rule can restore, a slot each. Slot 0 is the return
 * address. x86-64: RA rbx rbp r12 r13 r14 r15. arm64: x30(RA) x19..x29.
 */
#define MSP_SLOT_COUNT 12
#define MSP_SLOT_RA 0

/* Values of msp_rule.saved[] that are not offsets. */
#define MSP_SAVED_SAME INT16_MAX            /* the register still has the caller's value */
#define MSP_SAVED_UNDEFINED (INT16_MAX - 1) /* the caller's value is lost */

enum msp_cfa_kind {
	MSP_CFA_NONE = 0,    /* no unwind information here */
	MSP_CFA_REG,         /* CFA = reg + off */
	MSP_CFA_DEREF,       /* CFA = *(reg + off) */
	MSP_CFA_PLT,         /* CFA = sp + 8 + ((pc & 15) >= off) * 8: a PLT section's expression */
	MSP_CFA_SIGNAL,      /* signal frame: all registers are in the kernel's ucontext at sp */
	MSP_CFA_END,         /* return address undefined: the thread's outermost frame */
	MSP_CFA_UNSUPPORTED, /* there is a rule, but not one that a row can express */
	MSP_CFA_DEREF_ADD8,  /* CFA = *(reg + off) + 8: hand-written code that keeps its old sp */
	MSP_CFA_DEREF_FRAME, /* CFA = *(reg + off); slots but RA are saved at reg + saved[slot] */
	MSP_CFA_RA_REG,      /* CFA = reg + off; the return address is in register saved[MSP_SLOT_RA] */
	/* arm64: if register off is not 0, CFA = sp + reg, and the same; else CFA = sp, and it is in x30 */
	MSP_CFA_LANDING,
};

/* Bits of msp_rule.flags. */
#define MSP_RULE_RA_SIGNED 0x01 /* arm64: the return address carries a pointer authentication code */
#define MSP_RULE_VM 0x02        /* interpreter: CFA - cframe_size is a LuaJIT C frame, with Lua frames on it */
#define MSP_RULE_VM_EXIT 0x04   /* between trace and interpreter: unwind as a trace does */
#define MSP_RULE_THROWS 0x10 /* its return address and saved registers may be those of where an exception lands */
#define MSP_RULE_LANDS 0x20  /* and its registers have been restored: what follows may be a landing pad */
#define MSP_RULE_VM_CALLBACK 0x08 /* with VM: the frame at L->base is on this C frame if it is an FFI callback's */
#define MSP_RULE_STARTS 0x40 /* behind a system call that started a thread: if it gave 0, this is the new one, without a caller */

/* lj_obj.h: numbers of LuaJIT's own states, those of forks may be higher. */
#define MSP_VMSTATE_GC 2
#define MSP_VMSTATE_OPT 5
#define MSP_VMSTATE_ASM 6

/*
 * msp_rule.leaf: where the interpreter has its innermost Lua frame. 0: not known.
 * The frame's base, which of the low two bits; its link, if it is not in its
 * place, which of the next three.
 */
#define MSP_LEAF_BASE_REG 0x00      /* in the BASE register */
#define MSP_LEAF_BASE_STORED 0x01   /* in L->base */
#define MSP_LEAF_BASE_COPY_1 0x02   /* in rbp: a copy, kept over a call; arm64: in x17 */
#define MSP_LEAF_BASE_COPY_2 0x03   /* in r15; arm64: in x2, which is 16 lower */
#define MSP_LEAF_BASE_MASK 0x03
#define MSP_LEAF_LINK_PLACE 0x00    /* the frame is complete, and PC its position if it is one */
#define MSP_LEAF_LINK_PC 0x04       /* PC is the link: the frame is about to be left */
#define MSP_LEAF_LINK_XOR 0x08      /* PC is the link, xor FRAME_C */
#define MSP_LEAF_LINK_SAVED 0x0c    /* SAVE_PC is the link */
#define MSP_LEAF_LINK_LEFT 0x10     /* the link is in its place, but the frame is being left */
#define MSP_LEAF_LINK_DISTANCE 0x14 /* PC is the link without its type, to a frame on this C frame */
#define MSP_LEAF_LINK_OUTER 0x18    /* the same, to what is below this C frame; or that, or its negative */
#define MSP_LEAF_LINK_SUB 0x1c      /* PC is the link less FRAME_VARG; arm64: xor FRAME_VARG */
#define MSP_LEAF_LINK_MASK 0x1c
#define MSP_LEAF_OVER 0x20          /* results may lie over the frame's function and link */
#define MSP_LEAF_NEXT 0x20          /* with LINK_PLACE: PC may be a distance between frames */
#define MSP_LEAF_CONT 0x30          /* complete, but if PC is no address: an FFI callback returns to what is there */
#define MSP_LEAF_OUTER_BASE 0x38    /* an FFI callback has returned to what is at BASE, below this C frame */
#define MSP_LEAF_CALL 0x40          /* BASE is a callee's; its link is still in PC only */
#define MSP_LEAF_KNOWN 0x80

/* One way to unwind one frame. 32 bytes. An image has few distinct ones; rows refer to them by index. */
struct msp_rule {
	uint8_t cfa_kind;
	uint8_t cfa_reg;
	uint8_t flags;
	uint8_t leaf; /* MSP_LEAF_*, if flags has MSP_RULE_VM */
	int32_t cfa_off;
	int16_t saved[MSP_SLOT_COUNT]; /* saved at CFA + saved[slot] bytes, or MSP_SAVED_* */
};

/*
 * A row holds from addr to the next row's addr. Addresses are relative to the
 * image's lowest mapped virtual address. Rule 0 of every image is MSP_CFA_NONE.
 */
struct msp_row {
	uint32_t addr;
	uint32_t rule;
};

/* Images and layouts have indices below these; 0 is none. */
#define MSP_IMAGE_SLOTS 16384
#define MSP_LAYOUT_SLOTS 64

/* Bits of msp_mapping.flags. */
#define MSP_MAP_FILE 0x1 /* image is valid */
#define MSP_MAP_VDSO 0x2
#define MSP_MAP_UNREAD 0x4 /* of a file that could not be read: image 0, whose code has no rules */

/* An executable mapping of a process. pc - base is the image-relative address. */
struct msp_mapping {
	uint64_t start, end;
	uint64_t base;
	uint32_t image; /* index of a struct msp_image_tables, known to the host */
	uint32_t flags;
};

/*
 * Where a LuaJIT build keeps what the walker needs; from evidence, and proved
 * before use (src/luajit/). Offsets in bytes; names as in LuaJIT's lj_obj.h,
 * lj_jit.h, lj_frame.h. A negative offset means: this build has no such field.
 */
struct msp_lj_layout {
	uint32_t abi;  /* MSP_LJ_LAYOUT_ABI */
	uint8_t arch;  /* enum msp_arch */
	uint8_t gc64;  /* 64-bit object references (LJ_GC64) */
	uint8_t fr2;   /* two-slot frames (LJ_FR2) */
	uint8_t jit;   /* the JIT compiler is built in */
	uint8_t reg_dispatch, reg_base, reg_pc, reg_l; /* DWARF numbers, MSP_REG_NONE where none */
	uint8_t bc_funcf; /* first function header opcode, BC_FUNCF (lj_bc.h) */
	uint8_t bc_funccw; /* last opcode, and pseudo-headers of fast functions are above it */
	uint8_t dualnum;
	uint8_t vmstate_gc;  /* ~vmstate while the collector runs; EXIT, RECORD, OPT, ASM follow it */
	uint8_t reg_is_g;    /* reg_dispatch holds g itself (arm64), not the dispatch table */
	uint8_t unused0[3];

	/* VM block, image-relative. */
	uint32_t vm_start, vm_end;

	/* The interpreter's C frame: offsets from its stack pointer. */
	int32_t cframe_size; /* to the CFA: includes the return address */
	int32_t cf_L, cf_PC, cf_prev;

	/* GG_State. */
	int32_t dispatch_to_g; /* the dispatch table is at g + this (GG_G2DISP) */
	int32_t g_to_J;        /* GG_G2J; valid if jit */
	int32_t g_mainthref, g_cur_L, g_jit_base, g_vmstate, g_strempty, g_gcroot_unused;

	/* jit_State, relative to J. */
	int32_t J_trace, J_sizetrace;

	/* GCobj header and lua_State. */
	int32_t gc_gct;
	int32_t L_glref, L_base, L_top, L_maxstack, L_stack, L_cframe, L_stacksize, L_status;

	/* GCfunc. */
	int32_t fn_ffid, fn_pc, fn_cfunc;

	/* GCproto. The bytecode follows it directly. */
	int32_t pt_size; /* sizeof(GCproto) */
	int32_t pt_numparams, pt_framesize, pt_sizebc, pt_k, pt_sizekgc, pt_sizekn, pt_sizept;
	int32_t pt_sizeuv, pt_flags, pt_trace, pt_chunkname, pt_firstline, pt_numline;
	int32_t pt_lineinfo, pt_uvinfo, pt_varinfo;

	/* GCstr. */
	int32_t str_len, str_data;

	/* GCtrace. */
	int32_t T_nsnap, T_nsnapmap, T_nins, T_nk, T_ir, T_snap, T_snapmap, T_startpt, T_startpc;
	int32_t T_szmcode, T_mcode, T_mcloop, T_spadjust, T_traceno, T_link, T_root, T_linktype;
	int32_t snap_size, snap_mapofs, snap_ref, snap_mcofs, snap_nslots, snap_nent;
};

#define MSP_LJ_LAYOUT_ABI 1

/* Different LuaJIT builds in one process. */
#define MSP_MAX_BUILDS 4
/* What a host tells the walker of them: a build, or without GC64 a VM of one. */
#define MSP_MAX_HOST_VMS 8

/* Type codes that have not changed in any LuaJIT 2.x (lj_obj.h: ~LJ_T*). */
#define MSP_GCT_STR 4
#define MSP_GCT_UPVAL 5
#define MSP_GCT_THREAD 6
#define MSP_GCT_PROTO 7
#define MSP_GCT_FUNC 8
#define MSP_GCT_TRACE 9

/* Frame link types: the low three bits (lj_frame.h). */
#define MSP_FT_LUA 0
#define MSP_FT_C 1
#define MSP_FT_CONT 2
#define MSP_FT_VARG 3
#define MSP_FT_CPCALL 5
#define MSP_FT_PCALL 6
#define MSP_FT_PCALLH 7

#endif

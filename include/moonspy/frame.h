/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Raw frames: what the walker puts out. Addresses and identities only; they
 * become names in user space. Freestanding, shared with BPF byte for byte, and
 * a part of the library's interface: kinds, states and reasons that come later
 * come last in their lists.
 */
#ifndef MSP_UNWIND_FRAME_H
#define MSP_UNWIND_FRAME_H

#include <stdint.h>

#define MSP_MAX_FRAMES 1024

/* kind, name as in JSON */
#define MSP_RAW_KINDS(_) \
	_(KERNEL, "kernel")       /* addr = pc */ \
	_(NATIVE, "native")       /* addr = pc, ident = image-relative address, image */ \
	_(LUA, "lua")             /* addr = GCproto, ident = identity, pos = bytecode position, image = layout */ \
	_(FAST, "fast")           /* pos = ffid, addr = GCfunc, image = layout */ \
	_(CFUNC, "cfunction")     /* addr = C function called from Lua */ \
	_(VM, "vm")               /* a VM's Lua frames follow: addr = its global_State, image = layout, \
				     ident = pc in the VM block, relative to its image; in a trace \
				     its identity (unwind/ident.h), 0 unknown */ \
	_(STATE, "state")         /* pos = enum msp_state */ \
	_(ERROR, "error")         /* pos = enum msp_error_reason, addr = pc */

enum msp_raw_kind {
#define _(id, name) MSP_RAW_##id,
	MSP_RAW_KINDS(_)
#undef _
	MSP_RAW_KIND_COUNT
};

/* Bits of msp_raw_frame.flags. */
#define MSP_RAWF_RETURN 0x01  /* addr is a return address: look up addr - 1 */
#define MSP_RAWF_JIT 0x02     /* LUA: this frame runs as compiled code; trace is its number, 0 unknown */
#define MSP_RAWF_INLINED 0x04 /* LUA: on no stack, from a snapshot of the trace */
#define MSP_RAWF_GUESS 0x08   /* LUA: an estimate, not certain */
#define MSP_RAWF_NOPC 0x10    /* LUA: pos is unknown */

struct msp_raw_frame {
	uint64_t addr;
	uint64_t ident;
	uint32_t pos;
	uint16_t image; /* NATIVE: image index; LUA, FAST: layout index */
	uint8_t kind;
	uint8_t flags;
	uint32_t trace; /* LUA, VM: number of the trace, if it runs as compiled code; 0: unknown */
	uint32_t tofs;  /* offset of the pc in the trace's machine code */
};

/* What the VM is busy with when it is busy with itself. */
#define MSP_STATES(_) \
	_(GC, "[gc]") \
	_(JIT, "[jit compiler]") \
	_(EXIT, "[trace exit]")

enum msp_state {
#define _(id, text) MSP_STATE_##id,
	MSP_STATES(_)
#undef _
	MSP_STATE_COUNT
};

/* Why a stack is not whole. The text stands in the stack: [error: text]. */
#define MSP_ERROR_REASONS(_) \
	_(NONE, "none") \
	_(TRUNCATED, "truncated") \
	_(NO_PROCESS, "process not known yet") \
	_(NO_MAPPING, "pc in no known mapping") \
	_(NO_FILE, "mapped file could not be read") \
	_(NO_TABLE, "no unwind table yet") \
	_(NO_RULE, "no unwind rule") \
	_(BAD_RULE, "unsupported unwind rule") \
	_(LOST_REGISTER, "register not recoverable") \
	_(STACK_READ, "stack unreadable") \
	_(NO_PROGRESS, "stack pointer does not move") \
	_(LUA_NO_VM, "no VM for this code") \
	_(LUA_BAD_G, "global state not proved") \
	_(LUA_BAD_L, "coroutine not proved") \
	_(LUA_BAD_BASE, "no valid Lua frame") \
	_(LUA_BAD_LINK, "broken Lua frame link") \
	_(LUA_READ, "Lua memory unreadable") \
	_(LUA_CFRAME, "C frame chain broken") \
	_(LUA_DEPTH, "too many interleaved coroutines") \
	_(LUA_MOVING, "Lua stack being moved") \
	_(LUA_THROWN, "an error is unwinding") \
	_(NO_USER_REGS, "no user registers") \
	_(INTERNAL, "internal limit")

enum msp_error_reason {
#define _(id, text) MSP_ERR_##id,
	MSP_ERROR_REASONS(_)
#undef _
	MSP_ERROR_REASON_COUNT
};

/*
 * Second ways: taken where the first does not tell, and checked like it. Each is counted, a sample
 * once for each way that it took. At most 32.
 */
#define MSP_WAYS(_) \
	_(FRAME_POINTER, "no unwind rule: the frame pointer") \
	_(CALLBACK_CODE, "FFI callback's own code: by its bytes") \
	_(CALLBACK_EARLY, "FFI callback that has no VM yet: as C code") \
	_(LANDING, "error that lands: by the unwinder's frame") \
	_(CAUGHT, "error that is caught: at its catcher's frame") \
	_(UNWOUND, "error that unwinds: L->base before L->cframe") \
	_(MOVED, "Lua stack being moved: by registers") \
	_(NO_ROW, "interpreter without a row: by PC and BASE") \
	_(CALLER_BASE, "BASE not yet or no more: the caller's") \
	_(STORED_BASE, "BASE not the function's: L->base") \
	_(STORED_PC, "PC not the function's: as stored") \
	_(TRACE_BY_CODE, "trace not in vmstate: by its code") \
	_(TRACE_NO_NUMBER, "trace not in vmstate, nor by its code") \
	_(TRACE_NO_BASE, "trace without jit_base: L->base") \
	_(TRACE_GC, "trace below a finalizer: its coroutine") \
	_(TRACE_CFRAMES, "trace below C frames: by stack pointer") \
	_(PARENT, "process not read yet: its parent's tables") \
	_(VM_BY_STACK, "compiled code without VM: nearest C frame")

enum msp_way {
#define _(id, text) MSP_WAY_##id,
	MSP_WAYS(_)
#undef _
	MSP_WAY_COUNT
};

#endif

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The walker's state: registers in, raw frames out. One structure for every
 * host; BPF keeps it in a map, user space on the heap. Freestanding.
 */
#ifndef MSP_UNWIND_WALK_H
#define MSP_UNWIND_WALK_H

#include <stdint.h>

#include "moonspy/frame.h"
#include "unwind/tables.h"

/* Interleaved coroutines whose outer part is still to come (C boundaries crossed on each). */
#define MSP_MAX_SUSPENDED 16

/* Native frames, innermost first, whose registers are kept: the code that moves a Lua stack is among them. */
#define MSP_KEPT_FRAMES 4
#define MSP_KEPT_REGS 16 /* MSP_SLOT_COUNT, and room up to a power of two */
#define MSP_LEAF_REGS 16 /* by DWARF number: all of x86-64, x0 to x15 */

/* Slots of a Lua stack that are read at once: a few frames. A power of two. */
#define MSP_SLOTS_READ 32

/* A power of two. */
#define MSP_SEEN_FUNCTIONS 8

enum msp_walk_mode {
	MSP_WALK_NATIVE, /* registers hold a frame of the C stack */
	MSP_WALK_LUA,    /* lua_base is a frame on a Lua stack; registers are its VM frame's caller's */
};

/* Return values of a step. */
enum { MSP_STEP_MORE = 0, MSP_STEP_DONE = 1 };

struct msp_walk {
	/* Set by the host before the walk. */
	uint64_t reg[MSP_REG_COUNT]; /* by DWARF number */
	uint64_t pc;
	uint32_t known;  /* bit n: reg[n] is known */
	uint32_t exact;  /* pc is the next instruction to run, not a return address */
	uint32_t arch;   /* enum msp_arch */
	uint32_t slot;   /* BPF: this state's index */
	uint64_t host;   /* user space: pointer to the host's data */

	/* The result. frame[0] is the leaf; ends with an ERROR frame if it is not whole. */
	uint32_t frame_count;
	uint32_t first_frame; /* those before are the kernel's */
	uint32_t error;    /* enum msp_error_reason, NONE: whole */
	uint32_t ways;     /* bit n: enum msp_way n was taken */
	int32_t vmstate;   /* of the innermost VM, if has_vm */
	uint32_t has_vm;

	/* Where the walk is. */
	uint32_t mode;
	uint32_t keep;     /* registers, beyond the preserved ones, that this frame keeps for its caller */
	uint64_t look;     /* address to look up */
	uint64_t cfa;
	struct msp_mapping map; /* last one found; start == end: none */
	struct msp_rule rule;
	uint32_t image_layout; /* layout of map's image, 0: no LuaJIT in it */
	uint32_t thrown;       /* MSP_RULE_THROWS, MSP_RULE_LANDS of the frame before */
	uint64_t thrown_sp;    /* its stack pointer */
	uint64_t thrown_ra;    /* where it has its return address */
	uint32_t found;
	uint32_t kept_from;    /* the first frame whose registers are kept */
	uint32_t kept_count;
	uint64_t kept[MSP_KEPT_FRAMES][MSP_KEPT_REGS]; /* preserved registers; in MSP_SLOT_RA, a result */
	uint64_t leaf[MSP_LEAF_REGS]; /* of the innermost of them, the others too */

	/* Lua. */
	uint32_t layout;    /* of the VM being walked */
	uint32_t lua_flags; /* MSP_LUA_* */
	uint64_t vm_base;   /* address of the VM's image-relative address 0 */
	uint64_t vm_g;      /* as the host knows it; 0: compiled code has it in a register */
	uint64_t g, proved_g;
	uint64_t l;         /* coroutine being walked, and its fields */
	uint64_t l_base, l_stack, l_end, l_cframe;
	uint64_t l_moved;   /* not 0: its stack is being moved, this far */
	uint64_t stitched_base; /* of a frame whose link is that of a continuation three slots above it */
	uint64_t walked_l, walked_g; /* whose frames were left last; 0: none yet */
	uint64_t lua_base;  /* frame being walked */
	uint64_t lua_pc;    /* its next instruction, 0: unknown */
	uint64_t step_pc;   /* what a step began with */
	uint32_t step_flags, step_count;
	uint64_t cand_base, cand_pc;
	uint64_t fn, fn_link, fn_pc; /* function at a base: object, frame link, first instruction */
	uint64_t fn_cfunc;
	uint64_t fn_ident;
	uint32_t fn_ffid, fn_sizebc;
	uint64_t save_pc;   /* SAVE_PC of the VM frame, and the PC register's value in it */
	uint64_t reg_pc;
	uint64_t jit_base;  /* not 0: the innermost frame runs as compiled code from here */
	uint64_t trace_startpc;
	uint64_t trace_at, trace_ident;
	uint32_t trace, trace_ofs;

	/* Functions seen in this walk: a recursion is read once. An entry of another walk is stale. */
	uint64_t walk_id;
	struct msp_seen_function {
		uint64_t walk_id, fn, pc, cfunc, ident;
		uint32_t ffid, sizebc;
	} seen[MSP_SEEN_FUNCTIONS];

	uint32_t suspended_count;
	struct {
		uint64_t l, base;
	} suspended[MSP_MAX_SUSPENDED];

	uint64_t slots_at; /* what is in slots, 0: nothing yet */
	uint64_t slots[MSP_SLOTS_READ];
	uint8_t buf[256 + 8];    /* one object or C frame, as read */
	uint8_t proto[128 + 8];  /* GCproto or GCtrace header */
	uint8_t stack[64];       /* words below a CFA */
	struct msp_raw_frame frame[MSP_MAX_FRAMES];
};

/* Bits of lua_flags. */
#define MSP_LUA_SKIP 0x1  /* the next frame is the lower half of a vararg function's */
#define MSP_LUA_JIT 0x2   /* the next frame runs as compiled code */

#endif

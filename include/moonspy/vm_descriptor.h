/* SPDX-License-Identifier: MIT */
/*
 * The VM descriptor: what a LuaJIT says of itself to debuggers, profilers and crash reporters, in the same process or in
 * another. An ABI, and a header of its own: C99, nothing but <stdint.h> and <stddef.h>, for the VM and for tools.
 *
 * Finding it. The symbol luaJIT_vm_descriptor is exported. Files without symbols have an ELF note besides, in a PT_NOTE
 * segment: name LJVM_NOTE_NAME, type LJVM_NOTE_TYPE; its content is 8 bytes, signed: the descriptor's address minus the
 * address of these bytes. There can be several in a process, one for each LuaJIT in it.
 *
 * Reading it. Check magic and major first. A part lies at the descriptor's address + part.offset and has part.size bytes;
 * a part of size 0 is not there. A member is there if it ends within its part's size: LJVM_HAS().
 * The constants hold no pointers, so they can be read from the file too. All other parts hold addresses: read
 * them from memory, where the loader has relocated them.
 *
 * Compatibility. Members are only ever added, at the end of a part; then minor rises. Nothing is removed or gets another
 * meaning without a new major. So an older tool ignores the end of a newer part, and a newer tool finds that what an
 * older VM lacks is not there. What no build of a LuaJIT has, says -1 (constants) or 0 (addresses).
 *
 * Trusting it. It is as good as the file it comes from. A tool that reads a stranger's process checks what it reads.
 */
#ifndef MOONSPY_VM_DESCRIPTOR_H
#define MOONSPY_VM_DESCRIPTOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LJVM_MAGIC "LuaJITvm" /* 8 bytes, without the NUL */
#define LJVM_MAJOR 1
#define LJVM_MINOR 0

#define LJVM_NOTE_NAME "LuaJIT"
#define LJVM_NOTE_TYPE 1

/* ---- Constants ---- */

enum ljvm_arch { LJVM_ARCH_OTHER, LJVM_ARCH_X64, LJVM_ARCH_ARM64 };

/*
 * All are int32_t, made by the compiler that made the VM (offsetof, sizeof, enumerators), and never change while it runs.
 * Columns: name, what it is. "offset": in bytes, in the structure named. "register": its DWARF number. "flag": 0 or 1.
 * Names of structures and members are those of LuaJIT's own headers. -1: this build has no such thing. Since 1.0.
 * What lies at the offsets is written by the thread that runs the VM, at any time, without a lock.
 */
#define LJVM_CONSTANTS(_) \
	_(arch, "enum ljvm_arch") \
	_(gc64, "flag: object references have 64 bits (LJ_GC64)") \
	_(fr2, "flag: frames take two slots (LJ_FR2)") \
	_(jit, "flag: the JIT compiler is built in (LJ_HASJIT)") \
	_(ffi, "flag: the FFI is built in (LJ_HASFFI)") \
	_(dualnum, "flag: numbers can be integers (LJ_DUALNUM)") \
	_(version, "number of the version, as 20199 for 2.1.99 (LUAJIT_VERSION_NUM)") \
	/* Registers while VM code runs. */ \
	_(reg_dispatch, "register: the dispatch table's address; arm64: the global_State's (GL)") \
	_(reg_dispatch_g, "what that register holds, minus the address of the global_State") \
	_(reg_base, "register: BASE, of the running function") \
	_(reg_pc, "register: PC, behind the instruction that runs") \
	_(reg_L, "register: the lua_State") \
	/* The C frame of VM code: offsets from its stack pointer, which is what L->cframe holds besides two bits. */ \
	_(cf_size, "to the CFA: where the caller's stack pointer was") \
	_(cf_L, "offset: the lua_State") \
	_(cf_PC, "offset: PC, while C code runs") \
	_(cf_prev, "offset: L->cframe of the call around it") \
	_(cf_errf, "offset: error function of a protected call") \
	_(cf_nres, "offset: wanted results, or marks an error handler") \
	_(cf_ref_size, "bytes of what lies at cf_L and cf_PC") \
	_(cf_prev_size, "bytes of what lies at cf_prev") \
	/* GG_State, global_State, jit_State. */ \
	_(gg_size, "sizeof(GG_State)") \
	_(gg_g, "offset in GG_State: the global_State") \
	_(g_size, "sizeof(global_State)") \
	_(g_dispatch, "from a global_State to its dispatch table (GG_G2DISP)") \
	_(g_J, "from a global_State to its jit_State (GG_G2J)") \
	_(dispatch_entries, "of that table: opcodes, and fast functions in assembler (GG_LEN_DISP)") \
	_(g_vmstate, "offset in global_State, int32_t: ~ of an index of vmstate_names, or >= 0: a trace runs") \
	_(g_cur_L, "offset: the running coroutine, nearly always; the C frame's is right") \
	_(g_jit_base, "offset: not 0 in a trace, or called from one: its BASE") \
	_(g_mainthref, "offset: the main thread") \
	_(g_strempty, "offset: the empty string, in place") \
	_(g_hookmask, "offset, 1 byte") \
	_(g_gc_state, "offset, 1 byte: index of gc_names") \
	_(g_gc_total, "offset: bytes that are allocated") \
	_(g_gc_root, "offset: the list of all objects") \
	_(J_trace, "offset: address of the table of traces") \
	_(J_sizetrace, "offset, 4 bytes: entries of that table") \
	_(J_state, "offset, 4 bytes: 0: the compiler idles") \
	_(J_cur, "offset: the GCtrace that is being recorded") \
	/* Objects. */ \
	_(gc_next, "offset in any object: the next one") \
	_(gc_gct, "offset in any object, 1 byte: gct_* below") \
	_(gct_str, "GCstr") \
	_(gct_thread, "lua_State") \
	_(gct_proto, "GCproto") \
	_(gct_func, "GCfunc") \
	_(gct_trace, "GCtrace") \
	_(tv_size, "sizeof(TValue): a slot") \
	_(tv_shift, "gc64: slot >> this, signed, is a slot's tag, what is below it the object's address; else -1: its halves, tag above") \
	_(tv_func, "tag of a function") \
	_(L_size, "sizeof(lua_State)") \
	_(L_glref, "offset: the global_State") \
	_(L_status, "offset, 1 byte: 0, 1 yielded, else an error ended it") \
	_(L_base, "offset: first slot of the function that runs; while VM code runs only reg_base is right") \
	_(L_top, "offset: behind the last slot in use, while C code runs") \
	_(L_maxstack, "offset: behind the last slot that may be used") \
	_(L_stack, "offset: the first slot of all") \
	_(L_stacksize, "offset, 4 bytes: in slots") \
	_(L_cframe, "offset: innermost C frame; two bits are flags") \
	_(cframe_flags, "these two bits") \
	_(fn_ffid, "offset in GCfunc, 1 byte: index of ff_names; 0: Lua") \
	_(fn_pc, "offset: a Lua function's bytecode, which follows its GCproto") \
	_(fn_cfunc, "offset: a C function's code") \
	_(ff_c, "fn_ffid of a C function that is none of the VM's own") \
	_(pt_size, "sizeof(GCproto): to its bytecode") \
	_(pt_numparams, "offset, 1 byte: parameters that have a name") \
	_(pt_framesize, "offset, 1 byte: slots that it needs") \
	_(pt_sizebc, "offset, 4 bytes: instructions") \
	_(pt_k, "offset: constants: numbers from there upwards, objects downwards") \
	_(pt_sizekgc, "offset, 4 bytes: these objects") \
	_(pt_sizekn, "offset, 4 bytes: these numbers") \
	_(pt_sizept, "offset, 4 bytes: bytes of all of it") \
	_(pt_sizeuv, "offset, 1 byte: upvalues") \
	_(pt_flags, "offset, 1 byte: PROTO_* of lj_obj.h") \
	_(pt_trace, "offset, 2 bytes: its first root trace") \
	_(pt_chunkname, "offset: a GCstr") \
	_(pt_firstline, "offset, 4 bytes") \
	_(pt_numline, "offset, 4 bytes: lines < 256: lineinfo has 1 byte an entry; < 65536: 2; else 4") \
	_(pt_lineinfo, "offset: lines behind firstline, of each instruction but the first; 0: stripped") \
	_(pt_uvinfo, "offset: names of upvalues, texts one behind the other; 0: stripped") \
	_(pt_varinfo, "offset: names of locals, packed as lj_debug.c reads them; 0: stripped") \
	_(str_len, "offset in GCstr, 4 bytes") \
	_(str_data, "offset: its bytes") \
	/* Bytecode: opcodes. */ \
	_(bc_size, "bytes of an instruction; the first is its opcode, the second operand A") \
	_(bc_funcf, "first of the opcodes that begin a function") \
	_(bc_funcc, "a C function's header") \
	_(bc_funccw, "last opcode; pseudo-headers of fast functions are above it") \
	/* Links of frames: the slot below a frame's first, or its upper half. */ \
	_(frame_typep, "mask of their type: tells all of them apart") \
	_(frame_lua, "type: a Lua function called it, the link is a PC; mask it with frame_type") \
	_(frame_type, "mask: what is left is frame_lua, or frame_c (C called it, protected or not), or else see frame_typep") \
	_(frame_c, "type") \
	_(frame_cont, "type") \
	_(frame_varg, "type") \
	_(frame_cp, "type: protected call from C") \
	_(frame_pcall, "type: pcall() of Lua") \
	_(frame_pcallh, "type: the same, in a hook") \
	/* Traces. */ \
	_(T_size, "sizeof(GCtrace)") \
	_(T_traceno, "offset, 2 bytes: its number") \
	_(T_link, "offset, 2 bytes: number of the trace that it goes on with, itself if it is a loop; 0: none") \
	_(T_root, "offset, 2 bytes: root trace of a side trace; 0: it is one") \
	_(T_linktype, "offset, 1 byte: how it ends: TraceLink of lj_jit.h") \
	_(T_startpt, "offset: GCproto") \
	_(T_startpc, "offset: the instruction it starts at") \
	_(T_mcode, "offset: its code") \
	_(T_szmcode, "offset, 4 bytes: bytes of it") \
	_(T_mcloop, "offset, 4 bytes: where its loop begins in it") \
	_(T_spadjust, "offset, 2 bytes: how far it moves the stack pointer") \
	_(T_nins, "offset, 4 bytes: reference behind its last instruction") \
	_(T_nk, "offset, 4 bytes: reference of its first constant") \
	_(T_ir, "offset: where reference 0 would be: constants below ir_bias, instructions from there, 8 bytes each") \
	_(T_nsnap, "offset, 2 bytes: snapshots") \
	_(T_nsnapmap, "offset, 2 bytes or 4: entries that these hold") \
	_(T_nsnapmap_size, "these bytes") \
	_(T_snap, "offset: snapshots") \
	_(T_snapmap, "offset: what they hold, 4 bytes an entry") \
	_(snap_size, "sizeof(SnapShot)") \
	_(snap_mapofs, "offset, 2 bytes or 4: its first entry") \
	_(snap_mapofs_size, "these bytes") \
	_(snap_ref, "offset, 2 bytes: its first IR instruction") \
	_(snap_mcofs, "offset, 2 bytes: its first byte in the code, in units of mcode_unit") \
	_(snap_nslots, "offset, 1 byte: slots that it is about") \
	_(snap_nent, "offset, 1 byte: entries") \
	_(mcode_unit, "bytes") \
	_(ir_bias, "reference of the first IR instruction that is no constant") \
	_(vmstate_gc, "~g_vmstate while the collector runs; EXIT, RECORD, OPT, ASM follow it")

struct ljvm_constants {
#define LJVM_MEMBER(name, text) int32_t name;
	LJVM_CONSTANTS(LJVM_MEMBER)
#undef LJVM_MEMBER
};

/* ---- Addresses ---- */

/*
 * Written by the loader, never changed. Lists of names are texts one behind the other, each with its NUL; an empty one
 * ends the list; the index of a name counts from 0.
 */
struct ljvm_live;
struct ljvm_addresses {
	const void *vm_code, *vm_code_end; /* assembler code of the interpreter; end 0: not known */
	const void *vm_ffi_call;           /* within it: has a frame of its own; 0: there is none */
	const char *ff_names;              /* of functions of the VM's own, by ffid: "math_floor"; 0 and ff_c: "Lua", "C" */
	const char *vmstate_names;         /* "INTERP", "C", "GC", ...: by ~vmstate */
	const char *gc_names;              /* "pause", "propagate", ...: by phase */
	const char *trace_errors;          /* formats of messages: by the reason of an abort */
	const char *version;               /* "LuaJIT 2.1.0-beta3": one text */
	const char *bc_names;              /* of bytecode instructions: by opcode */
	struct ljvm_live *live;            /* the list of live VMs, below; 0: there is none */
};

/* ---- Live VMs ---- */

/*
 * A VM. Written by the thread that runs it, with single stores; read at any time by anyone. A slot is empty while g is 0;
 * it may be used again. To read one: serial, the rest, serial again; they differ: it was used again meanwhile.
 */
struct ljvm_slot {
	uint64_t g;         /* global_State */
	uint64_t thread;    /* thread pointer (x86-64: fs_base, arm64: tpidr_el0) of the thread that was last seen to run
	                     * it: as it was created, the collector's phase changed, a trace was recorded. A hint.
	                     * 0: not known */
	uint64_t tables;    /* struct ljvm_table_list: of its traces; 0: there are none */
	uint32_t serial;    /* number of the VM, from 1: never used again in this process */
	uint32_t gc_phase;  /* as last told by the probe gc_phase */
	uint64_t unused;    /* the VM's own */
};

#define LJVM_SLOTS 64
struct ljvm_slots {
	uint64_t next;      /* more of them; 0: there are none. Once set, never changed: it is never freed */
	uint32_t count, unused;
	struct ljvm_slot slot[LJVM_SLOTS]; /* so many */
};

struct ljvm_live {
	uint32_t size;      /* of this */
	uint32_t slot_size; /* sizeof(struct ljvm_slot): newer ones may be larger */
	uint64_t slots;     /* address of the first struct ljvm_slots */
	uint32_t created;   /* VMs so far */
	uint32_t missed;    /* VMs that are not in the list for want of memory */
	/*
	 * 1: traces that are made from now on get a table. Written by a tool or by the program at any time, through
	 * the helper set_tables or by itself; the VM sets it if the environment says LUAJIT_TRACE_TABLES=1 when it is created.
	 */
	uint32_t tables_on;
	uint32_t tables_missed; /* traces that got none for want of memory or of room */
	uint64_t table_bytes;   /* in use */
};

/* ---- Tables of traces: which bytecode each piece of machine code comes from ---- */

/* Of a VM; by the number of the trace. */
struct ljvm_table_list {
	uint32_t count, unused;
	uint64_t table[]; /* struct ljvm_table; 0: it has none */
};

/* From offset (of the code's first byte) to the next entry's, code comes from that place; LJVM_NO_PLACE: not known. */
struct ljvm_piece {
	uint32_t offset;
	uint32_t place;
};
/* A position in the bytecode, and where the function it is in was called, if that is inlined too. */
struct ljvm_place {
	uint64_t pt;    /* GCproto */
	uint32_t pos;   /* instruction, from 0 */
	uint32_t outer; /* the call: a place before this one; LJVM_NO_PLACE: the outermost of the trace */
};
#define LJVM_NO_PLACE 0xffffffffu

/* Whoever reads one while the VM runs checks: magic, the trace's own mcode and szmcode, and sum. */
struct ljvm_table {
	uint32_t magic;   /* LJVM_TABLE_MAGIC; something else: it is gone */
	uint32_t size;    /* bytes of all of it */
	uint64_t mcode;
	uint32_t szmcode;
	uint32_t traceno;
	uint32_t pieces, places;
	uint32_t sum;     /* of all 32-bit words of it but this one, each added after turning the sum left by 1 bit */
	uint32_t unused;
	/* struct ljvm_place place[places]; struct ljvm_piece piece[pieces], by offset; */
};
#define LJVM_TABLE_MAGIC 0x544a4c56u

/* ---- Helpers ---- */

/*
 * They allocate nothing, take no lock, keep no state, run in bounded time, and fault never: they may be called by any
 * thread, in any signal handler. All results are 0 or positive if it worked, else one of these.
 */
enum ljvm_error {
	LJVM_E_READ = -1,    /* memory could not be read */
	LJVM_E_NONE = -2,    /* there is none (more) */
	LJVM_E_BROKEN = -3,  /* what was read cannot be right */
	LJVM_E_NOT_MINE = -4 /* that pc is not of this VM's code */
};

/* Copies all of [address, address + size) and returns 0; else a negative value. */
typedef int (*ljvm_read_fn)(void *context, uint64_t address, void *buffer, size_t size);

/*
 * Where a helper looks. For the own process: {read_self, NULL, 0}. For another process or a core file, a debugger calls
 * the helper of the same build in itself, and says where the other has its descriptor.
 */
struct ljvm_memory {
	ljvm_read_fn read;
	void *context;
	uint64_t descriptor; /* 0: this one */
};

/* By DWARF number; x86-64: 0 to 15, arm64: 0 to 30. */
struct ljvm_registers {
	uint64_t pc, sp;
	uint64_t reg[32];
};

struct ljvm_vm {
	uint64_t g, main, thread;
	uint32_t serial, unused;
};

enum ljvm_pc_kind { LJVM_PC_INTERPRETER = 1, LJVM_PC_TRACE };

struct ljvm_context {
	uint64_t g, L;
	uint64_t cframe;     /* stack pointer of the VM's C frame */
	uint64_t base, pc;   /* of the innermost frame: where to start; pc 0: not known */
	int32_t vmstate;
	uint32_t kind;       /* enum ljvm_pc_kind */
	uint32_t trace;      /* its number */
	uint32_t trace_offset; /* of the pc in its code */
};

enum ljvm_frame_kind { LJVM_FRAME_LUA = 1, LJVM_FRAME_FAST, LJVM_FRAME_C };

/* A frame of a Lua stack. The first three members are for the next step. */
struct ljvm_frame {
	uint64_t L, base;    /* its lua_State, its first slot */
	uint64_t return_pc;  /* PC that its function is at; 0: not known */
	uint64_t function;   /* GCfunc */
	uint64_t pt;         /* LUA: GCproto. C: its code */
	uint32_t kind;       /* enum ljvm_frame_kind */
	int32_t pos;         /* LUA: the instruction it is at; -1: not known */
	uint32_t ffid;       /* FAST, C */
	uint32_t from_c;     /* C code called it: its callers are beyond a C frame */
};

struct ljvm_function {
	char chunk[112];     /* chunk name as it is ("@file", "=name", source), cut */
	uint32_t chunk_size; /* of all of it */
	uint32_t first_line; /* where it is defined; 0: the main chunk, or not known */
	uint32_t line;       /* current; 0: not known */
	uint32_t unused;
};

struct ljvm_trace {
	uint64_t object;     /* GCtrace */
	uint64_t mcode, startpt, startpc;
	uint32_t szmcode, number, root, link;
	int32_t spadjust;
	uint32_t offset;     /* of the pc asked for */
};

struct ljvm_cframe {
	uint64_t L, pc, prev; /* prev: without flags; 0: the outermost of its L */
	uint64_t return_address, cfa; /* where VM code returns to, and the stack pointer then */
};

/* Helpers that a VM does not have are 0. Structures that they take or fill never change within a major version. */
struct ljvm_helpers {
	/* A reader of the own process: fails where a load would fault. */
	ljvm_read_fn read_self;
	/* The n-th live VM, from 0. LJVM_E_NONE: there are no more. */
	int (*vm)(const struct ljvm_memory *memory, uint32_t n, struct ljvm_vm *out);
	/* Whose code is this: enum ljvm_pc_kind. TRACE: also its VM and trace (out may be NULL). LJVM_E_NOT_MINE. */
	int (*owner)(const struct ljvm_memory *memory, uint64_t pc, uint64_t *g, struct ljvm_trace *out);
	/*
	 * The VM and coroutine whose code runs, from registers. LJVM_E_NOT_MINE: other code does, or a trace of a VM that
	 * could not be read.
	 */
	int (*context)(const struct ljvm_memory *memory, const struct ljvm_registers *registers, struct ljvm_context *out);
	/* Innermost frame: of a context; of any L whose C frame is known or 0, if context has just L and cframe. */
	int (*frame_first)(const struct ljvm_memory *memory, const struct ljvm_context *context, struct ljvm_frame *out);
	/* The frame that called it: 1, in the same structure. 0: it was the outermost. */
	int (*frame_next)(const struct ljvm_memory *memory, struct ljvm_frame *frame);
	/* Function and line of a LUA frame, or of any prototype and position. */
	int (*function)(const struct ljvm_memory *memory, uint64_t pt, int32_t pos, struct ljvm_function *out);
	/* The trace of a VM that holds pc. LJVM_E_NONE. */
	int (*trace)(const struct ljvm_memory *memory, uint64_t g, uint64_t pc, struct ljvm_trace *out);
	/* Bytecode positions at a trace's offset, innermost first, from its table: how many. LJVM_E_NONE: it has no table. */
	int (*trace_places)(const struct ljvm_memory *memory, uint64_t g, const struct ljvm_trace *trace, uint32_t offset,
		struct ljvm_place *out, uint32_t room);
	/* A C frame of VM code, at its stack pointer. */
	int (*cframe)(const struct ljvm_memory *memory, uint64_t sp, struct ljvm_cframe *out);
	/* Switches tables of traces; returns what was. Of the own process. */
	int (*set_tables)(int on);
};

/* ---- The descriptor ---- */

struct ljvm_part {
	uint32_t offset; /* from the descriptor */
	uint32_t size;
};

enum ljvm_flag {
	/*
	 * Made outside of the VM, by proof, for a LuaJIT that was built without one. -1 and 0 may mean: not known. Constants
	 * and addresses have the size 0 until there is a VM that it could be proved on: look again then. Few probes fire.
	 */
	LJVM_FLAG_OUTSIDE = 1,
	/* There can be VMs that are not in the list. */
	LJVM_FLAG_LIVE_PARTIAL = 2
};

struct ljvm_descriptor {
	char magic[8];
	uint16_t major, minor;
	uint32_t size; /* with its parts. The head alone ends where the first part begins, at constants.offset */
	uint8_t pointer_size; /* of addresses in it, and of the VM's plain pointers: docs/vm-descriptor.md has which those are */
	uint8_t flags; /* enum ljvm_flag */
	uint8_t unused[6];
	struct ljvm_part constants, addresses, helpers;
};

#define LJVM_SYMBOL luaJIT_vm_descriptor

/* Is there a member, in a part that has this size? */
#define LJVM_HAS(part_size, type, member) \
	((part_size) >= offsetof(type, member) + sizeof(((type *)0)->member))

/* ---- Probes ---- */

/*
 * USDT probes of provider "luajit", in ELF notes of SDT version 3, without semaphores. Off, each is one nop.
 * Columns: name, arguments (all 64 bits), when.
 */
#define LJVM_PROBES(_) \
	_(vm_created, "g, L", "a VM can be used") \
	_(vm_closed, "g, L", "a VM is about to be freed") \
	_(heartbeat, "g, L", "the collector takes a step: memory is being allocated") \
	_(gc_phase, "g, new, old", "the collector's phase has changed: indices of gc_names") \
	_(trace_start, "g, number, startpc, parent, exit", "recording begins; of a root trace parent is 0") \
	_(trace_stop, "g, number, mcode, szmcode, spadjust, startpc", "a trace is done and can run") \
	_(trace_abort, "g, number, reason, startpc, pc", "recording or compiling is given up: index of trace_errors") \
	_(trace_flush, "g, number", "a trace is made to be left; 0: all traces are gone") \
	_(trace_exit, "g, number, exit", "a trace leaves to the interpreter") \
	_(error_thrown, "g, L, status", "an error is about to unwind: LUA_ERRRUN, ...")

#ifdef __cplusplus
}
#endif

#endif

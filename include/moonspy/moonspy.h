/* SPDX-License-Identifier: MIT */
/*
 * libmoonspy: registers and a way to read memory go in, whole stacks of C, Lua and compiled Lua
 * come out. This header is its manual; docs/library.md shows it at work.
 *
 *	struct msp_target *target;
 *	struct msp_dump *dump;
 *
 *	msp_target_new(NULL, &target);
 *	if (msp_target_open_pid(target, pid) < 0 || msp_dump_take(target, NULL, &dump) < 0)
 *		errx(1, "%s", msp_target_error(target));
 *
 * Rules that hold for every function:
 * - Functions that can fail return int: 0 or a positive value on success, else a negative
 *   MSP_E_* code. msp_target_error() has the detail in words.
 * - A handle (target, backtrace, dump, ...) is used by one thread at a time; different targets by
 *   any number of threads at once. Handles made from a target are used and freed before it is.
 * - Nothing is printed, no signal handler is installed, nothing exits or aborts, there is no global
 *   state. Only msp_self_unwind(), msp_registers_from_ucontext(), msp_strerror() and msp_version()
 *   may be called in a signal handler.
 * - Option structs begin with their size: set it to sizeof, everything else to 0 for its default.
 *   Structs that the library hands out as pointers to const may get more members at their end.
 * - Strings are NUL-terminated bytes of strangers: anything can be in them. NULL: not known.
 * - Everything that is read of a target may lie. What cannot be checked is marked, never guessed.
 */
#ifndef MOONSPY_H
#define MOONSPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <moonspy/frame.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MSP_API __attribute__((visibility("default")))

#define MSP_ERRORS(_) \
	_(NOMEM, 1, "out of memory") \
	_(INVALID, 2, "invalid argument") \
	_(IO, 3, "input/output error") \
	_(NOT_FOUND, 4, "not found") \
	_(GONE, 5, "the process is gone") \
	_(PERMISSION, 6, "not permitted") \
	_(FORMAT, 7, "malformed data") \
	_(UNSUPPORTED, 8, "not supported") \
	_(FAULT, 9, "address not readable") \
	_(NO_LUAJIT, 10, "no LuaJIT there") \
	_(NOT_PROVED, 11, "layout not proved") \
	_(LIMIT, 12, "limit reached") \
	_(BUSY, 13, "busy")

enum msp_error {
#define _(id, n, text) MSP_E_##id = -(n),
	MSP_ERRORS(_)
#undef _
};

/* Text for an error code; never NULL. Static storage, any thread, any signal handler. */
MSP_API const char *msp_strerror(int error);
/* The library's version, "0.1.0". */
MSP_API const char *msp_version(void);

/* ---- Targets: what is looked into ---- */

struct msp_target;

struct msp_target_options {
	size_t size;            /* sizeof(struct msp_target_options) */
	const char *cache_dir;  /* where tables of files are kept between runs; NULL: nowhere. Must be ours */
	struct msp_target *share; /* have the tables of files in common with it; used by the same thread then */
	unsigned int threads;   /* that load files; 0: one a CPU, at most 8; 1: no others */
	bool no_luajit;         /* natively only */
	const char *exe;        /* of a core: the program's file; NULL: by its path in the core */
	const char *sysroot;    /* of a core: where the files lie that it names; NULL: "/" */
};

/* options: NULL: all defaults. MSP_E_NOMEM, MSP_E_INVALID. */
MSP_API int msp_target_new(const struct msp_target_options *options, struct msp_target **out);
/* Closes what is open; NULL is allowed. Targets that share with it may live on. */
MSP_API void msp_target_free(struct msp_target *target);
/* Why the last call for the target failed, in words; "" if none has. Good until its next call. */
MSP_API const char *msp_target_error(const struct msp_target *target);

/*
 * A target is opened once, by one of these. Each reads the mappings, loads the files (0.3 s for a
 * big program, less with a cache) and looks for VMs; nothing is stopped. A file that cannot be read
 * is no failure: stacks end at it with a mark. MSP_E_INVALID: it is open already.
 *
 * A process, by its pid or that of one of its threads. MSP_E_GONE; MSP_E_PERMISSION;
 * MSP_E_UNSUPPORTED: a 32-bit program.
 */
MSP_API int msp_target_open_pid(struct msp_target *target, pid_t pid);
/* A core file, compressed ones too; takes fd over in any case. MSP_E_FORMAT, MSP_E_UNSUPPORTED, MSP_E_LIMIT. */
MSP_API int msp_target_open_core(struct msp_target *target, int fd);
/* The calling process. It cannot be dumped; for its signal handlers see msp_self_new(). */
MSP_API int msp_target_open_self(struct msp_target *target);

/* A part of an address space. */
struct msp_region {
	uint64_t start, end;
	uint64_t offset;   /* of start in the file */
	uint32_t prot;     /* PROT_* */
	uint32_t file;     /* which file it is a part of, by a number of yours; 0: none */
	const char *name;  /* of the file, as the target calls it; "[vdso]", "[stack]", "" */
};
/* How a target of your own is read. Copied; ctx and what it leads to must outlive the target. */
struct msp_reader {
	size_t size; /* sizeof(struct msp_reader) */
	void *ctx;
	int arch;    /* enum msp_machine; 0: that of this machine */
	/*
	 * Copies all of [addr, addr + size) and returns 0, else a negative value. It may fail, lie and
	 * change its mind: that costs frames, nothing else.
	 */
	int (*read)(void *ctx, uint64_t addr, void *buf, size_t size);
	/*
	 * The n-th mapping from 0, ascending by address: 0; others: there are no more. name is copied.
	 * Called by msp_target_open_reader() and msp_target_refresh().
	 */
	int (*region)(void *ctx, size_t n, struct msp_region *out);
	/* An fd of a region's file, which is taken over; negative: not to be had. NULL: opens region->name. */
	int (*open)(void *ctx, const struct msp_region *region);
};
/* Registers of this kind of machine, in the order of their DWARF numbers. */
enum msp_machine { MSP_MACHINE_X86_64 = 1, MSP_MACHINE_ARM64 = 2 };
/* A target that is read with functions of yours: a debugger's, a network's. MSP_E_INVALID: no functions. */
MSP_API int msp_target_open_reader(struct msp_target *target, const struct msp_reader *reader);

/*
 * Reads the mappings again, loads what is new, looks for VMs again. 1: executable mappings have
 * changed, 0: they have not. Backtraces, dumps and structs that were handed out stay good.
 */
MSP_API int msp_target_refresh(struct msp_target *target);

struct msp_target_info {
	pid_t pid;           /* 0: not known */
	int machine;         /* enum msp_machine */
	const char *name;    /* the process's */
	const char *command; /* its arguments with spaces between; "": none */
	pid_t tracer;        /* a process that traces it already: it cannot be dumped; 0: none */
	size_t builds, vms;  /* that there are: msp_target_build(), msp_target_vm() */
	/* Of a core: */
	size_t gaps;         /* msp_target_gap() */
	size_t unchecked;    /* files taken by their path: the core does not say which build they were */
	int signal, code;    /* it died of; 0: none. si_code */
	pid_t signal_tid, signal_sender; /* the thread it hit, the process that sent it (0: the kernel) */
	bool has_address;    /* of the access that failed: */
	uint64_t address;
};
/* Good until the target's next call. NULL: it is not open. */
MSP_API const struct msp_target_info *msp_target_info(struct msp_target *target);

/* What a core lacks. */
struct msp_gap {
	enum { MSP_GAP_FILE, MSP_GAP_MEMORY, MSP_GAP_NOTES } kind;
	const char *name, *build_id; /* of a file */
	const char *why;
	uint64_t bytes;              /* of memory */
};
/* The i-th; NULL: there are no more. */
MSP_API const struct msp_gap *msp_target_gap(struct msp_target *target, size_t i);

/* ---- LuaJIT in it: builds, and the VMs that run them ---- */

/* A LuaJIT in a file. How each of its facts was found stands in the evidence. */
struct msp_build {
	const char *version;          /* "LuaJIT 2.1.0-beta3"; NULL: not found */
	const char *object, *build_id; /* path of its file; hexadecimal, "": none */
	int machine;
	bool gc64, jit, ffi;
	bool complete;                /* false: not all of its layout was found: it is not used */
	uint64_t vm_start, vm_end;    /* its interpreter, from the start of the file's image; 0: not found */
	uint32_t instructions, analysed; /* of the interpreter */
	size_t evidence;              /* msp_target_evidence() */
};
/* The i-th build that is mapped; NULL: there are no more. Good until the next such call. */
MSP_API const struct msp_build *msp_target_build(struct msp_target *target, size_t i);

struct msp_evidence {
	const char *field;  /* of the layout, named as in LuaJIT's sources */
	const char *source; /* "code", "dwarf", "memory", "descriptor", "constant" */
	bool found;
	int64_t value;
	const char *why;    /* how it was found, or why not */
};
/* The n-th piece for the i-th build; NULL: there are no more. Good until the next such call. */
MSP_API const struct msp_evidence *msp_target_evidence(struct msp_target *target, size_t i, size_t n);
/*
 * Name of the n-th probe (moonspy/vm_descriptor.h) in the file of the i-th build, each name once; NULL: there are no more.
 * Good until the next such call.
 */
MSP_API const char *msp_target_probe(struct msp_target *target, size_t i, size_t n);
/* Looks for a LuaJIT in a file that no target need have mapped: 1, then it is the last build; 0: none. Takes fd over. */
MSP_API int msp_target_add_file(struct msp_target *target, int fd, const char *name);
/*
 * The same in what a program loads when it is run: its file as execvp() finds it or the interpreter
 * that a script names, and the libraries it needs. How many have a LuaJIT: they are the last builds.
 * MSP_E_NOT_FOUND: there is no such program.
 */
MSP_API int msp_target_add_program(struct msp_target *target, const char *command);

struct msp_vm_info {
	uint64_t g;     /* address of its global_State */
	size_t build;   /* number of its build */
	bool proved;    /* every check passed that every VM can pass */
	bool readable;  /* objects and functions can be read, whatever else is broken */
	size_t checks;  /* msp_target_check() */
	bool listed;    /* the VM descriptor's list of live VMs has it (moonspy/vm_descriptor.h) */
};
/* The i-th VM; NULL: there are no more. Good until the next such call. */
MSP_API const struct msp_vm_info *msp_target_vm(struct msp_target *target, size_t i);

struct msp_check {
	const char *name, *text; /* "mainthref", what is checked */
	enum { MSP_CHECK_PASSED, MSP_CHECK_FAILED, MSP_CHECK_NOT_RUN } result;
	const char *detail;      /* the value that was measured; "": none */
};
/* The n-th check of the i-th VM, also of one without a VM (i past the last: not run). Good until the next such call. */
MSP_API const struct msp_check *msp_target_check(struct msp_target *target, size_t i, size_t n);

/* ---- Frames ---- */

/* kind, JSON name */
#define MSP_FRAME_KINDS(_) \
	_(LUA, "lua") \
	_(JIT, "jit") \
	_(INLINED, "inlined") \
	_(FAST, "fast") \
	_(CFUNCTION, "cfunction") \
	_(NATIVE, "native") \
	_(KERNEL, "kernel") \
	_(STATE, "state") \
	_(ERROR, "error")

enum msp_frame_kind {
#define _(id, name) MSP_FRAME_##id,
	MSP_FRAME_KINDS(_)
#undef _
	MSP_FRAME_KIND_COUNT
};

/* A frame with its names. Its strings are owned by whoever made it. NULL or 0: not there. */
struct msp_frame {
	enum msp_frame_kind kind;
	bool certain;       /* false: an estimate inside of a trace */
	bool vm;            /* NATIVE: the interpreter, or compiled code: mostly not shown */
	const char *name;   /* function, without decoration: "handler", "string.gsub", "main chunk", "[gc]";
			       ERROR: "[truncated]" or "[error: reason]"; NATIVE without symbol: NULL */
	const char *file;   /* Lua: chunk name, shortened like LuaJIT does, without '@' or '=' */
	uint32_t defined;   /* Lua: line where the function is defined, 0: main chunk */
	uint32_t line;      /* Lua: current line, 0: unknown */
	const char *object; /* native: base name of the file, "[vdso]", "[kernel]" */
	uint64_t address;   /* native: address in the object (its virtual address); kernel: pc */
	uint32_t trace;     /* JIT, INLINED: number of the trace, 0: unknown */
};

/* ---- Unwinding ---- */

struct msp_registers {
	uint64_t reg[32]; /* by DWARF number: x86-64 0 to 15, arm64 x0 to x30 and 31 = sp */
	uint64_t pc;
	bool syscall;     /* pc is behind an instruction that called, as a return address is */
};
/* Of a thread in a signal handler. ucontext: its third argument. Signal-safe. */
MSP_API void msp_registers_from_ucontext(const void *ucontext, struct msp_registers *out);

/* A stack: first raw, then with names. Keep one and use it again. */
struct msp_backtrace;

MSP_API int msp_backtrace_new(struct msp_target *target, struct msp_backtrace **out);
MSP_API void msp_backtrace_free(struct msp_backtrace *backtrace);
/*
 * Walks from registers. The thread should stand still. Returns how many raw frames there are; a
 * stack that is not whole is no failure, its last frame is an ERROR frame: msp_backtrace_reason().
 */
MSP_API int msp_backtrace_unwind(struct msp_backtrace *backtrace, const struct msp_registers *registers);
/* Takes raw frames that msp_self_unwind() or the plug-in made of the same target. Copied. MSP_E_INVALID: too many. */
MSP_API int msp_backtrace_set(struct msp_backtrace *backtrace, const struct msp_raw_frame *frames, size_t count);
/* The raw frames, leaf first. */
MSP_API const struct msp_raw_frame *msp_backtrace_raw(const struct msp_backtrace *backtrace, size_t *count);
/* Why the stack is not whole; NULL: it is. */
MSP_API const char *msp_backtrace_reason(const struct msp_backtrace *backtrace);
/*
 * Gives the frames their names, and puts functions that are inlined into traces between them. Soon:
 * functions can be collected, traces flushed. Returns how many frames there are now.
 */
MSP_API int msp_backtrace_name(struct msp_backtrace *backtrace);
/* The i-th with its name, leaf first; NULL: there are no more. Good until the backtrace is used again. */
MSP_API const struct msp_frame *msp_backtrace_frame(const struct msp_backtrace *backtrace, size_t i);
/* Frees what its names take (100 KB), the raw frames stay: after each of a dump with many. */
MSP_API void msp_backtrace_forget(struct msp_backtrace *backtrace);

/* ---- Values ---- */

/* id, name in JSON */
#define MSP_TYPES(_) \
	_(NIL, "nil") \
	_(BOOLEAN, "boolean") \
	_(NUMBER, "number") \
	_(STRING, "string") \
	_(TABLE, "table") \
	_(FUNCTION, "function") \
	_(THREAD, "thread") \
	_(USERDATA, "userdata") \
	_(LIGHTUSERDATA, "lightuserdata") \
	_(CDATA, "cdata") \
	_(INTERNAL, "internal")      /* what no Lua program can have */ \
	_(UNREADABLE, "unreadable")  /* not there, or not what its tag says */

enum msp_type {
#define _(id, name) MSP_TYPE_##id,
	MSP_TYPES(_)
#undef _
	MSP_TYPE_COUNT
};

struct msp_value_pair;

struct msp_value {
	uint8_t type;     /* enum msp_type */
	bool boolean;
	bool cut;         /* STRING: text is its beginning; TABLE: it has more entries */
	bool expanded;    /* TABLE: entries are those there are */
	uint8_t ffid;     /* FUNCTION: 0 Lua, 1 C, else the VM's own */
	double number;
	uint64_t address; /* of the object; FUNCTION in C: of its code */
	uint64_t pt, ident; /* FUNCTION in Lua: its prototype */
	uint32_t length;  /* STRING: as it is in the VM */
	uint32_t kept;    /* STRING: bytes of text */
	uint32_t entries; /* TABLE: msp_value_entry() */
	char *text;       /* STRING: its bytes, and a NUL; CDATA: its ctype */
	char *content;    /* CDATA: what it holds, in words; NULL: nothing short */
	struct msp_value_pair *entry;
};
/* An entry of a table; false: there are no more. */
MSP_API bool msp_value_entry(const struct msp_value *value, size_t i, const struct msp_value **key,
	const struct msp_value **content);

enum msp_variable_kind { MSP_LOCAL, MSP_UPVALUE, MSP_VARARG };
struct msp_variable {
	uint8_t kind;   /* enum msp_variable_kind */
	uint32_t index; /* slot; number of the upvalue or vararg, from 0 */
	char *name;     /* NULL: not known, the bytecode is stripped */
	struct msp_value value;
};
/* Of the i-th named frame. MSP_E_NOT_FOUND: it has none, or they were not asked for. */
struct msp_variables {
	struct msp_variable *variable;
	size_t count;
	bool in_registers; /* compiled code has the locals in registers: they are not known */
	bool cut;          /* there was no room for all */
};
MSP_API int msp_backtrace_variables(const struct msp_backtrace *backtrace, size_t i, const struct msp_variables **out);
/* The function that a value of the i-th named frame is, as a frame would show it. Good until the next such call. */
MSP_API int msp_backtrace_function(struct msp_backtrace *backtrace, size_t i, const struct msp_value *value,
	const struct msp_frame **out);

/* ---- Dumps: all threads at one moment ---- */

struct msp_dump;

struct msp_dump_options {
	size_t size;         /* sizeof(struct msp_dump_options) */
	bool coroutines;     /* those of all VMs too */
	unsigned int values; /* variables of Lua frames, with tables down to so many levels; 0: none */
};
/*
 * Of a process: stops its threads for the shortest time that a whole picture takes (about 1 ms) and
 * lets them go. Of a core: as it was. options: NULL: only threads. MSP_E_GONE; MSP_E_PERMISSION;
 * MSP_E_BUSY: no thread would stop; MSP_E_UNSUPPORTED: of other targets.
 */
MSP_API int msp_dump_take(struct msp_target *target, const struct msp_dump_options *options, struct msp_dump **out);
MSP_API void msp_dump_free(struct msp_dump *dump);

struct msp_dump_info {
	size_t threads, coroutines;
	uint64_t left_out;   /* coroutines beyond what there is room for */
	int broken_heaps;    /* VMs whose list of objects is broken: there may be more coroutines */
	uint64_t stopped_ns; /* how long the first stopped thread stood still */
};
MSP_API const struct msp_dump_info *msp_dump_info(const struct msp_dump *dump);

struct msp_thread {
	pid_t tid;
	const char *name;    /* "": not known */
	int state;           /* before the stop, as in /proc: 'R', 'S', ... */
	int result;          /* 0, else why there is no stack: MSP_E_BUSY, MSP_E_UNSUPPORTED: a 32-bit thread */
	bool has_vm;         /* a VM is on its stack */
	int32_t vmstate;     /* of the innermost, as LuaJIT has it */
	struct msp_registers registers;
	struct msp_backtrace *backtrace; /* to be named by you; freed with the dump */
};
/* The i-th, by ascending tid, of a core in its order; NULL: there are no more. */
MSP_API const struct msp_thread *msp_dump_thread(const struct msp_dump *dump, size_t i);

/* What a coroutine is doing, as coroutine.status() says. */
#define MSP_COROUTINES(_) \
	_(RUNNING, "running") \
	_(NORMAL, "normal")       /* it resumed another */ \
	_(SUSPENDED, "suspended") \
	_(NEW, "not started") \
	_(DEAD, "dead")           /* it ended, or an error ended it */

enum msp_coroutine_status {
#define _(id, text) MSP_COROUTINE_##id,
	MSP_COROUTINES(_)
#undef _
	MSP_COROUTINE_COUNT
};

struct msp_coroutine {
	uint64_t g, l;       /* its VM, its lua_State */
	int status;          /* enum msp_coroutine_status */
	bool main;           /* the VM's main thread */
	pid_t tid;           /* the thread whose stack it is on; 0: none */
	bool stale;          /* it may run, on a stack that could not be read: the frames are of its last call */
	struct msp_backtrace *backtrace; /* to be named by you; freed with the dump */
};
/* The i-th, a VM after the other; NULL: there are no more. */
MSP_API const struct msp_coroutine *msp_dump_coroutine(const struct msp_dump *dump, size_t i);

/* ---- Traces: what the JIT compiler of a VM made, and what it gave up on ---- */

struct msp_jit;

struct msp_jit_info {
	size_t traces, refusals;
	uint64_t mcode;     /* bytes of machine code */
	bool all_functions; /* false: the list of objects could not be followed to its end */
	bool aborts_known, flushed; /* remembered aborts were found; traces were flushed at least once */
};
/*
 * Reads them of the i-th VM, which runs on; where its functions are defined is looked for up to 2 s.
 * Strings of what it hands out are good until it is freed or the target refreshed.
 * MSP_E_UNSUPPORTED: no compiler; MSP_E_NOT_PROVED; MSP_E_NOT_FOUND.
 */
MSP_API int msp_jit_read(struct msp_target *target, size_t vm, struct msp_jit **out);
MSP_API void msp_jit_free(struct msp_jit *jit);
MSP_API const struct msp_jit_info *msp_jit_info(const struct msp_jit *jit);

struct msp_jit_trace {
	uint32_t number;
	uint32_t root;       /* of a side trace: its root trace; 0: it is one */
	uint32_t parent, exit; /* where a side trace begins */
	bool stitched;       /* goes on after a call that is not compiled */
	uint32_t link;       /* number of the trace that it goes on in */
	const char *linktype; /* "loop", "return", ...; NULL: unknown */
	bool gives_up;       /* ends in the interpreter for want of anything better */
	uint32_t bytes, snapshots; /* of machine code */
	struct msp_frame start; /* its first function and line; name NULL: not known any more */
	uint8_t linkcode;    /* linktype as the VM has it */
};
/* The i-th, by number; NULL: there are no more. Good until the next call for jit. */
MSP_API const struct msp_jit_trace *msp_jit_trace(struct msp_jit *jit, size_t i);

struct msp_jit_line {
	struct msp_frame place; /* a function and a line in it */
	const char *chunk;      /* of the function, as Lua has it: "@" and a path, "=" and a name, or the source */
};
/*
 * The lines of the i-th trace: where it starts, and all that its snapshots show, each once; of one
 * that is gone meanwhile only where it started. How many; MSP_E_NOT_FOUND.
 */
MSP_API int msp_jit_lines(struct msp_jit *jit, size_t i);
/* The n-th of them, by function and line; NULL: there are no more. Good until the next call for jit. */
MSP_API const struct msp_jit_line *msp_jit_line(struct msp_jit *jit, size_t n);

struct msp_jit_refusal {
	enum { MSP_JIT_GIVEN_UP, MSP_JIT_ABORTED, MSP_JIT_SWITCHED_OFF } kind;
	bool loop;           /* else a function */
	const char *reason;  /* of the last abort that is remembered; NULL: none is */
	uint32_t penalty;    /* rises with each abort; 0: not known */
	struct msp_frame place;
};
/* The i-th loop or function that is not compiled; NULL: there are no more. Good until the next call for jit. */
MSP_API const struct msp_jit_refusal *msp_jit_refusal(struct msp_jit *jit, size_t i);

/* ---- In signal handlers of the own process ---- */

/*
 * Tables for unwinding inside of a signal handler, made ahead of time from a target of
 * msp_target_open_self(). Everything here but msp_self_unwind() is for ordinary code.
 */
struct msp_self;

struct msp_self_options {
	size_t size;        /* sizeof(struct msp_self_options) */
	unsigned int slots; /* handlers that unwind at once; 0: 32. Memory is used as they are (100 KB each) */
	unsigned int reads; /* most reads of memory for one stack, about 2 us each; a deeper one is cut off with a mark; 0: 384 */
};
/* MSP_E_INVALID: not the own process; MSP_E_UNSUPPORTED: the process may not read itself (a sandbox); MSP_E_NOMEM. */
MSP_API int msp_self_new(struct msp_target *target, const struct msp_self_options *options, struct msp_self **out);
/* No handler may use it any more. Before the target is freed. */
MSP_API void msp_self_free(struct msp_self *self);
/*
 * After libraries were loaded or unloaded (dlopen; a cheap call if nothing has changed), and after
 * VMs of a LuaJIT without GC64 were made. Refreshes the target too. Handlers may run meanwhile:
 * they see the old tables or the new ones. One call at a time.
 */
MSP_API int msp_self_refresh(struct msp_self *self);

struct msp_self_result {
	uint32_t reason;  /* enum msp_error_reason: why the stack is not whole; MSP_ERR_NONE: it is */
	uint32_t has_vm;  /* a VM is on the stack */
	int32_t vmstate;  /* of the innermost; with a STATE frame in LuaJIT's own numbers, whatever its fork has */
	uint32_t reads;   /* of memory, that it took */
};
/*
 * The stack that a signal interrupted; ucontext: the handler's third argument. Async-signal-safe:
 * no allocation, no lock, no fault whatever memory looks like, bounded time (about 0.1 ms for 40
 * frames). Any thread, any number at once, also a handler that interrupts another. errno is kept.
 * Puts up to room frames, leaf first, and returns how many; a stack that is not whole ends with an
 * ERROR frame. result: NULL is allowed. MSP_E_BUSY: as many unwind as there are slots.
 */
MSP_API int msp_self_unwind(struct msp_self *self, const void *ucontext, struct msp_raw_frame *frames, size_t room,
	struct msp_self_result *result);

/* ---- Processes ---- */

/*
 * Pids of processes whose comm or executable's base name is name (NULL: all but kernel threads),
 * never our own; ascending; *out is to be freed with free(). Returns the count.
 */
MSP_API int msp_process_find(const char *name, pid_t **out);
/* Direct and indirect children of pid, ascending; *out is to be freed with free(). Returns the count. */
MSP_API int msp_process_children(pid_t pid, pid_t **out);

/* What there is to know of a process without loading anything. */
struct msp_process_info {
	size_t size;   /* sizeof(struct msp_process_info), by you; the rest is filled in */
	pid_t pid;     /* of the process, if that of a thread was given */
	char name[16];
	int bits;      /* of its program: 32, 64; 0: not known */
	int state;     /* of the thread with the pid that was given, as in /proc: 'R', 'S', ...; 0: not known */
	pid_t tracer;  /* a process that traces it; 0: none */
};
/* Can it be looked into? Stops nothing. MSP_E_GONE; MSP_E_PERMISSION: it may not, and nothing is filled in but 0. */
MSP_API int msp_process_look(pid_t pid, struct msp_process_info *info);

/* Looks for a LuaJIT in many processes, by their files only: cheaper than opening each. */
struct msp_finder;
MSP_API int msp_finder_new(struct msp_finder **out);
MSP_API void msp_finder_free(struct msp_finder *finder);

struct msp_found {
	pid_t pid;
	uid_t uid;
	const char *name, *command; /* of the process */
	const char *version, *object; /* "LuaJIT 2.1.0-beta3", base name of its file */
	bool complete, gc64;        /* all of its layout was found; then gc64 is known */
};
/* 1: there is one: *out, good until the next call; 0: there is none. MSP_E_GONE, MSP_E_PERMISSION. */
MSP_API int msp_finder_look(struct msp_finder *finder, pid_t pid, const struct msp_found **out);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT */
/* Everything that knows LuaJIT in user space: which VM is this, how do we know, what are the names. */
#ifndef MSP_LUAJIT_H
#define MSP_LUAJIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/elf.h"
#include "unwind/memory.h"
#include "unwind/tables.h"

/*
 * A LuaJIT build found in an image: candidate layout, VM block, VM unwind
 * rows, fast function names, and the evidence for each.
 */
struct msp_lj_build;

/*
 * Looks for a LuaJIT in the image by code analysis. MSP_E_NO_LUAJIT: there is
 * none; MSP_E_NOT_PROVED: there is one, but something was not found (*out is
 * then set too, and tells what). *out must be freed with msp_lj_build_free(),
 * before the image is closed.
 */
int msp_lj_build_find(struct msp_image *image, struct msp_lj_build **out);
/*
 * The same, from the image's cache if this program has written it there, and
 * into it else. stamp: which program this is; 0: not known, no cache.
 */
int msp_lj_build_find_cached(struct msp_image *image, uint32_t stamp, struct msp_lj_build **out);
void msp_lj_build_free(struct msp_lj_build *build);

const struct msp_lj_layout *msp_lj_build_layout(const struct msp_lj_build *build);
const char *msp_lj_build_version(const struct msp_lj_build *build); /* "LuaJIT 2.1.0-beta3" */

/* Image-relative address of its VM descriptor (moonspy/vm_descriptor.h); 0: it has none. */
uint64_t msp_lj_build_descriptor(const struct msp_lj_build *build);

/* Unwind rows of the VM block, and of vm_ffi_call behind it, for msp_image_overlay(). */
struct msp_lj_vm_rows {
	uint64_t end; /* where the last of them ends */
	const struct msp_row *rows;
	uint32_t row_count;
	const struct msp_rule *rules;
	uint32_t rule_count;
	uint32_t instructions, reached; /* of the block; reached by the control flow analysis */
};
const struct msp_lj_vm_rows *msp_lj_build_vm_rows(const struct msp_lj_build *build);

/* Is the FFI library in it? By its functions' names. */
bool msp_lj_build_ffi(const struct msp_lj_build *build);

/* Name of a fast function ("string.gsub") by its ffid; NULL if there is none. */
const char *msp_lj_build_ff_name(const struct msp_lj_build *build, uint32_t ffid);

/* One line of evidence, one line of proof, for inspect. Strings belong to the build or are static. */
struct msp_lj_evidence {
	const char *field;  /* member of struct msp_lj_layout */
	const char *source; /* "code", "dwarf", "memory", "descriptor", "constant" */
	int64_t value;
	bool found;
	const char *why;    /* how it was found, or why not */
};
size_t msp_lj_build_evidence(const struct msp_lj_build *build, const struct msp_lj_evidence **out);

#define MSP_LJ_CHECKS(_) \
	_(DISPATCH, "every dispatch entry points into the VM block") \
	_(MAINTHREF, "the main thread points back at the global state") \
	_(CUR_L, "the running coroutine points back at the global state") \
	_(STREMPTY, "the empty string is an empty string") \
	_(STACK, "the main thread's stack bounds are ordered and aligned") \
	_(STATE, "the VM state and the compiled code's base are plausible") \
	_(FRAMES, "the C frames of the main thread are linked and hold it") \
	_(FUNCTIONS, "functions lead to bytecode with a function header, or to C code") \
	_(PROTOS, "the parts of each prototype lie where their sizes say") \
	_(LINES, "the lines of nested prototypes fit each other") \
	_(TRACES, "each entry of the trace table is a trace with that number") \
	_(SNAPSHOTS, "the parts of each trace lie where their sizes say") \
	_(MCODE, "compiled code starts as its trace says") \
	_(EVIDENCE, "the layout is what the code of the VM says")

enum msp_lj_check {
#define _(id, text) MSP_LJ_CHECK_##id,
	MSP_LJ_CHECKS(_)
#undef _
	MSP_LJ_CHECK_COUNT
};

struct msp_lj_proof {
	bool proved; /* no check failed, and those passed that every VM can: the first five */
	/*
	 * What is on the heap can be read: objects, functions, stacks of coroutines. The C
	 * frames, the main thread's stack and its state may be broken, as after a crash.
	 */
	bool heap;
	struct {
		enum { MSP_LJ_PASSED, MSP_LJ_FAILED, MSP_LJ_NOT_RUN } result;
		char detail[96]; /* the value that was measured, for a failed check */
	} check[MSP_LJ_CHECK_COUNT];
};

/*
 * Proves the layout on a global_State at g of a process. image_base: address
 * of the image-relative address 0 in that process. Never trusts the memory.
 */
int msp_lj_prove(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t image_base,
		 uint64_t g, struct msp_lj_proof *out);

/*
 * Finds global states in [start, end) of readable memory by their dispatch
 * tables; appends up to max to g[], returns how many.
 */
int msp_lj_scan(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t image_base,
		uint64_t start, uint64_t end, uint64_t *g, int max);

/* ---- Names ---- */

/*
 * Names of the Lua functions of one VM. A function is named where it is
 * defined, found in the bytecode of the function around it; where that is not
 * there any more (the main chunk of a module, mostly), by the call site at
 * which it was first seen. Not thread-safe. The target is only read.
 *
 * Memory is bounded: about 20 MiB of cache, 32 MiB of line information, 64 MiB
 * of texts, 36 MiB of index, at 262,144 functions. Beyond that, functions that
 * were not asked for lately are forgotten and read again if need be, and new
 * chunks share the file "[too many chunks]".
 */
struct msp_lj_names; /* per VM: cache of prototypes, index of definitions */

/* Valid as long as the names object, also when the function is gone. */
struct msp_lj_function {
	const char *name;    /* "handler", "M.f", "M:f", "main chunk", "anonymous" */
	const char *file;    /* chunk name, shortened like LuaJIT's short_src, '@' and '=' removed;
				never the same for two different chunk names */
	const char *chunk;   /* chunk name as it is, possibly cut at 64 KiB */
	uint32_t defined;    /* first line; 0 = main chunk, stripped, or built into the VM */
	bool by_definition;  /* else from a call site, or none */
};

struct msp_lj_names *msp_lj_names_new(const struct msp_lj_build *build, const struct msp_memory *mem,
				      uint64_t g);
/* The same for a layout from elsewhere. NULL: out of memory, or the layout lacks GCproto's fields. */
struct msp_lj_names *msp_lj_names_new_layout(const struct msp_lj_layout *layout,
					     const struct msp_memory *mem, uint64_t g);
void msp_lj_names_free(struct msp_lj_names *names);

/*
 * Definitions are found by an index of the VM's memory. By itself it covers 64
 * MiB around the global state and around the functions asked for. Better: the
 * host adds the readable, writable, private mappings without a file before the
 * first question, and again when they have changed (a range given before is
 * known by its start). MSP_E_INVALID, MSP_E_LIMIT.
 */
int msp_lj_names_add_range(struct msp_lj_names *names, uint64_t start, uint64_t end);

/*
 * Builds the index, or builds it anew, for about budget_us microseconds; to be
 * called again while it returns 0. 1: complete. Optional: without it,
 * msp_lj_names_function() does it in bits of at most 50 ms, and never for more
 * than a twentieth of the time.
 */
int msp_lj_names_index(struct msp_lj_names *names, uint64_t budget_us);

/*
 * The function of the prototype at pt with that identity (unwind/ident.h).
 * Reads the target at the first call for an identity, then answers from
 * memory. caller_pt and caller_pos (0: unknown) are where it was called from:
 * the caller's prototype and the position of its call instruction. While the
 * index is incomplete, a later call may have a better answer: a definition in
 * place of a call site, a name in place of "anonymous"; never the other way round. MSP_E_GONE: the
 * prototype that is at pt now has another identity, or there is none.
 */
int msp_lj_names_function(struct msp_lj_names *names, uint64_t pt, uint64_t ident, uint64_t caller_pt,
			  uint32_t caller_pos, const struct msp_lj_function **out);
/* Reads a function that may be gone when it is asked for. Not one that is known: asking often finds no more. */
void msp_lj_names_remember(struct msp_lj_names *names, uint64_t pt, uint64_t ident, uint64_t caller_pt,
			   uint32_t caller_pos);
/* Line of a bytecode position (0 = header instruction) of a function seen before; 0 = unknown. */
uint32_t msp_lj_names_line(struct msp_lj_names *names, uint64_t pt, uint64_t ident, uint32_t pos);

#endif

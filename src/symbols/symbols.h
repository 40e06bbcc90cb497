/* SPDX-License-Identifier: MIT */
/* Raw frames to names. One object a process; one thread. */
#ifndef MSP_SYMBOLS_H
#define MSP_SYMBOLS_H

#include "moonspy/moonspy.h"
#include "target/space.h"
#include "moonspy/frame.h"

/* The kernel's symbols, shared by all processes. NULL is allowed everywhere: then only addresses. */
struct msp_kernel_symbols;
/* Begins to read /proc/kallsyms, beside the caller; the first question waits until it is read. NULL: out of memory. */
struct msp_kernel_symbols *msp_kernel_symbols_load(void);
/* True: the next question is answered at once. */
bool msp_kernel_symbols_ready(const struct msp_kernel_symbols *symbols);
void msp_kernel_symbols_free(struct msp_kernel_symbols *symbols);
/* Name and module ("kernel" for the kernel itself) of an address; false if unknown. */
bool msp_kernel_symbol(const struct msp_kernel_symbols *symbols, uint64_t addr, const char **name,
	const char **module);

struct msp_symbolizer;

/*
 * Owns none of them; they live longer. space: NULL for a process that is gone
 * already, of which only native frames get names.
 */
int msp_symbolizer_new(struct msp_images *images, struct msp_space *space, const struct msp_kernel_symbols *kernel, struct msp_symbolizer **out);
void msp_symbolizer_free(struct msp_symbolizer *symbols);

/*
 * Names raw[i] of a stack raw[0..n), leaf first. Returns 0; 1 if this frame is
 * not to be shown (the C function of a Lua frame that the native frame above
 * it shows already); MSP_E_GONE if a function could not be named because
 * it is not there any more: *out is then a frame that says so. Strings in *out
 * are good until the next call.
 */
int msp_symbolizer_frame(struct msp_symbolizer *symbols, const struct msp_raw_frame *raw, size_t n, size_t i,
	struct msp_frame *out);
/* The file that the frame just named lies in; NULL: none. */
const struct msp_image *msp_symbolizer_image(const struct msp_symbolizer *symbols);

/*
 * Puts the Lua functions that are inlined into traces between the frames of a
 * stack raw[0..n): out[] gets up to room frames, as many as are returned; a
 * stack that would have more is copied as it is. from, if not NULL, gets the
 * index in raw of each, MSP_NOT_ON_STACK for those put in. To be called before
 * its frames are named, and soon: traces do not stay.
 */
#define MSP_NOT_ON_STACK UINT32_MAX
struct msp_inlined {
	bool estimated; /* some frames are only estimates */
	bool gone;      /* a trace was not there any more: what is inlined is missing */
};
size_t msp_symbolizer_inline(struct msp_symbolizer *symbols, const struct msp_raw_frame *raw, size_t n,
	struct msp_raw_frame *out, uint32_t *from, size_t room, struct msp_inlined *info);

/*
 * Reads a trace that a VM says that it has made, and names its functions: for samples that come when it is flushed. MSP_E_GONE: it
 * is not there any more, or was not.
 */
int msp_symbolizer_keep_trace(struct msp_symbolizer *symbols, const struct msp_vm *vm, uint64_t number, uint64_t mcode,
	uint64_t szmcode);

/* The VM frame that the Lua frame raw[i] belongs to; NULL if there is none. */
const struct msp_raw_frame *msp_raw_vm_of(const struct msp_raw_frame *raw, size_t i);
/* The Lua frame that called raw[i], maybe through C functions; NULL: there is none in reach. */
const struct msp_raw_frame *msp_raw_caller_of(const struct msp_raw_frame *raw, size_t n, size_t i);
/* Was the last frame's name there to stay? Else a Lua function's definition may still be found. */
bool msp_symbolizer_final(const struct msp_symbolizer *symbols);

#endif

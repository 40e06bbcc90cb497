/* SPDX-License-Identifier: MIT */
/*
 * Helper functions of the descriptor. They know the VM by the descriptor's constants only, ours or those of whatever
 * descriptor they are told of, so they serve any build. Nothing is allocated, nothing kept; memory is read by the
 * reader alone, and what is read is checked before it is used. May be called in any signal handler.
 */
#ifndef MSP_COMPANION_HELPERS_H
#define MSP_COMPANION_HELPERS_H

#include "companion/companion.h"

/* What one call works with: the memory, and what the descriptor in it says. */
struct helper {
	const struct ljvm_memory *m;
	struct ljvm_constants c;
	struct ljvm_addresses a;
	uint32_t reads; /* that are left to this call: memory that lies must not keep it for ever */
};

/* LJVM_E_NONE: that descriptor is not filled. */
int helper_begin(struct helper *h, const struct ljvm_memory *m);

/* Of memory: 0, or LJVM_E_READ. */
int helper_read(struct helper *h, uint64_t at, void *to, size_t size);
/* An address, an unsigned number of 1, 2, 4 or 8 bytes. */
int helper_number(struct helper *h, uint64_t at, unsigned int size, uint64_t *out);
/* An object reference of the VM's. */
int helper_ref(struct helper *h, uint64_t at, uint64_t *out);

/* A coroutine, as far as it is needed. */
struct helper_L {
	uint64_t at, g;
	uint64_t stack, end, base; /* first <= base <= end */
	uint64_t cframe;	   /* without flags */
};
/* Reads one; g: of which VM it must be, 0: of any. */
int helper_L(struct helper *h, uint64_t at, uint64_t g, struct helper_L *out);
/* Does a VM live there? Its main thread says so too. */
int helper_check_g(struct helper *h, uint64_t g);

bool helper_in_vm(struct helper *h, uint64_t pc);
int helper_trace(struct helper *h, uint64_t g, uint64_t pc, struct ljvm_trace *out);
/* The trace of any VM in the list that holds pc; 0, or LJVM_E_NOT_MINE. */
int helper_owner(struct helper *h, uint64_t pc, uint64_t *g, struct ljvm_trace *out);
int helper_cframe(struct helper *h, uint64_t sp, struct ljvm_cframe *out);

/* Is the frame at base a function's that runs, with that PC? Then that is certain. */
bool helper_fits(struct helper *h, const struct helper_L *L, uint64_t base, uint64_t pc);

/* The helpers, as moonspy/vm_descriptor.h has them. Tables of traces are the VM's own: there are none for these. */
int companion_read_self(void *context, uint64_t address, void *buffer, size_t size);
int companion_vm(const struct ljvm_memory *m, uint32_t n, struct ljvm_vm *out);
int companion_owner(const struct ljvm_memory *m, uint64_t pc, uint64_t *g, struct ljvm_trace *out);
int companion_trace(const struct ljvm_memory *m, uint64_t g, uint64_t pc, struct ljvm_trace *out);
int companion_cframe(const struct ljvm_memory *m, uint64_t sp, struct ljvm_cframe *out);
int companion_context(const struct ljvm_memory *m, const struct ljvm_registers *r, struct ljvm_context *out);
int companion_frame_first(const struct ljvm_memory *m, const struct ljvm_context *context, struct ljvm_frame *out);
int companion_frame_next(const struct ljvm_memory *m, struct ljvm_frame *frame);
int companion_function(const struct ljvm_memory *m, uint64_t pt, int32_t pos, struct ljvm_function *out);

#endif

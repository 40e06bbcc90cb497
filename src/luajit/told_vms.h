/* SPDX-License-Identifier: MIT */
/*
 * The list of live VMs that a LuaJIT with the VM descriptor keeps (moonspy/vm_descriptor.h), as it is in its memory. It is
 * read while the program changes it, and it may lie: what it names is proved like any other VM. Internal to src/.
 */
#ifndef MSP_LUAJIT_TOLD_VMS_H
#define MSP_LUAJIT_TOLD_VMS_H

#include <stdbool.h>
#include <stdint.h>

#include "unwind/memory.h"

struct msp_lj_told_vm {
	uint64_t g;
	uint64_t thread; /* thread pointer of the thread last seen to run it; 0: not known */
	uint64_t tables; /* struct ljvm_table_list: of its traces; 0: it has none */
	uint32_t serial; /* never used again in the process */
};

/* Called for each VM; false: no more. */
typedef bool (*msp_lj_told_fn)(void *ctx, const struct msp_lj_told_vm *vm);

/*
 * Calls fn for each VM of the list of the descriptor at an address of the target. True: the list is said to have all VMs,
 * and was read to its end.
 */
bool msp_lj_told_each(const struct msp_memory *mem, uint64_t descriptor, msp_lj_told_fn fn,
		      void *ctx);
/* The one with its global_State at g. False: the list has none. */
bool msp_lj_told_find(const struct msp_memory *mem, uint64_t descriptor, uint64_t g,
		      struct msp_lj_told_vm *out);

#endif

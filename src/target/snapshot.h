/* SPDX-License-Identifier: MIT */
/*
 * Stacks of a process that stands still, or stood still once: of a core file. Memory is
 * read from the host, registers come from ptrace or notes, tables from the address space.
 */
#ifndef MSP_TARGET_SNAPSHOT_H
#define MSP_TARGET_SNAPSHOT_H

#include "luajit/values.h"
#include "target/core.h"
#include "target/space.h"
#include "moonspy/frame.h"

/* Walks stacks in one space. Keep one and use it again: it is big. Not thread-safe. */
struct msp_walker;

int msp_walker_new(struct msp_space *space, struct msp_walker **out);
void msp_walker_free(struct msp_walker *walker);

/* The stack that a walk found; good until the walker's next one. */
struct msp_stack {
	const struct msp_raw_frame *frames; /* leaf first; the last is an ERROR frame if error is set */
	const struct msp_lj_place *places;  /* of those that are LUA, FAST or CFUNC; other places are void */
	size_t count;
	int error;    /* enum msp_error_reason */
	uint32_t ways; /* bit n: enum msp_way n was taken */
	bool has_vm;  /* a LuaJIT VM is on it; vmstate is that of the innermost */
	int32_t vmstate;
};

/*
 * From registers. mem: where stack and heap are read from, such as a cache;
 * NULL = the process itself. The mappings are those of the last refresh.
 */
void msp_walker_walk(struct msp_walker *walker, const struct msp_memory *mem,
	const struct msp_registers *regs, struct msp_stack *out);

/*
 * The Lua frames of a coroutine that is on no thread's stack, with a VM frame before them. The
 * walk of one that a thread runs or has left for another would start from what is stale.
 */
void msp_walker_coroutine(struct msp_walker *walker, const struct msp_memory *mem,
	const struct msp_vm *vm, uint64_t l, struct msp_stack *out);

/* ---- All threads at one moment ---- */

struct msp_snapshot_options {
	bool coroutines;     /* all of every VM */
	unsigned int values; /* variables of Lua frames, with tables down to so many levels; 0: none */
};

struct msp_thread_stack {
	pid_t tid;
	char name[17]; /* "": not known */
	int state;   /* before the stop: as in /proc ('R', 'S', ...) */
	int result;  /* 0; MSP_E_BUSY: it would not stop; MSP_E_UNSUPPORTED: a 32-bit thread */
	int error;   /* enum msp_error_reason; NONE: the stack is whole */
	bool has_vm;
	int32_t vmstate;
	struct msp_registers regs;
	struct msp_raw_frame *frames; /* leaf first */
	struct msp_variables *variables; /* of each frame; NULL: not asked for */
	size_t count;
};

struct msp_coroutine_stack {
	uint64_t g, l;
	int status; /* enum msp_coroutine_status */
	bool main;  /* the VM's main thread */
	pid_t tid;  /* the thread whose stack it is on; 0: none */
	bool stale; /* it may run, on a stack that could not be read: frames are those it saved at its last call */
	int error;  /* enum msp_error_reason */
	struct msp_raw_frame *frames; /* leaf first */
	struct msp_variables *variables; /* of each frame; NULL: not asked for */
	size_t count;
};

struct msp_snapshot {
	struct msp_thread_stack *thread; /* by ascending tid; of a core, in its order */
	size_t count;
	struct msp_coroutine_stack *coroutine; /* a VM after the other */
	size_t coroutines;
	uint64_t left_out; /* coroutines beyond what there is room for */
	int broken_heaps;  /* VMs whose list of objects is broken: there may be more coroutines */
	uint64_t stopped_ns; /* how long the first stopped thread stood still */
};

/*
 * Stops all threads, walks all stacks, lets them go. The mappings are read
 * before, and once more if a stack needs others. options: NULL = only threads. Errors: those of
 * msp_process_stop(). The space must have been refreshed once.
 */
int msp_snapshot_take(struct msp_space *space, const struct msp_snapshot_options *options,
	struct msp_snapshot *out);
/* The same from a core file, whose host the space is of: in the core's order, state 'S' in a system call. */
int msp_snapshot_of_core(struct msp_space *space, const struct msp_core *core,
	const struct msp_snapshot_options *options, struct msp_snapshot *out);
void msp_snapshot_free(struct msp_snapshot *snapshot);

#endif

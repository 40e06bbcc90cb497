/* SPDX-License-Identifier: MIT */
/* A snapshot while it is taken; for snapshot*.c. */
#ifndef MSP_TARGET_SNAPSHOT_INTERNAL_H
#define MSP_TARGET_SNAPSHOT_INTERNAL_H

#include "target/cache.h"
#include "target/snapshot.h"

/* What a stop needs, got before it. */
struct taking {
	struct msp_space *space;
	struct msp_process *process;
	struct msp_snapshot_options options;
	struct msp_walker *walker;
	struct msp_memory_cache *cache;
	struct msp_snapshot *out;
	pid_t *tids; /* before the stop, with their states then */
	int *states;
	int tid_count;
	bool stale; /* a stack met code that the space does not know */
	bool broken; /* some thread's stack is not whole: who knows what else is on it */
	uint32_t values_left;
	size_t frames_left; /* of coroutines */
	/* Coroutines that were met on the stacks of threads, until they are met in their VM. */
	struct msp_coroutine_stack *met;
	size_t met_count, met_room;
	size_t coroutine_room;
};

/* Keeps a stack, with the variables of its Lua frames if that is asked for. 0 or MSP_E_NOMEM. */
int snapshot_keep(struct taking *taking, const struct msp_stack *stack,
	struct msp_raw_frame **frames, struct msp_variables **variables, size_t *count);
void snapshot_drop(struct msp_raw_frame *frames, struct msp_variables *variables, size_t count);

/* snapshot_coroutines.c: notes the coroutines on a thread's stack. */
int snapshot_meet(struct taking *taking, pid_t tid, const struct msp_stack *stack);
/* All coroutines of all VMs; the threads were walked. */
int snapshot_coroutines(struct taking *taking);
void snapshot_forget(struct taking *taking);

#endif

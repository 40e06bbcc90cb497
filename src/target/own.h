/* SPDX-License-Identifier: MIT */
/*
 * The own process as a host: stacks of the thread that a signal has interrupted, walked in the
 * handler. Tables are made ahead of time from an address space and swapped as a whole; handlers
 * take no lock, allocate nothing, and read memory with a system call that fails where a load
 * would fault.
 */
#ifndef MSP_TARGET_OWN_H
#define MSP_TARGET_OWN_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "target/space.h"
#include "unwind/walk.h"

/* Never changed once they are published. */
struct own_tables {
	struct own_tables *older; /* that some handler may still use */
	struct msp_mapping *mapping; /* executable, sorted */
	size_t mappings;
	struct own_image {
		const struct msp_unwind_table *table;
		uint32_t layout;
	} *image; /* by index */
	uint32_t images;
	const struct msp_lj_layout *layout[MSP_LAYOUT_SLOTS];
	struct msp_host_vm vm[MSP_MAX_HOST_VMS];
	uint32_t vms;
};

/* Memory that was read for a walk, in lines, each by one system call. A power of two each; a line is a page or divides it. */
#define OWN_LINE 4096
#define OWN_LINES 32

struct own_slot {
	_Atomic(uint32_t) user; /* pid of the process whose handler has it; 0: free */
	_Atomic(struct own_tables *) tables; /* what that uses */
	uint32_t reads, most_reads;
	uint32_t pid;
	uint64_t sp;		  /* where the last walk began */
	uint64_t line[OWN_LINES]; /* address that is there, 1: none */
	bool used[OWN_LINES];	  /* by the walk under way, else by the last one */
	struct iovec local[OWN_LINES], remote[OWN_LINES];
	struct msp_memory memory;
	struct msp_walk walk;
	uint8_t bytes[OWN_LINES][OWN_LINE];
};

struct msp_own {
	struct msp_space *space;
	_Atomic(struct own_tables *) tables; /* those in use; older ones behind them */
	struct own_slot *slot;
	uint32_t slots, most_reads;
};

/* slots, reads: see struct msp_self_options. The space is of the own process and outlives it. */
int msp_own_new(struct msp_space *space, uint32_t slots, uint32_t reads, struct msp_own **out);
void msp_own_free(struct msp_own *own);
/* Makes tables of what the space has now. */
int msp_own_update(struct msp_own *own);

/* own_walk.c: in a handler. */
int msp_own_unwind(struct msp_own *own, const struct msp_registers *registers,
	struct msp_raw_frame *frames, size_t room, struct msp_self_result *result);
/* Reads what can be read of the own memory: all of it or nothing. */
bool own_read(uint32_t pid, void *to, uint64_t addr, size_t size);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A program of another architecture under qemu's user mode, stopped and stepped through qemu's gdb
 * server. Guest addresses are the host's own there, so its memory is read like any process's.
 */
#ifndef QEMU_GUEST_H
#define QEMU_GUEST_H

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

#include "target/host.h"
#include "target/process.h"

struct qemu_guest {
	pid_t pid; /* of the emulator */
	int socket;
	char path[108];
	char out[4096], in[4096];
	size_t in_size;
	struct msp_process *process;
	struct msp_host host; /* the guest, as everything above a host sees it */
	char emulator[256];
	bool ended;
	cpu_set_t cpus;
};

/* Starts EMULATOR -L ROOT ARGV..., which waits before its first instruction. Negative: an error code. */
int qemu_guest_start(struct qemu_guest *g, const char *emulator, const char *root,
		     char *const argv[]);
void qemu_guest_end(struct qemu_guest *g);
/* These return false when it has ended. */
bool qemu_guest_run(struct qemu_guest *g, unsigned int ms);
bool qemu_guest_step(struct qemu_guest *g);
bool qemu_guest_registers(struct qemu_guest *g, struct msp_registers *out);

#endif

/* SPDX-License-Identifier: MIT */
/* What processes do to their address spaces and threads while they are sampled, as the kernel tells it. */
#ifndef MSP_BPF_SIDEBAND_H
#define MSP_BPF_SIDEBAND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct msp_sideband;

enum msp_change_kind {
	MSP_CHANGE_MAPPING, /* pid mapped a file executable, or other memory */
	MSP_CHANGE_EXEC,    /* pid runs another program now */
	MSP_CHANGE_FORK,    /* pid is new, a child of ppid */
	MSP_CHANGE_THREAD,  /* tid is a new thread of pid */
	MSP_CHANGE_EXIT,    /* thread tid of pid ended; tid == pid: its first thread */
	MSP_CHANGE_LOST,    /* some changes were lost: anything may have happened */
};

struct msp_change {
	enum msp_change_kind kind;
	pid_t pid, tid, ppid;
	pid_t ptid;	     /* FORK, THREAD: the thread that started it */
	uint64_t time;	     /* ns, our CLOCK_MONOTONIC */
	uint64_t start, end; /* MAPPING: addresses */
	bool file;	     /* MAPPING: of a file */
};

/*
 * Opens the event streams of all CPUs: for every process of the machine, the
 * caller picks its own. Needs CAP_PERFMON. MSP_E_PERMISSION, MSP_E_UNSUPPORTED.
 */
int msp_sideband_open(struct msp_sideband **out);
void msp_sideband_close(struct msp_sideband *sb);
/* Becomes readable when there is a change. */
int msp_sideband_fd(const struct msp_sideband *sb);
/* Hands out the changes there are, those of one CPU in order, without waiting. */
typedef void (*msp_change_fn)(void *ctx, const struct msp_change *change);
void msp_sideband_consume(struct msp_sideband *sb, msp_change_fn fn, void *ctx);

#endif

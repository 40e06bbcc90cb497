/* SPDX-License-Identifier: MIT */
/*
 * Recording: processes to sample go in, a profile comes out. Feeds an engine
 * with tables, follows what the processes do meanwhile, and names frames as
 * soon as they are first seen. One thread.
 */
#ifndef MSP_RECORDER_H
#define MSP_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "profile/profile.h"

struct msp_recorder;

enum msp_engine { MSP_ENGINE_BPF, MSP_ENGINE_PTRACE };

struct msp_recorder_options {
	enum msp_engine engine;
	uint32_t rate;         /* samples a second of CPU time for each thread */
	bool all;              /* the whole machine; BPF only */
	bool follow;           /* children of the processes too */
	bool kernel;           /* kernel frames too */
	bool no_luajit;        /* natively only */
	bool probes;           /* listen to the VMs' own: changes the processes' code meanwhile; BPF only */
	bool stats;            /* measure what a sample costs */
	const char *cache_dir; /* of unwind tables; NULL = none */
	const pid_t *pids;     /* processes that will be added: loaded while the engine starts */
	size_t pid_count;
	const char *command;   /* the same for one that will be launched; NULL: none */
};

/* When it was ready, and when the first sample was taken: ns, CLOCK_MONOTONIC; 0: not yet. */
struct msp_recorder_times {
	uint64_t engine, tables, first_sample;
};

/* error[]: the reason in words. MSP_E_PERMISSION, MSP_E_UNSUPPORTED, MSP_E_NOMEM. */
int msp_recorder_open(const struct msp_recorder_options *opts, struct msp_recorder **out, char *error,
	size_t error_size);
void msp_recorder_close(struct msp_recorder *rec);

/* Starts sampling a running process and its threads. */
int msp_recorder_add(struct msp_recorder *rec, pid_t pid);
/* The same for a child that has not called exec yet; what it does before is not sampled. */
int msp_recorder_add_launched(struct msp_recorder *rec, pid_t pid);
/* Starts sampling the whole machine. */
int msp_recorder_add_all(struct msp_recorder *rec);

/* Takes samples and changes for at most that long; returns early on a signal. Negative: error code. */
int msp_recorder_poll(struct msp_recorder *rec, int timeout_ms);
/* Ends sampling, takes what is left, and fills in the profile's quality. */
int msp_recorder_stop(struct msp_recorder *rec);

/* Processes added (and their children, with follow) that are still alive. */
size_t msp_recorder_alive(const struct msp_recorder *rec);
const struct msp_recorder_times *msp_recorder_times(const struct msp_recorder *rec);
/* LuaJIT builds found in any process so far. */
size_t msp_recorder_builds(const struct msp_recorder *rec);
/* The first build that could not be used: which check failed, NULL if all can be used. */
const char *msp_recorder_refused(const struct msp_recorder *rec);
/* With probes: why nothing is heard of them, or not all; NULL: all is well. */
const char *msp_recorder_probes_why(struct msp_recorder *rec);
/* After the stop: waits so long for breakpoints to be taken out; returns how many are left, in so many processes. msp_recorder_close() waits for all. */
size_t msp_recorder_probes_left(struct msp_recorder *rec, int timeout_ms, size_t *processes);
/* A process of which threads must not be stopped, and so are not in the profile; 0: none. */
pid_t msp_recorder_denied(const struct msp_recorder *rec);
/* Stops of threads that samples were taken from; 0: nobody was stopped. */
uint64_t msp_recorder_stops(const struct msp_recorder *rec);
/* Owned by the recorder. Its quality is up to date after msp_recorder_stop() and this: */
struct msp_profile *msp_recorder_profile(struct msp_recorder *rec);
void msp_recorder_update_quality(struct msp_recorder *rec);

#endif

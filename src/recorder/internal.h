/* SPDX-License-Identifier: MIT */
#ifndef MSP_RECORDER_INTERNAL_H
#define MSP_RECORDER_INTERNAL_H

#include <pthread.h>

#include "bpf/sampler.h"
#include "bpf/sideband.h"
#include "recorder/recorder.h"
#include "symbols/symbols.h"

/* Raw frame -> frame of the profile, for one process. */
struct frame_cache {
	struct frame_cache_entry *entry;
	uint32_t room, count;
};

struct frame_cache_entry {
	struct msp_raw_frame key; /* kind MSP_RAW_KIND_COUNT: free place */
	uint32_t id;
};

#define MSP_FRAME_HIDDEN UINT32_MAX /* this raw frame is not shown */

/* Places for an equal key: its id in *id and true, or false. */
bool frame_cache_get(const struct frame_cache *cache, const struct msp_raw_frame *key, uint32_t *id);
void frame_cache_put(struct frame_cache *cache, const struct msp_raw_frame *key, uint32_t id);
void frame_cache_clear(struct frame_cache *cache);

/* A mapping of the target, made at `from`; the engine knew of it at `until`. */
struct rec_remap {
	uint64_t start, end;  /* addresses */
	uint64_t from, until; /* ns, CLOCK_MONOTONIC; until 0: it does not know yet */
};

#define REC_REMAPS 32

struct rec_process {
	pid_t pid;
	pid_t parent;     /* it was forked from, and runs the same program; 0: unknown */
	struct msp_process *process; /* NULL: not opened yet (launched), or gone before it could be */
	struct msp_space *space;
	struct msp_symbolizer *symbols;
	struct frame_cache cache;
	bool added;       /* by the user, or a followed child */
	bool waiting;     /* launched, has not called exec */
	size_t vms_sent;  /* how many were known when the engine was told last */
	bool dirty;       /* mappings have changed, or VMs have come */
	bool unsent;      /* the engine does not have them: there was no room */
	bool failed;      /* not loaded, for lack of room: to be tried again */
	uint64_t ending_ns; /* since then it may have ended: a thread of it has; 0: no */
	uint64_t refreshed_ns; /* when its mappings were last read, and */
	uint64_t sent_ns;      /* when the engine had got them */
	struct rec_remap remap[REC_REMAPS]; /* the last ones */
	uint32_t remap_count;  /* in all */
	struct rec_stopper *stopper; /* ptrace engine only */
	struct rec_late_name *late; /* functions to be asked for again */
	size_t late_count, late_room;
	uint32_t lies; /* VMs that its probes told of, and that are none, since lies_ns */
	uint64_t lies_ns;
	struct rec_listened *listened; /* files whose probes were looked for */
	size_t listened_count, listened_room;
};

struct msp_recorder {
	struct msp_recorder_options opts;
	struct msp_sampler *sampler;
	struct msp_sideband *sideband;
	struct rec_ptrace *ptrace;
	struct rec_probes *probes; /* NULL: not asked for, or not to be had */
	int epoll;
	struct msp_images *images;
	struct msp_kernel_symbols *kernel;
	struct msp_profile *profile;

	struct rec_process **process; /* sorted by pid */
	size_t process_count, process_room;

	uint64_t started_ns;
	struct msp_recorder_times times;
	bool polled;
	bool naming;	     /* samples are being taken from the ring */
	uint64_t changes_ns; /* when changes were last looked at, and */
	uint64_t noted_ns;   /* noted */
	struct msp_change *deferred; /* until the samples in the ring are named */
	size_t deferred_count, deferred_room;
	uint64_t swept_ns;
	uint64_t samples, whole, truncated, estimated;
	uint64_t errors[MSP_ERROR_REASON_COUNT], ways[MSP_WAY_COUNT];
	uint64_t functions_gone, traces_gone;
	int failed; /* error code of what cannot be gone on with */
	uint32_t *ids; /* of one stack */
	struct msp_raw_frame *raw; /* it with what is inlined into its traces */
	char refused[160];
	uint64_t stops; /* that were counted, by the ptrace engine */
	pid_t denied; /* a process of which a thread could not be stopped; 0: none */
};

/* processes.c */
struct rec_process *rec_find(struct msp_recorder *rec, pid_t pid);
struct rec_process *rec_insert(struct msp_recorder *rec, pid_t pid);
void rec_remove(struct msp_recorder *rec, struct rec_process *p);
/* Opens the process, loads its tables. */
int rec_prepare(struct msp_recorder *rec, struct rec_process *p);
/* The same, if it has not been prepared, and hands them to the engine. */
int rec_load(struct msp_recorder *rec, struct rec_process *p);
void rec_unload(struct rec_process *p);
/* Marks it to be refreshed if the engine has not been told of all its VMs that it is to know. */
void rec_note_vms(struct rec_process *p);
int rec_refresh(struct msp_recorder *rec, struct rec_process *p);
/* Frees images that no process has any more, but for some; see msp_images_trim(). */
void rec_trim_images(struct msp_recorder *rec, bool all);
int rec_attach_threads(struct msp_recorder *rec, pid_t pid);

/* samples.c */
#define REC_MAX_FRAMES (2 * MSP_MAX_FRAMES) /* with inlined ones */
int rec_on_sample(void *ctx, const struct msp_sample *sample, const struct msp_raw_frame *frames);
void rec_fill_quality(struct msp_recorder *rec);
/* Makes p->symbols. */
int rec_need_symbols(struct msp_recorder *rec, struct rec_process *p);

/* names.c: raw[i] of a stack got the frame id, whose name may become better */
void rec_late_add(struct rec_process *p, const struct msp_raw_frame *raw, size_t n, size_t i, uint32_t id);
/* Asks for those that are due, or for all. Negative: error code. */
int rec_late_ask(struct msp_recorder *rec, struct rec_process *p, bool all);
void rec_late_free(struct rec_process *p);

/* probes.c: what VMs tell by their probes; does nothing where nobody listens. */
void rec_probes_open(struct msp_recorder *rec);
void rec_probes_close(struct msp_recorder *rec);
int rec_probes_fd(const struct msp_recorder *rec); /* -1: none */
/* Why nothing is heard, or not all; NULL: all is. */
const char *rec_probes_why(struct msp_recorder *rec);
/* Those of files that are known, in a process that is to run them. */
void rec_probes_launch(struct msp_recorder *rec, struct rec_process *p);
/* Those of files that a process has mapped. */
void rec_probes_listen(struct msp_recorder *rec, struct rec_process *p);
/* Acts on what was told. Frees nothing that samples may need: */
void rec_probes_take(struct msp_recorder *rec);
/* that, after the samples up to then. */
void rec_probes_settle(struct msp_recorder *rec);
/* All that was asked for is listened to; from now on it counts, */
void rec_probes_start(struct msp_recorder *rec);
/* until now. */
void rec_probes_hush(struct msp_recorder *rec);
/* Nobody listens to the process any more; its counts go into the profile. */
void rec_probes_forget(struct msp_recorder *rec, struct rec_process *p);
/* Nobody has the file mapped any more. */
void rec_probes_image_gone(struct msp_recorder *rec, uint32_t image);
/* Nobody listens to anything, which may take a while; */
void rec_probes_stop(struct msp_recorder *rec);
/* so many places are left then, in so many processes. */
size_t rec_probes_left(struct msp_recorder *rec, uint64_t until_ns, size_t *processes);

/* ptrace.c: the engine for where BPF is not allowed */
int rec_ptrace_open(struct msp_recorder *rec);
void rec_ptrace_close(struct msp_recorder *rec);
void rec_stopper_free(struct rec_stopper *stopper);
/* Waits for the next tick and samples the threads that are due. */
int rec_ptrace_tick(struct msp_recorder *rec);

/* changes.c */
void rec_take_changes(struct msp_recorder *rec);
/*
 * Processes that have ended are forgotten: each holds files open. Called after
 * the samples up to the end were taken. With sweep all are looked at: a change
 * may have been missed.
 */
void rec_forget_ended(struct msp_recorder *rec, bool sweep);
/* Processes for which there was no room: others may have ended. */
void rec_try_again(struct msp_recorder *rec);
/* Called after each step of naming: new code must be known before it is sampled. May load processes, never frees one. */
void rec_keep_up(struct msp_recorder *rec);
/*
 * Whether an address of the process was taken, at that time, for what had been
 * mapped there before.
 */
bool rec_is_stale(const struct rec_process *p, uint64_t addr, uint64_t time);
/* Something was mapped from start to end at that time: its mappings are to be read. */
void rec_note_remap(struct rec_process *p, uint64_t start, uint64_t end, uint64_t time);
/* The engine knows the mappings of the process now. */
void rec_mappings_sent(struct rec_process *p);
/* Notes what has been mapped: before a sample that was taken later than the last time is named. */
void rec_note_changes(struct msp_recorder *rec);
/* Until the kernel's symbols are read, keeping up meanwhile. */
void rec_wait_for_kernel(struct msp_recorder *rec);

uint64_t rec_now_ns(void);

#endif

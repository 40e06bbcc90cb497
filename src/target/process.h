/* SPDX-License-Identifier: MIT */
/* Inside of a live process, shared by the files of this folder. */
#ifndef MSP_TARGET_PROCESS_H
#define MSP_TARGET_PROCESS_H

#include "target/host.h"
#include "target/target.h"

enum msp_stop_state {
	MSP_STOP_PENDING, /* seized and interrupted, not stopped yet */
	MSP_STOP_DONE, /* stopped: registers can be read */
	MSP_STOP_LOST, /* seized, died; its exit is for whoever waits for it */
};

/* A thread that we are the tracer of. */
struct msp_stopped {
	pid_t tid;
	enum msp_stop_state state;
	int sig; /* signal that was being delivered when it stopped: delivered when it goes on */
};

struct msp_process {
	pid_t pid;
	int pidfd; /* -1: not permitted here; then the directory alone guards */
	int dir; /* /proc/PID: belongs to this process even when its pid is used again */
	int mem; /* /proc/PID/mem, -1 = not open */
	int bits; /* 32, 64; 0 = not looked yet */
	uint64_t start_time;
	char comm[16];
	char *cmdline;
	char root[32];
	struct msp_memory memory;
	struct msp_host host;
	int pagemap; /* of the same directory; -1 = not there */
	struct msp_stopped *stopped;
	size_t stopped_count, stopped_room;
	uint64_t stopped_since; /* when the first of them was seen stopped */
};

/* Error code for an errno; GONE for those that /proc and ptrace use for a dead process. */
int msp_error_of_errno(int err);

/* A whole file below dir, NUL-terminated, malloc'ed. *size without the NUL. */
int msp_read_file(int dir, const char *path, char **out, size_t *size);

/* Fields of /proc/PID/stat or task/TID/stat. */
struct msp_stat {
	char comm[64];
	char state;
	pid_t parent;
	uint32_t flags;
	uint64_t start_time;
	int cpu; /* it runs on, or did last; -1: not told */
};
int msp_read_stat(int dir, const char *path, struct msp_stat *out);

/* Numbers that are names in a directory below dir, ascending; *out is malloc'ed. The count. */
int msp_list_pids(int dir, const char *path, pid_t **out);

/* threads.c */
bool msp_process_has_thread(struct msp_process *process, pid_t tid);
/* A thread that has not exited: in /proc it shows the memory that a dead leader does not. */
bool msp_living_thread(struct msp_process *process, pid_t *out);

/* memory.c */
void msp_memory_init(struct msp_process *process);

/* maps.c: of struct msp_host */
int msp_process_host_maps(void *ctx, struct msp_maps *out);
int msp_process_host_open_map(void *ctx, const struct msp_map *map, bool *partial);

/* pagemap.c: of struct msp_host */
void msp_process_host_present(void *ctx, uint64_t start, uint64_t end,
	void (*each)(void *arg, uint64_t start, uint64_t end), void *arg);

/* ptrace.c: lets every thread go, also those that would not stop; waits for them a bounded time. */
void msp_stops_release(struct msp_process *process);

#endif

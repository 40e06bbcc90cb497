/* SPDX-License-Identifier: MIT */
/* Hosts: a live process, its threads, mappings, files and memory. */
#ifndef MSP_TARGET_H
#define MSP_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "moonspy/moonspy.h"
#include "unwind/memory.h"

struct msp_process; /* a live process, by pid; holds a pidfd-like guard against pid reuse */

/* One line of /proc/PID/maps. name is "" for anonymous memory; "[vdso]", "[stack]", a path, ... */
struct msp_map {
	uint64_t start, end, offset;
	uint32_t dev_major, dev_minor;
	uint64_t inode;
	uint8_t prot; /* PROT_* */
	bool shared, deleted;
	const char *name; /* owned by the list */
};
struct msp_maps {
	struct msp_map *map;
	size_t count;
	char *names;
};

/*
 * Opens a process. A thread's id stands for its process: msp_process_pid() has
 * the process's. MSP_E_GONE, MSP_E_PERMISSION (its mappings may not be read).
 */
int msp_process_open(pid_t pid, struct msp_process **out);
/* Lets all threads go and frees everything; NULL is allowed. */
void msp_process_close(struct msp_process *process);
pid_t msp_process_pid(const struct msp_process *process);
/* false once it exited. It stays true over an exec: compare the mappings. */
bool msp_process_alive(const struct msp_process *process);
uint64_t msp_process_start_time(const struct msp_process *process); /* clock ticks since boot */
/* Pid of who traces it already (a debugger), 0 = nobody. Then a stop is MSP_E_PERMISSION. */
pid_t msp_process_tracer(const struct msp_process *process);
/* 32 or 64. */
int msp_process_bits(struct msp_process *process);
/* fd of its /proc/PID, for openat(); owned by the process; never another process of that pid. */
int msp_process_dir(const struct msp_process *process);
/* comm, and the command line with spaces ("" for none); owned by the process. */
const char *msp_process_comm(struct msp_process *process);
const char *msp_process_cmdline(struct msp_process *process);
/* "/proc/PID/root": the target's root as we can open it. */
const char *msp_process_root(const struct msp_process *process);
const struct msp_memory *msp_process_memory(struct msp_process *process);
/* The process as a host (target/host.h); owned by it. */
struct msp_host;
const struct msp_host *msp_process_host(struct msp_process *process);

int msp_process_maps(struct msp_process *process, struct msp_maps *out);
/* The same from the text of a maps file, malloc'ed and NUL-terminated; taken over on success. */
int msp_maps_parse(char *text, size_t size, struct msp_maps *out);
void msp_maps_free(struct msp_maps *maps);
/*
 * The file behind a mapping, an fd: through map_files, else by its name in the
 * target's root if it still is that inode. MSP_E_NOT_FOUND, MSP_E_PERMISSION.
 */
int msp_process_open_map(struct msp_process *process, const struct msp_map *map);
/* Thread ids, ascending: the leader's need not be the first. *out is malloc'ed. Returns the count. */
int msp_process_threads(struct msp_process *process, pid_t **out);
/* Name of a thread into buf (comm, at most 16 bytes with NUL). */
int msp_process_thread_name(struct msp_process *process, pid_t tid, char buf[16]);

/* When it was started, in clock ticks since boot; UINT64_MAX: it is gone. */
uint64_t msp_process_thread_start_time(struct msp_process *process, pid_t tid);
/* Its state as in /proc ('R', 'S', 'D', 'T', 't', 'Z', ...). */
int msp_process_thread_state(struct msp_process *process, pid_t tid);
/*
 * What the scheduler counts of a thread: exact if it is stopped, else used_ns is up to a tick of the
 * kernel's clock late. MSP_E_GONE also where the kernel does not count it.
 */
struct msp_thread_times {
	uint64_t used_ns;   /* on a CPU */
	uint64_t waited_ns; /* for one, until it last got one */
	uint64_t runs;	    /* how often it got one */
};
int msp_process_thread_times(struct msp_process *process, pid_t tid, struct msp_thread_times *out);

/* How a running thread is doing at this moment. */
struct msp_thread_look {
	char state;  /* as in /proc */
	bool on_cpu; /* else it waits for one; true where the kernel does not tell */
	int cpu;     /* the one it had last, if it waits; else -1 */
	struct msp_thread_times times; /* all 0: the kernel does not count them, or it has not run yet */
};
/* MSP_E_GONE. Of a thread in another state than 'R' only that is filled in. */
int msp_process_thread_look(struct msp_process *process, pid_t tid, struct msp_thread_look *out);

/* From a register set of ptrace or a core file (NT_PRSTATUS). MSP_E_UNSUPPORTED: its size, arch. */
int msp_registers_from_regset(int arch, const void *set, size_t size, struct msp_registers *out);

/*
 * Stops. A stopped thread stays stopped until msp_thread_resume(), and is let
 * go if moonspy dies. Uses PTRACE_SEIZE + PTRACE_INTERRUPT; signals that
 * arrive meanwhile are kept and delivered. All calls for one process must come
 * from the same thread. Errors: MSP_E_GONE, MSP_E_PERMISSION (not allowed, or
 * somebody else traces it: msp_process_tracer()), MSP_E_BUSY (uninterruptible
 * sleep; such a thread is let go as soon as it wakes, at the next of these calls).
 */
int msp_thread_stop(struct msp_process *process, pid_t tid);
/*
 * Lets go those that stopped only after msp_thread_stop() had ended with MSP_E_BUSY; to be called until
 * it returns 0, how many are still to stop.
 */
size_t msp_process_release_late(struct msp_process *process);
int msp_thread_registers(struct msp_process *process, pid_t tid, struct msp_registers *out);
int msp_thread_resume(struct msp_process *process, pid_t tid);
/* All threads, also those born meanwhile; returns how many were stopped. For the rest see above. */
int msp_process_stop(struct msp_process *process);
void msp_process_resume(struct msp_process *process);
/* When the first of the threads that are stopped now stopped, ns of CLOCK_MONOTONIC; 0: none is. */
uint64_t msp_process_stopped_since(const struct msp_process *process);

/* msp_process_find(), msp_process_children(): see moonspy/moonspy.h. */

#endif

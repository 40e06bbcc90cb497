/* SPDX-License-Identifier: MIT */
/*
 * Listening to the probes of VMs. To hear one the kernel writes a breakpoint into the code of each process that is
 * listened to, and takes it out again at the end. Both take long, and are done by a thread of this object's own.
 */
#ifndef MSP_BPF_PROBES_H
#define MSP_BPF_PROBES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/records.h"
#include "elf/elf.h"

struct msp_probes;

/* namespace_fd: the map that tells which pid namespace's numbers are meant. error[]: as of msp_sampler_open(). */
int msp_probes_open(int namespace_fd, struct msp_probes **out, char *error, size_t error_size);
/* Waits until all breakpoints are taken out. */
void msp_probes_close(struct msp_probes *p);

/*
 * Listens at the probes of a file, in a process, soon. image: a number of the caller's for the file. fd: it, open in whatever way; it is duplicated.
 * Probes that nobody needs, or of which the arguments that are needed are not in registers, are left out.
 */
void msp_probes_attach(struct msp_probes *p, pid_t pid, uint32_t image, int fd, const char *name,
		       int arch, const struct msp_probe *probe, int count);
/* Waits until all that was asked for is listened to; from now on what is hit counts. */
void msp_probes_start(struct msp_probes *p);
/* Until now. */
void msp_probes_hush(struct msp_probes *p);
/* How many places were listened to at some time; why[]: the reason why others were not, or "". */
size_t msp_probes_heard(struct msp_probes *p, char *why, size_t size);

/* No more at those of a process (0: of whichever), of a file (0: of whichever). This and what follows waits for nothing: */
void msp_probes_detach(struct msp_probes *p, pid_t pid, uint32_t image);
/* No more for heartbeats that have been listened to since then, in ns: they tell of VMs that were there before. */
void msp_probes_end_heartbeats(struct msp_probes *p, uint64_t since_ns);
void msp_probes_stop(struct msp_probes *p);
/* this does, until then, in ns of the monotonic clock: for how many places are left, of so many processes. */
size_t msp_probes_left(struct msp_probes *p, uint64_t until_ns, size_t *processes);

/* Becomes readable when an event was sent. */
int msp_probes_fd(const struct msp_probes *p);
/* Hands out events without waiting; those for which fn returns a negative value are the last. */
typedef int (*msp_vm_event_fn)(void *ctx, const struct msp_vm_event *event);
void msp_probes_consume(struct msp_probes *p, msp_vm_event_fn fn, void *ctx);

/* Hands out what was counted of a process, or (0) of all, and begins again from 0. */
typedef void (*msp_vm_counts_fn)(void *ctx, const struct msp_vm_key *vm,
				 const struct msp_vm_counts *counts);
void msp_probes_take(struct msp_probes *p, pid_t pid, msp_vm_counts_fn fn, void *ctx);
/* Events that were not sent, and hits that were not counted, for want of room. */
uint64_t msp_probes_lost(const struct msp_probes *p);

#endif

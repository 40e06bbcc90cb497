/* SPDX-License-Identifier: MIT */
/*
 * Listening to the probes of VMs. To hear one the kernel writes a breakpoint into the code of each process that is
 * listened to, and takes it out again at the end. One thread.
 */
#ifndef MSP_BPF_PROBES_H
#define MSP_BPF_PROBES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/records.h"
#include "elf/elf.h"

struct msp_probes;

#define MSP_PROBES_ALL (-1) /* in place of a pid: every process that maps the file */

/* namespace_fd: the map that tells which pid namespace's numbers are meant. error[]: as of msp_sampler_open(). */
int msp_probes_open(int namespace_fd, struct msp_probes **out, char *error, size_t error_size);
void msp_probes_close(struct msp_probes *p);

/*
 * Listens at a place of a file, in a process. image: a number of the caller's for the file. Returns 1; 0: it is none of those listened to, or where its arguments are
 * is not known; negative: the kernel refused it.
 */
int msp_probes_attach(struct msp_probes *p, pid_t pid, uint32_t image, const char *path, int arch,
		      const struct msp_probe *probe);
/* No more at those of a process, or (0: of whichever) of a file. */
void msp_probes_detach(struct msp_probes *p, pid_t pid, uint32_t image);
/* No more for heartbeats that have been listened to since then, in ns: they tell of VMs that were there before. */
void msp_probes_end_heartbeats(struct msp_probes *p, uint64_t since_ns);
void msp_probes_stop(struct msp_probes *p);

/* Becomes readable when an event was sent. */
int msp_probes_fd(const struct msp_probes *p);
/* Hands out events without waiting; those for which fn returns a negative value are the last. */
typedef int (*msp_vm_event_fn)(void *ctx, const struct msp_vm_event *event);
void msp_probes_consume(struct msp_probes *p, msp_vm_event_fn fn, void *ctx);

/* Hands out what was counted of a process, or of all, and begins again from 0. */
typedef void (*msp_vm_counts_fn)(void *ctx, const struct msp_vm_key *vm,
				 const struct msp_vm_counts *counts);
void msp_probes_take(struct msp_probes *p, pid_t pid, msp_vm_counts_fn fn, void *ctx);
/* Events that were not sent, and hits that were not counted, for want of room. */
uint64_t msp_probes_lost(const struct msp_probes *p);

#endif

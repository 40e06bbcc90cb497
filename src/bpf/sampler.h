/* SPDX-License-Identifier: MIT */
/* The kernel host's loader: tables go in, samples come out. One thread. */
#ifndef MSP_BPF_SAMPLER_H
#define MSP_BPF_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/records.h"
#include "bpf/tables.h"

struct msp_sampler;

struct msp_sampler_options {
	uint32_t rate;       /* samples a second of CPU time, for each thread */
	bool all;            /* every process that an event meets, known or not */
	bool kernel;         /* with kernel frames */
	bool stats;          /* measure the program's run time */
	uint32_t rows;       /* unwind rows expected; more can follow */
	const char *cache_dir; /* of what is known about the kernel; NULL: none */
	uint32_t mappings;   /* room for executable mappings of all processes together; 0: 65536 */
};

/*
 * Loads the BPF program. On failure error[] has the reason in words.
 * MSP_E_PERMISSION: BPF is not allowed here; MSP_E_UNSUPPORTED: the kernel
 * cannot run the program.
 */
int msp_sampler_open(const struct msp_sampler_options *opts, struct msp_sampler **out, char *error,
		     size_t error_size);
void msp_sampler_close(struct msp_sampler *s);

/* What it knows of processes: to be filled. */
struct msp_tables *msp_sampler_tables(struct msp_sampler *s);

/* Triggers. A thread's event is inherited by the threads and processes that it starts. */
int msp_sampler_attach_thread(struct msp_sampler *s, pid_t tid);
int msp_sampler_attach_cpus(struct msp_sampler *s);
/*
 * For a thread that has an event and starts others. The kernel takes the events of the two for the same, and at a switch
 * between them has them change owners instead of stopping one and starting the other (perf_event_context_sched_out() of
 * kernel/events/core.c). If the started one ends soon, it takes with it what its parent had used of the period: one that
 * starts short threads or processes all the time would have no samples. An event that is not inherited, and counts
 * nothing, tells the two apart. Done once for a thread; what fails is left.
 */
void msp_sampler_keep_apart(struct msp_sampler *s, pid_t tid);
void msp_sampler_ended(struct msp_sampler *s, pid_t tid); /* that thread */
bool msp_sampler_hardware(const struct msp_sampler *s); /* cycles, not the software clock */

typedef int (*msp_sample_fn)(void *ctx, const struct msp_sample *sample,
			     const struct msp_raw_frame *frames);
typedef int (*msp_event_fn)(void *ctx, const struct msp_event *event);
struct msp_sampler_handlers {
	msp_sample_fn sample;
	msp_event_fn event;
	void *ctx;
};
/* Hands out what is in the ring, without waiting. Returns the number of records, or a handler's negative value. */
int msp_sampler_consume(struct msp_sampler *s, const struct msp_sampler_handlers *handlers);
/* Becomes readable when an event (not a sample) was sent. */
int msp_sampler_fd(const struct msp_sampler *s);

/* Stops sampling; what is in the ring can still be consumed. */
void msp_sampler_stop(struct msp_sampler *s);
uint64_t msp_sampler_counter(const struct msp_sampler *s, enum msp_counter which);
/* Mean run time of the program in ns, 0: not measured. */
uint64_t msp_sampler_run_ns(const struct msp_sampler *s);
/* Its run time in ns that this part of the samples (0.5: the median) did not exceed; 0: no samples. */
uint64_t msp_sampler_run_quantile(const struct msp_sampler *s, double part);

#endif

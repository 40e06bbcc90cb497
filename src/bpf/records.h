/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the BPF sampler and its loader share beside moonspy/records.h: values of maps. */
#ifndef MSP_BPF_RECORDS_H
#define MSP_BPF_RECORDS_H

#include <stdint.h>

#include "moonspy/records.h"
#include "unwind/tables.h"

#define MSP_MAX_PROCESSES 8192
#define MSP_MAX_SEGMENTS 256
#define MSP_MAX_KERNEL_FRAMES 127

/* A process that is sampled, by its pid in the loader's namespace. */
struct msp_bpf_process {
	uint32_t first_mapping, mapping_count; /* in mappings; sorted by start */
	uint32_t build_count;
	uint32_t pending; /* known, but its mappings are not loaded yet */
	struct {
		uint32_t layout, unused;
		uint64_t vm_base;
		uint64_t g; /* without GC64: of a VM of it */
	} build[MSP_MAX_HOST_VMS];
};

/*
 * Where an image's rows are. Its addresses are cut into buckets of equal size;
 * a bucket's element in the row store says which rows can hold for it: a
 * binary search over all rows would miss the cache at every step.
 */
struct msp_bpf_image {
	uint32_t segment; /* of the row store */
	uint32_t first_row, row_count;
	uint32_t layout; /* 0: no LuaJIT in it */
	uint32_t first_bucket,
		bucket_count; /* struct msp_row: addr = first, rule = last row, counted from first_row */
	uint32_t bucket_shift;
	uint32_t unused;
};

/*
 * How long the program ran, of each sample: sixteen buckets an octave, so that the middle of a
 * bucket is 3 % off at most. Buckets below 32 are nanoseconds as they are; the last one has all
 * that is above 32 ms.
 */
#define MSP_RUN_BUCKETS 352
struct msp_run_times {
	uint32_t count[MSP_RUN_BUCKETS];
};

/* Counters, by index of a per-CPU array. */
#define MSP_COUNTERS(_) _(SAMPLES) _(LOST) _(IGNORED) _(NO_SLOT)

enum msp_counter {
#define _(id) MSP_COUNT_##id,
	MSP_COUNTERS(_)
#undef _
		MSP_COUNTER_COUNT
};

/* ---- Probes of VMs (probes.bpf.c) ---- */

/* The probes that are listened to, and which of their arguments are sent: an index from 0; -1: none. The first is always g. */
#define MSP_VM_EVENTS(_) \
	_(CREATED, "vm_created", -1, -1, -1) \
	_(CLOSED, "vm_closed", -1, -1, -1) \
	_(SEEN, "heartbeat", -1, -1, -1) \
	_(MADE, "trace_stop", 1, 2, 3) \
	_(ABORTED, "trace_abort", 2, -1, -1) \
	_(FLUSHED, "trace_flush", 1, -1, -1)

enum msp_vm_event_kind {
#define _(id, name, a, b, c) MSP_VM_##id,
	MSP_VM_EVENTS(_)
#undef _
		MSP_VM_EVENT_COUNT
};

#define MSP_VM_EVENT_ARGS 4

/* What a program is told of the place that was hit, in its cookie: the kind, and for each argument sent its word of the registers. */
#define MSP_COOKIE_KIND(cookie) ((cookie)&0xff)
#define MSP_COOKIE_WORD(cookie, i) ((cookie) >> (8 + 8 * (i)) & 0xff)
#define MSP_COOKIE_NO_WORD 0xff

/* Sent when a VM is first heard of, is created or closed, or has made a trace. */
struct msp_vm_event {
	uint32_t kind, pid;
	uint64_t g;
	uint64_t arg[MSP_VM_EVENT_ARGS - 1];
};

/* A VM, by address: one that takes the place of one that was closed is the same here. */
struct msp_vm_key {
	uint32_t pid, unused;
	uint64_t g;
};

#define MSP_VM_REASONS 64 /* of aborts; those beyond are counted in the last one */
struct msp_vm_counts {
	uint64_t created, closed, made, flushed_all, flushed;
	uint64_t aborted[MSP_VM_REASONS];
};

#endif

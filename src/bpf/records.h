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
	uint32_t first_bucket, bucket_count; /* struct msp_row: addr = first, rule = last row, counted from first_row */
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
#define MSP_COUNTERS(_) \
	_(SAMPLES) _(LOST) _(IGNORED) _(NO_SLOT)

enum msp_counter {
#define _(id) MSP_COUNT_##id,
	MSP_COUNTERS(_)
#undef _
	MSP_COUNTER_COUNT
};

#endif

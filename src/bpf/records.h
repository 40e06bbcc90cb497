/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the BPF sampler and its loader share: map values and ring buffer records. */
#ifndef MSP_BPF_RECORDS_H
#define MSP_BPF_RECORDS_H

#include <stdint.h>

#include "moonspy/frame.h"
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

/* Set by the loader before the program is loaded. */
struct msp_bpf_config {
	uint64_t ns_dev, ns_ino; /* the pid namespace whose pids are meant; 0: the initial one */
	uint32_t all;       /* sample every process, not only those in the process table */
	uint32_t kernel;    /* with kernel frames */
	uint32_t kernel_stack; /* bytes that a thread has in the kernel */
	uint32_t unused;
};

enum msp_record_kind {
	MSP_RECORD_SAMPLE = 1,  /* struct msp_sample */
	MSP_RECORD_PROCESS = 2, /* struct msp_event: a process that is not in the table was sampled */
	MSP_RECORD_MAPPING = 3, /* struct msp_event: a pc outside the known mappings was seen */
};

struct msp_event {
	uint32_t kind, pid;
	uint64_t addr;
};

/* A stack; its frames follow, leaf first. */
struct msp_sample {
	uint32_t kind;
	uint32_t pid, tid;
	uint32_t frame_count;
	uint32_t error;  /* enum msp_error_reason */
	int32_t vmstate;
	uint32_t has_vm;
	uint32_t kernel_frames; /* of the frames, that many are the kernel's */
	uint32_t ways;   /* bit n: enum msp_way n was taken */
	uint32_t parent; /* walked with the tables of that process, which it was forked from; 0: its own */
	char comm[16];
	uint64_t time; /* ns, the kernel's monotonic clock; to handlers ours */
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

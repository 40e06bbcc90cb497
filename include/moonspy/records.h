/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the BPF program sends through its ring buffer, and what its loader can ask of it. For user
 * space and for BPF programs. New members come at the end of records; a reader goes by kind and size.
 */
#ifndef MOONSPY_RECORDS_H
#define MOONSPY_RECORDS_H

#include <stdint.h>

#include <moonspy/frame.h>

/* Set by the loader before the program is loaded. */
struct msp_bpf_config {
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

#endif

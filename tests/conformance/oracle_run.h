/* SPDX-License-Identifier: MIT */
/* One workload under the oracle. */
#ifndef ORACLE_RUN_H
#define ORACLE_RUN_H

#include "oracle.h"

struct oracle_options {
	uint64_t steps, burst, kernel_every, core_every, signal_every;
	unsigned int free_ms, start_ms;
	const char *json, *coverage, *title, *preload;
	bool unseen, verbose;
	char **argv;
};

/* Steps, prints; the exit status: 0 no faults, 1 faults, 77 it cannot be done here. */
int oracle_run(const struct oracle_options *opts);

/* ---- oracle_report.c ---- */

#define ORACLE_MAX_KINDS 64

/* Faults of one kind at one place are one. */
struct oracle_report {
	struct {
		char why[160];
		uint64_t at; /* instruction, relative to its image */
		uint64_t count;
	} kind[ORACLE_MAX_KINDS];
	uint32_t kinds;
	uint64_t faults, marked[MSP_ERROR_REASON_COUNT], ways[MSP_WAY_COUNT];
	struct msp_profile *profile;
	uint64_t *seen; /* hashes of stacks in the profile */
	uint32_t seen_count;
	bool verbose;
};

int oracle_report_new(struct oracle_report *r, bool verbose);
void oracle_report_free(struct oracle_report *r);
/* A fault: prints it with both stacks if it is of a new kind. insn led from before to now. */
void oracle_report_fault(struct oracle_report *r, struct oracle_process *p, const char *why,
			 const struct oracle_insn *insn, const struct msp_registers *regs,
			 const struct oracle_stack *before, const struct oracle_stack *now);
/* Counts a fault. Is it the first of its kind? */
bool oracle_report_kind(struct oracle_report *r, const char *why, uint64_t at);
void oracle_report_print(struct oracle_process *p, const char *title, const struct oracle_stack *s);
void oracle_report_stack(struct oracle_report *r, struct oracle_process *p,
			 const struct oracle_stack *s);
int oracle_report_write(struct oracle_report *r, const char *path);
/* "name, count; ..." of the marked stacks. */
void oracle_report_marks(const struct oracle_report *r, char *buf, size_t size);
void oracle_report_ways(const struct oracle_report *r);

/* ---- oracle_coverage.c: which of the VM block's instructions were seen ---- */

struct oracle_coverage {
	uint8_t *seen; /* a byte for each of the block */
	uint32_t size, instructions;
	uint64_t vm_start;
};

int oracle_coverage_new(struct oracle_coverage *c, const struct msp_image_entry *entry);
void oracle_coverage_free(struct oracle_coverage *c);
uint32_t oracle_coverage_count(const struct oracle_coverage *c);
/* Adds what the file has, and writes all back. Returns how many there are then. */
uint32_t oracle_coverage_merge(struct oracle_coverage *c, const char *path);

/* Prints what was not seen, from the memory of p, whose block is at base. */
void oracle_coverage_print(const struct oracle_coverage *c, struct oracle_process *p,
			   uint64_t base);

#endif

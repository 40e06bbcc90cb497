/* SPDX-License-Identifier: MIT */
/*
 * The core host: a process as it was when it crashed, or when gcore looked at it.
 * Memory is the core's segments, then the text of the files that were mapped;
 * registers are in its notes (NT_PRSTATUS). Reads parts of the file when they are
 * asked for, never the whole; every byte of it is hostile.
 */
#ifndef MSP_TARGET_CORE_H
#define MSP_TARGET_CORE_H

#include "target/host.h"
#include "target/target.h"

struct msp_core;

struct msp_core_options {
	const char *exe;     /* the program's file; NULL: by its path in the core */
	const char *sysroot; /* where the files lie that the core names; NULL: "/" */
};

#define MSP_CORE_WHY_SIZE 200

/*
 * Opens a core file; compressed ones (zstd, lz4, xz) are decompressed into a
 * temporary file without a name. MSP_E_FORMAT: no core file; MSP_E_UNSUPPORTED: of
 * another kind of machine; MSP_E_LIMIT: too big; why says what it is in words.
 */
int msp_core_open(int fd, const struct msp_core_options *options, struct msp_core **out,
	char why[MSP_CORE_WHY_SIZE]);
void msp_core_close(struct msp_core *core);

const struct msp_host *msp_core_host(const struct msp_core *core);
pid_t msp_core_pid(const struct msp_core *core);
const char *msp_core_comm(const struct msp_core *core);    /* "" if unknown */
const char *msp_core_command(const struct msp_core *core); /* the first 79 bytes, with spaces */

/* The signal it died of; number 0: none, it was looked at while it lived. */
struct msp_core_signal {
	int number, code; /* si_signo, si_code */
	pid_t tid;        /* the thread it hit */
	bool has_address; /* the kernel sent it for an access to address (si_addr) */
	uint64_t address;
	pid_t sender;     /* a process sent it; 0: the kernel, or not known */
};
const struct msp_core_signal *msp_core_signal(const struct msp_core *core);

struct msp_core_thread {
	pid_t tid;
	bool in_call; /* it was in a system call */
	int result;   /* 0; MSP_E_UNSUPPORTED: a 32-bit thread */
	struct msp_registers regs;
};
/* In the core's order: the one that the signal hit comes first. */
const struct msp_core_thread *msp_core_threads(const struct msp_core *core, size_t *count);
/* False: the notes are cut off, there may have been more threads. */
bool msp_core_all_threads(const struct msp_core *core);

/* What is missing, known once the space was refreshed. */
enum msp_core_gap_kind {
	MSP_CORE_GAP_FILE,  /* a mapped program or library was not found: name, build id, why */
	MSP_CORE_GAP_MEMORY, /* the core is cut off: bytes are missing */
	MSP_CORE_GAP_NOTES, /* registers or the list of files are not there: why */
};
struct msp_core_gap {
	enum msp_core_gap_kind kind;
	const char *name;     /* of the file; else "" */
	const char *build_id; /* hexadecimal, "" if unknown */
	const char *why;
	uint64_t bytes;
};
const struct msp_core_gap *msp_core_gaps(struct msp_core *core, size_t *count);
/* Files that were taken by their path because the core does not say which build they were. */
size_t msp_core_unchecked(const struct msp_core *core);

#endif

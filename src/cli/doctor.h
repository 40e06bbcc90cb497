/* SPDX-License-Identifier: MIT */
/* The checks of the doctor; each looks at one thing and changes nothing. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

/* id in JSON and what the check function is called, which engine is lost if it fails */
#define DOCTOR_CHECKS(_) \
	_(kernel, BPF) \
	_(btf, BPF) \
	_(lockdown, BPF) \
	_(capabilities, BPF) \
	_(memlock, BPF) \
	_(bpf, BPF) \
	_(perf_event, BPF) \
	_(sample_rate, NONE) \
	_(kernel_symbols, NONE) \
	_(ptrace, PTRACE) \
	_(container, NONE)

/* Of one process, with -p. */
#define DOCTOR_PROCESS_CHECKS(_) \
	_(process, BOTH) \
	_(tracer, PTRACE) \
	_(luajit, NONE)

struct doctor_result {
	enum doctor_level level;
	char text[256]; /* what was found */
	char todo[256]; /* the command that mends it, "" for none */
	bool unfit;	/* no rights would help */
};

typedef void (*doctor_check_fn)(pid_t pid, struct doctor_result *result);

#define _(id, engine) void doctor_check_##id(pid_t pid, struct doctor_result *result);
DOCTOR_CHECKS(_)
DOCTOR_PROCESS_CHECKS(_)
#undef _

#endif

/* SPDX-License-Identifier: MIT */
/* What the JIT compilers of a process or core made: gathered, sorted, and printed in two forms. */
#ifndef CLI_TRACES_H
#define CLI_TRACES_H

#include "cli/live.h"
#include "cli/options.h"
#include "output/json_writer.h"

/* A line of a trace, and the samples whose innermost function was there. */
struct traces_line {
	struct msp_jit_line at;
	uint64_t samples;
};

struct traces_trace {
	struct msp_jit_trace trace;
	size_t index; /* as the library has them */
	uint64_t samples;
	struct traces_line *line; /* of the one that is annotated, and of those sampled */
	size_t lines;
};

struct traces_refusal {
	struct msp_jit_refusal refusal;
	size_t index;
	uint64_t samples; /* in the interpreter, in that function */
};

/* One VM; what is to be looked at comes first. */
struct traces_vm {
	struct msp_vm_info info;
	struct msp_jit *jit;
	const struct msp_jit_info *made;
	struct traces_trace *trace;
	struct traces_refusal *refusal;
};

/* A sampled place: all samples whose innermost Lua frame was there. */
struct traces_sample {
	char *file;
	uint32_t defined, line, trace; /* trace 0: interpreted */
	uint64_t count;
};

/* What a VM did while the profile was recorded. */
struct traces_event {
	uint64_t g, count;
	char *event;
};

struct traces {
	const struct msp_options *options;
	struct cli_live *live;
	struct traces_vm *vm;
	size_t vms;

	bool sampled; /* there is a profile */
	struct traces_sample *sample;
	size_t samples;
	struct traces_event *event;
	size_t events;
	uint64_t total;	 /* samples of the process in the profile */
	uint64_t others; /* of them in traces that are not there any more */
};

/* traces_samples.c: reads the profile of options->samples. 0 or the exit code, after saying it. */
int traces_samples_read(struct traces *t);
void traces_samples_free(struct traces *t);
/* Gives the samples to the traces and functions that they are of. MSP_E_NOMEM. */
int traces_samples_count(struct traces *t);
/* Lines of a trace: those that its snapshots show, and those that were sampled. MSP_E_NOMEM. */
int traces_lines(struct traces *t, struct traces_vm *vm, struct traces_trace *trace);

void traces_text(const struct traces *t);
int traces_json(const struct traces *t);
/* traces_source.c: the lines of an annotated trace, with their source where it can be read. */
void traces_source(const struct traces *t, const struct traces_trace *trace);

/* Text of a refusal's kind. */
const char *traces_refusal_name(int kind); /* JSON name */
const char *traces_refusal_text(int kind);

#endif

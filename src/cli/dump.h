/* SPDX-License-Identifier: MIT */
/* How a dump is written, as text or as JSON. */
#ifndef CLI_DUMP_H
#define CLI_DUMP_H

#include "cli/live.h"
#include "cli/options.h"
#include "output/json_writer.h"

struct dump_writer {
	const struct msp_options *options;
	struct msp_json json;
	bool many;     /* a list of processes, even if it turns out to be of one */
	size_t written;
};

void dump_begin(struct dump_writer *writer, bool many);
/* Writes one process; returns how much of it is broken: stacks, lists of objects. */
int dump_process(struct dump_writer *writer, struct cli_live *live,
	const struct msp_snapshot *snapshot);
int dump_end(struct dump_writer *writer);

/* What the options ask a snapshot for. */
struct msp_snapshot_options dump_wanted(const struct msp_options *options);

/* Adds the VMs that the stacks met, and writes; the exit code. */
int dump_snapshot(struct dump_writer *writer, struct cli_live *live,
	const struct msp_snapshot *snapshot);

/* ---- Within the writers ---- */

void dump_text(struct dump_writer *writer, struct cli_live *live,
	const struct msp_snapshot *snapshot);
void dump_json(struct dump_writer *writer, struct cli_live *live,
	const struct msp_snapshot *snapshot);

#define DUMP_SIGNAL_SIZE 16
const char *dump_signal_name(int number, char buf[DUMP_SIGNAL_SIZE]);
/* What si_code says; NULL: nothing that is known. */
const char *dump_signal_reason(const struct msp_core_signal *signal);

/* What a thread is doing. */
#define DUMP_STATES(_) \
	_(LUA, "lua", "running Lua") \
	_(TRACE, "trace", "running Lua, trace") \
	_(C, "c", "in C called from Lua") \
	_(GC, "gc", "collecting garbage") \
	_(COMPILER, "compiler", "compiling a trace") \
	_(EXIT, "exit", "leaving a trace") \
	_(RUNNING, "running", "running") \
	_(WAITING, "waiting", "waiting") \
	_(LUA_WAITING, "c-waiting", "waiting in C called from Lua") \
	_(STOPPED, "stopped", "stopped") \
	_(UNREADABLE, "unreadable", "not readable")

enum dump_state {
#define _(id, name, text) DUMP_STATE_##id,
	DUMP_STATES(_)
#undef _
};

enum dump_state dump_state_of(const struct msp_thread_stack *thread, uint32_t *trace);
const char *dump_state_name(enum dump_state state);
const char *dump_state_text(enum dump_state state);

/* A stack of a thread or coroutine. */
struct dump_stack {
	const struct msp_raw_frame *frames;
	const struct msp_variables *variables; /* NULL: not asked for */
	size_t count;
};

/* One of its frames that is to be shown. */
struct dump_frame {
	const struct msp_frame *frame; /* its strings are good until the next name is made */
	const struct msp_variables *variables; /* NULL: none */
	const struct msp_raw_frame *vm; /* the VM frame of a Lua frame */
};

/* Calls each() for every frame to show, leaf first. */
void dump_frames(struct dump_writer *writer, struct cli_live *live,
	const struct dump_stack *stack,
	void (*each)(struct dump_writer *writer, struct cli_live *live,
		const struct dump_frame *frame));

/* dump_values.c: the variables of a frame. */
void dump_variables_text(struct cli_live *live, const struct dump_frame *frame);
void dump_variables_json(struct msp_json *json, struct cli_live *live,
	const struct dump_frame *frame);

const char *dump_coroutine_status(int status);
const char *dump_error_text(int reason); /* NULL: none */

#endif

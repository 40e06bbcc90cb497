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
/* Writes one process; returns how many of its stacks are broken. */
int dump_process(struct dump_writer *writer, struct cli_live *live,
	const struct msp_snapshot *snapshot);
int dump_end(struct dump_writer *writer);

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

/*
 * Calls each() for every frame to show, leaf first. each must copy what it
 * keeps: the strings are good until it returns.
 */
void dump_frames(const struct msp_options *options, struct cli_live *live,
	const struct msp_thread_stack *thread,
	void (*each)(void *ctx, const struct msp_frame *frame), void *ctx);

#endif

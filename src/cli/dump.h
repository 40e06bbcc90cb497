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

	/* What is being written: */
	struct cli_live *live;
	const struct msp_dump *dump;
	const struct msp_dump_info *info;
	struct msp_vm_info *vm;
	size_t vms;
	int error; /* of naming frames */
};

void dump_begin(struct dump_writer *writer, bool many);
/* Takes a dump as the options ask for it, and writes it: the exit code. MSP_E_*: it could not be taken, which is not said yet. */
int dump_target(struct dump_writer *writer, struct cli_live *live);
int dump_end(struct dump_writer *writer);

/* ---- Within the writers ---- */

void dump_text(struct dump_writer *writer);
void dump_json(struct dump_writer *writer);

#define DUMP_SIGNAL_SIZE 16
const char *dump_signal_name(int number, char buf[DUMP_SIGNAL_SIZE]);
/* What si_code says; NULL: nothing that is known. */
const char *dump_signal_reason(int number, int code);

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

enum dump_state dump_state_of(const struct msp_thread *thread, uint32_t *trace);
const char *dump_state_name(enum dump_state state);
const char *dump_state_text(enum dump_state state);

/* One of a stack's frames that is to be shown: the i-th of backtrace. */
struct dump_frame {
	struct msp_backtrace *backtrace;
	size_t i;
	const struct msp_frame *frame;
	const struct msp_variables *variables; /* NULL: none */
};

/* Names the stack and calls each() for every frame to show, leaf first. */
void dump_frames(struct dump_writer *writer, struct msp_backtrace *backtrace,
	void (*each)(struct dump_writer *writer, const struct dump_frame *frame));

/* dump_values.c: the variables of a frame. */
void dump_variables_text(const struct dump_frame *frame);
void dump_variables_json(struct msp_json *json, const struct dump_frame *frame);

const char *dump_coroutine_status(int status);

#endif

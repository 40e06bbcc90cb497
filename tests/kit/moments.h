/* SPDX-License-Identifier: MIT */
/* What every helper says of a program at a moment, asked in the program itself or through a reader from outside. */
#ifndef MOMENTS_H
#define MOMENTS_H

#include <sys/types.h>
#include <time.h>
#include <ucontext.h>

#include "core.h"
#include "kit.h"

#define MOST_PLACES 32
#define MOST_ASKED 40 /* frames */

/* Calls by number; a frame and its function take turns from CALL_FRAMES on. */
enum {
	CALL_VM,
	CALL_VM_NONE,
	CALL_OWNER,
	CALL_CONTEXT,
	CALL_TRACE,
	CALL_PLACES,
	CALL_CFRAME,
	CALL_FRAMES
};

struct answer {
	int result;
	union {
		struct ljvm_vm vm;
		struct {
			uint64_t g;
			struct ljvm_trace trace;
		} owner;
		struct ljvm_context context;
		struct ljvm_trace trace;
		struct ljvm_place place[MOST_PLACES];
		struct ljvm_cframe cframe;
		struct ljvm_frame frame;
		struct ljvm_function function;
	} is;
};

struct moment {
	struct ljvm_registers registers;
	struct ljvm_context
		start; /* where frames start: the context, or, in other code, the main thread */
	unsigned int count;
	struct answer answer[CALL_FRAMES + 2 * MOST_ASKED];
};

/* A program that is interrupted again and again, and what it shares. */
struct shared {
	uint64_t descriptor;
	struct moment moment;
};
struct other {
	struct shared *shared;
	pid_t pid;
	int up, down;
};

/* Interrupts this thread, again and again, by SIGUSR1: each time after moment_soon(). */
void moment_timer(timer_t *timer);
/* Once, before long: how long, goes by how fast signals are here, so that the program gets some of its work done. */
void moment_soon(timer_t timer);

void registers_of(const ucontext_t *context, struct ljvm_registers *out);

/* One call, what it needs from the answers before it. */
void moment_call(const struct kit *kit, const struct ljvm_memory *memory, unsigned int call,
		 const struct moment *in, struct answer *out);
/* All of them: moment has registers, and else is 0. */
void moment_ask(const struct kit *kit, const struct ljvm_memory *memory, struct moment *moment);
/* Of an error only the error counts. */
bool answer_equal(const struct answer *a, const struct answer *b);

/* The other program is this one, executed again; there this does not return. */
void other_run_if_child(const char *library, const char *script);
void other_start(struct other *other, char **argv, struct ljvm_memory *memory);
/* Until it is at a moment, where it stays. */
void other_wait(struct other *other);
void other_go_on(struct other *other);
void other_end(struct other *other);

/* By gcore. False: it cannot. */
bool core_open(struct core *core, pid_t pid);

#endif

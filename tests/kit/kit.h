/* SPDX-License-Identifier: MIT */
/* A LuaJIT with the descriptor, loaded into the test program; and what its helpers are held against. */
#ifndef KIT_H
#define KIT_H

#include <stdbool.h>

#include <moonspy/vm_descriptor.h>

struct kit {
	const struct ljvm_descriptor *head;
	const struct ljvm_constants *constants;
	const struct ljvm_addresses *addresses;
	const struct ljvm_helpers *helpers;
	void *(*newstate)(void);
	void (*openlibs)(void *L);
	int (*loadfile)(void *L, const char *name);
	void (*pushinteger)(void *L, long n);
	int (*pcall)(void *L, int args, int results, int handler);
	const char *(*tolstring)(void *L, int index, size_t *size);
	void (*settop)(void *L, int top);
	void (*close)(void *L);
};

/* Ends the program with a message. */
void kit_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void kit_open(struct kit *kit, const char *library);
/* A reader of the own process: read_self, and where the system (an emulator) lacks its call, one of the test's own. */
void kit_reader(const struct kit *kit, struct ljvm_memory *memory);
/* Runs a script with one argument in a new VM or in the one given. */
void kit_run(const struct kit *kit, void *L, const char *script, long rounds);

/* Edges of the script's call graph, by the lines its functions are defined in. */
void kit_graph_read(const char *script);

struct kit_counts {
	unsigned long interpreter, trace, elsewhere, broken, unread, frames, wrong;
};
/*
 * Walks the stack that registers lead to, and counts what came of it. Safe in signal handlers. A frame that cannot be
 * there is counted as wrong, and the first of them is kept for kit_wrong().
 */
void kit_walk(const struct kit *kit, const struct ljvm_memory *memory, const struct ljvm_registers *registers,
	      struct kit_counts *counts);
/* Prints the counts; ends the program if something was wrong, or next to nothing right. */
void kit_judge(const struct kit_counts *counts, const char *what);

#endif

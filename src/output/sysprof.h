/* SPDX-License-Identifier: MIT */
/* The parts of the reader of Tarantool's sysprof files: src/output/sysprof_*.c only. */
#ifndef MSP_OUTPUT_SYSPROF_H
#define MSP_OUTPUT_SYSPROF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "luajit/names.h"
#include "output/sysprof_format.h"
#include "profile/profile.h"
#include "profile/table.h"

/* ---- sysprof_bytes.c: the stream. 0, or MSP_E_FORMAT, MSP_E_IO, MSP_E_NOMEM. ---- */

struct sysprof_in {
	FILE *in;
	uint64_t offset; /* of at in the file */
	bool cut;	 /* it ended where more had to follow */
	unsigned char buffer[32768];
	size_t at, end;
	unsigned char *text; /* of the last string */
	size_t room;
	char *error;
	size_t error_size;
};

struct sysprof_string {
	const unsigned char *data; /* good until the next one is read */
	size_t size;
};

/* Keeps the words; returns MSP_E_FORMAT. */
int sysprof_bad(struct sysprof_in *in, const char *format, ...) __attribute__((format(printf, 2, 3)));
int sysprof_byte(struct sysprof_in *in, unsigned char *byte);
int sysprof_bytes(struct sysprof_in *in, void *to, size_t size);
int sysprof_number(struct sysprof_in *in, uint64_t *number);
int sysprof_string(struct sysprof_in *in, struct sysprof_string *string);
/* The stream has ended, rightly or not. */
bool sysprof_at_end(struct sysprof_in *in);

/* ---- sysprof_symbols.c: what the stream calls things ---- */

struct sysprof_cfunc {
	uint64_t addr;
	const char *name; /* interned */
};

/* Sorted runs of doubling length: adding and looking up cost the same whatever order addresses come in. */
#define SYSPROF_LEVELS 32
struct sysprof_level {
	struct sysprof_cfunc *cfunc;
	size_t count;
};

struct sysprof_proto {
	uint64_t addr, line;
	const char *label;
};

struct sysprof_trace {
	uint64_t number, proto, line;
};

struct sysprof_symbols {
	uint64_t seed;
	struct sysprof_level level[SYSPROF_LEVELS];
	struct sysprof_proto *proto;
	struct sysprof_trace *trace;
	uint32_t protos, proto_room, traces, trace_room;
	struct msp_table proto_table, trace_table;
	struct msp_intern strings;
	uint32_t generation; /* changes with each symbol */
};

void sysprof_symbols_init(struct sysprof_symbols *symbols);
void sysprof_symbols_free(struct sysprof_symbols *symbols);
int sysprof_add_proto(struct sysprof_symbols *symbols, uint64_t addr, struct sysprof_string chunk, uint64_t line);
int sysprof_add_cfunc(struct sysprof_symbols *symbols, uint64_t addr, struct sysprof_string name);
int sysprof_add_trace(struct sysprof_symbols *symbols, uint64_t number, uint64_t proto, uint64_t line);
/* NULL: not known. */
const struct sysprof_proto *sysprof_proto(const struct sysprof_symbols *symbols, uint64_t addr);
const struct sysprof_trace *sysprof_trace(const struct sysprof_symbols *symbols, uint64_t number);
/* The last one at or below addr. */
const struct sysprof_cfunc *sysprof_cfunc(const struct sysprof_symbols *symbols, uint64_t addr);

/* ---- sysprof_stack.c: a sample's two stacks as one ---- */

struct sysprof_lua_frame {
	uint64_t value, line; /* value: prototype, C function, number of a fast function */
	uint8_t type;	      /* enum sysprof_frame */
};

struct sysprof_stack {
	unsigned char state;
	struct sysprof_lua_frame *lua; /* leaf first, as they come */
	uint64_t *host;
	size_t luas, hosts;
	bool deep; /* there were more than a stack may have */
	uint64_t trace, proto, line;
	uint32_t *id; /* the joined stack, root first */
	size_t ids;
};

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* more files in an hour, and more of them reach the limits */
#define SYSPROF_FRAMES_KEPT 64
#define SYSPROF_CACHED 32
#else
#define SYSPROF_FRAMES_KEPT 4096
#define SYSPROF_CACHED 8192
#endif

/* A frame as it is in the file, and in the profile. */
struct sysprof_known {
	uint64_t value, line;
	uint64_t start; /* native: of its function; 0: not known */
	uint32_t generation, id;
	uint8_t kind;
	bool call; /* native: enters Lua */
};
struct sysprof_frame_cache {
	struct sysprof_known slot[SYSPROF_CACHED];
};

int sysprof_stack_init(struct sysprof_stack *stack);
void sysprof_stack_free(struct sysprof_stack *stack);
/*
 * Makes frames of the profile of what was sampled: stack->id. *reason: why it is not whole, NULL: it
 * is. Host frames at which Lua is entered are followed by the Lua frames of that call.
 */
int sysprof_join(struct sysprof_stack *stack, const struct sysprof_symbols *symbols,
		 struct sysprof_frame_cache *cache, struct msp_profile *profile, const char **reason);

/* ---- sysprof_records.c: what moonspy adds ---- */

struct sysprof_records {
	uint32_t *frame; /* number in the file to number in the profile */
	uint32_t frames, frame_room, pairs, objects;
	uint32_t *id; /* room for a stack */
	bool sampled; /* the next sample has been counted from its record */
};

void sysprof_records_free(struct sysprof_records *records);
/* false: a C symbol like others. */
bool sysprof_is_record(uint64_t addr, struct sysprof_string name);
int sysprof_record(struct sysprof_records *records, struct sysprof_in *in, struct msp_profile *profile,
		   struct sysprof_string record);

#endif

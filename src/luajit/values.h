/* SPDX-License-Identifier: MIT */
/*
 * Values of one VM, read from memory that stands still: Lua variables, tables, cdata.
 * Hostile memory costs bounded time and room, and is told from a value where it can be.
 */
#ifndef MSP_LUAJIT_VALUES_H
#define MSP_LUAJIT_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "luajit/luajit.h"

/* id, name in JSON */
#define MSP_LJ_TYPES(_) \
	_(NIL, "nil") \
	_(BOOLEAN, "boolean") \
	_(NUMBER, "number") \
	_(STRING, "string") \
	_(TABLE, "table") \
	_(FUNCTION, "function") \
	_(THREAD, "thread") \
	_(USERDATA, "userdata") \
	_(LIGHTUSERDATA, "lightuserdata") \
	_(CDATA, "cdata") \
	_(INTERNAL, "internal")      /* what no Lua program can have */ \
	_(UNREADABLE, "unreadable")  /* not there, or not what its tag says */

enum msp_lj_type {
#define _(id, name) MSP_LJ_TYPE_##id,
	MSP_LJ_TYPES(_)
#undef _
	MSP_LJ_TYPE_COUNT
};

struct msp_lj_pair_value;

struct msp_lj_value {
	uint8_t type;     /* enum msp_lj_type */
	bool boolean;
	bool cut;         /* STRING: text is its beginning; TABLE: it has more entries */
	bool expanded;    /* TABLE: entries are those there are */
	uint8_t ffid;     /* FUNCTION: 0 Lua, 1 C, else the VM's own */
	double number;
	uint64_t address; /* of the object; FUNCTION in C: of its code */
	uint64_t pt, ident; /* FUNCTION in Lua: its prototype */
	uint32_t length;  /* STRING: as it is in the VM */
	uint32_t kept;    /* STRING: bytes of text */
	uint32_t entries;
	char *text;       /* STRING: its bytes, and a NUL; CDATA: its ctype */
	char *content;    /* CDATA: what it holds, in words; NULL: nothing short */
	struct msp_lj_pair_value *entry; /* TABLE */
};

struct msp_lj_pair_value {
	struct msp_lj_value key, value;
};

enum msp_lj_variable_kind { MSP_LJ_LOCAL, MSP_LJ_UPVALUE, MSP_LJ_VARARG };

struct msp_lj_variable {
	uint8_t kind;   /* enum msp_lj_variable_kind */
	uint32_t index; /* slot; number of the upvalue or vararg, from 0 */
	char *name;     /* NULL: not known, the bytecode is stripped */
	struct msp_lj_value value;
};

/* The variables of a frame. */
struct msp_lj_variables {
	struct msp_lj_variable *variable;
	size_t count;
	bool in_registers; /* compiled code has the locals in registers: they are not known */
	bool cut;          /* there was no room for all */
};

/* Where a Lua frame is. */
struct msp_lj_place {
	uint64_t l;     /* its coroutine */
	uint64_t fn;    /* its function object */
	uint64_t base;  /* its first slot */
	uint64_t limit; /* end of its slots, where the next frame begins; 0: not known */
};

struct msp_lj_values;

/*
 * A reader for the VM at g. mem must outlive the calls that follow. The layout of tables
 * is proved on tables of the VM; without proof they are not looked into. NULL: out of memory.
 */
struct msp_lj_values *msp_lj_values_new(const struct msp_lj_build *build,
					const struct msp_memory *mem, uint64_t g);
void msp_lj_values_free(struct msp_lj_values *values);

/* Values that may still be read with all calls together; what is beyond is cut. */
#define MSP_LJ_VALUES_MAX 400000
/*
 * The variables of the function of prototype pt at bytecode position pos (no_pos: unknown),
 * running at place; tables are read down to depth levels. Frees nothing of *out before.
 * MSP_E_GONE: the function there is another. *left counts down from MSP_LJ_VALUES_MAX.
 */
int msp_lj_variables_read(struct msp_lj_values *values, const struct msp_memory *mem,
			  const struct msp_lj_place *place, uint64_t pt, uint64_t ident,
			  uint32_t pos, bool no_pos, bool in_trace, unsigned int depth,
			  uint32_t *left, struct msp_lj_variables *out);
void msp_lj_variables_free(struct msp_lj_variables *variables);

/* The value in a slot or field, with tables down to depth levels. */
void msp_lj_value_read(struct msp_lj_values *values, const struct msp_memory *mem, uint64_t at,
		       unsigned int depth, uint32_t *left, struct msp_lj_value *out);
void msp_lj_value_free(struct msp_lj_value *value);

/* ---- Objects ---- */

/* What a coroutine is doing, as coroutine.status() says. */
#define MSP_LJ_COROUTINES(_) \
	_(RUNNING, "running") \
	_(NORMAL, "normal")       /* it resumed another */ \
	_(SUSPENDED, "suspended") \
	_(NEW, "not started") \
	_(DEAD, "dead")           /* it ended, or an error ended it */

enum msp_lj_coroutine_status {
#define _(id, text) MSP_LJ_COROUTINE_##id,
	MSP_LJ_COROUTINES(_)
#undef _
	MSP_LJ_COROUTINE_COUNT
};

struct msp_lj_coroutine {
	uint64_t l;
	uint8_t status; /* enum msp_lj_coroutine_status; RUNNING is for the caller to know */
	bool main;      /* the VM's main thread */
	uint64_t pt, ident; /* NEW: its function, if it is a Lua function; else 0 */
};

/*
 * Calls each() for every coroutine of the VM at g, the main thread first; ends early if it
 * returns other than 0, and returns that. Walks the collector's list of all objects, which
 * may be long, but never runs in circles. MSP_E_FORMAT: the list is broken: what came before
 * the break was called for; MSP_E_LIMIT: longer than any VM's.
 */
int msp_lj_coroutines(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g,
		      int (*each)(void *ctx, const struct msp_lj_coroutine *coroutine), void *ctx);

#endif

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
#include "moonspy/moonspy.h"

/* Values and variables are those of moonspy/moonspy.h. */
struct msp_value_pair {
	struct msp_value key, value;
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
			  uint32_t *left, struct msp_variables *out);
void msp_lj_variables_free(struct msp_variables *variables);

/* The value in a slot or field, with tables down to depth levels. */
void msp_lj_value_read(struct msp_lj_values *values, const struct msp_memory *mem, uint64_t at,
		       unsigned int depth, uint32_t *left, struct msp_value *out);
void msp_lj_value_free(struct msp_value *value);

/* ---- Objects ---- */

struct msp_lj_coroutine {
	uint64_t l;
	uint8_t status; /* enum msp_coroutine_status; RUNNING is for the caller to know */
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

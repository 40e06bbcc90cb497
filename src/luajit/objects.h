/* SPDX-License-Identifier: MIT */
/* Objects that src/luajit reads in user space, beyond what a layout has. Internal to src/luajit/. */
#ifndef MSP_LUAJIT_OBJECTS_H
#define MSP_LUAJIT_OBJECTS_H

#include "luajit/build.h"
#include "luajit/values.h"

/* Type codes beyond those of unwind/tables.h (lj_obj.h: ~LJ_T*). */
#define MSP_GCT_CDATA 10
#define MSP_GCT_TAB 11
#define MSP_GCT_UDATA 12
#define MSP_GCT_LAST 13 /* what is in the list of all objects, from MSP_GCT_UPVAL on */

/*
 * Offsets that have been the same in all of LuaJIT 2.x, for each size of references
 * (lj_obj.h: GCtab, Node, GCupval, GCfuncL, GCcdata). Tables are proved before use.
 */
struct msp_lj_object_layout {
	uint8_t ref; /* size of a reference */
	uint8_t tab_array, tab_node, tab_asize, tab_hmask, tab_size;
	uint8_t node_next, node_size; /* value at 0, key at 8 */
	uint8_t uv_value;	      /* GCupval.v */
	uint8_t fn_uv;		      /* GCfuncL.uvptr, counted from fn_pc */
	uint8_t cd_type, cd_data;
	uint8_t ct_size, ct_name; /* CType: info at 0, size at 4, sib at 8, next at 10 */
	uint8_t cts_top, cts_g;	  /* CTState: tab at 0 */
	uint8_t ud_meta;	  /* GCudata.metatable */
};
const struct msp_lj_object_layout *msp_lj_object_layout(const struct msp_lj_layout *layout);

/* A reference of the target's size; false: not readable. */
bool msp_lj_read_ref(const struct msp_lj_layout *layout, const struct msp_memory *mem, uint64_t at,
		     uint64_t *out);
/* Is it an address that an object may have? */
static inline bool msp_lj_object_address(uint64_t addr)
{
	return addr >= 4096 && addr < 1ull << 47 && !(addr & 7);
}
/* Type code of an object; -1: not readable, or no object's address. */
int msp_lj_object_type(const struct msp_lj_layout *layout, const struct msp_memory *mem,
		       uint64_t addr);
/* Head of the list of all objects; 0: not known. */
uint64_t msp_lj_gc_root(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g);

/* ---- Tables (values_table.c) ---- */

struct msp_lj_table {
	uint64_t array, node;
	uint32_t asize, hmask;
};
/* Reads and checks a table; false: it is none. */
bool msp_lj_table_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
		       uint64_t addr, struct msp_lj_table *out);
/* Are the first nodes of its hash linked as nodes are? */
bool msp_lj_table_sound(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			const struct msp_lj_table *table);

/* ---- Values ---- */

struct msp_lj_values {
	const struct msp_lj_build *build;
	const struct msp_lj_layout *layout;
	const struct msp_lj_object_layout *objects;
	const struct msp_memory *mem; /* of the call under way */
	uint64_t g, cts;	      /* the VM, and its CTState; 0: none was found */
	bool tables;		      /* their layout is proved */
	uint32_t *left;
};

/* ctypes.c: where the VM keeps its C types; 0: it has none, or it was not found. */
uint64_t msp_lj_ctypes_find(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			    uint64_t g);
/* Sets text and content of a cdata at out->address. */
void msp_lj_cdata_read(struct msp_lj_values *values, struct msp_value *out);

/* The value at an address, and the entries of a table down to depth levels. */
void msp_lj_value_at(struct msp_lj_values *values, uint64_t at, unsigned int depth,
		     struct msp_value *out);
void msp_lj_table_entries(struct msp_lj_values *values, unsigned int depth, struct msp_value *out);

#endif

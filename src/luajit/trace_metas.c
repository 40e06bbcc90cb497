/* SPDX-License-Identifier: MIT */
/*
 * Which metamethods a trace can call. Those of tables are loaded from their metatable by name, and
 * are checked to be the functions that they were. C types and userdata of the VM's own keep theirs
 * for ever, and the trace has them as constants (lj_record.c: lj_record_mm_lookup(), lj_crecord.c:
 * crec_tailcall()): there the metatables say which.
 */
#include <stdlib.h>
#include <string.h>

#include "luajit/objects.h"
#include "luajit/trace_ir.h"
#include "luajit/trace_proof.h"

#define MAX_NODES 4096	   /* of a table */
#define MAX_METATABLES 256 /* of C types */

/* Names of the metamethods that a step can call; all others are called by calls. */
static const char *const names[MSP_BC_COUNT] = {
	[MSP_BC_ISLT... MSP_BC_ISGT] = "__lt __le",
	[MSP_BC_ISEQV... MSP_BC_ISNEP] = "__eq",
	[MSP_BC_UNM] = "__unm",
	[MSP_BC_LEN] = "__len",
	[MSP_BC_ADDVN] = "__add",
	[MSP_BC_ADDNV] = "__add",
	[MSP_BC_ADDVV] = "__add",
	[MSP_BC_SUBVN] = "__sub",
	[MSP_BC_SUBNV] = "__sub",
	[MSP_BC_SUBVV] = "__sub",
	[MSP_BC_MULVN] = "__mul",
	[MSP_BC_MULNV] = "__mul",
	[MSP_BC_MULVV] = "__mul",
	[MSP_BC_DIVVN] = "__div",
	[MSP_BC_DIVNV] = "__div",
	[MSP_BC_DIVVV] = "__div",
	[MSP_BC_MODVN] = "__mod",
	[MSP_BC_MODNV] = "__mod",
	[MSP_BC_MODVV] = "__mod",
	[MSP_BC_POW] = "__pow",
	[MSP_BC_CAT] = "__concat",
	[MSP_BC_GGET] = "__index",
	[MSP_BC_GSET] = "__newindex",
	[MSP_BC_TGETV... MSP_BC_TGETB] = "__index",
	[MSP_BC_TSETV... MSP_BC_TSETB] = "__newindex",
};

static bool is_for(uint8_t op, const char *name)
{
	return names[op] && strstr(names[op], name);
}

bool msp_meta_called_by(const struct msp_trace_facts *f, uint32_t meta, uint8_t op)
{
	const char *name = f->meta[meta].name;

	if (!msp_bc_is_call(op))
		return is_for(op, name);
	for (int i = 0; i < MSP_BC_COUNT; i++)
		if (is_for(i, name))
			return false;
	return true;
}

/* A string's beginning. False: it is no string, or not readable. */
static bool read_name(const struct msp_trace_reader *r, uint64_t str, char text[MSP_META_NAME])
{
	uint64_t at = str + (uint64_t)r->layout->str_data;

	memset(text, 0, MSP_META_NAME);
	if (msp_lj_object_type(r->layout, r->mem, str) != MSP_GCT_STR)
		return false;
	/* a short one may end with what can be read */
	if (msp_read(r->mem, at, text, 8))
		return false;
	msp_read(r->mem, at + 8, text + 8, MSP_META_NAME - 1 - 8);
	return true;
}

bool msp_trace_is_meta_name(const struct msp_trace_reader *r, uint64_t string)
{
	char name[MSP_META_NAME];

	return !read_name(r, string, name) || (name[0] == '_' && name[1] == '_');
}

static void add_meta(struct msp_trace_reader *r, struct msp_trace_facts *f, const char *name,
		     uint64_t fn, bool own)
{
	uint32_t i = 0;

	while (i < f->callees.count && f->callees.of[i].fn != fn)
		i++;
	if (i == f->callees.count) {
		f->any_meta |= !own;
		return;
	}
	f->indexed |= !strcmp(name, "__index") && !msp_builtin_is_ffi(r, f->callees.of[i].ffid);
	if (!f->callees.of[i].proto) {
		f->any_meta |= !own || msp_builtin_calls(r, f->callees.of[i].ffid);
		return;
	}
	for (uint32_t k = 0; k < f->metas; k++)
		if (f->meta[k].proto == f->callees.of[i].proto && !strcmp(f->meta[k].name, name))
			return;
	if (f->metas == MSP_TRACE_METAS) {
		f->any_meta = true;
		return;
	}
	f->meta[f->metas].proto = f->callees.of[i].proto;
	strcpy(f->meta[f->metas++].name, name);
}

/* ---- Metatables ---- */

static uint64_t object_in(const struct msp_trace_reader *r, const uint8_t *value)
{
	return r->layout->gc64 ? msp_get64(value) & ((1ull << 47) - 1) : msp_get32(value);
}

/* The nodes of a table's hash; NULL: it is none, or too large. */
static uint8_t *read_nodes(const struct msp_trace_reader *r, struct msp_trace_facts *f,
			   uint64_t table, uint32_t *count)
{
	const struct msp_lj_object_layout *o = msp_lj_object_layout(r->layout);
	struct msp_lj_table t;
	uint8_t *nodes;
	size_t size;

	if (!msp_lj_table_read(r->layout, r->mem, table, &t) || t.hmask >= MAX_NODES ||
	    !msp_trace_work(f, (t.hmask + 1) * MSP_TRACE_READ))
		return NULL;
	*count = t.hmask + 1;
	size = *count * (size_t)o->node_size;
	nodes = malloc(size);
	if (nodes && msp_read(r->mem, t.node, nodes, size)) {
		free(nodes);
		return NULL;
	}
	return nodes;
}

/* What a metatable that never changes has. */
static void add_metatable(struct msp_trace_reader *r, struct msp_trace_facts *f, uint64_t table)
{
	const struct msp_lj_object_layout *o = msp_lj_object_layout(r->layout);
	uint32_t count;
	uint8_t *nodes = read_nodes(r, f, table, &count);
	char name[MSP_META_NAME];

	if (!nodes)
		f->any_meta = true;
	for (uint32_t i = 0; nodes && i < count; i++) {
		const uint8_t *node = nodes + (size_t)i * o->node_size;
		uint64_t value = object_in(r, node);

		if (!read_name(r, object_in(r, node + 8), name))
			continue;
		if (msp_lj_object_type(r->layout, r->mem, value) == MSP_GCT_FUNC)
			add_meta(r, f, name, value, true);
		else
			f->indexed |= !strcmp(name, "__index");
	}
	free(nodes);
}

/*
 * The table with the metatables of C types is known by one that it has for pointers to functions,
 * with the VM's own empty string as its name (lib_ffi.c), which without GC64 is not aligned as objects
 * are. False: it is not that table.
 */
static bool add_ctypes(struct msp_trace_reader *r, struct msp_trace_facts *f, uint64_t table)
{
	const struct msp_lj_object_layout *o = msp_lj_object_layout(r->layout);
	uint32_t count, tables = 0;
	uint8_t *nodes = read_nodes(r, f, table, &count);
	bool known = false;

	for (uint32_t i = 0; nodes && i < count; i++) {
		const uint8_t *node = nodes + (size_t)i * o->node_size;

		if (msp_lj_object_type(r->layout, r->mem, object_in(r, node)) != MSP_GCT_TAB)
			continue;
		if (tables++ == MAX_METATABLES) {
			known = false;
			break;
		}
		if (object_in(r, node + 8) == r->g + (uint64_t)r->layout->g_strempty)
			known = true; /* it has what is built in */
		else
			add_metatable(r, f, object_in(r, node));
	}
	free(nodes);
	return known;
}

/* It is behind the global state, or behind another table in older versions. */
static void read_ctypes(struct msp_trace_reader *r, struct msp_trace_facts *f)
{
	uint64_t cts = msp_lj_ctypes_find(r->layout, r->mem, r->g), table;
	uint32_t at = msp_lj_object_layout(r->layout)->cts_g;

	for (int i = 1; cts && i <= 2; i++)
		if (!msp_read(r->mem, cts + at + 8u * (unsigned int)i, &table, 8) &&
		    add_ctypes(r, f, table))
			return;
	f->any_meta = true;
}

static void add_userdata(struct msp_trace_reader *r, struct msp_trace_facts *f, uint64_t object)
{
	const struct msp_lj_object_layout *o = msp_lj_object_layout(r->layout);
	uint64_t table;

	f->lookup = true;
	if (msp_lj_object_type(r->layout, r->mem, object) != MSP_GCT_UDATA ||
	    !msp_lj_read_ref(r->layout, r->mem, object + o->ud_meta, &table))
		f->any_meta = true;
	else if (table)
		add_metatable(r, f, table);
}

/* One that was loaded: a C library is checked to be the one that it was. */
static void read_userdata(struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t loaded)
{
	uint32_t is;

	for (uint32_t ref = loaded + 1; ref < r->nins && msp_trace_work(f, 1); ref++) {
		is = msp_ir_b(r, ref);
		if (msp_ir_guard(r, ref) && msp_ir_a(r, ref) == loaded &&
		    msp_ir_is_constant(r, is) &&
		    (msp_ir_type(r, is) == MSP_IR_P64 || msp_ir_type(r, is) == MSP_IR_P32)) {
			add_userdata(r, f, msp_ir_object(r, is));
			return;
		}
	}
	f->any_meta = true;
}

/* ---- Of a trace ---- */

void msp_trace_metas_constant(struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t ref)
{
	uint64_t object = msp_ir_object(r, ref);
	char name[MSP_META_NAME];

	switch (msp_ir_type(r, ref)) {
	case MSP_IR_STR:
		if (!read_name(r, object, name) &&
		    msp_lj_object_type(r->layout, r->mem, object) == MSP_GCT_STR)
			f->any_meta = true;
		f->lookup |= name[0] == '_' && name[1] == '_' && strcmp(name, "__index") &&
			     strcmp(name, "__newindex");
		return;
	case MSP_IR_CDATA:
		f->ctypes = true;
		return;
	case MSP_IR_UDATA:
		add_userdata(r, f, object);
		return;
	default:
		return;
	}
}

/* The function that one loaded or stored by the name of a metamethod is. */
static void read_load(struct msp_trace_reader *r, struct msp_trace_facts *f, uint32_t ref)
{
	uint32_t key = msp_ir_type(r, ref) == MSP_IR_FUNC ? msp_trace_key_of(r, ref) : 0;
	uint32_t stored = msp_ir_b(r, ref);
	char name[MSP_META_NAME];
	uint64_t fn;

	if (!key)
		return;
	if (!read_name(r, msp_ir_object(r, key), name)) {
		f->any_meta = true;
		return;
	}
	if (name[0] != '_' || name[1] != '_')
		return;
	fn = msp_trace_work(f, r->nins - ref) ? msp_trace_checked_function(r, ref) : 0;
	if (!fn && msp_ir_is_constant(r, stored) && msp_ir_type(r, stored) == MSP_IR_FUNC)
		fn = msp_ir_object(r, stored);
	add_meta(r, f, name, fn, false);
}

void msp_trace_metas_read(struct msp_trace_reader *r, struct msp_trace_facts *f)
{
	for (uint32_t ref = MSP_REF_BIAS + 1; ref < r->nins; ref++) {
		read_load(r, f, ref);
		f->ctypes |= msp_ir_type(r, ref) == MSP_IR_CDATA;
		f->wide |= msp_ir_type(r, ref) == MSP_IR_U64;
		if (msp_ir_type(r, ref) == MSP_IR_UDATA)
			read_userdata(r, f, ref);
	}
	if (f->ctypes)
		read_ctypes(r, f);
	f->indexed |= f->any_meta;
	f->lookup |= f->any_meta || f->ctypes;
}

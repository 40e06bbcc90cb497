/* SPDX-License-Identifier: MIT */
/* Tagged values (lj_obj.h), read and checked. */
#include "luajit/objects.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/proto.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

#define STRING_MAX 160	   /* bytes of a string that are kept */
#define PROOF_OBJECTS 4096 /* of the list, looked through for tables */
#define PROOF_TABLES 64

/* Tags are the complement of these (LJ_TNIL and so on). */
enum {
	TNIL,
	TFALSE,
	TTRUE,
	TLIGHTUD,
	TSTR,
	TUPVAL,
	TTHREAD,
	TPROTO,
	TFUNC,
	TTRACE,
	TCDATA,
	TTAB,
	TUDATA,
	TNUMX
};
#define NARROW_NUMBERS 0xfffeffffu /* LJ_TISNUM of 64-bit builds without GC64: below are numbers */
#define GCV_MASK ((1ull << 47) - 1)

/* The complement of a tag: TNIL to TNUMX; -1: a number. ref: what is not the tag. */
static int tag_of(const struct msp_lj_layout *layout, uint64_t value, uint64_t *ref)
{
	uint32_t tag;

	if (layout->gc64) {
		tag = (uint32_t)((int64_t)value >> 47);
		*ref = value & GCV_MASK;
		if (~tag < TNUMX || (~tag == TNUMX && layout->dualnum))
			return (int)~tag;
		return -1;
	}
	tag = (uint32_t)(value >> 32);
	*ref = (uint32_t)value;
	if (tag < NARROW_NUMBERS)
		return -1;
	if ((int32_t)tag >> 15 == -2) /* 47 bits of an address behind LJ_TLIGHTUD */
		return TLIGHTUD;
	return ~tag <= TNUMX ? (int)~tag : TNUMX + 1;
}

/* Without a character of UTF-8 that was cut in its middle. */
static uint32_t whole_characters(const char *text, uint32_t size)
{
	for (uint32_t back = 1; back <= 3 && back <= size; back++) {
		unsigned char c = (unsigned char)text[size - back];

		if (c < 0x80)
			return size;
		if (c >= 0xc0)
			return back < (c < 0xe0 ? 2u : c < 0xf0 ? 3u : 4u) ? size - back : size;
	}
	return size;
}

static void read_string(struct msp_lj_values *values, struct msp_value *out)
{
	char buf[STRING_MAX + 1];
	uint32_t length, kept;

	if (msp_lj_string_read(values->layout, values->mem, out->address, buf, sizeof(buf),
			       &length)) {
		out->type = MSP_TYPE_UNREADABLE;
		return;
	}
	kept = length <= STRING_MAX ? length : whole_characters(buf, STRING_MAX);
	out->text = malloc(kept + 1u);
	if (!out->text)
		kept = 0;
	else
		memcpy(out->text, buf, kept);
	if (out->text)
		out->text[kept] = 0;
	out->cut = kept < length;
	out->kept = kept;
	out->length = length;
}

static void read_function(struct msp_lj_values *values, struct msp_value *out)
{
	const struct msp_lj_layout *layout = values->layout;
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX];
	struct msp_proto pt;
	uint64_t pc;

	if (msp_read(values->mem, out->address + (uint64_t)layout->fn_ffid, &out->ffid, 1) ||
	    !msp_lj_read_ref(layout, values->mem, out->address + (uint64_t)layout->fn_pc, &pc)) {
		out->type = MSP_TYPE_UNREADABLE;
		return;
	}
	if (out->ffid == 1)
		msp_read(values->mem, out->address + (uint64_t)layout->fn_cfunc, &out->address, 8);
	if (out->ffid)
		return;
	pc -= (uint64_t)layout->pt_size;
	if (msp_proto_read_header(layout, values->mem, pc, header) ||
	    msp_proto_parse(layout, header, pc, &pt)) {
		out->type = MSP_TYPE_UNREADABLE;
		return;
	}
	out->pt = pc;
	out->ident = pt.ident;
}

/* Tag to type, and the type code that the object must have. */
static const struct {
	uint8_t type;
	int8_t gct;
} kinds[] = {
	[TNIL] = {MSP_TYPE_NIL, -1},
	[TFALSE] = {MSP_TYPE_BOOLEAN, -1},
	[TTRUE] = {MSP_TYPE_BOOLEAN, -1},
	[TLIGHTUD] = {MSP_TYPE_LIGHTUSERDATA, -1},
	[TSTR] = {MSP_TYPE_STRING, MSP_GCT_STR},
	[TUPVAL] = {MSP_TYPE_INTERNAL, MSP_GCT_UPVAL},
	[TTHREAD] = {MSP_TYPE_THREAD, MSP_GCT_THREAD},
	[TPROTO] = {MSP_TYPE_INTERNAL, MSP_GCT_PROTO},
	[TFUNC] = {MSP_TYPE_FUNCTION, MSP_GCT_FUNC},
	[TTRACE] = {MSP_TYPE_INTERNAL, MSP_GCT_TRACE},
	[TCDATA] = {MSP_TYPE_CDATA, MSP_GCT_CDATA},
	[TTAB] = {MSP_TYPE_TABLE, MSP_GCT_TAB},
	[TUDATA] = {MSP_TYPE_USERDATA, MSP_GCT_UDATA},
};

static void read_object(struct msp_lj_values *values, unsigned int depth, struct msp_value *out)
{
	switch (out->type) {
	case MSP_TYPE_STRING:
		read_string(values, out);
		return;
	case MSP_TYPE_FUNCTION:
		read_function(values, out);
		return;
	case MSP_TYPE_CDATA:
		msp_lj_cdata_read(values, out);
		return;
	case MSP_TYPE_TABLE:
		if (depth && values->tables)
			msp_lj_table_entries(values, depth, out);
		return;
	}
}

void msp_lj_value_at(struct msp_lj_values *values, uint64_t at, unsigned int depth,
		     struct msp_value *out)
{
	uint64_t word, ref;
	int tag;

	memset(out, 0, sizeof(*out));
	out->type = MSP_TYPE_UNREADABLE;
	if (*values->left)
		--*values->left;
	if (msp_read(values->mem, at, &word, sizeof(word)))
		return;
	tag = tag_of(values->layout, word, &ref);
	if (tag < 0 || tag == TNUMX) {
		out->type = MSP_TYPE_NUMBER;
		if (tag < 0)
			memcpy(&out->number, &word, sizeof(word));
		else
			out->number = (int32_t)word;
		return;
	}
	if (tag > TNUMX)
		return;
	if (kinds[tag].gct >= 0 &&
	    msp_lj_object_type(values->layout, values->mem, ref) != kinds[tag].gct)
		return;
	out->type = kinds[tag].type;
	out->boolean = tag == TTRUE;
	if (kinds[tag].gct >= 0)
		out->address = ref;
	read_object(values, depth, out);
}

void msp_lj_value_read(struct msp_lj_values *values, const struct msp_memory *mem, uint64_t at,
		       unsigned int depth, uint32_t *left, struct msp_value *out)
{
	values->mem = mem;
	values->left = left;
	msp_lj_value_at(values, at, depth, out);
}

void msp_lj_value_free(struct msp_value *value)
{
	for (uint32_t i = 0; i < value->entries; i++) {
		msp_lj_value_free(&value->entry[i].key);
		msp_lj_value_free(&value->entry[i].value);
	}
	free(value->entry);
	free(value->text);
	free(value->content);
}

/* ---- Is it known how tables lie in memory? ---- */

/* All tables among the first objects must look like tables; one may be in the middle of a change. */
static bool prove_tables(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g)
{
	const struct msp_lj_layout *layout = &build->layout;
	uint64_t obj = msp_lj_gc_root(build, mem, g);
	unsigned int right = 0, wrong = 0;

	for (int i = 0; i < PROOF_OBJECTS && obj && right + wrong < PROOF_TABLES; i++) {
		int type = msp_lj_object_type(layout, mem, obj);
		struct msp_lj_table table;

		if (type < 0)
			break;
		if (type == MSP_GCT_TAB) {
			bool good = msp_lj_table_read(layout, mem, obj, &table) &&
				    msp_lj_table_sound(layout, mem, &table);

			right += good && table.hmask;
			wrong += !good;
		}
		if (!msp_lj_read_ref(layout, mem, obj, &obj))
			break;
	}
	return right && wrong <= 1;
}

struct msp_lj_values *msp_lj_values_new(const struct msp_lj_build *build,
					const struct msp_memory *mem, uint64_t g)
{
	struct msp_lj_values *values = calloc(1, sizeof(*values));

	if (!values)
		return NULL;
	values->build = build;
	values->layout = &build->layout;
	values->objects = msp_lj_object_layout(&build->layout);
	values->mem = mem;
	values->g = g;
	values->tables = prove_tables(build, mem, g);
	values->cts = msp_lj_ctypes_find(&build->layout, mem, g);
	return values;
}

void msp_lj_values_free(struct msp_lj_values *values)
{
	free(values);
}

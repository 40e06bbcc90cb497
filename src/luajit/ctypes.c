/* SPDX-License-Identifier: MIT */
/*
 * C types of the FFI (lj_ctype.h): cdata with their types, as ffi.typeof() would spell
 * them. The table of types proves itself: its owner points back at the global state.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "luajit/objects.h"
#include "luajit/proto.h"

#define GLOBAL_MAX 4096 /* the pointer to the types is within the global state, or right behind */
#define TYPES_MAX 65536u
#define STEPS_MAX 32 /* from a type to what it is made of */
#define NAME_MAX_LEN 160

/* Kinds, and bits of CType.info. */
enum { CT_NUM, CT_STRUCT, CT_PTR, CT_ARRAY, CT_VOID, CT_ENUM, CT_FUNC, CT_TYPEDEF, CT_ATTRIB };
#define KIND(info) ((info) >> 28)
#define CHILD(info) ((info)&0xffff)
#define F_BOOL 0x08000000u
#define F_FP 0x04000000u
#define F_CONST 0x02000000u
#define F_VOLATILE 0x01000000u
#define F_UNSIGNED 0x00800000u
#define F_LONG 0x00400000u
#define F_VLA 0x00100000u
#define F_REF 0x00800000u
#define F_UNION 0x00800000u
#define F_VECTOR 0x08000000u
#define F_COMPLEX 0x04000000u

struct ctype {
	uint32_t info, size;
	uint64_t name;
};

static bool is_ctypes(const struct msp_lj_layout *layout, const struct msp_memory *mem,
		      uint64_t cts, uint64_t g)
{
	const struct msp_lj_object_layout *objects = msp_lj_object_layout(layout);
	uint64_t back, tab;
	uint32_t top;

	return msp_lj_object_address(cts) &&
	       msp_lj_read_ref(layout, mem, cts + objects->cts_g, &back) && back == g &&
	       msp_read(mem, cts, &tab, 8) == 0 && msp_lj_object_address(tab) &&
	       msp_read(mem, cts + objects->cts_top, &top, 4) == 0 && top && top <= TYPES_MAX;
}

uint64_t msp_lj_ctypes_find(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			    uint64_t g)
{
	uint32_t ref = layout->gc64 ? 8 : 4;
	uint64_t at;

	for (uint32_t off = 0; off < GLOBAL_MAX; off += ref)
		if (msp_lj_read_ref(layout, mem, g + off, &at) && is_ctypes(layout, mem, at, g))
			return at;
	return 0;
}

static bool get_type(const struct msp_lj_values *values, uint32_t id, struct ctype *out)
{
	const struct msp_lj_object_layout *objects = values->objects;
	uint64_t tab;
	uint32_t top, words[2];

	if (!values->cts || msp_read(values->mem, values->cts, &tab, 8) ||
	    msp_read(values->mem, values->cts + objects->cts_top, &top, 4) || id >= top ||
	    id >= TYPES_MAX)
		return false;
	tab += (uint64_t)id * objects->ct_size;
	if (msp_read(values->mem, tab, words, sizeof(words)) ||
	    !msp_lj_read_ref(values->layout, values->mem, tab + objects->ct_name, &out->name))
		return false;
	out->info = words[0];
	out->size = words[1];
	return true;
}

/* ---- Names: built from the inside out, around what stands for the variable ---- */

struct spelling {
	char before[NAME_MAX_LEN], after[NAME_MAX_LEN];
	bool pointer; /* the last thing put before was a pointer: arrays and functions need brackets */
};

static void prepend(struct spelling *s, const char *text)
{
	size_t old = strlen(s->before), length = strlen(text);
	bool space = old && !strchr("*(&", text[length - 1]);

	if (old + length + space >= sizeof(s->before))
		return; /* a name that is longer is no use */
	memmove(s->before + length + space, s->before, old + 1);
	memcpy(s->before, text, length);
	if (space)
		s->before[length] = ' ';
}

static void append(struct spelling *s, const char *text)
{
	size_t old = strlen(s->after), length = strlen(text);

	if (old + length < sizeof(s->after))
		memcpy(s->after + old, text, length + 1);
}

static void bracket(struct spelling *s)
{
	if (!s->pointer)
		return;
	prepend(s, "(");
	append(s, ")");
	s->pointer = false;
}

static const char *number_name(const struct ctype *type, char buf[32])
{
	bool without_sign = type->info & F_UNSIGNED;

	if (type->info & F_BOOL)
		return "bool";
	if (type->info & F_FP)
		return type->size == 4 ? "float" : type->size == 8 ? "double" : "long double";
	if (type->size == 1)
		return without_sign ? "unsigned char" : "char";
	if (type->size == 2)
		return without_sign ? "unsigned short" : "short";
	if (type->size == 4)
		return without_sign ? "unsigned int" : "int";
	snprintf(buf, 32, "%sint%u_t", without_sign ? "u" : "", type->size * 8 % 1024);
	return buf;
}

/* "struct point", or with its number if it has no name. */
static void prepend_tagged(struct msp_lj_values *values, struct spelling *s,
			   const struct ctype *type, uint32_t id)
{
	const char *kind = KIND(type->info) == CT_ENUM ? "enum"
			   : type->info & F_UNION      ? "union"
						       : "struct";
	char name[96], text[112];
	uint32_t length;

	if (!type->name || msp_lj_string_read(values->layout, values->mem, type->name, name,
					      sizeof(name), &length))
		snprintf(name, sizeof(name), "%u", id);
	snprintf(text, sizeof(text), "%s %s", kind, name);
	prepend(s, text);
}

static void append_count(struct msp_lj_values *values, struct spelling *s,
			 const struct ctype *array)
{
	struct ctype element;
	char text[16];
	uint32_t count = 0;

	if (get_type(values, CHILD(array->info), &element) && element.size &&
	    element.size != UINT32_MAX)
		count = array->size / element.size;
	snprintf(text, sizeof(text), "[%u]", count);
	append(s, text);
}

/* One step from a type towards what it is made of; false: that was all. */
static bool spell(struct msp_lj_values *values, struct spelling *s, const struct ctype *type,
		  uint32_t *id)
{
	char text[48];

	switch (KIND(type->info)) {
	case CT_NUM:
		prepend(s, number_name(type, text));
		break;
	case CT_STRUCT:
	case CT_ENUM:
		prepend_tagged(values, s, type, *id);
		break;
	case CT_VOID:
		prepend(s, "void");
		break;
	case CT_PTR:
		if (type->info & (F_CONST | F_VOLATILE) && !(type->info & F_REF))
			prepend(s, type->info & F_CONST ? "const" : "volatile");
		prepend(s, type->info & F_REF ? "&" : "*");
		s->pointer = true;
		*id = CHILD(type->info);
		return true;
	case CT_ARRAY:
		if (type->info & F_COMPLEX && !(type->info & F_VECTOR)) {
			prepend(s, type->size == 8 ? "complex float" : "complex");
			return false;
		}
		bracket(s);
		if (type->info & F_VLA || type->size == UINT32_MAX)
			append(s, "[?]");
		else
			append_count(values, s, type);
		*id = CHILD(type->info);
		return true;
	case CT_FUNC:
		bracket(s);
		append(s, "()");
		*id = CHILD(type->info);
		return true;
	case CT_TYPEDEF:
	case CT_ATTRIB:
		*id = CHILD(type->info);
		return true;
	default:
		prepend(s, "?");
		return false;
	}
	if (type->info & F_CONST)
		prepend(s, "const");
	if (type->info & F_VOLATILE)
		prepend(s, "volatile");
	return false;
}

static char *type_name(struct msp_lj_values *values, uint32_t id)
{
	struct spelling s = {.before = ""};
	struct ctype type;
	bool spaced;
	char *name;

	for (int i = 0; i < STEPS_MAX; i++) {
		if (!get_type(values, id, &type)) {
			prepend(&s, "?");
			break;
		}
		if (!spell(values, &s, &type, &id))
			break;
	}
	/* "int [4]", but "int (*)()" */
	spaced = *s.before && *s.after && !strchr("*(&", s.before[strlen(s.before) - 1]);
	return asprintf(&name, "%s%s%s", s.before, spaced ? " " : "", s.after) < 0 ? NULL : name;
}

/* ---- Contents ---- */

static char *number_text(struct msp_lj_values *values, const struct ctype *type, uint64_t at)
{
	uint64_t word = 0;
	char *text = NULL;
	double number;
	float small;

	if (!type->size || type->size > 8 || msp_read(values->mem, at, &word, type->size))
		return NULL;
	if (type->info & F_BOOL)
		return strdup(word & 0xff ? "true" : "false");
	if (type->info & F_FP) {
		memcpy(&small, &word, sizeof(small));
		memcpy(&number, &word, sizeof(number));
		if (asprintf(&text, "%.14g", type->size == 4 ? (double)small : number) < 0)
			return NULL;
		return text;
	}
	if (!(type->info & F_UNSIGNED) && type->size < 8)
		word = (uint64_t)((int64_t)(word << (64 - 8 * type->size)) >>
				  (64 - 8 * type->size));
	if ((type->info & F_UNSIGNED ? asprintf(&text, "%" PRIu64, word)
				     : asprintf(&text, "%" PRId64, (int64_t)word)) < 0)
		return NULL;
	return text;
}

static char *content_text(struct msp_lj_values *values, uint32_t id, uint64_t at)
{
	struct ctype type;
	uint64_t word;
	char *text;

	for (int i = 0; i < STEPS_MAX; i++) {
		if (!get_type(values, id, &type))
			return NULL;
		switch (KIND(type.info)) {
		case CT_NUM:
			return number_text(values, &type, at);
		case CT_PTR:
		case CT_FUNC:
			if (msp_read(values->mem, at, &word, 8) ||
			    asprintf(&text, "0x%" PRIx64, word) < 0)
				return NULL;
			return text;
		case CT_ENUM:
		case CT_TYPEDEF:
		case CT_ATTRIB:
			id = CHILD(type.info);
			continue;
		default:
			return NULL;
		}
	}
	return NULL;
}

void msp_lj_cdata_read(struct msp_lj_values *values, struct msp_value *out)
{
	const struct msp_lj_object_layout *objects = values->objects;
	uint16_t id;

	if (msp_read(values->mem, out->address + objects->cd_type, &id, sizeof(id))) {
		out->type = MSP_TYPE_UNREADABLE;
		return;
	}
	if (!values->cts)
		return;
	out->text = type_name(values, id);
	out->content = content_text(values, id, out->address + objects->cd_data);
}

/* SPDX-License-Identifier: MIT */
#include "luajit/libinit.h"

#include <ctype.h>
#include <string.h>

/* Tags: two bits of kind with a length, or a special code (lj_lib.h). */
enum { KIND_CF = 0x00, KIND_ASM = 0x40, KIND_ASM_ = 0x80, KIND_STRING = 0xc0, KIND_MASK = 0xc0 };
enum {
	TAG_LUA = 0xf9,
	TAG_SET = 0xfa,
	TAG_NUMBER = 0xfb,
	TAG_COPY = 0xfc,
	TAG_LASTCL = 0xfd,
	TAG_FFID = 0xfe,
	TAG_END = 0xff
};
#define LENGTH_MASK 0x3f

/* Constants in a bytecode dump (lj_bcdump.h). */
enum { KGC_CHILD, KGC_TAB, KGC_I64, KGC_U64, KGC_COMPLEX, KGC_STR };
enum { KTAB_NIL, KTAB_FALSE, KTAB_TRUE, KTAB_INT, KTAB_NUM, KTAB_STR };

struct cursor {
	const uint8_t *at, *end;
	bool bad;
};

static uint8_t byte(struct cursor *c)
{
	if (c->at >= c->end) {
		c->bad = true;
		return TAG_END;
	}
	return *c->at++;
}

static void skip(struct cursor *c, uint64_t n)
{
	if (n > (uint64_t)(c->end - c->at))
		c->bad = true;
	else
		c->at += n;
}

static uint32_t uleb(struct cursor *c)
{
	uint32_t value = 0;

	for (unsigned int shift = 0; shift < 35; shift += 7) {
		uint8_t b = byte(c);

		if (shift < 32)
			value |= (uint32_t)(b & 0x7f) << shift;
		if (!(b & 0x80) || c->bad)
			break;
	}
	return value;
}

static void skip_table_item(struct cursor *c)
{
	uint32_t type = uleb(c);

	if (type >= KTAB_STR) {
		skip(c, type - KTAB_STR);
	} else if (type == KTAB_INT) {
		uleb(c);
	} else if (type == KTAB_NUM) {
		uleb(c);
		uleb(c);
	}
}

static void skip_table(struct cursor *c)
{
	uint32_t array = uleb(c), hash = uleb(c);

	for (uint32_t i = 0; i < array && !c->bad; i++)
		skip_table_item(c);
	for (uint32_t i = 0; i < hash && !c->bad; i++) {
		skip_table_item(c);
		skip_table_item(c);
	}
}

static void skip_kgc(struct cursor *c)
{
	uint32_t type = uleb(c);

	if (type >= KGC_STR)
		skip(c, type - KGC_STR);
	else if (type == KGC_TAB)
		skip_table(c);
	else if (type != KGC_CHILD)
		for (uint32_t i = 0; i < (type == KGC_COMPLEX ? 4 : 2); i++)
			uleb(c);
}

/* A function in bytecode, without debug information. */
static void skip_bytecode(struct cursor *c)
{
	uint32_t sizekgc, sizekn, sizebc;
	uint8_t sizeuv;

	skip(c, 3); /* flags, parameters, frame size */
	sizeuv = byte(c);
	sizekgc = uleb(c);
	sizekn = uleb(c);
	sizebc = uleb(c);
	skip(c, sizebc * 4ULL + sizeuv * 2ULL);
	for (uint32_t i = 0; i < sizekgc && !c->bad; i++)
		skip_kgc(c);
	for (uint32_t i = 0; i < sizekn && !c->bad; i++) {
		/* The lowest bit tells numbers of two parts from integers. */
		bool two = c->at < c->end && *c->at & 1;

		uleb(c);
		if (two)
			uleb(c);
	}
}

static void read_name(struct cursor *c, unsigned int len, char *name)
{
	for (unsigned int i = 0; i < len; i++) {
		name[i] = (char)byte(c);
		if (!isalnum((unsigned char)name[i]) && name[i] != '_')
			c->bad = true;
	}
	name[len] = 0;
}

static void add_function(struct cursor *c, struct msp_libinit *out, uint8_t tag)
{
	if (out->count == MSP_LIBINIT_MAX) {
		c->bad = true;
		return;
	}
	read_name(c, tag & LENGTH_MASK, out->func[out->count++].name);
	out->asm_count += (tag & KIND_MASK) != KIND_CF;
}

/* What is no function with a number. Adds to the named entries. */
static void read_other(struct cursor *c, struct msp_libinit *out, uint8_t tag, unsigned int *named)
{
	char name[MSP_LIBINIT_NAME];

	switch (tag) {
	case TAG_LUA:
		read_name(c, byte(c) & LENGTH_MASK, name);
		skip_bytecode(c);
		++*named;
		break;
	case TAG_SET:
		++*named;
		break;
	case TAG_NUMBER:
		skip(c, sizeof(double));
		break;
	case TAG_COPY:
		skip(c, 1);
		break;
	case TAG_LASTCL:
		break;
	case TAG_FFID:
		if (out->count < MSP_LIBINIT_MAX)
			out->func[out->count++].name[0] = 0;
		out->nameless++;
		break;
	default:
		skip(c, tag & LENGTH_MASK);
		break;
	}
}

bool msp_libinit_parse(const uint8_t *bytes, size_t size, struct msp_libinit *out)
{
	struct cursor c = {.at = bytes, .end = bytes + size};
	unsigned int named = 0, expected;
	uint8_t tag;

	memset(out, 0, sizeof(*out));
	out->ffid = byte(&c);
	out->ffasm = byte(&c);
	expected = byte(&c);
	while (!c.bad && (tag = byte(&c)) != TAG_END) {
		if ((tag & KIND_MASK) == KIND_STRING) {
			read_other(&c, out, tag, &named);
			continue;
		}
		add_function(&c, out, tag);
		named += (tag & LENGTH_MASK) != 0;
	}
	return !c.bad && named == expected && named + out->count > 1;
}

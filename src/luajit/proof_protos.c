/* SPDX-License-Identifier: MIT */
/*
 * A prototype is one block of memory: header, bytecode, constants, upvalues,
 * lines, names. Each part's address follows from the sizes of those before.
 */
#include "luajit/proof.h"

#include <inttypes.h>
#include <string.h>

#define MAX_BC 65536
#define MAX_PROTO_SIZE (64U << 20)
#define MAX_CHUNKNAME 512
#define MAX_NAMES 4096
#define MAX_STRING 256
#define MAX_STRINGS 32 /* of a prototype */
#define MIN_STRINGS 8
/* lj_obj.h */
#define PROTO_CHILD 0x01
#define PROTO_VARARG 0x02
/* lj_debug.h: names below that are codes of a byte. */
#define VARNAME_MAX 7

bool msp_proof_read_proto(struct msp_prover *p, uint64_t at, struct msp_proof_proto *pt)
{
	const struct msp_lj_layout *l = p->layout;

#define AT(field) (at + (uint64_t)(int64_t)l->field)
	pt->at = at;
	return msp_proof_u8(p, AT(gc_gct), &pt->gct) &&
	       msp_proof_u8(p, AT(pt_numparams), &pt->numparams) &&
	       msp_proof_u8(p, AT(pt_framesize), &pt->framesize) &&
	       msp_proof_u8(p, AT(pt_sizeuv), &pt->sizeuv) &&
	       msp_proof_u8(p, AT(pt_flags), &pt->flags) &&
	       msp_proof_u16(p, AT(pt_trace), &pt->trace) &&
	       msp_proof_u32(p, AT(pt_sizebc), &pt->sizebc) &&
	       msp_proof_u32(p, AT(pt_sizekgc), &pt->sizekgc) &&
	       msp_proof_u32(p, AT(pt_sizekn), &pt->sizekn) &&
	       msp_proof_u32(p, AT(pt_sizept), &pt->sizept) &&
	       msp_proof_u32(p, AT(pt_firstline), &pt->firstline) &&
	       msp_proof_u32(p, AT(pt_numline), &pt->numline) &&
	       msp_proof_ref(p, AT(pt_k), &pt->k) &&
	       msp_proof_ref(p, AT(pt_chunkname), &pt->chunkname) &&
	       msp_proof_ref(p, AT(pt_lineinfo), &pt->lineinfo) &&
	       msp_proof_ref(p, AT(pt_uvinfo), &pt->uvinfo) &&
	       msp_proof_ref(p, AT(pt_varinfo), &pt->varinfo) &&
	       msp_proof_u32(p, AT(pt_size), &pt->header);
#undef AT
}

bool msp_proof_proto_bounded(const struct msp_proof_proto *pt)
{
	return pt->sizebc >= 2 && pt->sizebc <= MAX_BC && pt->sizekgc <= MAX_BC &&
	       pt->sizekn <= MAX_BC && pt->sizept >= pt->sizebc * 4 && pt->sizept <= MAX_PROTO_SIZE;
}

static bool check_sizes(struct msp_tally *t, struct msp_prover *p, const struct msp_proof_proto *pt)
{
	uint64_t k = (uint64_t)p->layout->pt_size + pt->sizebc * 4ULL +
		     pt->sizekgc * msp_proof_ref_size(p);

	if (!msp_tally_add(t, msp_proof_proto_bounded(pt),
			   "0x%" PRIx64 " has %u instructions in %u bytes", pt->at, pt->sizebc,
			   pt->sizept))
		return false;
	k = pt->at + ((k + 7) & ~7ULL);
	return msp_tally_add(t, pt->k == k,
			     "0x%" PRIx64 " has constants at +%" PRId64 ", not +%" PRId64, pt->at,
			     (int64_t)(pt->k - pt->at), (int64_t)(k - pt->at));
}

/* The header instruction repeats the frame's size, and tells variadic functions. */
static void check_header(struct msp_tally *t, struct msp_prover *p,
			 const struct msp_proof_proto *pt)
{
	uint32_t op = pt->header & 0xff;
	bool vararg = op >= p->layout->bc_funcf + 3U;

	msp_tally_add(t, pt->framesize == (pt->header >> 8 & 0xff),
		      "0x%" PRIx64 " has frame size %u, its header %u", pt->at, pt->framesize,
		      pt->header >> 8 & 0xff);
	msp_tally_add(t, pt->numparams < pt->framesize,
		      "0x%" PRIx64 " has %u parameters in %u slots", pt->at, pt->numparams,
		      pt->framesize);
	msp_tally_add(t, !(pt->flags & PROTO_VARARG) == !vararg,
		      "0x%" PRIx64 " has flags 0x%x, its header opcode %u", pt->at, pt->flags, op);
}

static void check_children(struct msp_tally *t, struct msp_prover *p,
			   const struct msp_proof_proto *pt)
{
	bool child = false;
	uint64_t obj;

	for (unsigned int i = 1; i <= pt->sizekgc && i <= 1024 && !child; i++)
		child = msp_proof_ref(p, pt->k - i * msp_proof_ref_size(p), &obj) &&
			msp_proof_is(p, obj, MSP_GCT_PROTO);
	msp_tally_add(t, !(pt->flags & PROTO_CHILD) == !child,
		      "0x%" PRIx64 " has flags 0x%x, nested prototypes: %s", pt->at, pt->flags,
		      child ? "yes" : "no");
}

/* Chunk names are C strings: length and terminator agree. */
static void check_chunkname(struct msp_tally *t, struct msp_prover *p,
			    const struct msp_proof_proto *pt)
{
	char text[MAX_CHUNKNAME];
	uint32_t len = 0;

	if (!msp_tally_add(
		    t,
		    msp_proof_is(p, pt->chunkname, MSP_GCT_STR) &&
			    msp_proof_u32(p, pt->chunkname + (uint64_t)p->layout->str_len, &len),
		    "0x%" PRIx64 " has no chunk name at 0x%" PRIx64, pt->at, pt->chunkname))
		return;
	/* A chunk can be named by its whole source, with any bytes: no check for those. */
	if (len >= sizeof(text))
		return;
	if (!msp_tally_add(
		    t,
		    msp_proof_read(p, pt->chunkname + (uint64_t)p->layout->str_data, text, len + 1),
		    "chunk name 0x%" PRIx64 " has %u bytes", pt->chunkname, len))
		return;
	msp_tally_add(t, strnlen(text, sizeof(text)) == len,
		      "chunk name 0x%" PRIx64 " has %u bytes but ends after %zu", pt->chunkname,
		      len, strnlen(text, sizeof(text)));
}

/* So are strings among the constants. Most are short: if all seem to be long, that is no length. */
static void check_strings(struct msp_tally *t, struct msp_prover *p,
			  const struct msp_proof_proto *pt)
{
	char text[MAX_STRING + 1];

	for (unsigned int i = 1; i <= pt->sizekgc && i <= MAX_STRINGS; i++) {
		uint64_t obj;
		uint32_t len;

		if (!msp_proof_ref(p, pt->k - i * msp_proof_ref_size(p), &obj) ||
		    !msp_proof_is(p, obj, MSP_GCT_STR) ||
		    !msp_proof_u32(p, obj + (uint64_t)p->layout->str_len, &len))
			continue;
		p->strings++;
		if (len > MAX_STRING ||
		    !msp_proof_read(p, obj + (uint64_t)p->layout->str_data, text, len + 1))
			continue;
		p->short_strings++;
		msp_tally_add(t, text[len] == 0, "string 0x%" PRIx64 " of %u bytes has no end", obj,
			      len);
	}
}

/* Upvalue names, one after the other; returns the address behind them, 0: unreadable. */
static uint64_t skip_upvalue_names(struct msp_prover *p, const struct msp_proof_proto *pt)
{
	uint64_t at = pt->uvinfo;
	unsigned int left = pt->sizeuv;
	uint8_t c;

	for (unsigned int i = 0; left && i < MAX_NAMES; i++) {
		if (!msp_proof_u8(p, at++, &c))
			return 0;
		left -= c == 0;
	}
	return left ? 0 : at;
}

struct cursor {
	struct msp_prover *p;
	uint64_t at, end;
	bool bad;
};

static uint8_t next_byte(struct cursor *c)
{
	uint8_t byte = 0;

	if (c->at >= c->end || !msp_proof_u8(c->p, c->at++, &byte))
		c->bad = true;
	return byte;
}

static uint32_t next_uleb(struct cursor *c)
{
	uint32_t value = 0;
	uint8_t byte;

	for (unsigned int shift = 0; shift < 35; shift += 7) {
		byte = next_byte(c);
		if (shift < 32)
			value |= (uint32_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80) || c->bad)
			break;
	}
	return value;
}

/* Variables: name or code, where it starts after the one before, how long. Ends at the block's end. */
static void check_varinfo(struct msp_tally *t, struct msp_prover *p,
			  const struct msp_proof_proto *pt)
{
	struct cursor c = {.p = p, .at = pt->varinfo, .end = pt->at + pt->sizept};
	unsigned int params = 0;
	bool leading = true;

	if (c.end - c.at > MAX_NAMES)
		return;
	while (!c.bad) {
		uint8_t byte = next_byte(&c);

		if (!byte)
			break;
		while (byte >= VARNAME_MAX && byte && !c.bad)
			byte = next_byte(&c);
		/* Parameters start before the first instruction. */
		leading = next_uleb(&c) == 0 && leading;
		params += leading;
		next_uleb(&c);
	}
	msp_tally_add(t, !c.bad && c.at == c.end,
		      "0x%" PRIx64 ": variables end %" PRId64 " bytes early", pt->at,
		      (int64_t)(c.end - c.at));
	msp_tally_add(t, params == pt->numparams,
		      "0x%" PRIx64 " has %u parameters, but names for %u", pt->at, pt->numparams,
		      params);
}

static void check_debug(struct msp_tally *t, struct msp_prover *p, const struct msp_proof_proto *pt)
{
	uint64_t lineinfo = pt->k + pt->sizekn * 8ULL + ((pt->sizeuv + 1U) & ~1U) * 2;
	unsigned int width = pt->numline < 256 ? 0 : pt->numline < 65536 ? 1 : 2;
	uint64_t uvinfo = pt->lineinfo + ((uint64_t)(pt->sizebc - 1) << width);

	if (!pt->lineinfo && !pt->uvinfo && !pt->varinfo) {
		/* Stripped: nothing follows the upvalues. */
		msp_tally_add(t, lineinfo == pt->at + pt->sizept,
			      "stripped 0x%" PRIx64 " ends %" PRId64 " bytes early", pt->at,
			      (int64_t)(pt->at + pt->sizept - lineinfo));
		return;
	}
	if (!msp_tally_add(t, pt->lineinfo == lineinfo,
			   "0x%" PRIx64 " has lines at +%" PRId64 ", not +%" PRId64, pt->at,
			   (int64_t)(pt->lineinfo - pt->at), (int64_t)(lineinfo - pt->at)))
		return;
	if (!msp_tally_add(t, pt->uvinfo == uvinfo,
			   "0x%" PRIx64 " has upvalue names at +%" PRId64 ", not +%" PRId64, pt->at,
			   (int64_t)(pt->uvinfo - pt->at), (int64_t)(uvinfo - pt->at)))
		return;
	uvinfo = skip_upvalue_names(p, pt);
	if (!msp_tally_add(t, pt->varinfo == uvinfo,
			   "0x%" PRIx64 " has variables at +%" PRId64 ", not +%" PRId64, pt->at,
			   (int64_t)(pt->varinfo - pt->at), (int64_t)(uvinfo - pt->at)))
		return;
	check_varinfo(t, p, pt);
}

/* Everything that one prototype says about itself; proof_lines.c compares several. */
static void check_proto(struct msp_prover *p, struct msp_tally *t, uint64_t at)
{
	struct msp_proof_proto pt;

	if (!msp_tally_add(t, msp_proof_read_proto(p, at, &pt), "0x%" PRIx64 " is not readable",
			   at) ||
	    !check_sizes(t, p, &pt))
		return;
	check_header(t, p, &pt);
	check_children(t, p, &pt);
	check_chunkname(t, p, &pt);
	check_strings(t, p, &pt);
	check_debug(t, p, &pt);
}

void msp_proof_protos(struct msp_prover *p)
{
	struct msp_tally t = {0};

	p->strings = p->short_strings = 0;
	for (unsigned int i = 0; i < p->proto_count; i++)
		msp_tally_object(p, &t, check_proto, p->proto[i], MSP_GCT_PROTO);
	if (p->strings >= MIN_STRINGS)
		msp_tally_add(&t, p->short_strings > 0, "all of %u strings are long", p->strings);
	msp_tally_result(p, MSP_LJ_CHECK_PROTOS, &t);
}

/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "luajit/proto.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

/* Hidden loop variables have one of these bytes in place of a name (lj_debug.h). */
#define VARNAME_END 0
#define VARNAME_MAX 7

/* Offset in the block of an optional pointer into it; 0 if it does not lead there. */
static uint32_t inner_offset(const struct msp_proto *pt, uint64_t pointer, uint64_t from,
			     uint64_t size)
{
	uint64_t off = pointer - pt->addr;

	if (!pointer || off < from || off > pt->sizept || size > pt->sizept - off)
		return 0;
	return off;
}

int msp_proto_parse(const struct msp_lj_layout *layout, const uint8_t *header, uint64_t addr,
		    struct msp_proto *out)
{
	int gc64 = layout->gc64 != 0;
	uint64_t k = msp_hdr_ref(header, layout->pt_k, gc64);
	uint64_t end_bc, kgc_size, lines;

	if (msp_hdr_u8(header, layout->gc_gct) != MSP_GCT_PROTO || addr & 7)
		return MSP_E_FORMAT;
	*out = (struct msp_proto){
		.addr = addr,
		.ref_size = gc64 ? 8 : 4,
		.bc = layout->pt_size,
		.chunkname = msp_hdr_ref(header, layout->pt_chunkname, gc64),
		.sizebc = msp_hdr_u32(header, layout->pt_sizebc),
		.sizekgc = msp_hdr_u32(header, layout->pt_sizekgc),
		.sizekn = msp_hdr_u32(header, layout->pt_sizekn),
		.sizept = msp_hdr_u32(header, layout->pt_sizept),
		.firstline = msp_hdr_u32(header, layout->pt_firstline),
		.numline = msp_hdr_u32(header, layout->pt_numline),
		.numparams = msp_hdr_u8(header, layout->pt_numparams),
		.framesize = msp_hdr_u8(header, layout->pt_framesize),
		.sizeuv = msp_hdr_u8(header, layout->pt_sizeuv),
		.flags = msp_hdr_u8(header, layout->pt_flags),
	};
	if (out->sizept > MSP_PROTO_SIZE_MAX || !out->sizebc || out->sizebc > out->sizept / 4 ||
	    out->sizekgc > out->sizept / out->ref_size || out->sizekn > out->sizept / 8)
		return MSP_E_FORMAT;

	/* The constants are the one thing every prototype has a pointer to: it must fit. */
	end_bc = (uint64_t)out->bc + 4ull * out->sizebc;
	kgc_size = (uint64_t)out->sizekgc * out->ref_size;
	out->kgc_end = inner_offset(out, k, end_bc + kgc_size, 8ull * out->sizekn);
	if (!out->kgc_end || k & 7)
		return MSP_E_FORMAT;
	lines = (uint64_t)(out->sizebc - 1) * msp_proto_line_width(out->numline);
	out->lineinfo = inner_offset(out, msp_hdr_ref(header, layout->pt_lineinfo, gc64),
				     out->kgc_end, lines);
	out->uvinfo =
		inner_offset(out, msp_hdr_ref(header, layout->pt_uvinfo, gc64), out->kgc_end, 1);
	out->varinfo =
		inner_offset(out, msp_hdr_ref(header, layout->pt_varinfo, gc64), out->kgc_end, 1);
	out->ident = msp_proto_ident(header, layout);
	return 0;
}

int msp_proto_read_header(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			  uint64_t addr, uint8_t *header)
{
	memset(header, 0, MSP_PROTO_HEADER_MAX);
	return msp_read(mem, addr, header, layout->pt_size);
}

int msp_proto_read(const struct msp_lj_layout *layout, const struct msp_memory *mem, uint64_t addr,
		   struct msp_proto *out)
{
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX];
	uint8_t *data;
	int error;

	memset(out, 0, sizeof(*out));
	error = msp_proto_read_header(layout, mem, addr, header);
	if (!error)
		error = msp_proto_parse(layout, header, addr, out);
	if (error)
		return error;
	data = malloc(out->sizept);
	if (!data)
		return MSP_E_NOMEM;
	error = msp_read(mem, addr, data, out->sizept);

	/* The target runs on: what was there before the long read must be there after it. */
	if (!error)
		error = msp_proto_read_header(layout, mem, addr, header);
	if (!error && (msp_hdr_u8(header, layout->gc_gct) != MSP_GCT_PROTO ||
		       msp_proto_ident(header, layout) != out->ident))
		error = MSP_E_GONE;
	if (error) {
		free(data);
		return error;
	}
	out->data = data;
	return 0;
}

void msp_proto_free(struct msp_proto *pt)
{
	free(pt->data);
	pt->data = NULL;
}

uint32_t msp_proto_ins(const struct msp_proto *pt, uint32_t pos)
{
	uint32_t ins;

	memcpy(&ins, pt->data + pt->bc + 4ull * pos, sizeof(ins));
	return ins;
}

uint64_t msp_proto_kgc(const struct msp_proto *pt, uint32_t index)
{
	uint64_t ref = 0;

	if (index >= pt->sizekgc)
		return 0;
	memcpy(&ref, pt->data + pt->kgc_end - (index + 1ull) * pt->ref_size, pt->ref_size);
	return ref;
}

uint32_t msp_proto_line(const struct msp_proto *pt, uint32_t pos)
{
	uint32_t width = msp_proto_line_width(pt->numline);
	uint32_t delta = 0;

	if (!pt->lineinfo || pos > pt->sizebc)
		return 0;
	if (pos == 0)
		return pt->firstline;
	if (pos == pt->sizebc)
		return pt->firstline + pt->numline;
	memcpy(&delta, pt->data + pt->lineinfo + (uint64_t)(pos - 1) * width, width);
	return pt->firstline + delta;
}

const char *msp_proto_uvname(const struct msp_proto *pt, uint32_t index)
{
	const char *p, *end;

	if (!pt->uvinfo || index >= pt->sizeuv)
		return NULL;
	p = (const char *)pt->data + pt->uvinfo;
	end = (const char *)pt->data + pt->sizept;
	for (;; index--) {
		const char *zero = memchr(p, 0, end - p);

		if (!zero)
			return NULL;
		if (!index)
			return p;
		p = zero + 1;
	}
}

/* An unsigned LEB128 number of at most 5 bytes. */
static bool read_leb(const uint8_t **p, const uint8_t *end, uint32_t *out)
{
	uint32_t value = 0;

	for (int shift = 0; shift < 35; shift += 7) {
		uint8_t byte;

		if (*p >= end)
			return false;
		byte = *(*p)++;
		value |= (uint32_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*out = value;
			return true;
		}
	}
	return false;
}

/* One entry of varinfo: name, distance of the start to the start before, length. */
static bool next_var(const uint8_t **p, const uint8_t *end, struct msp_proto_var *var)
{
	uint32_t start, length;

	if (*p >= end || **p == VARNAME_END)
		return false;
	if (**p < VARNAME_MAX) {
		var->name = NULL;
	} else {
		var->name = (const char *)*p;
		*p = memchr(*p, 0, end - *p);
		if (!*p)
			return false;
	}
	++*p;
	if (!read_leb(p, end, &start) || !read_leb(p, end, &length))
		return false;
	var->start += start;
	var->end = var->start + length;
	return true;
}

bool msp_proto_var(const struct msp_proto *pt, uint32_t pos, uint32_t slot,
		   struct msp_proto_var *out, uint32_t *work)
{
	struct msp_proto_var var = {0};
	uint32_t unlimited = UINT32_MAX;
	const uint8_t *p, *end;

	if (!pt->varinfo)
		return false;
	p = pt->data + pt->varinfo;
	end = pt->data + pt->sizept;
	/* Entries are in order of their start; the living ones fill the slots from 0 on. */
	work = work ? work : &unlimited;
	while (*work && next_var(&p, end, &var) && var.start <= pos) {
		--*work;
		if (pos < var.end && slot-- == 0) {
			*out = var;
			return true;
		}
	}
	return false;
}

enum msp_proto_tail msp_proto_tail(const struct msp_proto *pt)
{
	struct msp_proto_var var = {.end = 1};
	const uint8_t *p, *end;
	uint32_t start = 0;

	if (!pt->varinfo)
		return MSP_TAIL_WHOLE;
	p = pt->data + pt->varinfo;
	end = pt->data + pt->sizept;
	while (next_var(&p, end, &var)) {
		if (var.start < start || var.end < var.start || var.end > pt->sizebc)
			return MSP_TAIL_BROKEN;
		start = var.start;
	}
	if (p + 1 != end || *p != VARNAME_END)
		return MSP_TAIL_BROKEN;
	return var.end > var.start ? MSP_TAIL_WHOLE : MSP_TAIL_DOUBTFUL;
}

int msp_lj_string_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
		       uint64_t ref, char *buf, size_t cap, uint32_t *len)
{
	uint8_t head[64];
	uint32_t size;
	int error;

	if (!ref || layout->str_data > (int)sizeof(head) || layout->str_len + 4 > layout->str_data)
		return MSP_E_FORMAT;
	error = msp_read(mem, ref, head, layout->str_data);
	if (error)
		return error;
	if (head[layout->gc_gct] != MSP_GCT_STR)
		return MSP_E_FORMAT;
	memcpy(len, head + layout->str_len, sizeof(*len));
	size = *len < cap - 1 ? *len : cap - 1;
	if (size)
		error = msp_read(mem, ref + layout->str_data, buf, size);
	buf[error ? 0 : size] = 0;
	return error;
}

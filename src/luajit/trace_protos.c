/* SPDX-License-Identifier: MIT */
/* The functions that a trace's positions lie in, and what their bytecode says of a position. */
#include <stdlib.h>

#include "luajit/trace_reader.h"

#define MAX_BYTECODE 65536
#define MAX_BACK (1u << 16) /* instructions from a position back to its function's header */
#define FUNC_HEADERS 6	    /* of Lua functions: FUNCF IFUNCF JFUNCF FUNCV IFUNCV JFUNCV */

static bool keep_proto(struct msp_trace_reader *r, uint64_t addr, struct msp_trace_proto **out)
{
	const struct msp_lj_layout *y = r->layout;
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX] = {0};
	struct msp_trace_proto *p = &r->proto[r->proto_count];

	if (r->proto_count == MSP_TRACE_PROTOS || addr & 7 ||
	    (uint32_t)y->pt_size > MSP_PROTO_HEADER_MAX ||
	    msp_read(r->mem, addr, header, y->pt_size) ||
	    msp_hdr_u8(header, y->gc_gct) != MSP_GCT_PROTO)
		return false;
	p->addr = addr;
	p->ident = msp_proto_ident(header, y);
	p->bc = addr + y->pt_size;
	p->k = msp_hdr_ref(header, y->pt_k, y->gc64);
	p->end = p->bc + 4ull * msp_hdr_u32(header, y->pt_sizebc);
	r->proto_count++;
	*out = p;
	return true;
}

/* From a position back to the header instruction of its function. */
static bool search_back(const struct msp_trace_reader *r, uint64_t pc, uint64_t *header)
{
	uint32_t ins[256];
	uint64_t at = pc + 4, start;
	uint32_t n, pieces = MAX_BACK / 256;

	while (pieces--) {
		/* not over the start of a page that may be the first */
		start = (at - 4) & ~1023ull;
		n = (at - start) / 4;
		if (!n || msp_read(r->mem, start, ins, n * 4ull))
			return false;
		while (n--)
			if ((ins[n] & 0xff) >= r->layout->bc_funcf) {
				*header = start + n * 4ull;
				return (ins[n] & 0xff) <
				       r->layout->bc_funcf + (uint32_t)FUNC_HEADERS;
			}
		at = start;
	}
	return false;
}

/* The prototype that a bytecode position lies in. */
struct msp_trace_proto *msp_trace_proto_of(struct msp_trace_reader *r, uint64_t pc)
{
	struct msp_trace_proto *p;
	uint64_t header;

	for (uint32_t i = 0; i < r->proto_count; i++)
		if (pc >= r->proto[i].bc && pc < r->proto[i].end)
			return &r->proto[i];
	if (pc & 3 || !search_back(r, pc, &header) ||
	    !keep_proto(r, header - r->layout->pt_size, &p) || pc < p->bc || pc >= p->end)
		return NULL;
	return p;
}

struct msp_trace_proto *msp_trace_proto_at(struct msp_trace_reader *r, uint64_t addr)
{
	struct msp_trace_proto *p;

	for (uint32_t i = 0; i < r->proto_count; i++)
		if (r->proto[i].addr == addr)
			return &r->proto[i];
	return keep_proto(r, addr, &p) ? p : NULL;
}

/* A function of the VM's own or in C, by its object. False: it is none. */
bool msp_trace_builtin(struct msp_trace_reader *r, uint64_t fn, struct msp_trace_node *node)
{
	const struct msp_lj_layout *y = r->layout;
	uint8_t object[64];

	fn &= (1ull << 47) - 1;
	if (!fn || fn & 7 || y->fn_cfunc < 0 || y->fn_cfunc + 8 > (int)sizeof(object) ||
	    y->fn_ffid >= (int)sizeof(object) || y->gc_gct >= (int)sizeof(object) ||
	    msp_read(r->mem, fn, object, y->fn_cfunc + 8) || object[y->gc_gct] != MSP_GCT_FUNC ||
	    !object[y->fn_ffid])
		return false;
	node->kind = object[y->fn_ffid] == 1 ? MSP_RAW_CFUNC : MSP_RAW_FAST;
	node->pos = object[y->fn_ffid];
	node->addr = node->kind == MSP_RAW_CFUNC ? msp_get64(object + y->fn_cfunc) : fn;
	return true;
}

/* ---- Places ---- */

bool msp_trace_need_bytecode(struct msp_trace_reader *r, struct msp_trace_proto *p)
{
	size_t size = (size_t)msp_trace_proto_size(p) * 4;

	if (p->ins)
		return true;
	if (!r->set || msp_trace_proto_size(p) > MAX_BYTECODE || !(p->ins = malloc(size)))
		return false;
	if (!msp_read(r->mem, p->bc, p->ins, size))
		return true;
	free(p->ins);
	p->ins = NULL;
	return false;
}

static bool is_condition(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			 uint32_t pos)
{
	return msp_bc_decode(r->set, p->ins[pos]).op <= MSP_BC_ISF;
}

static bool is_loop(const struct msp_trace_reader *r, const struct msp_trace_proto *p, uint32_t pos)
{
	uint8_t op = msp_bc_decode(r->set, p->ins[pos]).op;

	return op >= MSP_BC_FORL && op <= MSP_BC_JITERL;
}

/*
 * A snapshot at a condition has the position of the branch that the trace does
 * not take: the condition is right before it, or before a jump to it.
 */
uint32_t msp_trace_guarded(struct msp_trace_reader *r, struct msp_trace_proto *p, uint32_t pos)
{
	struct msp_bc_ins ins;

	if (!msp_trace_need_bytecode(r, p))
		return pos;
	if (pos >= 3 && msp_bc_decode(r->set, p->ins[pos - 1]).op == MSP_BC_JMP &&
	    is_condition(r, p, pos - 2))
		return pos - 2;
	if (pos >= 2 && is_loop(r, p, pos - 1))
		return pos - 1;
	for (uint32_t at = pos; at-- > 2;) {
		ins = msp_bc_decode(r->set, p->ins[at]);
		if (ins.op == MSP_BC_JMP && msp_bc_target(&ins, at) == pos &&
		    is_condition(r, p, at - 1))
			return at - 1;
	}
	return pos;
}

uint32_t msp_trace_loop_start(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			      uint32_t pos)
{
	struct msp_bc_ins ins = msp_bc_decode(r->set, p->ins[pos]), other;

	if (ins.op != MSP_BC_JFORL && ins.op != MSP_BC_JITERL)
		return msp_bc_target(&ins, pos);
	for (uint32_t at = pos; at-- > 1;) {
		other = msp_bc_decode(r->set, p->ins[at]);
		if (ins.op == MSP_BC_JFORL
			    ? (other.op == MSP_BC_FORI || other.op == MSP_BC_JFORI) &&
				      msp_bc_target(&other, at) == pos + 1
			    : (other.op == MSP_BC_JMP || other.op == MSP_BC_ISNEXT) &&
				      msp_bc_target(&other, at) == pos - 1)
			return at + 1;
	}
	return 0;
}

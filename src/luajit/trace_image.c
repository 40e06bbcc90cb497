/* SPDX-License-Identifier: MIT */
/*
 * Reading a trace. It is one block of memory (lj_trace.c, lj_jit.h):
 *
 *	header | IR: constants, instructions | snapshots | their map
 *
 * A snapshot's map has an entry for each slot that the trace has changed, then
 * the bytecode position to go on from. Where a frame begins, the entries of its
 * function and of its link are constants: from these the frames are made that
 * exist on no stack while the trace runs. (lj_snap.c)
 */
#include "luajit/trace_image.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/bytecode.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

#define IR_SIZE 8
#define SNAP_ENTRY 4
#define SNAP_FRAME 0x10000u
#define SNAP_CONT 0x20000u
#define MAX_SNAPS 4096
#define MAX_MAP (1u << 20)
#define MAX_PROTOS 256 /* of one trace */
#define MAX_BYTECODE 65536
#define MAX_BACK (1u << 16) /* instructions from a position back to its function's header */
#define FUNC_HEADERS 6	    /* of Lua functions: FUNCF IFUNCF JFUNCF FUNCV IFUNCV JFUNCV */

enum { LINK_LUA = 0, LINK_C = 1, LINK_CONT = 2, LINK_VARG = 3 };

/* A prototype whose bytecode a position of the trace lies in. */
struct proto {
	uint64_t addr, ident, bc, end;
	uint32_t *ins; /* its bytecode, NULL: not read */
};

/* A trace while it is being read. */
struct reader {
	const struct msp_lj_layout *layout;
	const struct msp_memory *mem;
	const struct msp_bc_set *set; /* NULL: opcodes are not known */
	_Alignas(8) uint8_t header[MSP_TRACE_HEADER_MAX];
	uint64_t block; /* address of IR, snapshots and map */
	uint8_t *data;	/* them */
	size_t ir_size, snaps_size, map_size;
	uint32_t nk, nins;
	struct proto proto[MAX_PROTOS];
	uint32_t proto_count;
	struct msp_trace_image *image;
	uint32_t node_room;
};

static uint32_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static int read_header(const struct msp_lj_layout *y, const struct msp_memory *mem, uint64_t at,
		       uint8_t *header)
{
	if (at & 7 || msp_read(mem, at, header, MSP_TRACE_HEADER_MAX))
		return MSP_E_GONE;
	return header[y->gc_gct & 127] == MSP_GCT_TRACE ? 0 : MSP_E_GONE;
}

/* Sizes that are in bounds, and parts that follow each other: else it is no trace. */
static int check_header(struct reader *r)
{
	const struct msp_lj_layout *y = r->layout;
	uint32_t nsnap = msp_hdr_u16(r->header, y->T_nsnap);
	uint32_t nmap = msp_hdr_u32(r->header, y->T_nsnapmap);
	uint64_t snap = msp_hdr_ref(r->header, y->T_snap, 1);

	r->nk = msp_hdr_u32(r->header, y->T_nk);
	r->nins = msp_hdr_u32(r->header, y->T_nins);
	if (!r->nk || r->nk > MSP_REF_BIAS || r->nins <= MSP_REF_BIAS || r->nins > 0x10000 ||
	    !nsnap || nsnap > MAX_SNAPS || nmap > MAX_MAP || y->snap_size < 12 || y->snap_size > 16)
		return MSP_E_GONE;
	r->ir_size = (size_t)(r->nins - r->nk) * IR_SIZE;
	r->snaps_size = (size_t)nsnap * (uint32_t)y->snap_size;
	r->map_size = (size_t)nmap * SNAP_ENTRY;
	r->block = msp_hdr_ref(r->header, y->T_ir, 1) + (uint64_t)r->nk * IR_SIZE;
	if (snap != r->block + r->ir_size ||
	    msp_hdr_ref(r->header, y->T_snapmap, 1) != snap + r->snaps_size)
		return MSP_E_GONE;
	return 0;
}

static size_t hashed_size(const struct reader *r)
{
	size_t words = MSP_REF_BIAS - r->nk;

	return (words < MSP_TRACE_IR_WORDS ? words : MSP_TRACE_IR_WORDS) * IR_SIZE;
}

static uint64_t hash_of(const struct reader *r, uint64_t at, const uint8_t *header,
			const uint8_t *ir)
{
	uint64_t hash = msp_trace_ident(header, r->layout, at);

	for (size_t i = 0; i < hashed_size(r); i += IR_SIZE)
		hash = msp_ident_mix(hash, get64(ir + i));
	return hash;
}

/* A constant with a word of its own: it follows the instruction. */
static bool constant(const struct reader *r, uint32_t ref, uint64_t *value)
{
	if (ref < r->nk || ref + 1 >= MSP_REF_BIAS)
		return false;
	*value = get64(r->data + (size_t)(ref + 1 - r->nk) * IR_SIZE);
	return true;
}

/* ---- Functions ---- */

static bool keep_proto(struct reader *r, uint64_t addr, struct proto **out)
{
	const struct msp_lj_layout *y = r->layout;
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX] = {0};
	struct proto *p = &r->proto[r->proto_count];

	if (r->proto_count == MAX_PROTOS || addr & 7 ||
	    (uint32_t)y->pt_size > MSP_PROTO_HEADER_MAX ||
	    msp_read(r->mem, addr, header, y->pt_size) ||
	    msp_hdr_u8(header, y->gc_gct) != MSP_GCT_PROTO)
		return false;
	p->addr = addr;
	p->ident = msp_proto_ident(header, y);
	p->bc = addr + y->pt_size;
	p->end = p->bc + 4ull * msp_hdr_u32(header, y->pt_sizebc);
	r->proto_count++;
	*out = p;
	return true;
}

/* From a position back to the header instruction of its function. */
static bool search_back(const struct reader *r, uint64_t pc, uint64_t *header)
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
static struct proto *proto_of(struct reader *r, uint64_t pc)
{
	struct proto *p;
	uint64_t header;

	for (uint32_t i = 0; i < r->proto_count; i++)
		if (pc >= r->proto[i].bc && pc < r->proto[i].end)
			return &r->proto[i];
	if (pc & 3 || !search_back(r, pc, &header) ||
	    !keep_proto(r, header - r->layout->pt_size, &p) || pc < p->bc || pc >= p->end)
		return NULL;
	return p;
}

/* A function of the VM's own or in C, by its object. False: it is none. */
static bool builtin(struct reader *r, uint64_t fn, struct msp_trace_node *node)
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
	node->addr = node->kind == MSP_RAW_CFUNC ? get64(object + y->fn_cfunc) : fn;
	return true;
}

/* ---- Places ---- */

static uint32_t count_of(const struct proto *p)
{
	return (p->end - p->bc) / 4;
}

/* Its bytecode is here now. */
static bool need_bytecode(struct reader *r, struct proto *p)
{
	size_t size = (size_t)count_of(p) * 4;

	if (p->ins)
		return true;
	if (!r->set || count_of(p) > MAX_BYTECODE || !(p->ins = malloc(size)))
		return false;
	if (!msp_read(r->mem, p->bc, p->ins, size))
		return true;
	free(p->ins);
	p->ins = NULL;
	return false;
}

static bool is_condition(const struct reader *r, const struct proto *p, uint32_t pos)
{
	return msp_bc_decode(r->set, p->ins[pos]).op <= MSP_BC_ISF;
}

static bool is_loop(const struct reader *r, const struct proto *p, uint32_t pos)
{
	uint8_t op = msp_bc_decode(r->set, p->ins[pos]).op;

	return op >= MSP_BC_FORL && op <= MSP_BC_JITERL;
}

/*
 * A snapshot at a condition has the position of the branch that the trace does
 * not take: the condition is right before it, or before a jump to it.
 */
static uint32_t guarded(struct reader *r, struct proto *p, uint32_t pos)
{
	struct msp_bc_ins ins;

	if (!need_bytecode(r, p))
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

/* ---- Snapshots ---- */

/* The node with that content. 0: no room. */
static uint16_t add_node(struct reader *r, const struct msp_trace_node *node)
{
	struct msp_trace_image *image = r->image;
	struct msp_trace_node *have, *bigger;

	for (uint32_t i = image->node_count; i-- > 1;) {
		have = &image->node[i];
		if (have->addr == node->addr && have->pos == node->pos &&
		    have->parent == node->parent && have->kind == node->kind)
			return i;
	}
	if (image->node_count == r->node_room) {
		if (r->node_room >= UINT16_MAX / 2)
			return 0;
		r->node_room *= 2;
		bigger = realloc(image->node, r->node_room * sizeof(*bigger));
		if (!bigger)
			return 0;
		image->node = bigger;
	}
	image->node[image->node_count] = *node;
	return image->node_count++;
}

/* Frames of one snapshot, innermost first, before they become nodes. */
struct frames {
	struct msp_trace_node f[MSP_TRACE_DEPTH];
	uint32_t count;
};

/* The frame of the function in slot fn, at pc if that is not 0. False: it makes no sense. */
static bool add_frame(struct reader *r, struct frames *frames, uint64_t pc, bool fn_known,
		      uint64_t fn)
{
	struct msp_trace_node *node = &frames->f[frames->count];
	const struct proto *p;

	if (frames->count == MSP_TRACE_DEPTH)
		return false;
	memset(node, 0, sizeof(*node));
	p = pc ? proto_of(r, pc) : NULL;
	if (p) {
		node->kind = MSP_RAW_LUA;
		node->addr = p->addr;
		node->ident = p->ident;
		node->pos = (pc - p->bc) / 4;
	} else if (!fn_known || !builtin(r, fn, node)) {
		return false;
	}
	frames->count++;
	return true;
}

/* Entry of a slot among n, which are sorted by it; its constant. */
static bool slot_constant(const struct reader *r, const uint8_t *map, uint32_t n, uint32_t slot,
			  uint64_t *value)
{
	uint32_t entry;

	for (uint32_t i = 0; i < n; i++) {
		entry = get32(map + (size_t)i * SNAP_ENTRY);
		if (entry >> 24 == slot)
			return constant(r, entry & 0xffff, value);
	}
	return false;
}

/* Two-slot frames: links are constants of the slot below a frame's base. */
static bool snap_frames(struct reader *r, const uint8_t *map, uint32_t n, uint64_t pcword,
			struct frames *out, bool *tail_call)
{
	uint64_t pc = pcword >> 8, fn = 0, link;
	uint32_t top = (pcword & 0xff) + 1, entry, slot; /* slot of the innermost link */
	bool half = false, known;

	*tail_call = false;
	out->count = 0;
	for (uint32_t i = n; i-- > 0;) {
		entry = get32(map + (size_t)i * SNAP_ENTRY);
		slot = entry >> 24;
		if (!(entry & SNAP_FRAME))
			continue;
		if (slot == 1) {
			*tail_call = true;
			continue;
		}
		if (slot < 3 || slot > top || (!out->count && !half && slot != top))
			return false; /* each frame has its link, the innermost one first */
		known = slot_constant(r, map, n, slot - 1, &fn);
		if (!half && !add_frame(r, out, pc, known, fn))
			return false;
		if (!constant(r, entry & 0xffff, &link))
			return false;
		half = false;
		if (!(link & 3))
			pc = link - 4;
		else if ((link & 7) == LINK_CONT && slot_constant(r, map, n, slot - 2, &pc))
			pc -= 4;
		else
			pc = 0;
		if ((link & 7) == LINK_C)
			return false;
		if ((link & 7) == LINK_VARG)
			half = true; /* what is below has the same function */
		top = slot - 2;
	}
	known = slot_constant(r, map, n, 0, &fn);
	return half || add_frame(r, out, pc, known, fn);
}

static uint16_t add_frames(struct reader *r, const struct frames *frames)
{
	struct msp_trace_node node;
	uint16_t at = 0;

	for (uint32_t i = frames->count; i-- > 0;) {
		node = frames->f[i];
		node.parent = at;
		at = add_node(r, &node);
		if (!at)
			return 0;
	}
	return at;
}

static int read_snap(struct reader *r, uint32_t i)
{
	const struct msp_lj_layout *y = r->layout;
	const uint8_t *s = r->data + r->ir_size + (size_t)i * (uint32_t)y->snap_size;
	const uint8_t *map = r->data + r->ir_size + r->snaps_size;
	struct msp_trace_snap *out = &r->image->snap[i];
	uint32_t ofs = get32(s + y->snap_mapofs), n = s[y->snap_nent];
	size_t word = y->gc64 ? 8 : 4, end = ((uint64_t)ofs + n) * SNAP_ENTRY;
	struct frames frames;
	struct proto *p;

	if (end + word > r->map_size)
		return MSP_E_GONE;
	out->code = get16(s + y->snap_mcofs) * (y->arch == MSP_ARCH_ARM64 ? 4 : 1);
	out->pc = y->gc64 ? get64(map + end) : get32(map + end);
	if (!y->fr2 || !y->gc64 ||
	    !snap_frames(r, map + (size_t)ofs * SNAP_ENTRY, n, out->pc, &frames, &out->tail_call))
		return 0;
	out->leaf = add_frames(r, &frames);
	p = frames.f[0].kind == MSP_RAW_LUA ? proto_of(r, out->pc >> 8) : NULL;
	out->guarded = p ? guarded(r, p, frames.f[0].pos) : frames.f[0].pos;
	return 0;
}

static int read_snaps(struct reader *r)
{
	struct msp_trace_image *image = r->image;
	int err = 0;

	r->node_room = 32;
	image->snap = calloc(image->snap_count, sizeof(*image->snap));
	image->node = calloc(r->node_room, sizeof(*image->node));
	if (!image->snap || !image->node)
		return MSP_E_NOMEM;
	image->node_count = 1;
	for (uint32_t i = 0; !err && i < image->snap_count; i++)
		err = read_snap(r, i);
	return err;
}

/* ---- All ---- */

static int read_data(struct reader *r)
{
	size_t size = r->ir_size + r->snaps_size + r->map_size;

	r->data = malloc(size);
	if (!r->data)
		return MSP_E_NOMEM;
	return msp_read(r->mem, r->block, r->data, size) ? MSP_E_GONE : 0;
}

/* The target runs on: what was there before must be there after all is read. */
static int still_there(const struct reader *r, uint64_t at)
{
	_Alignas(8) uint8_t header[MSP_TRACE_HEADER_MAX];
	uint8_t ir[MSP_TRACE_IR_WORDS * IR_SIZE];

	if (read_header(r->layout, r->mem, at, header) ||
	    msp_read(r->mem, r->block, ir, hashed_size(r)))
		return MSP_E_GONE;
	return hash_of(r, at, header, ir) == r->image->hash ? 0 : MSP_E_GONE;
}

static int read_all(struct reader *r, uint64_t at)
{
	const struct msp_lj_layout *y = r->layout;
	struct msp_trace_image *image = r->image;
	int err = read_header(y, r->mem, at, r->header);

	if (!err)
		err = check_header(r);
	if (!err)
		err = read_data(r);
	if (err)
		return err;
	image->at = at;
	image->number = msp_hdr_u16(r->header, y->T_traceno);
	image->hash = hash_of(r, at, r->header, r->data);
	image->szmcode = msp_hdr_u32(r->header, y->T_szmcode);
	image->linktype = msp_hdr_u8(r->header, y->T_linktype);
	image->snap_count = msp_hdr_u16(r->header, y->T_nsnap);
	err = read_snaps(r);
	if (!err)
		err = still_there(r, at);
	image->size = sizeof(*image) + image->snap_count * sizeof(*image->snap) +
		      r->node_room * sizeof(*image->node);
	return err;
}

int msp_trace_image_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			 uint64_t at, struct msp_trace_image **out)
{
	struct reader *r = calloc(1, sizeof(*r));
	int err = MSP_E_NOMEM;

	*out = NULL;
	if (!r)
		return err;
	r->layout = layout;
	r->mem = mem;
	r->set = msp_bc_set_find(layout);
	r->image = calloc(1, sizeof(*r->image));
	if (r->image)
		err = read_all(r, at);
	if (err)
		msp_trace_image_free(r->image);
	else
		*out = r->image;
	for (uint32_t i = 0; i < r->proto_count; i++)
		free(r->proto[i].ins);
	free(r->data);
	free(r);
	return err;
}

void msp_trace_image_free(struct msp_trace_image *image)
{
	if (!image)
		return;
	free(image->snap);
	free(image->node);
	free(image);
}

uint32_t msp_trace_interval(const struct msp_trace_image *image, uint32_t offset)
{
	uint32_t lo = 0, hi = image->snap_count, mid;

	while (hi - lo > 1) {
		mid = lo + (hi - lo) / 2;
		if (image->snap[mid].code <= offset)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

uint64_t msp_trace_image_ident(const struct msp_trace_image *image, uint32_t offset)
{
	uint32_t at = msp_trace_interval(image, offset);
	uint64_t hash = msp_ident_mix(image->hash, image->snap[at].pc);

	if (at + 1 < image->snap_count)
		hash = msp_ident_mix(hash, image->snap[at + 1].pc);
	return hash ? hash : 1;
}

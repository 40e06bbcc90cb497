/* SPDX-License-Identifier: MIT */
/*
 * A snapshot's map has an entry for each slot that the trace has changed, then
 * the bytecode position to go on from. Where a frame begins, the entries of its
 * function and of its link are constants: from these the frames are made that
 * exist on no stack while the trace runs. (lj_snap.c)
 */
#include <stdlib.h>

#include "luajit/trace_reader.h"
#include "moonspy/moonspy.h"

#define SNAP_FRAME 0x10000u

enum { LINK_C = 1, LINK_CONT = 2, LINK_VARG = 3 };

/* A constant with a word of its own: it follows the instruction. */
static bool constant(const struct msp_trace_reader *r, uint32_t ref, uint64_t *value)
{
	if (ref < r->nk || ref + 1 >= MSP_REF_BIAS)
		return false;
	*value = msp_get64(r->data + (size_t)(ref + 1 - r->nk) * MSP_IR_SIZE);
	return true;
}
/* Without GC64 an object's reference is in the instruction itself. */
static bool object(const struct msp_trace_reader *r, uint32_t ref, uint64_t *value)
{
	if (ref < r->nk || ref >= MSP_REF_BIAS)
		return false;
	*value = msp_get32(r->data + (size_t)(ref - r->nk) * MSP_IR_SIZE);
	return true;
}

uint16_t msp_trace_add_node(struct msp_trace_reader *r, const struct msp_trace_node *node)
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
static bool add_frame(struct msp_trace_reader *r, struct frames *frames, uint64_t pc, bool fn_known,
		      uint64_t fn)
{
	struct msp_trace_node *node = &frames->f[frames->count];
	const struct msp_trace_proto *p;

	if (frames->count == MSP_TRACE_DEPTH)
		return false;
	memset(node, 0, sizeof(*node));
	p = pc ? msp_trace_proto_of(r, pc) : NULL;
	if (p) {
		node->kind = MSP_RAW_LUA;
		node->addr = p->addr;
		node->ident = p->ident;
		node->pos = (pc - p->bc) / 4;
	} else if (!fn_known || !msp_trace_builtin(r, fn, node)) {
		return false;
	}
	frames->count++;
	return true;
}

/* Entry of a slot among n, which are sorted by it; its constant. */
static bool slot_constant(const struct msp_trace_reader *r, const uint8_t *map, uint32_t n,
			  uint32_t slot, uint64_t *value)
{
	uint32_t entry;

	for (uint32_t i = 0; i < n; i++) {
		entry = msp_get32(map + (size_t)i * MSP_SNAP_ENTRY);
		if (entry >> 24 == slot)
			return constant(r, entry & 0xffff, value);
	}
	return false;
}

/* Two-slot frames: links are constants of the slot below a frame's base. */
static bool snap_frames(struct msp_trace_reader *r, const uint8_t *map, uint32_t n, uint64_t pcword,
			struct frames *out, bool *tail_call)
{
	uint64_t pc = pcword >> 8, fn = 0, link;
	uint32_t top = (pcword & 0xff) + 1, entry, slot; /* slot of the innermost link */
	bool half = false, known;

	*tail_call = false;
	out->count = 0;
	for (uint32_t i = n; i-- > 0;) {
		entry = msp_get32(map + (size_t)i * MSP_SNAP_ENTRY);
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

/*
 * One-slot frames: the entry is of the function, in the slot below a frame's
 * base. Where the trace knows the function at its own base, it may be another
 * one than on the stack (perhaps): a tail call's. The links stand behind the position, the innermost one first; that of a
 * continuation with the position of its caller.
 */
static bool snap_frames32(struct msp_trace_reader *r, const uint8_t *map, uint32_t n,
			  const uint8_t *links, uint32_t count, struct frames *out, bool *perhaps)
{
	uint64_t pc = msp_get32(links), fn = 0;
	uint32_t entry, link, at = 1;
	bool half = false, known;

	out->count = 0;
	for (uint32_t i = n; i-- > 0;) {
		entry = msp_get32(map + (size_t)i * MSP_SNAP_ENTRY);
		if (!(entry & SNAP_FRAME) || entry >> 24 == 0)
			continue;
		known = object(r, entry & 0xffff, &fn);
		if ((!half && !add_frame(r, out, pc, known, fn)) || at == count)
			return false;
		link = msp_get32(links + (size_t)at++ * MSP_SNAP_ENTRY);
		half = (link & 7) == LINK_VARG;
		pc = link & 3 ? 0 : link - 4;
		if ((link & 7) == LINK_C)
			return false;
		if ((link & 7) == LINK_CONT && at < count)
			pc = msp_get32(links + (size_t)at++ * MSP_SNAP_ENTRY) - 4;
	}
	known = n && msp_get32(map) >> 24 == 0 && object(r, msp_get32(map) & 0xffff, &fn);
	*perhaps = known;
	return half || add_frame(r, out, pc, known, fn);
}

static uint16_t add_frames(struct msp_trace_reader *r, const struct frames *frames)
{
	struct msp_trace_node node;
	uint16_t at = 0;

	for (uint32_t i = frames->count; i-- > 0;) {
		node = frames->f[i];
		node.parent = at;
		at = msp_trace_add_node(r, &node);
		if (!at)
			return 0;
	}
	return at;
}

static int read_snap(struct msp_trace_reader *r, uint32_t i)
{
	const struct msp_lj_layout *y = r->layout;
	const uint8_t *s = r->data + r->ir_size + (size_t)i * (uint32_t)y->snap_size;
	const uint8_t *map = r->data + r->ir_size + r->snaps_size;
	struct msp_trace_snap *out = &r->image->snap[i];
	uint32_t ofs = y->snap_size == 8 ? msp_get16(s + y->snap_mapofs)
					 : msp_get32(s + y->snap_mapofs),
		 n = s[y->snap_nent];
	size_t word = y->gc64 ? 8 : 4, end = ((uint64_t)ofs + n) * MSP_SNAP_ENTRY;
	struct frames frames;
	struct msp_trace_proto *p;
	bool fits;

	if (end + word > r->map_size)
		return MSP_E_GONE;
	out->end = r->image->szmcode;
	if (y->snap_mcofs >= 0)
		out->code = out->begin =
			msp_get16(s + y->snap_mcofs) * (y->arch == MSP_ARCH_ARM64 ? 4 : 1);
	if (y->snap_mcofs >= 0 && i)
		r->image->snap[i - 1].end = out->code;
	out->pc = y->gc64 ? msp_get64(map + end) : msp_get32(map + end);
	map += (size_t)ofs * MSP_SNAP_ENTRY;
	fits = y->gc64 ? y->fr2 && snap_frames(r, map, n, out->pc, &frames, &out->tail_call)
		       : !y->fr2 && snap_frames32(r, map, n, map + (size_t)n * MSP_SNAP_ENTRY,
						  (r->map_size - end) / MSP_SNAP_ENTRY, &frames,
						  &out->perhaps);
	if (!fits)
		return 0;
	out->leaf = add_frames(r, &frames);
	p = frames.f[0].kind == MSP_RAW_LUA
		    ? msp_trace_proto_of(r, y->gc64 ? out->pc >> 8 : out->pc)
		    : NULL;
	out->guarded = p ? msp_trace_guarded(r, p, frames.f[0].pos) : frames.f[0].pos;
	return 0;
}

int msp_trace_read_snaps(struct msp_trace_reader *r)
{
	struct msp_trace_image *image = r->image;
	int err = 0;

	r->node_room = 32;
	image->snap = calloc(image->snap_count, sizeof(*image->snap));
	image->node = calloc(r->node_room, sizeof(*image->node));
	if (!image->snap || !image->node)
		return MSP_E_NOMEM;
	image->node_count = 1;
	image->placed = r->layout->snap_mcofs >= 0;
	for (uint32_t i = 0; !err && i < image->snap_count; i++)
		err = read_snap(r, i);
	return err;
}

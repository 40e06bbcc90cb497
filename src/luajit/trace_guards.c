/* SPDX-License-Identifier: MIT */
/*
 * Which code belongs to which snapshot, where the snapshots do not say it (LuaJIT from before March
 * 2021). A guard jumps to its exit, which has the snapshot's number. Along the code the numbers only
 * rise. Code between the guards of two snapshots can belong to either, and to those between them that
 * have no guard.
 */
#include "luajit/trace_exits.h"

/* The last exits of all may end where what is mapped ends: half of the window then. */
static void read_window(struct msp_trace_exits *e, struct msp_exits_window *w, uint64_t at)
{
	w->at = at & ~(uint64_t)(MSP_EXITS_WINDOW / 2 - 1);
	w->have = 0;
	for (size_t size = MSP_EXITS_WINDOW; !w->have && size >= MSP_EXITS_WINDOW / 2; size /= 2)
		if (e->reads++ < MSP_EXITS_READS && !msp_read(e->r->mem, w->at, w->bytes, size))
			w->have = size;
}

const uint8_t *msp_exits_bytes(struct msp_trace_exits *e, struct msp_exits_window *w, uint64_t at,
			       size_t n)
{
	if (at - w->at >= w->have || w->have - (at - w->at) < n)
		read_window(e, w, at);
	return at - w->at < w->have && w->have - (at - w->at) >= n ? w->bytes + (at - w->at) : NULL;
}

int msp_exits_of_side(struct msp_trace_exits *e, uint32_t number, uint64_t code)
{
	const struct msp_trace_reader *r = e->r;
	const struct msp_lj_layout *y = r->layout;
	_Alignas(8) uint8_t header[MSP_TRACE_HEADER_MAX];
	uint8_t base[MSP_IR_SIZE];
	uint64_t at = number ? msp_trace_find(y, r->mem, r->g, number) : 0;

	if (!at || msp_read(r->mem, at, header, sizeof(header)) ||
	    msp_hdr_ref(header, y->T_mcode, 1) != code ||
	    msp_read(r->mem, msp_hdr_ref(header, y->T_ir, 1) + (uint64_t)MSP_REF_BIAS * MSP_IR_SIZE,
		     base, sizeof(base)) ||
	    msp_get16(base) != r->image->number)
		return -1;
	return msp_get16(base + 2);
}

static int exit_of(struct msp_trace_exits *e, uint64_t jump)
{
	if (!jump || jump - e->r->mcode < e->r->image->szmcode)
		return -1;
	return e->r->layout->arch == MSP_ARCH_ARM64 ? msp_exits_arm64(e, jump)
						    : msp_exits_x64(e, jump);
}

/* Offset of the instruction after that one. */
static uint32_t behind(const struct msp_trace_reader *r, uint32_t i)
{
	return i + 1 < r->ins_count ? r->ins[i + 1].code : r->image->szmcode;
}

/*
 * Offset of the instruction that makes a guard's condition: the one before its jumps, of which a
 * loop has two at its end. Not below that one.
 */
static uint32_t condition_of(const struct msp_trace_reader *r, uint32_t guard, uint32_t from)
{
	while (guard && r->ins[guard].jump && r->ins[guard].code > from)
		guard--;
	return r->ins[guard].code;
}

static void place_none(struct msp_trace_image *image)
{
	for (uint32_t k = 0; k < image->snap_count; k++) {
		image->snap[k].code = image->snap[k].begin = 0;
		image->snap[k].end = image->szmcode;
	}
}

void msp_trace_place_snaps(struct msp_trace_reader *r)
{
	struct msp_trace_image *image = r->image;
	struct msp_trace_exits e = {.r = r};
	uint32_t begin, last = 0, from = 0;
	bool from_condition;
	int number;

	if (r->layout->arch == MSP_ARCH_ARM64 ? !msp_exits_begin_arm64(&e, &begin)
					      : !msp_exits_begin_x64(&e, &begin))
		return;
	for (uint32_t i = begin; i < r->ins_count; i++) {
		number = exit_of(&e, r->ins[i].jump);
		if (number < 0 && e.reads < MSP_EXITS_READS)
			continue;
		if (number < 0 || (uint32_t)number < last || number >= image->snap_count) {
			place_none(image);
			return;
		}
		from_condition = last < (uint32_t)number;
		for (; last < (uint32_t)number; last++) {
			image->snap[last].end = r->ins[i].code;
			image->snap[last + 1].code = from;
			image->snap[last + 1].begin = from;
		}
		if (from_condition)
			image->snap[last].begin = condition_of(r, i, from);
		from = behind(r, i);
	}
	while (++last < image->snap_count)
		image->snap[last].code = image->snap[last].begin = from;
	image->placed = true;
}

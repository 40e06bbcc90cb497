/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Writing raw frames, and the way a walk ends. */
#ifndef MSP_UNWIND_EMIT_H
#define MSP_UNWIND_EMIT_H

/* Notes that a second way is taken. */
static MSP_INLINE void walk_way(struct msp_walk *w, enum msp_way way)
{
	w->ways |= 1u << way;
}

/* The next free frame, or NULL: the stack is full (one place is kept for the mark). */
static MSP_INLINE struct msp_raw_frame *emit_frame(struct msp_walk *w, uint8_t kind)
{
	uint32_t n = w->frame_count;
	struct msp_raw_frame *f;

	if (n >= MSP_MAX_FRAMES - 1)
		return NULL;
	w->frame_count = n + 1;
	f = &w->frame[n & (MSP_MAX_FRAMES - 1)];
	f->kind = kind;
	f->flags = 0;
	f->image = 0;
	f->pos = 0;
	f->ident = 0;
	f->trace = 0;
	f->tofs = 0;
	return f;
}

/* Ends the walk with a mark that says why it is not whole. Always returns MSP_STEP_DONE. */
static MSP_INLINE int walk_error(struct msp_walk *w, int reason)
{
	struct msp_raw_frame *f = &w->frame[w->frame_count & (MSP_MAX_FRAMES - 1)];

	w->error = reason;
	w->frame_count++;
	f->kind = MSP_RAW_ERROR;
	f->flags = 0;
	f->image = 0;
	f->pos = reason;
	f->addr = w->pc;
	f->ident = 0;
	f->trace = 0;
	f->tofs = 0;
	return MSP_STEP_DONE;
}

/* The frame at w->pc, in w->map. Not 0: the walk has ended. */
static MSP_INLINE int emit_native(struct msp_walk *w)
{
	struct msp_raw_frame *f = emit_frame(w, MSP_RAW_NATIVE);

	if (!f)
		return walk_error(w, MSP_ERR_TRUNCATED);
	f->addr = w->pc;
	f->ident = w->look - w->map.base;
	f->image = w->map.image;
	if (!w->exact)
		f->flags |= MSP_RAWF_RETURN;
	return 0;
}

#endif

/* SPDX-License-Identifier: MIT */
/* What is known of a place in a trace: the frames there, which of them are certain. */
#include <string.h>

#include "luajit/trace_image.h"

/*
 * After a trace has stored its new base, it moves the stack pointer and jumps: so many bytes at most on
 * x86-64; on arm64 8 (add sp; b), where the instruction before that counts as unsure, too.
 */
#define TAIL_CODE 12

/* The frames of a snapshot, the outermost first. */
struct path {
	const struct msp_trace_node *node[MSP_TRACE_DEPTH];
	uint32_t count, guarded;
	bool tail_call, perhaps;
};

/* Those down to a node; in the innermost one it is at pos. */
static void node_path(const struct msp_trace_image *image, uint16_t node, uint32_t pos,
		      struct path *path)
{
	uint32_t depth = 0;

	*path = (struct path){.guarded = pos};
	for (uint16_t i = node; i; i = image->node[i].parent)
		depth++;
	if (depth > MSP_TRACE_DEPTH)
		return;
	path->count = depth;
	for (uint16_t i = node; i; i = image->node[i].parent)
		path->node[--depth] = &image->node[i];
}

static void make_path(const struct msp_trace_image *image, uint32_t snap, struct path *path)
{
	node_path(image, image->snap[snap].leaf, image->snap[snap].guarded, path);
	path->tail_call = image->snap[snap].tail_call;
	path->perhaps = image->snap[snap].perhaps;
}

static bool is_function(const struct msp_trace_node *node, const struct msp_raw_frame *f)
{
	return node->kind == MSP_RAW_LUA && node->addr == f->addr && node->ident == f->ident;
}

/*
 * Does it begin in the function that is on the stack? Else the trace has
 * moved its base since, or will: it returns below it, or calls on its behalf.
 */
static bool fits(const struct path *path, const struct msp_raw_frame *base)
{
	return path->count && (path->tail_call || is_function(path->node[0], base));
}

static bool same_function(const struct msp_trace_node *a, const struct msp_trace_node *b)
{
	return a->kind == b->kind && a->addr == b->addr && a->ident == b->ident;
}

/*
 * How many frames of both are the same, from the outside: a function called
 * from the same place. The place where the innermost one is itself does not
 * count: the code goes from the one to the other.
 */
static uint32_t agreed(const struct path *a, const struct path *b)
{
	uint32_t n = 0;

	while (n < a->count && n < b->count && same_function(a->node[n], b->node[n])) {
		n++;
		if (n == a->count || n == b->count || a->node[n - 1]->pos != b->node[n - 1]->pos)
			break;
	}
	return n;
}

/* Index of the snapshot that comes next in the way of the code. */
static uint32_t next_snap(const struct msp_trace_image *image, uint32_t at)
{
	if (at + 1 < image->snap_count)
		return at + 1;
	return image->linktype == MSP_LINK_LOOP || image->linktype == MSP_LINK_TAILREC ? 0 : at;
}

/* What is known for a place, as estimates or proofs have it; NULL: nothing. */
static const struct msp_trace_piece *find_piece(const struct msp_trace_image *image,
						const struct msp_trace_piece *pieces,
						uint32_t count, uint32_t tofs, struct path *path)
{
	uint32_t lo = 0, hi = count, mid;

	while (hi - lo > 1) {
		mid = lo + (hi - lo) / 2;
		if (pieces[mid].code <= tofs)
			lo = mid;
		else
			hi = mid;
	}
	if (!count)
		return NULL;
	node_path(image, pieces[lo].node, pieces[lo].pos, path);
	return path->count ? &pieces[lo] : NULL;
}

/* The trace ends by a jump to one with another base, and has perhaps moved there already. */
static bool base_unsure(const struct msp_trace_image *image, const struct path *last, uint32_t tofs)
{
	return last->count > 1 && image->linktype != MSP_LINK_LOOP &&
	       tofs + TAIL_CODE >= image->szmcode;
}

void msp_trace_put_frame(struct msp_raw_frame *out, const struct msp_trace_node *node,
			 const struct msp_raw_frame *vm)
{
	*out = (struct msp_raw_frame){.addr = node->addr,
				      .ident = node->ident,
				      .pos = node->pos,
				      .image = vm->image,
				      .kind = node->kind,
				      .flags = MSP_RAWF_JIT | MSP_RAWF_INLINED,
				      .trace = vm->trace,
				      .tofs = vm->tofs};
}

/*
 * start and next are the frames at the snapshots around the place. What both say, and all that may be
 * around it, is certain: sure frames. Where there is no better estimate of what is below it, the next
 * guard's functions were right more often, and the start's line, where the function is the same.
 */
static uint32_t put_frames(const struct path *start, const struct path *next, uint32_t sure,
			   const struct msp_raw_frame *vm, struct msp_raw_frame *out)
{
	uint32_t n = next->count;
	const struct msp_trace_node *node;

	for (uint32_t i = 0; i < n; i++) {
		struct msp_raw_frame *f = &out[n - 1 - i];

		node = next->node[i];
		msp_trace_put_frame(f, node, vm);
		if (i + 1 == n)
			f->pos = start->count == n && same_function(node, start->node[i])
					 ? start->guarded
					 : next->guarded;
		if (i >= sure)
			f->flags |= MSP_RAWF_GUESS;
	}
	/* The function at the trace's base is on the stack, unless a tail call has replaced it. */
	if (!start->tail_call && !next->tail_call)
		out[n - 1].flags &= ~MSP_RAWF_INLINED;
	return n;
}

/* Has the estimate all that is certain? */
static bool extends(const struct path *guess, const struct path *next, uint32_t sure)
{
	if (guess->count < sure)
		return false;
	for (uint32_t i = 0; i < sure; i++)
		if (!same_function(guess->node[i], next->node[i]) ||
		    (i + 1 < sure && guess->node[i]->pos != next->node[i]->pos))
			return false;
	return true;
}

/* The frames of an estimate, of which sure are certain. */
static uint32_t put_guess(const struct path *guess, uint32_t sure, const struct path *start,
			  const struct path *next, const struct msp_raw_frame *vm,
			  struct msp_raw_frame *out)
{
	uint32_t n = guess->count;

	for (uint32_t i = 0; i < n; i++) {
		msp_trace_put_frame(&out[n - 1 - i], guess->node[i], vm);
		if (i + 1 == n)
			out[0].pos = guess->guarded;
		if (i >= sure)
			out[n - 1 - i].flags |= MSP_RAWF_GUESS;
	}
	if (!start->tail_call && !next->tail_call)
		out[n - 1].flags &= ~MSP_RAWF_INLINED;
	return n;
}

/*
 * How many of the sure frames all snapshots have that the code may lie between, from the first to
 * that behind the last.
 */
static uint32_t agreed_by_all(const struct msp_trace_image *image, const struct path *start,
			      uint32_t first, uint32_t last, uint32_t sure)
{
	struct path path;
	uint32_t n;

	for (uint32_t i = first; sure && i <= last + 1; i++) {
		make_path(image, i <= last ? i : next_snap(image, last), &path);
		n = agreed(start, &path);
		sure = n < sure ? n : sure;
	}
	return sure;
}

/*
 * By the VM's own table, where the base is not sure: if it has moved, the innermost function is on the
 * stack, and all others below it. 0: that does not tell.
 */
static uint32_t exact_at_end(const struct path *exact, const struct msp_raw_frame *vm,
			     const struct msp_raw_frame *base,
			     struct msp_raw_frame out[MSP_TRACE_DEPTH])
{
	const struct msp_trace_node *inner = exact->node[exact->count - 1];
	bool all = is_function(exact->node[0], base), moved = is_function(inner, base);

	if (exact->count > 1 && all == moved)
		return 0;
	if (!moved)
		return all ? put_frames(exact, exact, exact->count, vm, out) : 0;
	msp_trace_put_frame(out, inner, vm);
	out->pos = exact->guarded;
	out->flags &= ~MSP_RAWF_INLINED;
	return 1;
}

/* Is it at the base of the trace anywhere in it? */
static bool begins_with(const struct msp_trace_image *image, const struct msp_raw_frame *base)
{
	for (uint32_t i = 1; i < image->node_count; i++)
		if (!image->node[i].parent && is_function(&image->node[i], base))
			return true;
	return false;
}

/*
 * By the VM's own table, of which the snapshots prove sure frames. A function at the base that is not
 * on the stack was called by a tail call: the one on the stack was there before. 0: the table
 * contradicts the snapshots, or the stack.
 */
static uint32_t exact_frames(const struct msp_trace_image *image, struct path *exact,
			     const struct path *next, uint32_t sure, const struct msp_raw_frame *vm,
			     const struct msp_raw_frame *base,
			     struct msp_raw_frame out[MSP_TRACE_DEPTH])
{
	exact->tail_call = !is_function(exact->node[0], base);
	if (!extends(exact, next, sure) ||
	    (exact->tail_call && !next->tail_call && !next->perhaps && !begins_with(image, base)))
		return 0;
	return put_frames(exact, exact, exact->count, vm, out);
}

uint32_t msp_trace_frames_at(const struct msp_trace_image *image, const struct msp_raw_frame *vm,
			     const struct msp_raw_frame *base,
			     struct msp_raw_frame out[MSP_TRACE_DEPTH])
{
	uint32_t first, last = msp_trace_interval(image, vm->tofs, &first), at = first, sure, n;
	struct path start, next, guess, proof;
	const struct msp_trace_piece *known =
		find_piece(image, image->proof, image->proofs, vm->tofs, &proof);
	bool start_fits, next_fits, whole = false;

	make_path(image, last, &start);
	if (last + 1 == image->snap_count && base_unsure(image, &start, vm->tofs))
		return known && image->exact ? exact_at_end(&proof, vm, base, out) : 0;
	while (at < last && image->snap[at + 1].begin <= vm->tofs)
		at++;
	make_path(image, at, &start);
	make_path(image, next_snap(image, at), &next);
	if (known && image->exact) {
		sure = agreed_by_all(image, &start, first, last, agreed(&start, &next));
		n = exact_frames(image, &proof, &next, sure, vm, base, out);
		if (n)
			return n;
		known = NULL;
	}
	start_fits = fits(&start, base);
	next_fits = fits(&next, base);
	if (!start_fits && !next_fits) {
		if (!start.perhaps && !next.perhaps)
			return 0;
		next = next.perhaps ? next : start;
		next.tail_call = next_fits = true;
	}
	if (!next_fits)
		next = start;
	if (!start_fits || !next_fits)
		start = (struct path){0};
	sure = agreed_by_all(image, &start, first, last, agreed(&start, &next));
	if (known && fits(&proof, base) && extends(&proof, &next, sure)) {
		start = next = proof;
		sure = proof.count;
		whole = known->whole;
	}
	if (find_piece(image, image->guess, image->guesses, vm->tofs, &guess) &&
	    (start.tail_call || next.tail_call || fits(&guess, base)) &&
	    extends(&guess, &next, sure) && (!whole || guess.count == sure))
		return put_guess(&guess, sure, &start, &next, vm, out);
	n = put_frames(&start, &next, sure, vm, out);
	/* where nothing is certain, for tail calls, the function on the stack is not either */
	if (image->placed || !sure)
		return n;
	/* of all the trace's snapshots none is likelier than another */
	memmove(out, out + (n - sure), sure * sizeof(*out));
	return sure;
}

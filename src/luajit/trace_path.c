/* SPDX-License-Identifier: MIT */
/* The way of a trace through the bytecode. */
#include <stdlib.h>

#include "luajit/trace_walk.h"

#define MAX_WORK 20000
#define MAX_BETWEEN 400 /* steps from a snapshot to the next */
#define MAX_TAIL 100	/* steps behind the last snapshot */

static void save(struct msp_walk *w)
{
	uint32_t *snap = w->best->snap;

	memcpy(snap, w->path->snap, w->r->image->snap_count * sizeof(*snap));
	memcpy(w->best, w->path, offsetof(struct msp_trace_path, step));
	memcpy(w->best->step, w->path->step, w->path->steps * sizeof(*w->path->step));
	memcpy(w->best->frame, w->path->frame, w->path->frames * sizeof(*w->path->frame));
	w->best->snap = snap;
	w->best->snaps = w->at.snap;
}

static bool all_met(const struct msp_walk *w)
{
	return w->at.snap == w->r->image->snap_count;
}

/* At the loop's beginning again. False: for the third time. */
static bool come_round(struct msp_walk *w)
{
	const struct msp_trace_path *path = w->path;

	if (!w->loops || !path->steps || w->at.frame != path->step[0].frame ||
	    w->at.pos != path->step[0].pos)
		return true;
	if (w->at.again) {
		w->done = all_met(w);
		return w->done;
	}
	w->at.again = true;
	w->path->second = path->steps;
	return true;
}

/* Behind the last snapshot of a trace that goes on elsewhere, up to where there are several ways. */
static bool is_end(const struct msp_walk *w)
{
	const struct msp_trace_path *path = w->path;
	uint8_t op = msp_walk_ins(w, path->frame[w->at.frame].proto, w->at.pos).op;

	return !w->loops && all_met(w) && path->steps > w->at.last &&
	       (path->steps - w->at.last > MAX_TAIL || msp_bc_is_call(op) || op <= MSP_BC_ISF ||
		(op >= MSP_BC_FORI && op <= MSP_BC_JLOOP) ||
		(msp_bc_is_return(op) && !path->frame[w->at.frame].depth));
}

/* False: no further here. */
static bool advance(struct msp_walk *w)
{
	struct msp_trace_path *path = w->path;
	const struct msp_trace_proto *p = path->frame[w->at.frame].proto;
	uint32_t option = w->option;

	if (path->steps == MSP_PATH_STEPS || w->at.pos >= msp_trace_proto_size(p) || !w->at.pos ||
	    path->steps - w->at.last > MAX_BETWEEN)
		return false;
	if (!option) {
		if (!come_round(w))
			return false;
		while (msp_walk_next_pos(w) == w->at.pos)
			msp_walk_meet(w);
		w->done |= is_end(w);
		if (w->at.snap > w->best->snaps || w->done)
			save(w);
		if (w->done)
			return true;
	}
	path->step[path->steps++] = (struct msp_path_step){.frame = w->at.frame, .pos = w->at.pos};
	if (!option && msp_walk_enter_next(w))
		return true;
	return msp_walk_go_on(w);
}

static bool begin(struct msp_walk *w)
{
	const struct msp_trace_image *image = w->r->image;
	const struct msp_trace_node *nodes = image->node, *node;
	uint16_t chain[MSP_TRACE_DEPTH], n = 0;

	for (uint16_t i = image->snap[0].leaf; i && n < MSP_TRACE_DEPTH; i = nodes[i].parent)
		chain[n++] = i;
	if (!n || nodes[chain[n - 1]].kind != MSP_RAW_LUA || nodes[chain[0]].kind != MSP_RAW_LUA)
		return false;
	while (n--) {
		node = &nodes[chain[n]];
		if (w->path->frames) {
			if (!msp_walk_push(w,
					   node->kind == MSP_RAW_LUA
						   ? msp_trace_proto_at(w->r, node->addr)
						   : NULL,
					   0, node->kind == MSP_RAW_LUA ? 0 : node->addr))
				return false;
		} else {
			w->path->frame[0].proto = msp_trace_proto_at(w->r, node->addr);
			w->path->frames = 1;
			if (!w->path->frame[0].proto ||
			    !msp_trace_need_bytecode(w->r, w->path->frame[0].proto))
				return false;
		}
		w->at.pos = node->pos;
	}
	w->at.pos = w->at.pos ? w->at.pos : 1;
	return true;
}

static void run(struct msp_walk *w)
{
	while (!w->done && w->work++ < MAX_WORK)
		if (!advance(w) && !msp_walk_step_back(w))
			return;
}

static struct msp_trace_path *new_path(uint32_t snaps)
{
	struct msp_trace_path *path = calloc(1, sizeof(*path));

	if (path)
		path->snap = malloc(snaps * sizeof(*path->snap));
	if (path && !path->snap) {
		free(path);
		return NULL;
	}
	if (path) {
		memset(path->snap, 0xff, snaps * sizeof(*path->snap));
		path->second = MSP_PATH_NONE;
	}
	return path;
}

struct msp_trace_path *msp_trace_path_find(struct msp_trace_reader *r)
{
	uint8_t link = r->image->linktype;
	struct msp_walk *w = calloc(1, sizeof(*w));
	struct msp_trace_path *best = NULL;

	if (!w)
		return NULL;
	w->r = r;
	w->loops = link == MSP_LINK_LOOP && r->image->mcloop;
	w->path = new_path(r->image->snap_count);
	w->best = new_path(r->image->snap_count);
	if (w->path && w->best && r->set) {
		msp_path_callees_read(r, &w->callees);
		if (begin(w))
			run(w);
		if (w->best->snaps) {
			best = w->best;
			w->best = NULL;
		}
	}
	msp_trace_path_free(w->path);
	msp_trace_path_free(w->best);
	free(w);
	return best;
}

void msp_trace_path_free(struct msp_trace_path *path)
{
	if (path)
		free(path->snap);
	free(path);
}

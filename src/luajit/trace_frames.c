/* SPDX-License-Identifier: MIT */
/* The frames on a trace's way, and the snapshots that tell of them. */
#include "luajit/trace_walk.h"

bool msp_walk_push(struct msp_walk *w, struct msp_trace_proto *proto, uint64_t closure,
		   uint64_t addr)
{
	struct msp_trace_path *path = w->path;
	uint16_t parent = w->at.frame;

	if (path->frames == MSP_PATH_FRAMES || (proto && !msp_trace_need_bytecode(w->r, proto)))
		return false;
	/* the same call again is the same frame */
	for (uint32_t i = 1; i < path->frames; i++)
		if (path->frame[i].parent == parent && path->frame[i].call == w->at.pos &&
		    path->frame[i].proto == proto && path->frame[i].addr == addr) {
			w->at.frame = i;
			w->at.pos = 1;
			return true;
		}
	path->frame[path->frames] = (struct msp_path_frame){.proto = proto,
							    .closure = closure,
							    .addr = addr,
							    .parent = parent,
							    .depth = path->frame[parent].depth + 1,
							    .call = w->at.pos};
	w->at.frame = path->frames++;
	w->at.pos = 1;
	return true;
}

/* Another function at the trace's base. */
bool msp_walk_new_base(struct msp_walk *w, struct msp_trace_proto *proto, uint64_t closure,
		       uint32_t pos)
{
	struct msp_trace_path *path = w->path;

	if (path->frames == MSP_PATH_FRAMES || !proto || !msp_trace_need_bytecode(w->r, proto))
		return false;
	path->frame[path->frames] =
		(struct msp_path_frame){.proto = proto, .closure = closure, .parent = path->frames};
	w->at.frame = path->frames++;
	w->at.pos = pos;
	return true;
}

/* Back to the caller, behind the call. False: out of the trace's base. */
bool msp_walk_pop(struct msp_walk *w)
{
	const struct msp_path_frame *f;

	do {
		f = &w->path->frame[w->at.frame];
		if (!f->depth)
			return false;
		w->at.pos = f->call + 1;
		w->at.frame = f->parent;
	} while (!w->path->frame[w->at.frame].proto);
	return true;
}

static bool same_function(const struct msp_path_frame *f, const struct msp_trace_node *node)
{
	return f->proto ? node->kind == MSP_RAW_LUA && f->proto->addr == node->addr
			: node->kind != MSP_RAW_LUA && f->addr == node->addr;
}

static uint32_t depth_of(const struct msp_walk *w, uint16_t node)
{
	uint32_t depth = 0;

	for (; node; node = w->r->image->node[node].parent)
		depth++;
	return depth;
}

/* The ancestor of a node that has the frame's depth, if all above it are as here; 0: not so. */
uint16_t msp_walk_ancestor(const struct msp_walk *w, uint16_t node, uint32_t *below)
{
	const struct msp_trace_node *nodes = w->r->image->node;
	uint32_t depth = depth_of(w, node), mine = w->path->frame[w->at.frame].depth + 1;
	const struct msp_path_frame *f = &w->path->frame[w->at.frame];
	uint16_t found;

	if (depth < mine)
		return 0;
	*below = depth - mine;
	while (depth-- > mine)
		node = nodes[node].parent;
	found = node;
	for (;; f = &w->path->frame[f->parent]) {
		if (!same_function(f, &nodes[node]))
			return 0;
		if (!f->depth)
			return found;
		node = nodes[node].parent;
		if (nodes[node].pos != f->call && w->path->frame[f->parent].proto)
			return 0;
	}
}

uint16_t msp_walk_next_leaf(const struct msp_walk *w)
{
	return w->at.snap < w->r->image->snap_count ? w->r->image->snap[w->at.snap].leaf : 0;
}

/* Position of the next snapshot, if its frames are those here; MSP_PATH_NONE else. */
uint32_t msp_walk_next_pos(const struct msp_walk *w)
{
	uint32_t below;
	uint16_t leaf = msp_walk_next_leaf(w), at = leaf ? msp_walk_ancestor(w, leaf, &below) : 0;

	return at && !below ? w->r->image->node[at].pos : MSP_PATH_NONE;
}

void msp_walk_meet(struct msp_walk *w)
{
	w->path->snap[w->at.snap++] = w->path->steps;
	w->at.last = w->path->steps;
}

/* SPDX-License-Identifier: MIT */
#include "output/flat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"
#include "output/output.h"

struct flattener {
	const struct msp_profile *profile;
	struct msp_tree tree; /* of profile */
	struct msp_profile *flat;
	uint32_t *frames, *nodes; /* of profile -> of flat, nodes for the group at hand */
	uint32_t *mapped;	  /* the nodes that are, to begin the next group without them */
	uint32_t n_mapped;
	char *text;
	size_t room;
	bool kinds, processes;
};

static int add_frame(struct flattener *f, enum msp_frame_kind kind, const char *text,
		     const char *object, uint32_t *out)
{
	struct msp_frame frame = {.kind = f->kinds ? kind : MSP_FRAME_STATE,
				  .certain = true,
				  .name = text,
				  .object = f->kinds ? object : NULL};
	int64_t id = msp_profile_frame(f->flat, &frame);

	if (id < 0)
		return (int)id;
	*out = (uint32_t)id;
	return 0;
}

static int map_frame(struct flattener *f, uint32_t id)
{
	const struct msp_frame *frame = msp_profile_frame_at(f->profile, id);
	size_t size = msp_frame_text(frame, true, f->text, f->room);

	if (size >= f->room) {
		char *larger = realloc(f->text, size * 2 + 64);

		if (!larger)
			return MSP_E_NOMEM;
		f->text = larger;
		f->room = size * 2 + 64;
		msp_frame_text(frame, true, f->text, f->room);
	}
	return add_frame(f, frame->kind, f->text, NULL, &f->frames[id]);
}

static int group_node(struct flattener *f, const char *what, int32_t id, const char *name,
		      uint32_t parent, uint32_t *out)
{
	char text[256];
	uint32_t frame = 0;
	int64_t node;
	int err;

	if (name && name[0])
		snprintf(text, sizeof(text), "%s %d (%s)", what, id, name);
	else
		snprintf(text, sizeof(text), "%s %d", what, id);
	err = add_frame(f, MSP_FRAME_STATE, text, MSP_FLAT_GROUP, &frame);
	if (err)
		return err;
	node = msp_profile_node(f->flat, parent, frame);
	*out = (uint32_t)node;
	return node < 0 ? (int)node : 0;
}

/* The node of flat below which a thread's stacks go. */
static int thread_root(struct flattener *f, uint32_t thread, uint32_t *out)
{
	int32_t pid = f->tree.threads[thread].pid, tid = f->tree.threads[thread].tid;
	int err = 0;

	*out = 0;
	if (f->processes)
		err = group_node(f, "process", pid, msp_profile_name(f->profile, pid, 0), 0, out);
	if (!err && tid)
		err = group_node(f, "thread", tid, f->tree.threads[thread].name, *out, out);
	return err;
}

static int no_frames(struct flattener *f, uint32_t root, uint32_t *out)
{
	uint32_t frame = 0;
	int err = add_frame(f, MSP_FRAME_ERROR, MSP_FLAT_NO_FRAMES, NULL, &frame);
	int64_t node = err ? err : msp_profile_node(f->flat, root, frame);

	*out = (uint32_t)node;
	return node < 0 ? (int)node : 0;
}

/* Makes the nodes that lead to one, from the nearest that is there. */
static int map_node(struct flattener *f, uint32_t node)
{
	uint32_t path[MSP_PROFILE_MAX_DEPTH];
	size_t n = 0;

	for (; f->nodes[node] == UINT32_MAX; node = f->tree.parent[node])
		path[n++] = node;
	while (n) {
		uint32_t next = path[--n];
		int64_t made =
			msp_profile_node(f->flat, f->nodes[node], f->frames[f->tree.frame[next]]);

		if (made < 0)
			return (int)made;
		f->nodes[next] = (uint32_t)made;
		f->mapped[f->n_mapped++] = next;
		node = next;
	}
	return 0;
}

/* Counts are sorted by thread: nodes are mapped anew below each thread's root. */
static int add_counts(struct flattener *f)
{
	uint32_t root = 0, empty = 0;
	int err = 0;

	memset(f->nodes, 0xff, f->tree.n_nodes * sizeof(*f->nodes));
	for (uint32_t i = 0; !err && i < f->tree.n_counts; i++) {
		const struct msp_count *c = &f->tree.counts[i];
		uint32_t node;

		if (i == 0 || c->thread != c[-1].thread) {
			uint32_t before = root;

			err = thread_root(f, c->thread, &root);
			while (root != before && f->n_mapped)
				f->nodes[f->mapped[--f->n_mapped]] = UINT32_MAX;
			f->nodes[0] = root;
		}
		if (!err && c->node)
			err = map_node(f, c->node);
		else if (!err)
			err = no_frames(f, root, &empty);
		node = c->node ? f->nodes[c->node] : empty;
		if (!err)
			err = msp_profile_add_node(f->flat, 0, 0, node, c->count);
	}
	return err;
}

static int flatten(struct flattener *f)
{
	int err = 0;

	for (uint32_t i = 1; i < f->tree.n_counts; i++)
		if (f->tree.threads[f->tree.counts[i].thread].pid !=
		    f->tree.threads[f->tree.counts[0].thread].pid)
			f->processes = true;
	for (uint32_t i = 0; !err && i < f->tree.n_frames; i++)
		err = map_frame(f, i);
	return err ? err : add_counts(f);
}

int msp_flat_make(const struct msp_profile *profile, bool kinds, struct msp_flat *out)
{
	struct flattener f = {.profile = profile, .kinds = kinds};
	int err = msp_profile_tree(profile, &f.tree);

	*out = (struct msp_flat){0};
	if (err)
		return err;
	err = MSP_E_NOMEM;
	f.flat = msp_profile_new();
	f.frames = calloc((size_t)f.tree.n_frames + 1, sizeof(*f.frames));
	f.nodes = calloc(f.tree.n_nodes, sizeof(*f.nodes));
	f.mapped = calloc(f.tree.n_nodes, sizeof(*f.mapped));
	if (f.flat && f.frames && f.nodes && f.mapped && !(err = flatten(&f)))
		err = msp_profile_tree(f.flat, &out->tree);
	free(f.text);
	free(f.frames);
	free(f.nodes);
	free(f.mapped);
	msp_tree_free(&f.tree);
	out->profile = f.flat;
	if (err)
		msp_flat_free(out);
	return err;
}

void msp_flat_free(struct msp_flat *flat)
{
	msp_tree_free(&flat->tree);
	msp_profile_free(flat->profile);
	*flat = (struct msp_flat){0};
}

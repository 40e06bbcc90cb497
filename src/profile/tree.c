/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "profile/internal.h"

static int compare_text(const char *a, const char *b)
{
	if (a == b)
		return 0;
	if (!a || !b)
		return a ? 1 : -1;
	return strcmp(a, b);
}

#define COMPARE(a, b) \
	if ((a) != (b)) \
	return (a) < (b) ? -1 : 1

static int compare_frames(const struct msp_frame *a, const struct msp_frame *b)
{
	int order;

	if ((order = compare_text(a->name, b->name)) || (order = compare_text(a->file, b->file)))
		return order;
	COMPARE(a->defined, b->defined);
	COMPARE(a->line, b->line);
	if ((order = compare_text(a->object, b->object)))
		return order;
	COMPARE(a->address, b->address);
	COMPARE(a->kind, b->kind);
	COMPARE(a->trace, b->trace);
	COMPARE(a->certain, b->certain);
	COMPARE(a->vm, b->vm);
	return 0;
}

static int compare_ids(const void *a, const void *b, void *ctx)
{
	const struct msp_frame *frames = ctx;

	return compare_frames(&frames[*(const uint32_t *)a], &frames[*(const uint32_t *)b]);
}

static int compare_threads(const void *a, const void *b, void *ctx)
{
	const struct msp_profile_thread *threads = ctx;
	const struct msp_profile_thread *x = &threads[*(const uint32_t *)a];
	const struct msp_profile_thread *y = &threads[*(const uint32_t *)b];

	COMPARE(x->pid, y->pid);
	COMPARE(x->tid, y->tid);
	return 0;
}

static int compare_counts(const void *a, const void *b)
{
	const struct msp_count *x = a, *y = b;

	COMPARE(x->thread, y->thread);
	COMPARE(x->node, y->node);
	return 0;
}

/* calloc of n + 1: never of size 0, and with room for a sentinel. */
static void *array(size_t n, size_t size)
{
	return calloc(n + 1, size);
}

static int rank_frames(const struct msp_profile *profile, struct msp_tree *tree)
{
	tree->n_frames = profile->n_frames;
	tree->rank = array(tree->n_frames, sizeof(*tree->rank));
	tree->by_rank = array(tree->n_frames, sizeof(*tree->by_rank));
	if (!tree->rank || !tree->by_rank)
		return MSP_E_NOMEM;
	for (uint32_t i = 0; i < tree->n_frames; i++)
		tree->by_rank[i] = i;
	qsort_r(tree->by_rank, tree->n_frames, sizeof(*tree->by_rank), compare_ids,
		profile->frames);
	for (uint32_t i = 0; i < tree->n_frames; i++)
		tree->rank[tree->by_rank[i]] = i;
	return 0;
}

/*
 * Preorder without recursion and without comparing: nodes are put in order of their frame's rank by
 * counting, then each is put in front of its parent's list of children, last first, which leaves
 * the lists sorted. position[old node] = new node.
 */
struct order {
	uint32_t *start, *sorted, *child, *sibling, *position;
};

static void sort_children(const struct msp_profile *profile, const struct msp_tree *tree,
			  struct order *o)
{
	uint32_t n = profile->n_nodes;

	for (uint32_t i = 1; i < n; i++)
		o->start[tree->rank[profile->nodes[i].frame] + 1]++;
	for (uint32_t i = 0; i < tree->n_frames; i++)
		o->start[i + 1] += o->start[i];
	for (uint32_t i = 1; i < n; i++)
		o->sorted[o->start[tree->rank[profile->nodes[i].frame]]++] = i;
	for (uint32_t i = n - 1; i-- > 0;) {
		uint32_t node = o->sorted[i], parent = profile->nodes[node].parent;

		o->sibling[node] = o->child[parent];
		o->child[parent] = node;
	}
}

/* 0 ends a list: it is the root, and nobody's child. */
static void number_nodes(const struct msp_profile *profile, struct msp_tree *tree, struct order *o)
{
	uint32_t at = 0, next = 0;

	for (;;) {
		o->position[at] = next;
		tree->parent[next] = at ? o->position[profile->nodes[at].parent] : 0;
		tree->frame[next] = profile->nodes[at].frame;
		next++;
		if (o->child[at]) {
			at = o->child[at];
			continue;
		}
		while (at && !o->sibling[at])
			at = profile->nodes[at].parent;
		if (!at)
			return;
		at = o->sibling[at];
	}
}

static int order_nodes(const struct msp_profile *profile, struct msp_tree *tree, uint32_t *position)
{
	uint32_t n = profile->n_nodes;
	struct order o = {.position = position};
	int err = MSP_E_NOMEM;

	o.start = array(tree->n_frames, sizeof(uint32_t));
	o.sorted = array(n, sizeof(uint32_t));
	o.child = array(n, sizeof(uint32_t));
	o.sibling = array(n, sizeof(uint32_t));
	tree->parent = array(n, sizeof(uint32_t));
	tree->frame = array(n, sizeof(uint32_t));
	if (o.start && o.sorted && o.child && o.sibling && tree->parent && tree->frame) {
		sort_children(profile, tree, &o);
		number_nodes(profile, tree, &o);
		tree->n_nodes = n;
		err = 0;
	}
	free(o.start);
	free(o.sorted);
	free(o.child);
	free(o.sibling);
	return err;
}

/* place[old thread] = new thread */
static int order_threads(const struct msp_profile *profile, struct msp_tree *tree, uint32_t *place)
{
	uint32_t *sorted = array(profile->n_threads, sizeof(*sorted));

	tree->threads = array(profile->n_threads, sizeof(*tree->threads));
	if (!sorted || !tree->threads) {
		free(sorted);
		return MSP_E_NOMEM;
	}
	tree->n_threads = profile->n_threads;
	for (uint32_t i = 0; i < profile->n_threads; i++)
		sorted[i] = i;
	qsort_r(sorted, profile->n_threads, sizeof(*sorted), compare_threads, profile->threads);
	for (uint32_t i = 0; i < profile->n_threads; i++) {
		const struct msp_profile_thread *thread = &profile->threads[sorted[i]];

		place[sorted[i]] = i;
		tree->threads[i].pid = thread->pid;
		tree->threads[i].tid = thread->tid;
		tree->threads[i].name = thread->name;
	}
	free(sorted);
	return 0;
}

int msp_profile_tree(const struct msp_profile *profile, struct msp_tree *out)
{
	uint32_t *position = array(profile->n_nodes, sizeof(*position));
	uint32_t *place = array(profile->n_threads, sizeof(*place));
	int err = MSP_E_NOMEM;

	*out = (struct msp_tree){0};
	out->counts = array(profile->n_counts, sizeof(*out->counts));
	if (!position || !place || !out->counts)
		goto out;
	if ((err = rank_frames(profile, out)) || (err = order_nodes(profile, out, position)) ||
	    (err = order_threads(profile, out, place)))
		goto out;
	out->n_counts = profile->n_counts;
	for (uint32_t i = 0; i < profile->n_counts; i++)
		out->counts[i] = (struct msp_count){place[profile->counts[i].thread],
						    position[profile->counts[i].node],
						    profile->counts[i].count};
	qsort(out->counts, out->n_counts, sizeof(*out->counts), compare_counts);
out:
	free(position);
	free(place);
	if (err)
		msp_tree_free(out);
	return err;
}

void msp_tree_free(struct msp_tree *tree)
{
	free(tree->parent);
	free(tree->frame);
	free(tree->threads);
	free(tree->counts);
	free(tree->rank);
	free(tree->by_rank);
	*tree = (struct msp_tree){0};
}

int msp_profile_each(const struct msp_profile *profile, msp_profile_stack_fn fn, void *ctx)
{
	uint32_t ids[MSP_PROFILE_MAX_DEPTH];
	struct msp_tree tree;
	int err = msp_profile_tree(profile, &tree);

	for (uint32_t i = 0; !err && i < tree.n_counts; i++) {
		const struct msp_count *c = &tree.counts[i];
		size_t n = 0;

		for (uint32_t node = c->node; node; node = tree.parent[node])
			ids[MSP_PROFILE_MAX_DEPTH - ++n] = tree.frame[node];
		err = fn(ctx, tree.threads[c->thread].pid, tree.threads[c->thread].tid,
			 ids + MSP_PROFILE_MAX_DEPTH - n, n, c->count);
	}
	msp_tree_free(&tree);
	return err;
}

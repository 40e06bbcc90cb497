/* SPDX-License-Identifier: MIT */
/* Views of profiles and their union: both put one profile's tree into another, frame by frame. */
#include <stdio.h>
#include <string.h>

#include "profile/internal.h"

#define DROPPED UINT32_MAX

static bool is_lua(const struct msp_frame *f)
{
	return f->kind <= MSP_FRAME_CFUNCTION;
}

static bool is_native(const struct msp_frame *f)
{
	return f->kind == MSP_FRAME_CFUNCTION || f->kind == MSP_FRAME_NATIVE ||
	       f->kind == MSP_FRAME_KERNEL;
}

static bool wanted(const struct msp_frame *f, const struct msp_view *view)
{
	/* What is missing stays said, whatever is looked at. */
	if (f->kind == MSP_FRAME_ERROR)
		return true;
	if (view->no_kernel && f->kind == MSP_FRAME_KERNEL)
		return false;
	if (!view->vm_frames && f->kind == MSP_FRAME_NATIVE && f->vm)
		return false;
	if (view->certain && is_lua(f) && !f->certain)
		return false;
	if (!view->lua_only && !view->native_only)
		return true;
	return (view->lua_only && (is_lua(f) || f->kind == MSP_FRAME_STATE)) ||
	       (view->native_only && is_native(f));
}

/* Takes out of a frame what the view does not tell apart. */
static struct msp_frame reduced(const struct msp_frame *frame, const struct msp_view *view)
{
	struct msp_frame f = *frame;

	if (!view->lines)
		f.line = 0;
	if (view->exact)
		return f;
	f.trace = 0;
	if (f.vm)
		f.name = f.object = NULL;
	if ((f.name && f.name[0]) || f.vm)
		f.address = 0;
	return f;
}

/* Frames of from as frames of to. view NULL: all of them as they are. */
static int map_frames(const struct msp_profile *from, const struct msp_view *view,
		      struct msp_profile *to, uint32_t *map)
{
	for (uint32_t i = 0; i < from->n_frames; i++) {
		struct msp_frame f = from->frames[i];
		int64_t id;

		if (view && !wanted(&f, view)) {
			map[i] = DROPPED;
			continue;
		}
		if (view)
			f = reduced(&f, view);
		id = msp_profile_frame(to, &f);
		if (id < 0)
			return (int)id;
		map[i] = (uint32_t)id;
	}
	return 0;
}

static int map_nodes(const struct msp_profile *from, const uint32_t *frames, struct msp_profile *to,
		     uint32_t *map)
{
	map[0] = 0;
	for (uint32_t i = 1; i < from->n_nodes; i++) {
		uint32_t parent = map[from->nodes[i].parent], frame = frames[from->nodes[i].frame];
		int64_t node = frame == DROPPED ? parent : msp_profile_node(to, parent, frame);

		if (node < 0)
			return (int)node;
		map[i] = (uint32_t)node;
	}
	return 0;
}

static int copy_counts(const struct msp_profile *from, const uint32_t *nodes, bool threads,
		       struct msp_profile *to)
{
	for (uint32_t i = 0; i < from->n_counts; i++) {
		const struct msp_count *c = &from->counts[i];
		const struct msp_profile_thread *thread = &from->threads[c->thread];
		int err;

		/* Nothing of this stack is asked for. */
		if (c->node && !nodes[c->node])
			continue;
		err = msp_profile_add_node(to, thread->pid, threads ? thread->tid : 0,
					   nodes[c->node], c->count);
		if (err)
			return err;
	}
	return 0;
}

int msp_profile_copy_meta(const struct msp_profile *from, struct msp_profile *to)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < from->n_meta; i++)
		if (!msp_profile_meta(to, from->meta[i].key))
			err = msp_profile_set_meta(to, from->meta[i].key, from->meta[i].value);
	if (!err)
		err = msp_objects_copy(from, to);
	return err ? err : msp_events_copy(from, to);
}

static int copy_names(const struct msp_profile *from, bool threads, struct msp_profile *to)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < from->n_threads; i++) {
		const struct msp_profile_thread *t = &from->threads[i];

		if (t->name && (threads || !t->tid))
			err = msp_profile_set_name(to, t->pid, t->tid, t->name);
	}
	return err ? err : msp_profile_copy_meta(from, to);
}

static int copy_into(const struct msp_profile *from, const struct msp_view *view,
		     struct msp_profile *to)
{
	uint32_t *frames = malloc(((size_t)from->n_frames + 1) * sizeof(*frames));
	uint32_t *nodes = malloc((size_t)from->n_nodes * sizeof(*nodes));
	bool threads = !view || view->threads;
	int err = MSP_E_NOMEM;

	if (frames && nodes && !(err = map_frames(from, view, to, frames)) &&
	    !(err = map_nodes(from, frames, to, nodes)) &&
	    !(err = copy_counts(from, nodes, threads, to)))
		err = copy_names(from, threads, to);
	free(frames);
	free(nodes);
	return err;
}

int msp_profile_view(const struct msp_profile *profile, const struct msp_view *view,
		     struct msp_profile **out)
{
	int err;

	*out = msp_profile_new();
	if (!*out)
		return MSP_E_NOMEM;
	(*out)->quality = profile->quality;
	err = copy_into(profile, view, *out);
	if (err) {
		msp_profile_free(*out);
		*out = NULL;
	}
	return err;
}

static void count_reason(struct msp_quality_reason *list, const char *reason, uint64_t count)
{
	size_t i, last = MSP_PROFILE_MAX_REASONS - 1;

	if (!count)
		return;
	for (i = 0; i < last && list[i].reason[0]; i++)
		if (!strncmp(list[i].reason, reason, sizeof(list[i].reason) - 1))
			break;
	/* The last place is for all that find none. */
	if (i == last)
		reason = "other";
	snprintf(list[i].reason, sizeof(list[i].reason), "%s", reason);
	list[i].count += count;
	for (; i > 0 && list[i].count > list[i - 1].count; i--) {
		struct msp_quality_reason other = list[i - 1];

		list[i - 1] = list[i];
		list[i] = other;
	}
}

void msp_quality_error(struct msp_quality *quality, const char *reason, uint64_t count)
{
	count_reason(quality->errors, reason, count);
}

void msp_quality_way(struct msp_quality *quality, const char *reason, uint64_t count)
{
	count_reason(quality->ways, reason, count);
}

static void add_quality(struct msp_quality *to, const struct msp_quality *from)
{
	double measured = (double)to->bpf_ns_per_sample * (double)to->samples +
			  (double)from->bpf_ns_per_sample * (double)from->samples;

	to->samples += from->samples;
	to->lost += from->lost;
	to->whole += from->whole;
	to->truncated += from->truncated;
	to->estimated += from->estimated;
	to->seconds += from->seconds;
	if (from->rate > to->rate)
		to->rate = from->rate;
	if (to->samples)
		to->bpf_ns_per_sample = (uint64_t)(measured / (double)to->samples);
	if (from->bpf_ns_median > to->bpf_ns_median)
		to->bpf_ns_median = from->bpf_ns_median;
	if (from->bpf_ns_p99 > to->bpf_ns_p99)
		to->bpf_ns_p99 = from->bpf_ns_p99;
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS && from->errors[i].reason[0]; i++)
		msp_quality_error(to, from->errors[i].reason, from->errors[i].count);
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS && from->ways[i].reason[0]; i++)
		msp_quality_way(to, from->ways[i].reason, from->ways[i].count);
}

int msp_profile_merge(struct msp_profile *profile, const struct msp_profile *other)
{
	int err = copy_into(other, NULL, profile);

	if (!err)
		add_quality(&profile->quality, &other->quality);
	return err;
}

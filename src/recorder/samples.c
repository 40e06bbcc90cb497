/* SPDX-License-Identifier: MIT */
/* From a sample's raw frames to a stack of the profile. */
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"
#include "recorder/internal.h"

#define MAX_ANCESTORS 4

/* Keeps which file the frame just named lies in. */
static int keep_object(struct msp_recorder *rec, struct rec_process *p,
		       const struct msp_frame *frame)
{
	const struct msp_image *image = msp_symbolizer_image(p->symbols);
	const char *build_id = image ? msp_image_build_id(image) : "";

	if (!image || !frame->object)
		return 0;
	return msp_profile_set_object(rec->profile, frame->object, build_id[0] ? build_id : NULL,
				      msp_image_name(image));
}

int rec_need_symbols(struct msp_recorder *rec, struct rec_process *p)
{
	return p->symbols ? 0 : msp_symbolizer_new(rec->images, p->space, rec->kernel, &p->symbols);
}

/* The process that it was forked from, if that can be read. */
static struct rec_process *readable_parent(struct msp_recorder *rec, const struct rec_process *p)
{
	struct rec_process *parent = p->parent ? rec_find(rec, p->parent) : NULL;

	return parent && parent->space && !rec_need_symbols(rec, parent) ? parent : NULL;
}

/* A forked child that ended before it could be read ran what its parent has in memory. */
static int name_by_parent(struct msp_recorder *rec, const struct rec_process *p,
			  const struct msp_raw_frame *raw, size_t n, size_t i,
			  struct msp_frame *out)
{
	int err = MSP_E_GONE;

	for (int k = 0; k < MAX_ANCESTORS && err == MSP_E_GONE; k++) {
		p = readable_parent(rec, p);
		if (!p)
			break;
		err = msp_symbolizer_frame(p->symbols, raw, n, i, out);
	}
	return err;
}

/* Puts the stack with what is inlined into its traces into rec->raw; returns its length. */
static uint32_t inline_frames(struct msp_recorder *rec, const struct rec_process *p,
			      const struct msp_raw_frame *raw, uint32_t n)
{
	struct msp_inlined info;
	size_t count =
		msp_symbolizer_inline(p->symbols, raw, n, rec->raw, NULL, REC_MAX_FRAMES, &info);

	for (int k = 0; k < MAX_ANCESTORS && info.gone; k++) {
		p = readable_parent(rec, p);
		if (!p)
			break;
		count = msp_symbolizer_inline(p->symbols, raw, n, rec->raw, NULL, REC_MAX_FRAMES,
					      &info);
	}
	rec->estimated += info.estimated;
	rec->traces_gone += info.gone;
	return count;
}

/* The profile's frame for raw[i]; MSP_FRAME_HIDDEN if it is not shown. Negative: error code. */
static int64_t frame_id(struct msp_recorder *rec, struct rec_process *p,
			const struct msp_raw_frame *raw, size_t n, size_t i)
{
	struct msp_raw_frame key = raw[i];
	struct msp_frame frame;
	uint32_t found;
	int64_t id;
	int err;

	key.tofs = 0; /* where in a trace, and in which: of no meaning for the frame */
	if (key.kind == MSP_RAW_VM && key.flags & MSP_RAWF_JIT)
		key.ident = 0;
	if (key.kind == MSP_RAW_ERROR)
		key.addr = 0;
	if (frame_cache_get(&p->cache, &key, &found))
		return found;
	err = msp_symbolizer_frame(p->symbols, raw, n, i, &frame);
	if (err == MSP_E_GONE)
		err = name_by_parent(rec, p, raw, n, i, &frame);
	if (err < 0 && err != MSP_E_GONE)
		return err;
	id = err == 1 ? MSP_FRAME_HIDDEN : msp_profile_frame(rec->profile, &frame);
	if (!err && id >= 0 && (err = keep_object(rec, p, &frame)))
		return err;
	if (err == MSP_E_GONE)
		rec->functions_gone++;
	else if (id >= 0 && p->space &&	    /* else its images may give their indices to others */
		 key.kind != MSP_RAW_CFUNC) /* whether that is shown depends on its neighbours */
		frame_cache_put(&p->cache, &key, id);
	if (!err && raw[i].kind == MSP_RAW_LUA && !msp_symbolizer_final(p->symbols))
		rec_late_add(p, raw, n, i, id);
	rec_keep_up(rec);
	return id;
}

/*
 * How many frames come before code that was mapped where the engine took it
 * for something else: from there on the stack is not known.
 */
static uint32_t before_stale(const struct rec_process *p, const struct msp_sample *sample,
			     const struct msp_raw_frame *raw)
{
	uint32_t n = sample->frame_count;

	for (uint32_t i = sample->kernel_frames; i < n; i++)
		if (raw[i].kind == MSP_RAW_NATIVE &&
		    rec_is_stale(p, raw[i].addr - (raw[i].flags & MSP_RAWF_RETURN), sample->time))
			return i;
	return n;
}

static void count_quality(struct msp_recorder *rec, const struct msp_sample *sample, uint32_t error)
{
	uint32_t ways = sample->ways | (sample->parent ? 1u << MSP_WAY_PARENT : 0);

	rec->samples++;
	if (error == MSP_ERR_NONE)
		rec->whole++;
	else if (error == MSP_ERR_TRUNCATED)
		rec->truncated++;
	else if (error < MSP_ERROR_REASON_COUNT)
		rec->errors[error]++;
	for (int i = 0; i < MSP_WAY_COUNT; i++)
		rec->ways[i] += ways >> i & 1;
}

static void keep_names(struct msp_recorder *rec, struct rec_process *p,
		       const struct msp_sample *sample)
{
	char comm[17] = {0};

	memcpy(comm, sample->comm, sizeof(sample->comm));
	if (!msp_profile_name(rec->profile, sample->pid, sample->tid))
		msp_profile_set_name(rec->profile, sample->pid, sample->tid, comm);
	if (!msp_profile_name(rec->profile, sample->pid, 0))
		msp_profile_set_name(rec->profile, sample->pid, 0,
				     p->process ? msp_process_comm(p->process) : comm);
}

int rec_on_sample(void *ctx, const struct msp_sample *sample, const struct msp_raw_frame *raw)
{
	struct msp_recorder *rec = ctx;
	struct rec_process *p = rec_find(rec, sample->pid);
	uint32_t n = sample->frame_count, known, count = 0;
	int64_t id;
	int err;

	if (!p)
		p = rec_insert(rec, sample->pid);
	if (!p)
		return rec->failed = MSP_E_NOMEM;
	if (sample->parent)
		p->parent = sample->parent;
	if (rec_need_symbols(rec, p))
		return rec->failed = MSP_E_NOMEM;
	if (n > MSP_MAX_FRAMES)
		return 0;
	if (sample->kernel_frames)
		rec_wait_for_kernel(rec);
	if (sample->time > rec->noted_ns)
		rec_note_changes(rec);
	known = before_stale(p, sample, raw);
	count_quality(rec, sample, known < n ? MSP_ERR_NO_MAPPING : sample->error);
	if (!rec->times.first_sample || sample->time < rec->times.first_sample)
		rec->times.first_sample = sample->time;
	n = inline_frames(rec, p, raw, known);
	if (known < sample->frame_count && n < REC_MAX_FRAMES)
		rec->raw[n++] =
			(struct msp_raw_frame){.kind = MSP_RAW_ERROR, .pos = MSP_ERR_NO_MAPPING};
	for (uint32_t i = n; i-- > 0;) { /* root first */
		id = frame_id(rec, p, rec->raw, n, i);
		if (id < 0)
			return rec->failed = id;
		if (id != MSP_FRAME_HIDDEN)
			rec->ids[count++] = id;
	}
	rec_note_vms(p);
	if (!count)
		return 0;
	keep_names(rec, p, sample);
	err = msp_profile_add(rec->profile, sample->pid, sample->tid, rec->ids, count, 1);
	return err ? rec->failed = err : 0;
}

static const char *const reason_text[] = {
#define _(id, text) text,
	MSP_ERROR_REASONS(_)
#undef _
};

static const char *const way_text[] = {
#define _(id, text) text,
	MSP_WAYS(_)
#undef _
};

void rec_fill_quality(struct msp_recorder *rec)
{
	struct msp_quality *q = msp_profile_quality(rec->profile);

	memset(q, 0, sizeof(*q));
	q->samples = rec->samples;
	q->whole = rec->whole;
	q->truncated = rec->truncated;
	q->estimated = rec->estimated;
	for (int i = MSP_ERR_TRUNCATED + 1; i < MSP_ERROR_REASON_COUNT; i++)
		msp_quality_error(q, reason_text[i], rec->errors[i]);
	msp_quality_error(q, "function gone before it was named", rec->functions_gone);
	msp_quality_error(q, "trace gone before it was read", rec->traces_gone);
	for (int i = 0; i < MSP_WAY_COUNT; i++)
		msp_quality_way(q, way_text[i], rec->ways[i]);
	q->seconds = (rec_now_ns() - rec->started_ns) / 1e9;
	q->rate = rec->opts.rate;
	if (rec->sampler) {
		q->lost = msp_sampler_counter(rec->sampler, MSP_COUNT_LOST);
		q->bpf_ns_per_sample = msp_sampler_run_ns(rec->sampler);
		q->bpf_ns_median = msp_sampler_run_quantile(rec->sampler, 0.5);
		q->bpf_ns_p99 = msp_sampler_run_quantile(rec->sampler, 0.99);
	}
}

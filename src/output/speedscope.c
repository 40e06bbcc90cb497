/* SPDX-License-Identifier: MIT */
/* The speedscope format: docs/formats.md, "speedscope". */
#include <stdlib.h>

#include "moonspy/moonspy.h"
#include "output/formats.h"
#include "output/json_writer.h"
#include "profile/tree.h"

#define SCHEMA "https://www.speedscope.app/file-format-schema.json"
#define NO_FRAMES "[error: no frames]"

struct writer {
	struct msp_json json;
	const struct msp_profile *profile;
	struct msp_tree tree;
	double unit; /* what a sample stands for */
	char *text;
	size_t room;
};

static const char *frame_text(struct writer *w, const struct msp_frame *frame)
{
	size_t size = msp_frame_text(frame, false, w->text, w->room);
	char *larger;

	if (size < w->room)
		return w->text;
	larger = realloc(w->text, size * 2 + 64);
	if (!larger)
		return NULL;
	w->text = larger;
	w->room = size * 2 + 64;
	msp_frame_text(frame, false, w->text, w->room);
	return w->text;
}

static int write_frame(struct writer *w, const struct msp_frame *frame)
{
	const char *text = frame_text(w, frame);
	const char *file = frame->file ? frame->file : frame->object;
	uint32_t line = frame->line ? frame->line : frame->defined;

	if (!text)
		return MSP_E_NOMEM;
	msp_json_object(&w->json);
	msp_json_key(&w->json, "name");
	msp_json_string(&w->json, text);
	if (file && file[0]) {
		msp_json_key(&w->json, "file");
		msp_json_string(&w->json, file);
	}
	if (line) {
		msp_json_key(&w->json, "line");
		msp_json_uint(&w->json, line);
	}
	msp_json_end(&w->json);
	return 0;
}

/* In the order of the tree, and one more if there is a stack without any. */
static int write_frames(struct writer *w)
{
	static const struct msp_frame none = {
		.kind = MSP_FRAME_ERROR, .certain = true, .name = NO_FRAMES};
	bool empty = false;
	int err = 0;

	for (uint32_t i = 0; i < w->tree.n_counts; i++)
		empty |= !w->tree.counts[i].node;
	msp_json_key(&w->json, "shared");
	msp_json_object(&w->json);
	msp_json_key(&w->json, "frames");
	msp_json_array(&w->json);
	for (uint32_t i = 0; i < w->tree.n_frames && !err; i++)
		err = write_frame(w, msp_profile_frame_at(w->profile, w->tree.by_rank[i]));
	if (empty && !err)
		err = write_frame(w, &none);
	msp_json_end(&w->json);
	msp_json_end(&w->json);
	return err;
}

static void write_samples(struct writer *w, uint32_t from, uint32_t to)
{
	uint32_t path[MSP_PROFILE_MAX_DEPTH];

	msp_json_key(&w->json, "samples");
	msp_json_array(&w->json);
	for (uint32_t i = from; i < to; i++) {
		uint32_t n = 0;

		for (uint32_t node = w->tree.counts[i].node; node; node = w->tree.parent[node])
			path[n++] = w->tree.rank[w->tree.frame[node]];
		if (!n)
			path[n++] = w->tree.n_frames;
		msp_json_array(&w->json);
		while (n)
			msp_json_uint(&w->json, path[--n]);
		msp_json_end(&w->json);
	}
	msp_json_end(&w->json);
}

static void write_weights(struct writer *w, uint32_t from, uint32_t to)
{
	msp_json_key(&w->json, "weights");
	msp_json_array(&w->json);
	for (uint32_t i = from; i < to; i++)
		msp_json_double(&w->json, (double)w->tree.counts[i].count * w->unit);
	msp_json_end(&w->json);
}

/* "process 4711 (nginx)", with threads apart "thread 4712 (worker) of process 4711 (nginx)" */
static void write_name(struct writer *w, uint32_t thread)
{
	int32_t pid = w->tree.threads[thread].pid, tid = w->tree.threads[thread].tid;
	const char *name = w->tree.threads[thread].name;
	const char *process = msp_profile_name(w->profile, pid, 0);
	struct msp_buffer text = {0};

	if (tid) {
		msp_buffer_printf(&text, "thread %d", tid);
		if (name && name[0])
			msp_buffer_printf(&text, " (%s)", name);
		msp_buffer_text(&text, " of ");
	}
	msp_buffer_printf(&text, "process %d", pid);
	if (process && process[0])
		msp_buffer_printf(&text, " (%s)", process);
	msp_buffer_char(&text, 0);
	msp_json_key(&w->json, "name");
	msp_json_string(&w->json, text.err ? "" : text.data);
	if (text.err && !w->json.buffer.err)
		w->json.buffer.err = text.err;
	msp_buffer_free(&text);
}

/* Counts [from, to) are those of one thread. */
static void write_profile(struct writer *w, uint32_t from, uint32_t to)
{
	uint64_t samples = 0;

	for (uint32_t i = from; i < to; i++)
		samples += w->tree.counts[i].count;
	msp_json_object(&w->json);
	msp_json_key(&w->json, "type");
	msp_json_string(&w->json, "sampled");
	write_name(w, w->tree.counts[from].thread);
	msp_json_key(&w->json, "unit");
	msp_json_string(&w->json, msp_profile_quality_of(w->profile)->rate ? "seconds" : "none");
	msp_json_key(&w->json, "startValue");
	msp_json_uint(&w->json, 0);
	msp_json_key(&w->json, "endValue");
	msp_json_double(&w->json, (double)samples * w->unit);
	write_samples(w, from, to);
	write_weights(w, from, to);
	msp_json_end(&w->json);
}

static uint32_t end_of_thread(const struct msp_tree *tree, uint32_t from)
{
	uint32_t to = from + 1;

	while (to < tree->n_counts && tree->counts[to].thread == tree->counts[from].thread)
		to++;
	return to;
}

static void write_profiles(struct writer *w)
{
	msp_json_key(&w->json, "profiles");
	msp_json_array(&w->json);
	for (uint32_t from = 0, to; from < w->tree.n_counts; from = to) {
		to = end_of_thread(&w->tree, from);
		write_profile(w, from, to);
	}
	msp_json_end(&w->json);
}

/* The one that took the most samples is shown first. */
static uint32_t busiest(const struct msp_tree *tree)
{
	uint64_t most = 0;
	uint32_t n = 0, best = 0;

	for (uint32_t from = 0, to; from < tree->n_counts; from = to, n++) {
		uint64_t samples = 0;

		to = end_of_thread(tree, from);
		for (uint32_t i = from; i < to; i++)
			samples += tree->counts[i].count;
		if (samples > most) {
			most = samples;
			best = n;
		}
	}
	return best;
}

static int write_all(struct writer *w)
{
	const char *command = msp_profile_meta(w->profile, "command");
	const char *version = msp_profile_meta(w->profile, "version");
	struct msp_buffer exporter = {0};
	int err;

	msp_buffer_printf(&exporter, "moonspy%s%s", version ? " " : "", version ? version : "");
	msp_json_object(&w->json);
	msp_json_key(&w->json, "$schema");
	msp_json_string(&w->json, SCHEMA);
	msp_json_key(&w->json, "exporter");
	msp_json_string(&w->json, exporter.err ? "moonspy" : exporter.data);
	msp_json_key(&w->json, "name");
	msp_json_string(&w->json, command ? command : "moonspy");
	msp_json_key(&w->json, "activeProfileIndex");
	msp_json_uint(&w->json, busiest(&w->tree));
	err = write_frames(w);
	write_profiles(w);
	msp_json_end(&w->json);
	msp_buffer_free(&exporter);
	return err;
}

int msp_write_speedscope(const struct msp_profile *profile, FILE *out)
{
	struct writer w = {.json.buffer.out = out, .profile = profile};
	uint32_t rate = msp_profile_quality_of(profile)->rate;
	int err = msp_profile_tree(profile, &w.tree), io;

	if (err)
		return err;
	w.unit = rate ? 1.0 / rate : 1.0;
	err = write_all(&w);
	io = msp_json_finish(&w.json);
	free(w.text);
	msp_tree_free(&w.tree);
	return io ? io : err;
}

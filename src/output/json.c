/* SPDX-License-Identifier: MIT */
/* The json format: docs/formats.md, "JSON". */
#include <stdlib.h>

#include "moonspy/moonspy.h"
#include "output/formats.h"
#include "output/json_writer.h"
#include "profile/tree.h"

/* Each frame's object, written once: a frame stands in many stacks. */
struct frames {
	struct msp_json text; /* all of them, one after the other */
	size_t *start;	      /* of each; start[n] is the end */
};

struct writer {
	struct msp_json json;
	struct frames frames;
};

static int make_frames(const struct msp_profile *profile, struct frames *frames)
{
	size_t n = msp_profile_frame_count(profile);

	frames->start = calloc(n + 1, sizeof(*frames->start));
	if (!frames->start)
		return MSP_E_NOMEM;
	frames->text.depth = 4; /* as deep as they will stand: all in one line */
	for (uint32_t i = 0; i < n; i++) {
		frames->text.filled = 0; /* no comma in between */
		msp_json_frame(&frames->text, msp_profile_frame_at(profile, i));
		frames->start[i + 1] = frames->text.buffer.size;
	}
	return frames->text.buffer.err;
}

static int write_stack(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
		       uint64_t count)
{
	struct writer *w = ctx;
	const struct frames *f = &w->frames;

	msp_json_object(&w->json);
	msp_json_key(&w->json, "pid");
	msp_json_int(&w->json, pid);
	msp_json_key(&w->json, "tid");
	msp_json_int(&w->json, tid);
	msp_json_key(&w->json, "count");
	msp_json_uint(&w->json, count);
	msp_json_key(&w->json, "frames");
	msp_json_array(&w->json);
	for (size_t i = 0; i < n; i++)
		msp_json_raw(&w->json, f->text.buffer.data + f->start[ids[i]],
			     f->start[ids[i] + 1] - f->start[ids[i]]);
	msp_json_end(&w->json);
	msp_json_end(&w->json);
	return w->json.buffer.err;
}

/* Processes and threads whose names are known. */
static int write_names(struct msp_json *json, const struct msp_profile *profile)
{
	struct msp_tree tree;
	int err = msp_profile_tree(profile, &tree);

	if (err)
		return err;
	msp_json_key(json, "names");
	msp_json_array(json);
	for (uint32_t i = 0; i < tree.n_threads; i++) {
		if (!tree.threads[i].name)
			continue;
		msp_json_object(json);
		msp_json_key(json, "pid");
		msp_json_int(json, tree.threads[i].pid);
		msp_json_key(json, "tid");
		msp_json_int(json, tree.threads[i].tid);
		msp_json_key(json, "name");
		msp_json_string(json, tree.threads[i].name);
		msp_json_end(json);
	}
	msp_json_end(json);
	msp_tree_free(&tree);
	return 0;
}

static void write_events(struct msp_json *json, const struct msp_profile *profile)
{
	const struct msp_vm_events *events;

	msp_json_key(json, "events");
	msp_json_array(json);
	for (size_t i = 0; (events = msp_profile_vm_events(profile, i)); i++) {
		msp_json_object(json);
		msp_json_key(json, "pid");
		msp_json_int(json, events->pid);
		msp_json_key(json, "g");
		msp_json_hex(json, events->g);
		msp_json_key(json, "event");
		msp_json_string(json, events->event);
		msp_json_key(json, "count");
		msp_json_uint(json, events->count);
		msp_json_end(json);
	}
	msp_json_end(json);
}

int msp_write_json(const struct msp_profile *profile, FILE *out)
{
	struct writer w = {.json.buffer.out = out};
	int err, io;

	msp_json_object(&w.json);
	msp_json_key(&w.json, "schema");
	msp_json_uint(&w.json, 1);
	msp_json_key(&w.json, "type");
	msp_json_string(&w.json, "profile");
	msp_json_meta(&w.json, profile);
	msp_json_key(&w.json, "quality");
	msp_json_quality(&w.json, msp_profile_quality_of(profile));
	err = write_names(&w.json, profile);
	write_events(&w.json, profile);
	if (!err)
		err = make_frames(profile, &w.frames);
	if (!err) {
		msp_json_key(&w.json, "stacks");
		msp_json_array(&w.json);
		err = msp_profile_each(profile, write_stack, &w);
		msp_json_end(&w.json);
	}
	msp_json_end(&w.json);
	io = msp_json_finish(&w.json);
	msp_buffer_free(&w.frames.text.buffer);
	free(w.frames.start);
	return io ? io : err;
}

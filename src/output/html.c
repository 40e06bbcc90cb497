/* SPDX-License-Identifier: MIT */
/*
 * The html format: one page with everything in it. The page itself lies in html/; this puts the
 * profile in: names and numbers as JSON in a script element that is never run, the tree within as
 * base64 of varints, three for each node in preorder: how many levels up from the node before its
 * parent is, its frame, its own samples. That is a third of the same as JSON, and read faster.
 */
#include <stdlib.h>

#include "moonspy/moonspy.h"
#include "output/flat.h"
#include "output/formats.h"
#include "output/json_writer.h"
#include "output/varint.h"

#include "page.inc"

#define KIND_GROUP MSP_FRAME_KIND_COUNT

static void put_nodes(const struct msp_flat *flat, struct msp_buffer *bytes)
{
	const struct msp_tree *tree = &flat->tree;
	uint32_t at = 0;

	for (uint32_t i = 1; i < tree->n_nodes; i++) {
		uint64_t up = 0, self = 0;

		for (uint32_t node = i - 1; node != tree->parent[i]; node = tree->parent[node])
			up++;
		if (at < tree->n_counts && tree->counts[at].node == i)
			self = tree->counts[at++].count;
		msp_put_varint(bytes, up);
		msp_put_varint(bytes, tree->rank[tree->frame[i]]);
		msp_put_varint(bytes, self);
	}
}

static void put_base64(struct msp_buffer *out, const struct msp_buffer *bytes)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < bytes->size; i += 3) {
		size_t left = bytes->size - i;
		const unsigned char *b = (const unsigned char *)bytes->data + i;
		uint32_t v = (uint32_t)b[0] << 16 | (left > 1 ? (uint32_t)b[1] << 8 : 0) |
			     (left > 2 ? b[2] : 0);
		char text[4] = {digits[v >> 18], digits[v >> 12 & 63], digits[v >> 6 & 63],
				digits[v & 63]};

		if (left < 3)
			text[3] = '=';
		if (left < 2)
			text[2] = '=';
		msp_buffer_put(out, text, sizeof(text));
	}
}

static void write_frames(struct msp_json *json, const struct msp_flat *flat)
{
	msp_json_key(json, "kinds");
	msp_json_array(json);
	for (uint32_t i = 0; i < flat->tree.n_frames; i++) {
		const struct msp_frame *f =
			msp_profile_frame_at(flat->profile, flat->tree.by_rank[i]);

		msp_json_uint(json, f->object ? KIND_GROUP : f->kind);
	}
	msp_json_end(json);
	msp_json_key(json, "names");
	msp_json_array(json);
	for (uint32_t i = 0; i < flat->tree.n_frames; i++)
		msp_json_string(json,
				msp_profile_frame_at(flat->profile, flat->tree.by_rank[i])->name);
	msp_json_end(json);
}

/* Processes that were sampled. */
static int write_processes(struct msp_json *json, const struct msp_profile *profile)
{
	struct msp_tree tree;
	int err = msp_profile_tree(profile, &tree);
	int64_t last = INT64_MIN;

	if (err)
		return err;
	msp_json_key(json, "processes");
	msp_json_array(json);
	for (uint32_t i = 0; i < tree.n_counts; i++) {
		int32_t pid = tree.threads[tree.counts[i].thread].pid;

		if (pid == last)
			continue;
		last = pid;
		msp_json_object(json);
		msp_json_key(json, "pid");
		msp_json_int(json, pid);
		msp_json_key(json, "name");
		msp_json_string(json, msp_profile_name(profile, pid, 0));
		msp_json_end(json);
	}
	msp_json_end(json);
	msp_tree_free(&tree);
	return 0;
}

static int write_data(struct msp_json *json, const struct msp_profile *profile,
		      const struct msp_flat *flat)
{
	struct msp_buffer bytes = {0}, text = {0};
	int err;

	msp_json_object(json);
	msp_json_meta(json, profile);
	msp_json_key(json, "quality");
	msp_json_quality(json, msp_profile_quality_of(profile));
	err = write_processes(json, profile);
	write_frames(json, flat);
	put_nodes(flat, &bytes);
	msp_buffer_char(&text, '"');
	put_base64(&text, &bytes);
	msp_buffer_char(&text, '"');
	msp_json_key(json, "nodes");
	msp_json_raw(json, text.data, text.size);
	msp_json_end(json);
	if (!err)
		err = bytes.err ? bytes.err : text.err;
	msp_buffer_free(&bytes);
	msp_buffer_free(&text);
	return err;
}

int msp_write_html(const struct msp_profile *profile, FILE *out)
{
	struct msp_json json = {.buffer.out = out, .html = true};
	struct msp_flat flat;
	int err = msp_flat_make(profile, true, &flat), io;

	if (err)
		return err;
	msp_buffer_put(&json.buffer, page_head, sizeof(page_head));
	err = write_data(&json, profile, &flat);
	msp_buffer_put(&json.buffer, page_tail, sizeof(page_tail));
	io = msp_buffer_finish(&json.buffer);
	msp_flat_free(&flat);
	return io ? io : err;
}

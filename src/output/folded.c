/* SPDX-License-Identifier: MIT */
/* The folded format: docs/formats.md, "Folded". */
#include <stdlib.h>

#include "moonspy/moonspy.h"
#include "output/buffer.h"
#include "output/flat.h"
#include "output/formats.h"

/* Every frame's text, escaped once; start[n] is the end of the last. */
static int escape_frames(const struct msp_flat *flat, struct msp_buffer *text, size_t *start)
{
	for (uint32_t i = 0; i < flat->tree.n_frames; i++) {
		msp_buffer_escaped(text, msp_profile_frame_at(flat->profile, i)->name, ";");
		start[i + 1] = text->size;
	}
	return text->err;
}

static void write_stacks(const struct msp_flat *flat, const struct msp_buffer *text,
			 const size_t *start, struct msp_buffer *out)
{
	const struct msp_tree *tree = &flat->tree;
	uint32_t path[MSP_PROFILE_MAX_DEPTH];

	for (uint32_t i = 0; i < tree->n_counts && !out->err; i++) {
		uint32_t n = 0;

		for (uint32_t node = tree->counts[i].node; node; node = tree->parent[node])
			path[n++] = tree->frame[node];
		while (n--) {
			msp_buffer_put(out, text->data + start[path[n]],
				       start[path[n] + 1] - start[path[n]]);
			msp_buffer_char(out, n ? ';' : ' ');
		}
		msp_buffer_uint(out, tree->counts[i].count);
		msp_buffer_char(out, '\n');
	}
}

int msp_write_folded(const struct msp_profile *profile, FILE *out)
{
	struct msp_buffer buffer = {.out = out}, text = {0};
	struct msp_flat flat;
	size_t *start = NULL;
	int err = msp_flat_make(profile, false, &flat);

	if (err)
		return err;
	start = calloc((size_t)flat.tree.n_frames + 1, sizeof(*start));
	err = start ? escape_frames(&flat, &text, start) : MSP_E_NOMEM;
	if (!err)
		write_stacks(&flat, &text, start, &buffer);
	free(start);
	msp_buffer_free(&text);
	msp_flat_free(&flat);
	if (err) {
		msp_buffer_free(&buffer);
		return err;
	}
	return msp_buffer_finish(&buffer);
}

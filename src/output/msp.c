/* SPDX-License-Identifier: MIT */
/* Writes the msp format: docs/formats.md, "msp". */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "moonspy/moonspy.h"
#include "output/buffer.h"
#include "output/formats.h"
#include "output/msp_format.h"
#include "output/varint.h"
#include "profile/table.h"
#include "profile/tree.h"

struct writer {
	const struct msp_profile *profile;
	struct msp_tree tree;
	struct msp_buffer out, body, strings; /* strings: body of STRS, but for their number */
	struct msp_table table;		      /* of strings seen */
	const char **seen;
	uint32_t n_seen, room;
	uint32_t sections;
	int err;
};

static void end_section(struct writer *w, enum msp_section section, struct msp_buffer *body)
{
	static const char tags[][5] = {
#define _(id, tag, columns) tag,
		MSP_SECTIONS(_)
#undef _
	};
	struct msp_section_header header = {.length = body->size};

	memcpy(header.tag, tags[section], sizeof(header.tag));
	header.body_crc = (uint32_t)crc32_z(0, (const Bytef *)body->data, body->size);
	header.header_crc = (uint32_t)crc32_z(0, (const Bytef *)&header, sizeof(header) - 4);
	msp_buffer_put(&w->out, &header, sizeof(header));
	msp_buffer_put(&w->out, body->data, body->size);
	msp_buffer_put(&w->out, "\0\0\0\0\0\0\0", -body->size & 7);
	w->sections++;
	if (body->err)
		w->err = body->err;
	body->size = 0;
}

static void begin_table(struct writer *w, enum msp_section section, uint64_t rows)
{
	static const uint8_t columns[] = {
#define _(id, tag, columns) columns,
		MSP_SECTIONS(_)
#undef _
	};

	msp_put_varint(&w->body, rows);
	msp_put_varint(&w->body, columns[section]);
}

static int remember(struct writer *w, const char *text, uint32_t hash)
{
	if (w->n_seen == w->room) {
		uint32_t room = w->room ? w->room * 2 : 64;
		const char **seen = realloc(w->seen, room * sizeof(*seen));

		if (!seen)
			return MSP_E_NOMEM;
		w->seen = seen;
		w->room = room;
	}
	if (msp_table_reserve(&w->table))
		return MSP_E_NOMEM;
	msp_table_insert(&w->table, hash, w->n_seen);
	w->seen[w->n_seen++] = text;
	return 0;
}

/*
 * The number of a string. Those of a profile are interned, so the pointer is enough to know one
 * again; a text that came twice by different ways would only be written twice.
 */
static uint32_t string_number(struct writer *w, const char *text)
{
	uint32_t hash = msp_hash((uintptr_t)text, 0), i;
	struct msp_table_walk walk = msp_table_walk(&w->table, hash);
	size_t size;

	if (!text)
		return 0;
	while ((i = msp_table_next(&w->table, &walk)) != MSP_TABLE_NONE)
		if (w->seen[i] == text)
			return i + 1;
	if (remember(w, text, hash)) {
		w->err = MSP_E_NOMEM;
		return 0;
	}
	size = strlen(text);
	msp_put_varint(&w->strings, size);
	msp_buffer_put(&w->strings, text, size);
	return w->n_seen;
}

static void put_string(struct writer *w, const char *text)
{
	msp_put_varint(&w->body, string_number(w, text));
}

/* Strings stand first in the file, so all that refers to one is numbered before. */
static void write_strings(struct writer *w)
{
	const struct msp_quality *quality = msp_profile_quality_of(w->profile);
	const struct msp_vm_events *events;

	for (uint32_t i = 0; i < w->tree.n_frames; i++) {
		const struct msp_frame *f = msp_profile_frame_at(w->profile, w->tree.by_rank[i]);

		string_number(w, f->name);
		string_number(w, f->file);
		string_number(w, f->object);
	}
	for (uint32_t i = 0; i < w->tree.n_threads; i++)
		string_number(w, w->tree.threads[i].name);
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS && quality->errors[i].reason[0]; i++)
		string_number(w, quality->errors[i].reason);
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS && quality->ways[i].reason[0]; i++)
		string_number(w, quality->ways[i].reason);
	for (size_t i = 0; i < msp_profile_meta_count(w->profile); i++) {
		const char *key, *value;

		msp_profile_meta_at(w->profile, i, &key, &value);
		string_number(w, key);
		string_number(w, value);
	}
	for (size_t i = 0; i < msp_profile_object_count(w->profile); i++) {
		const char *object, *build_id, *path;

		msp_profile_object_at(w->profile, i, &object, &build_id, &path);
		string_number(w, object);
		string_number(w, build_id);
		string_number(w, path);
	}
	for (size_t i = 0; (events = msp_profile_vm_events(w->profile, i)); i++)
		string_number(w, events->event);
	msp_put_varint(&w->body, w->n_seen);
	msp_buffer_put(&w->body, w->strings.data, w->strings.size);
	if (w->strings.err)
		w->err = w->strings.err;
	end_section(w, MSP_SECTION_STRINGS, &w->body);
}

static void write_frames(struct writer *w)
{
	begin_table(w, MSP_SECTION_FRAMES, w->tree.n_frames);
	for (uint32_t i = 0; i < w->tree.n_frames; i++) {
		const struct msp_frame *f = msp_profile_frame_at(w->profile, w->tree.by_rank[i]);

		msp_put_varint(&w->body, f->kind);
		msp_put_varint(&w->body,
			       (f->certain ? MSP_FRAME_CERTAIN : 0) | (f->vm ? MSP_FRAME_VM : 0));
		put_string(w, f->name);
		put_string(w, f->file);
		msp_put_varint(&w->body, f->defined);
		msp_put_varint(&w->body, f->line);
		put_string(w, f->object);
		msp_put_varint(&w->body, f->address);
		msp_put_varint(&w->body, f->trace);
	}
	end_section(w, MSP_SECTION_FRAMES, &w->body);
}

static void write_stacks(struct writer *w)
{
	const struct msp_tree *tree = &w->tree;

	begin_table(w, MSP_SECTION_NODES, tree->n_nodes - 1);
	for (uint32_t i = 1; i < tree->n_nodes; i++) {
		msp_put_varint(&w->body, i - tree->parent[i]);
		msp_put_varint(&w->body, tree->rank[tree->frame[i]]);
	}
	end_section(w, MSP_SECTION_NODES, &w->body);
	begin_table(w, MSP_SECTION_THREADS, tree->n_threads);
	for (uint32_t i = 0; i < tree->n_threads; i++) {
		msp_put_varint(&w->body, (uint32_t)tree->threads[i].pid);
		msp_put_varint(&w->body, (uint32_t)tree->threads[i].tid);
		put_string(w, tree->threads[i].name);
	}
	end_section(w, MSP_SECTION_THREADS, &w->body);
	begin_table(w, MSP_SECTION_COUNTS, tree->n_counts);
	for (uint32_t i = 0; i < tree->n_counts; i++) {
		msp_put_varint(&w->body, tree->counts[i].thread);
		msp_put_varint(&w->body, tree->counts[i].node);
		msp_put_varint(&w->body, tree->counts[i].count);
	}
	end_section(w, MSP_SECTION_COUNTS, &w->body);
}

static void write_reasons(struct writer *w, enum msp_section section,
			  const struct msp_quality_reason *list)
{
	uint64_t n = 0;

	while (n < MSP_PROFILE_MAX_REASONS && list[n].reason[0])
		n++;
	begin_table(w, section, n);
	for (uint64_t i = 0; i < n; i++) {
		put_string(w, list[i].reason);
		msp_put_varint(&w->body, list[i].count);
	}
	end_section(w, section, &w->body);
}

static void write_quality(struct writer *w)
{
	const struct msp_quality *q = msp_profile_quality_of(w->profile);
	uint64_t seconds;

	memcpy(&seconds, &q->seconds, sizeof(seconds));
	begin_table(w, MSP_SECTION_QUALITY, 1);
	msp_put_varint(&w->body, q->samples);
	msp_put_varint(&w->body, q->lost);
	msp_put_varint(&w->body, q->whole);
	msp_put_varint(&w->body, q->truncated);
	msp_put_varint(&w->body, q->estimated);
	msp_put_varint(&w->body, seconds);
	msp_put_varint(&w->body, q->rate);
	msp_put_varint(&w->body, q->bpf_ns_per_sample);
	msp_put_varint(&w->body, q->bpf_ns_median);
	msp_put_varint(&w->body, q->bpf_ns_p99);
	end_section(w, MSP_SECTION_QUALITY, &w->body);
	write_reasons(w, MSP_SECTION_ERRORS, q->errors);
	write_reasons(w, MSP_SECTION_WAYS, q->ways);
}

static void write_meta(struct writer *w)
{
	size_t n = msp_profile_meta_count(w->profile);

	begin_table(w, MSP_SECTION_META, n);
	for (size_t i = 0; i < n; i++) {
		const char *key, *value;

		msp_profile_meta_at(w->profile, i, &key, &value);
		put_string(w, key);
		put_string(w, value);
	}
	end_section(w, MSP_SECTION_META, &w->body);
}

static void write_objects(struct writer *w)
{
	size_t n = msp_profile_object_count(w->profile);

	begin_table(w, MSP_SECTION_OBJECTS, n);
	for (size_t i = 0; i < n; i++) {
		const char *object, *build_id, *path;

		msp_profile_object_at(w->profile, i, &object, &build_id, &path);
		put_string(w, object);
		put_string(w, build_id);
		put_string(w, path);
	}
	end_section(w, MSP_SECTION_OBJECTS, &w->body);
}

static void write_events(struct writer *w)
{
	const struct msp_vm_events *events;
	size_t n = 0;

	while (msp_profile_vm_events(w->profile, n))
		n++;
	begin_table(w, MSP_SECTION_EVENTS, n);
	for (size_t i = 0; (events = msp_profile_vm_events(w->profile, i)); i++) {
		msp_put_varint(&w->body, (uint32_t)events->pid);
		msp_put_varint(&w->body, events->g);
		put_string(w, events->event);
		msp_put_varint(&w->body, events->count);
	}
	end_section(w, MSP_SECTION_EVENTS, &w->body);
}

static void write_all(struct writer *w)
{
	struct msp_file_header header = {
		.magic = MSP_FILE_MAGIC, .major = MSP_FILE_MAJOR, .minor = MSP_FILE_MINOR};

	msp_buffer_put(&w->out, &header, sizeof(header));
	write_strings(w);
	write_frames(w);
	write_stacks(w);
	write_quality(w);
	write_meta(w);
	write_objects(w);
	write_events(w);
	msp_put_varint(&w->body, w->sections);
	end_section(w, MSP_SECTION_END, &w->body);
}

int msp_write_msp(const struct msp_profile *profile, FILE *out)
{
	struct writer w = {.profile = profile, .out.out = out};
	int err = msp_profile_tree(profile, &w.tree), io;

	if (err)
		return err;
	write_all(&w);
	msp_buffer_free(&w.body);
	msp_buffer_free(&w.strings);
	msp_table_free(&w.table);
	free(w.seen);
	msp_tree_free(&w.tree);
	io = msp_buffer_finish(&w.out);
	return io ? io : w.err;
}

/* SPDX-License-Identifier: MIT */
/*
 * What the analysis of an image found, on disk: the layout, its evidence, the
 * VM block's rows and handlers, names of fast functions. Only the program that
 * wrote it reads it (the stamp), so the structures are kept as they are.
 */
#include <stdlib.h>
#include <string.h>

#include "elf/rows.h"
#include "luajit/build.h"
#include "moonspy/moonspy.h"

#define NO_STRING UINT32_MAX

struct saved_evidence {
	int64_t value;
	uint32_t field, found;
	uint32_t source, why; /* where in the strings */
};

struct saved_segment {
	uint64_t addr, file_size, mem_size;
	uint32_t exec, write;
};

/* Then come, in this order: evidence, handlers, rows, rules, where the names are, strings. */
struct saved {
	struct msp_lj_layout layout;
	uint8_t has[MSP_LJ_FIELD_COUNT], conflict[MSP_LJ_FIELD_COUNT];
	char version[sizeof(((struct msp_lj_build *)0)->version)];
	struct saved_segment segment[MSP_LJ_MAX_SEGMENTS];
	uint64_t descriptor;
	uint32_t segment_count, position_dependent;
	int32_t result;
	uint32_t block_start, block_end, rows_end, op_count;
	int32_t g_gcroot;
	uint32_t instructions, reached, ff_count, ff_asm_count;
	uint32_t evidence_count, handler_count, row_count, rule_count, name_count, string_size;
};

/* A buffer being written, or read. */
struct stream {
	uint8_t *at, *end;
};

static size_t saved_size(const struct saved *s)
{
	return sizeof(*s) + s->evidence_count * sizeof(struct saved_evidence) +
	       s->handler_count * sizeof(uint32_t) + s->row_count * sizeof(struct msp_row) +
	       s->rule_count * sizeof(struct msp_rule) + s->name_count * sizeof(uint32_t) +
	       s->string_size;
}

static void put(struct stream *to, const void *from, size_t size)
{
	if (size)
		memcpy(to->at, from, size);
	to->at += size;
}

/* ---- Writing ---- */

static void put_string(struct stream *strings, const uint8_t *start, const char *text, uint32_t *at)
{
	*at = text ? (uint32_t)(strings->at - start) : NO_STRING;
	if (text)
		put(strings, text, strlen(text) + 1);
}

static uint32_t field_number(const char *name)
{
	uint32_t field = 0;

	while (msp_lj_field_name((enum msp_lj_field)field) != name)
		field++;
	return field;
}

static uint32_t strings_size(const struct msp_lj_build *build)
{
	size_t size = 1;

	for (size_t i = 0; i < build->evidence_count; i++)
		size += strlen(build->evidence[i].source) + 1 +
			(build->evidence[i].why ? strlen(build->evidence[i].why) + 1 : 0);
	for (unsigned int i = 0; i < MSP_LJ_MAX_FF; i++)
		size += build->ff_name[i] ? strlen(build->ff_name[i]) + 1 : 0;
	return (uint32_t)size;
}

static void put_all(const struct msp_lj_build *build, const struct saved *head, uint8_t *bytes)
{
	struct stream to = {.at = bytes}, strings;
	uint8_t *start = bytes + saved_size(head) - head->string_size;
	uint32_t at;

	strings.at = start;
	put(&to, head, sizeof(*head));
	for (uint32_t i = 0; i < head->evidence_count; i++) {
		const struct msp_lj_evidence *e = &build->evidence[i];
		struct saved_evidence out = {
			.value = e->value, .field = field_number(e->field), .found = e->found};

		put_string(&strings, start, e->source, &out.source);
		put_string(&strings, start, e->why, &out.why);
		put(&to, &out, sizeof(out));
	}
	put(&to, build->handler, head->handler_count * sizeof(build->handler[0]));
	put(&to, build->rows.rows, head->row_count * sizeof(struct msp_row));
	put(&to, build->rows.rules, head->rule_count * sizeof(struct msp_rule));
	for (uint32_t i = 0; i < head->name_count; i++) {
		put_string(&strings, start, build->ff_name[i], &at);
		put(&to, &at, sizeof(at));
	}
	*strings.at = 0;
}

static void put_segments(const struct msp_lj_build *build, struct saved *head)
{
	head->segment_count = build->segment_count;
	head->position_dependent = build->position_dependent;
	for (unsigned int i = 0; i < build->segment_count; i++) {
		const struct msp_lj_segment *seg = &build->segment[i];

		head->segment[i] = (struct saved_segment){seg->addr, seg->file_size, seg->mem_size,
							  seg->exec, seg->write};
	}
}

static void save(const struct msp_lj_build *build, uint32_t stamp, int result)
{
	struct saved head = {.layout = build->layout,
			     .descriptor = build->descriptor,
			     .result = result,
			     .block_start = build->block_start,
			     .block_end = build->block_end,
			     .rows_end = (uint32_t)build->rows.end,
			     .op_count = build->op_count,
			     .g_gcroot = build->g_gcroot,
			     .instructions = build->rows.instructions,
			     .reached = build->rows.reached,
			     .ff_count = build->ff_count,
			     .ff_asm_count = build->ff_asm_count,
			     .evidence_count = (uint32_t)build->evidence_count,
			     .handler_count = build->handler_count,
			     .row_count = build->rows.row_count,
			     .rule_count = build->rows.rule_count,
			     .name_count = MSP_LJ_MAX_FF,
			     .string_size = strings_size(build)};
	uint8_t *bytes;

	for (int i = 0; i < MSP_LJ_FIELD_COUNT; i++) {
		head.has[i] = build->has[i];
		head.conflict[i] = build->conflict[i];
	}
	put_segments(build, &head);
	memcpy(head.version, build->version, sizeof(head.version));
	bytes = malloc(saved_size(&head));
	if (!bytes)
		return;
	put_all(build, &head, bytes);
	msp_image_cache_write(build->image, MSP_CACHE_LUAJIT, stamp, bytes, saved_size(&head));
	free(bytes);
}

/* ---- Reading ---- */

static bool head_valid(const struct saved *s, size_t size)
{
	return (s->result == 0 || s->result == MSP_E_NOT_PROVED) &&
	       s->segment_count <= MSP_LJ_MAX_SEGMENTS && s->block_start < s->block_end &&
	       s->rows_end >= s->block_end && s->evidence_count <= MSP_LJ_MAX_EVIDENCE &&
	       s->handler_count <= MSP_LJ_MAX_OPS && s->row_count <= MSP_ROWS_MAX &&
	       s->rule_count && s->rule_count <= MSP_RULES_MAX && s->name_count == MSP_LJ_MAX_FF &&
	       s->string_size && memchr(s->version, 0, sizeof(s->version)) && size == saved_size(s);
}

static void *take(struct stream *from, size_t size)
{
	void *copy = malloc(size ? size : 1);

	if (copy && size)
		memcpy(copy, from->at, size);
	from->at += size;
	return copy;
}

static bool string_at(const struct msp_lj_build *build, const struct saved *s, uint32_t at,
		      const char **out)
{
	*out = at == NO_STRING ? NULL : build->strings + at;
	return at == NO_STRING || at < s->string_size;
}

static bool get_evidence(struct msp_lj_build *build, const struct saved *s, struct stream *from)
{
	for (uint32_t i = 0; i < s->evidence_count; i++) {
		struct msp_lj_evidence *e = &build->evidence[i];
		struct saved_evidence in;

		memcpy(&in, from->at, sizeof(in));
		from->at += sizeof(in);
		if (in.field >= MSP_LJ_FIELD_COUNT || in.found > 1 || in.source == NO_STRING ||
		    !string_at(build, s, in.source, &e->source) ||
		    !string_at(build, s, in.why, &e->why))
			return false;
		e->field = msp_lj_field_name((enum msp_lj_field)in.field);
		e->value = in.value;
		e->found = in.found;
	}
	build->evidence_count = s->evidence_count;
	return true;
}

static bool get_names(struct msp_lj_build *build, const struct saved *s, struct stream *from)
{
	const char *name;
	uint32_t at;

	for (uint32_t i = 0; i < s->name_count; i++) {
		memcpy(&at, from->at, sizeof(at));
		from->at += sizeof(at);
		if (!string_at(build, s, at, &name))
			return false;
		if (name && !(build->ff_name[i] = strdup(name)))
			return false;
	}
	return true;
}

static bool get_all(struct msp_lj_build *build, const struct saved *s, struct stream *from)
{
	struct stream end = {.at = from->end - s->string_size};

	build->strings = take(&end, s->string_size);
	if (!build->strings || build->strings[s->string_size - 1] || !get_evidence(build, s, from))
		return false;
	memcpy(build->handler, from->at, s->handler_count * sizeof(build->handler[0]));
	from->at += s->handler_count * sizeof(build->handler[0]);
	build->rows.rows = take(from, s->row_count * sizeof(struct msp_row));
	build->rows.rules = take(from, s->rule_count * sizeof(struct msp_rule));
	return build->rows.rows && build->rows.rules &&
	       msp_rows_valid(build->rows.rows, s->row_count, build->rows.rules, s->rule_count) &&
	       get_names(build, s, from);
}

static void get_segments(struct msp_lj_build *build, const struct saved *s)
{
	build->segment_count = s->segment_count;
	build->position_dependent = s->position_dependent != 0;
	for (unsigned int i = 0; i < s->segment_count; i++) {
		const struct saved_segment *seg = &s->segment[i];

		build->segment[i] = (struct msp_lj_segment){
			seg->addr, seg->file_size, seg->mem_size, seg->exec != 0, seg->write != 0};
	}
}

static struct msp_lj_build *parse(struct msp_image *image, uint8_t *bytes, size_t size, int *result)
{
	struct stream from = {bytes, bytes + size};
	struct msp_lj_build *build = NULL;
	struct saved s;

	if (size < sizeof(s))
		return NULL;
	memcpy(&s, bytes, sizeof(s));
	from.at += sizeof(s);
	if (!head_valid(&s, size) || !(build = calloc(1, sizeof(*build))))
		return NULL;
	build->image = image;
	build->layout = s.layout;
	memcpy(build->version, s.version, sizeof(s.version));
	for (int i = 0; i < MSP_LJ_FIELD_COUNT; i++) {
		build->has[i] = s.has[i] != 0;
		build->conflict[i] = s.conflict[i] != 0;
	}
	get_segments(build, &s);
	build->descriptor = s.descriptor;
	build->block_start = s.block_start;
	build->block_end = s.block_end;
	build->op_count = s.op_count;
	build->g_gcroot = s.g_gcroot;
	build->handler_count = s.handler_count;
	build->rows.end = s.rows_end;
	build->rows.row_count = s.row_count;
	build->rows.rule_count = s.rule_count;
	build->rows.instructions = s.instructions;
	build->rows.reached = s.reached;
	build->ff_count = s.ff_count;
	build->ff_asm_count = s.ff_asm_count;
	*result = s.result;
	if (get_all(build, &s, &from))
		return build;
	msp_lj_build_free(build);
	return NULL;
}

int msp_lj_build_find_cached(struct msp_image *image, uint32_t stamp, struct msp_lj_build **out)
{
	size_t size;
	uint8_t *bytes;
	int result = 0;

	if (!stamp)
		return msp_lj_build_find(image, out);
	bytes = msp_image_cache_read(image, MSP_CACHE_LUAJIT, stamp, &size);
	*out = bytes ? parse(image, bytes, size, &result) : NULL;
	free(bytes);
	if (*out)
		return result;
	result = msp_lj_build_find(image, out);
	if (*out)
		save(*out, stamp, result);
	return result;
}

/* SPDX-License-Identifier: MIT */
/*
 * Reads the msp format: docs/formats.md, "msp". The file may be cut off, damaged or made to harm:
 * nothing in it is believed before it is checked, and memory is only taken for bytes that are there.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "moonspy/moonspy.h"
#include "output/msp_format.h"
#include "output/output.h"
#include "profile/tree.h"

struct reader {
	FILE *in;
	struct msp_profile *profile;
	char *error;
	size_t error_size;
	/* The section at hand. */
	struct msp_section_header header;
	unsigned char *body;
	size_t room;
	const unsigned char *at, *end;
	uint64_t row; /* of its table, for messages */
	/* What sections before it have given: numbers in the file to ids in the profile. */
	const char **strings;
	uint32_t *frames, *nodes;
	uint16_t *depths;
	struct {
		int32_t pid, tid;
	} * threads;
	uint64_t n_strings, n_frames, n_nodes, n_threads;
	unsigned char *texts; /* body of STRS, where strings point */
};

__attribute__((format(printf, 2, 3))) static int bad(struct reader *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (r->error_size)
		vsnprintf(r->error, r->error_size, format, args);
	va_end(args);
	return MSP_E_FORMAT;
}

/* Error codes of the profile, with text; what it refuses is wrong in the file. */
static int refused(struct reader *r, int err, const char *what)
{
	if (err == MSP_E_INVALID || err == MSP_E_LIMIT)
		return bad(r, "%.4s, row %llu: %s", r->header.tag, (unsigned long long)r->row,
			   what);
	if (r->error_size)
		snprintf(r->error, r->error_size, "%s", msp_strerror(err));
	return err;
}

static int no_memory(struct reader *r)
{
	return refused(r, MSP_E_NOMEM, "");
}

/* Reads exactly size bytes. */
static int read_bytes(struct reader *r, void *to, size_t size, const char *what)
{
	if (fread(to, 1, size, r->in) == size)
		return 0;
	if (ferror(r->in)) {
		if (r->error_size)
			snprintf(r->error, r->error_size, "%s", strerror(errno));
		return MSP_E_IO;
	}
	return bad(r, "the file ends within %s", what);
}

/* Grows with what is really there, so that a length of an exabyte takes no memory. */
static int read_body(struct reader *r, uint64_t length)
{
	uint64_t size = 0;
	int err;

	while (size < length) {
		uint64_t part = length - size < 65536 + size ? length - size : 65536 + size;

		if (r->room < size + part) {
			unsigned char *body = realloc(r->body, size + part);

			if (!body)
				return no_memory(r);
			r->body = body;
			r->room = size + part;
		}
		err = read_bytes(r, r->body + size, part, "a section");
		if (err)
			return err;
		size += part;
	}
	r->at = r->body;
	r->end = r->body ? r->body + length : NULL;
	return 0;
}

static int read_section(struct reader *r)
{
	char padding[8];
	int err = read_bytes(r, &r->header, sizeof(r->header), "a section's header");

	if (err)
		return err;
	if (crc32_z(0, (const Bytef *)&r->header, sizeof(r->header) - 4) != r->header.header_crc)
		return bad(r, "a section's header is damaged (checksum)");
	if (r->header.length > INT64_MAX)
		return bad(r, "%.4s: impossible length", r->header.tag);
	if ((err = read_body(r, r->header.length)) ||
	    (err = read_bytes(r, padding, -r->header.length & 7, "a section")))
		return err;
	if (crc32_z(0, r->body, r->header.length) != r->header.body_crc)
		return bad(r, "%.4s is damaged (checksum)", r->header.tag);
	r->row = 0;
	return 0;
}

static int varint(struct reader *r, uint64_t *value)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		unsigned char byte;

		if (r->at == r->end)
			return bad(r, "%.4s, row %llu: a number goes past the end", r->header.tag,
				   (unsigned long long)r->row);
		byte = *r->at++;
		if (shift == 63 && byte > 1)
			break;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*value = v;
			return 0;
		}
	}
	return bad(r, "%.4s, row %llu: a number has more than 64 bits", r->header.tag,
		   (unsigned long long)r->row);
}

#define MAX_COLUMNS 16

struct table {
	uint64_t rows, columns;
	uint64_t row[MAX_COLUMNS]; /* columns the file does not have are 0 */
};

static int begin_table(struct reader *r, struct table *t)
{
	int err;

	*t = (struct table){0};
	if ((err = varint(r, &t->rows)) || (err = varint(r, &t->columns)))
		return err;
	/* A number is at least a byte: this bounds what the table may make us allocate. */
	if (t->rows && (!t->columns || t->rows > (uint64_t)(r->end - r->at) / t->columns))
		return bad(r, "%.4s: more rows than bytes", r->header.tag);
	if (t->rows >= UINT32_MAX)
		return bad(r, "%.4s: too many rows", r->header.tag);
	return 0;
}

static int next_row(struct reader *r, struct table *t)
{
	uint64_t skipped;
	int err = 0;

	for (uint64_t i = 0; !err && i < t->columns; i++)
		err = varint(r, i < MAX_COLUMNS ? &t->row[i] : &skipped);
	r->row++;
	return err;
}

/* The string that a number refers to; NULL for 0. */
static int string_at(struct reader *r, uint64_t number, const char **out)
{
	if (number > r->n_strings)
		return bad(r, "%.4s, row %llu: no such string", r->header.tag,
			   (unsigned long long)r->row);
	*out = number ? r->strings[number - 1] : NULL;
	return 0;
}

static int read_strings(struct reader *r)
{
	uint64_t n, length;
	int err = varint(r, &n);

	if (err)
		return err;
	if (n > (uint64_t)(r->end - r->at))
		return bad(r, "STRS: more strings than bytes");
	r->strings = calloc(n + 1, sizeof(*r->strings));
	/* Room for a NUL behind each: behind the last, the one there was is the next one's length. */
	r->texts = malloc(r->header.length + n + 1);
	if (!r->strings || !r->texts)
		return no_memory(r);
	for (unsigned char *to = r->texts; r->n_strings < n; r->n_strings++) {
		r->row = r->n_strings + 1;
		if ((err = varint(r, &length)))
			return err;
		if (length > (uint64_t)(r->end - r->at))
			return bad(r, "STRS: string %llu goes past the end",
				   (unsigned long long)r->row);
		if (memchr(r->at, 0, length))
			return bad(r, "STRS: string %llu holds a NUL", (unsigned long long)r->row);
		memcpy(to, r->at, length);
		to[length] = 0;
		r->strings[r->n_strings] = (const char *)to;
		to += length + 1;
		r->at += length;
	}
	return 0;
}

static int read_frame(struct reader *r, const uint64_t *row, uint32_t *id)
{
	struct msp_frame f = {.kind = (enum msp_frame_kind)row[0],
			      .certain = row[1] & MSP_FRAME_CERTAIN,
			      .vm = row[1] & MSP_FRAME_VM,
			      .defined = (uint32_t)row[4],
			      .line = (uint32_t)row[5],
			      .address = row[7],
			      .trace = (uint32_t)row[8]};
	int64_t made;
	int err;

	if (row[0] >= MSP_FRAME_KIND_COUNT)
		return refused(r, MSP_E_INVALID, "unknown kind of frame");
	if (row[4] > UINT32_MAX || row[5] > UINT32_MAX || row[8] > UINT32_MAX)
		return refused(r, MSP_E_INVALID, "a line or trace above 32 bits");
	if ((err = string_at(r, row[2], &f.name)) || (err = string_at(r, row[3], &f.file)) ||
	    (err = string_at(r, row[6], &f.object)))
		return err;
	made = msp_profile_frame(r->profile, &f);
	if (made < 0)
		return refused(r, (int)made, "the frame cannot be kept");
	*id = (uint32_t)made;
	return 0;
}

static int read_frames(struct reader *r)
{
	struct table t;
	int err = begin_table(r, &t);

	if (err)
		return err;
	r->frames = calloc(t.rows + 1, sizeof(*r->frames));
	if (!r->frames)
		return no_memory(r);
	for (; !err && r->n_frames < t.rows; r->n_frames++) {
		err = next_row(r, &t);
		if (!err)
			err = read_frame(r, t.row, &r->frames[r->n_frames]);
	}
	return err;
}

static int read_node(struct reader *r, uint64_t distance, uint64_t frame)
{
	uint64_t parent = r->n_nodes - distance;
	int64_t node;

	if (!distance || distance > r->n_nodes)
		return refused(r, MSP_E_INVALID, "no such parent");
	if (frame >= r->n_frames)
		return refused(r, MSP_E_INVALID, "no such frame");
	if (r->depths[parent] >= MSP_PROFILE_MAX_STACK)
		return refused(r, MSP_E_INVALID, "the stack is too deep");
	node = msp_profile_node(r->profile, r->nodes[parent], r->frames[frame]);
	if (node < 0)
		return refused(r, (int)node, "the stack cannot be kept");
	r->depths[r->n_nodes] = (uint16_t)(r->depths[parent] + 1);
	r->nodes[r->n_nodes++] = (uint32_t)node;
	return 0;
}

static int read_nodes(struct reader *r)
{
	struct table t;
	int err = begin_table(r, &t);

	if (err)
		return err;
	r->nodes = calloc(t.rows + 1, sizeof(*r->nodes));
	r->depths = calloc(t.rows + 1, sizeof(*r->depths));
	if (!r->nodes || !r->depths)
		return no_memory(r);
	r->n_nodes = 1; /* the empty stack */
	for (uint64_t i = 0; !err && i < t.rows; i++) {
		err = next_row(r, &t);
		if (!err)
			err = read_node(r, t.row[0], t.row[1]);
	}
	return err;
}

static int read_threads(struct reader *r)
{
	struct table t;
	const char *name = NULL;
	int err = begin_table(r, &t);

	if (err)
		return err;
	r->threads = calloc(t.rows + 1, sizeof(*r->threads));
	if (!r->threads)
		return no_memory(r);
	for (; r->n_threads < t.rows; r->n_threads++) {
		if ((err = next_row(r, &t)) || (err = string_at(r, t.row[2], &name)))
			return err;
		if (t.row[0] > UINT32_MAX || t.row[1] > UINT32_MAX)
			return refused(r, MSP_E_INVALID, "a pid or tid above 32 bits");
		r->threads[r->n_threads].pid = (int32_t)(uint32_t)t.row[0];
		r->threads[r->n_threads].tid = (int32_t)(uint32_t)t.row[1];
		err = msp_profile_set_name(r->profile, (int32_t)(uint32_t)t.row[0],
					   (int32_t)(uint32_t)t.row[1], name);
		if (err)
			return refused(r, err, "the thread cannot be kept");
	}
	return 0;
}

static int read_counts(struct reader *r)
{
	struct table t;
	int err = begin_table(r, &t);

	for (uint64_t i = 0; !err && i < t.rows; i++) {
		if ((err = next_row(r, &t)))
			return err;
		if (t.row[0] >= r->n_threads)
			return refused(r, MSP_E_INVALID, "no such thread");
		if (t.row[1] && t.row[1] >= r->n_nodes)
			return refused(r, MSP_E_INVALID, "no such stack");
		err = msp_profile_add_node(r->profile, r->threads[t.row[0]].pid,
					   r->threads[t.row[0]].tid,
					   t.row[1] ? r->nodes[t.row[1]] : 0, t.row[2]);
		if (err)
			return refused(r, err, "the count cannot be kept");
	}
	return err;
}

static int read_quality(struct reader *r)
{
	struct msp_quality *q = msp_profile_quality(r->profile);
	struct table t;
	int err;

	if ((err = begin_table(r, &t)) || (err = next_row(r, &t)))
		return err;
	if (t.rows != 1)
		return bad(r, "QUAL: not one row");
	q->samples = t.row[0];
	q->lost = t.row[1];
	q->whole = t.row[2];
	q->truncated = t.row[3];
	q->estimated = t.row[4];
	memcpy(&q->seconds, &t.row[5], sizeof(q->seconds));
	q->rate = (uint32_t)t.row[6];
	q->bpf_ns_per_sample = t.row[7];
	q->bpf_ns_median = t.row[8];
	q->bpf_ns_p99 = t.row[9];
	if (!isfinite(q->seconds) || q->seconds < 0 || t.row[6] > UINT32_MAX)
		return bad(r, "QUAL: seconds or rate out of range");
	return 0;
}

static int read_reasons(struct reader *r, void (*count)(struct msp_quality *quality,
							const char *reason, uint64_t count))
{
	struct table t;
	const char *reason = NULL;
	int err = begin_table(r, &t);

	for (uint64_t i = 0; !err && i < t.rows; i++) {
		if ((err = next_row(r, &t)) || (err = string_at(r, t.row[0], &reason)))
			return err;
		if (!reason || !reason[0])
			return refused(r, MSP_E_INVALID, "no reason");
		count(msp_profile_quality(r->profile), reason, t.row[1]);
	}
	return err;
}

static int read_errors(struct reader *r)
{
	return read_reasons(r, msp_quality_error);
}

static int read_ways(struct reader *r)
{
	return read_reasons(r, msp_quality_way);
}

static int read_meta(struct reader *r)
{
	struct table t;
	const char *key = NULL, *value = NULL;
	int err = begin_table(r, &t);

	for (uint64_t i = 0; !err && i < t.rows; i++) {
		if ((err = next_row(r, &t)) || (err = string_at(r, t.row[0], &key)) ||
		    (err = string_at(r, t.row[1], &value)))
			return err;
		/* Each key is looked for among all: a list of any length would take its square. */
		if (i >= 1024)
			return bad(r, "META: more than 1,024 rows");
		if (!key || !value)
			return refused(r, MSP_E_INVALID, "no key or value");
		err = msp_profile_set_meta(r->profile, key, value);
		if (err)
			return refused(r, err, "the pair cannot be kept");
	}
	return err;
}

static int read_objects(struct reader *r)
{
	struct table t;
	const char *object = NULL, *last = NULL, *build_id = NULL, *path = NULL;
	int err = begin_table(r, &t);

	for (uint64_t i = 0; !err && i < t.rows; i++, last = object) {
		if ((err = next_row(r, &t)) || (err = string_at(r, t.row[0], &object)) ||
		    (err = string_at(r, t.row[1], &build_id)) ||
		    (err = string_at(r, t.row[2], &path)))
			return err;
		/* Sorted, each goes to the end: in any order they would take the square of their number. */
		if (!object || (last && strcmp(last, object) >= 0))
			return refused(r, MSP_E_INVALID, "no object, or out of order");
		err = msp_profile_set_object(r->profile, object, build_id, path);
		if (err)
			return refused(r, err, "the object cannot be kept");
	}
	return err;
}

static int read_events(struct reader *r)
{
	struct msp_vm_events last = {0}, next;
	struct table t;
	int err = begin_table(r, &t);

	for (uint64_t i = 0; !err && i < t.rows; i++, last = next) {
		if ((err = next_row(r, &t)) || (err = string_at(r, t.row[2], &next.event)))
			return err;
		next.pid = (int32_t)(uint32_t)t.row[0];
		next.g = t.row[1];
		if (t.row[0] > UINT32_MAX || !next.event ||
		    (i && msp_vm_events_compare(&last, &next) >= 0))
			return refused(r, MSP_E_INVALID, "no event, or out of order");
		err = msp_profile_add_vm_events(r->profile, next.pid, next.g, next.event, t.row[3]);
		if (err)
			return refused(r, err, "the events cannot be kept");
	}
	return err;
}

static int (*const readers[])(struct reader *) = {
	[MSP_SECTION_STRINGS] = read_strings, [MSP_SECTION_FRAMES] = read_frames,
	[MSP_SECTION_NODES] = read_nodes,     [MSP_SECTION_THREADS] = read_threads,
	[MSP_SECTION_COUNTS] = read_counts,   [MSP_SECTION_QUALITY] = read_quality,
	[MSP_SECTION_ERRORS] = read_errors,   [MSP_SECTION_META] = read_meta,
	[MSP_SECTION_OBJECTS] = read_objects, [MSP_SECTION_WAYS] = read_ways,
	[MSP_SECTION_EVENTS] = read_events,
};

static enum msp_section section_of(const char *tag)
{
	static const char tags[][5] = {
#define _(id, tag, columns) tag,
		MSP_SECTIONS(_)
#undef _
	};
	unsigned i = 0;

	while (i < MSP_SECTION_COUNT && memcmp(tags[i], tag, 4))
		i++;
	return (enum msp_section)i;
}

static int read_file_header(struct reader *r)
{
	struct msp_file_header header;
	int err = read_bytes(r, &header, sizeof(header), "the file's header");

	if (err)
		return err;
	if (memcmp(header.magic, MSP_FILE_MAGIC, sizeof(header.magic)))
		return bad(r, "not an msp file");
	if (header.major != MSP_FILE_MAJOR)
		return bad(r, "version %u.%u of the format is newer than this moonspy",
			   header.major, header.minor);
	return 0;
}

static int read_all(struct reader *r)
{
	int err = read_file_header(r), last = -1;
	uint64_t sections = 0, said;

	for (; !err; sections++) {
		enum msp_section section;

		if ((err = read_section(r)))
			break;
		section = section_of(r->header.tag);
		if (section == MSP_SECTION_COUNT) {
			if (r->header.flags & MSP_SECTION_CRITICAL)
				err = bad(r, "a section that this moonspy cannot read");
			continue;
		}
		if ((int)section <= last)
			return bad(r, "%.4s: out of order", r->header.tag);
		last = (int)section;
		if (section == MSP_SECTION_END) {
			err = varint(r, &said);
			return err || said == sections ? err : bad(r, "sections are missing");
		}
		err = readers[section](r);
	}
	return err;
}

int msp_read_msp(FILE *in, struct msp_profile **out, char *error, size_t error_size)
{
	struct reader r = {.in = in, .error = error, .error_size = error_size};
	int err;

	*out = NULL;
	if (error_size)
		error[0] = 0;
	r.profile = msp_profile_new();
	err = r.profile ? read_all(&r) : no_memory(&r);
	free(r.body);
	free(r.strings);
	free(r.texts);
	free(r.frames);
	free(r.nodes);
	free(r.depths);
	free(r.threads);
	if (err)
		msp_profile_free(r.profile);
	else
		*out = r.profile;
	return err;
}

/* SPDX-License-Identifier: MIT */
/*
 * The pprof format: docs/formats.md, "pprof". A message is compressed as soon as it is complete, so
 * what is held is tables of what has been numbered: strings, functions, mappings, locations. Each of
 * these tables is a profile, which knows how to give equal things one number.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "moonspy/moonspy.h"
#include "output/formats.h"
#include "output/gzip.h"
#include "output/pprof_fields.h"
#include "output/protobuf.h"
#include "profile/tree.h"

#define COMPRESS_AT (64 * 1024)
#define NO_FRAMES "[error: no frames]"
#define PAGE 4096u

struct mapping {
	uint64_t highest; /* address used */
	bool unnamed;	  /* a frame of it has no name */
};

struct thread_strings {
	uint64_t process, thread; /* 0: not known */
};

struct writer {
	const struct msp_profile *profile;
	struct msp_tree tree;
	struct msp_gzip gzip;
	struct msp_buffer out;		   /* complete messages */
	struct msp_buffer message, nested; /* at work on */
	struct msp_buffer text;
	struct msp_profile *strings, *functions, *mappings, *chains;
	struct mapping *mapping;	/* by number - 1 */
	struct thread_strings *threads; /* of the tree's threads */
	uint32_t *function;		/* of frames; 0: not written yet */
	uint32_t *chain;		/* of nodes */
	uint32_t *location;		/* of chains; 0: not written yet */
	uint32_t n_locations, no_frames;
	uint64_t period;
	int err;
};

static uint32_t checked(struct writer *w, int64_t number)
{
	if (number < 0 && !w->err)
		w->err = (int)number;
	return number < 0 ? 0 : (uint32_t)number;
}

/* Ends the message at hand. */
static void put(struct writer *w, unsigned field)
{
	msp_pb_message(&w->out, field, &w->message);
	if (w->out.size >= COMPRESS_AT)
		msp_gzip_take(&w->gzip, &w->out);
}

/* The number of a string; "" is 0. */
static uint32_t string(struct writer *w, const char *text)
{
	struct msp_frame key = {.name = ""};

	if (text && text[0]) {
		w->text.size = 0;
		msp_buffer_escaped(&w->text, text, "");
		msp_buffer_char(&w->text, 0);
		if (w->text.err)
			return checked(w, w->text.err);
		key.name = w->text.data;
	}
	return checked(w, msp_profile_frame(w->strings, &key));
}

static uint32_t frame_string(struct writer *w, const struct msp_frame *frame)
{
	char local[512], *text = local;
	size_t size = msp_frame_text(frame, false, local, sizeof(local));
	uint32_t number;

	if (size >= sizeof(local)) {
		text = malloc(size + 1);
		if (!text)
			return checked(w, MSP_E_NOMEM);
		msp_frame_text(frame, false, text, size + 1);
	}
	number = string(w, text);
	if (text != local)
		free(text);
	return number;
}

static bool is_named(const struct msp_frame *frame)
{
	return frame->name && frame->name[0];
}

/* Frames that differ in line, address or trace only are of one function. */
static uint32_t function_number(struct writer *w, const struct msp_frame *frame)
{
	struct msp_frame key = {.kind = frame->kind,
				.certain = frame->certain,
				.vm = frame->vm,
				.name = frame->name,
				.file = frame->file,
				.object = frame->object,
				.defined = frame->defined};
	size_t before = msp_profile_frame_count(w->functions);
	struct msp_buffer *m = &w->nested;
	uint32_t id;

	if (!is_named(frame))
		key.address = frame->address;
	id = checked(w, msp_profile_frame(w->functions, &key));
	if (id < before || w->err)
		return id + 1;
	msp_pb_uint(m, PPROF_FUNCTION_ID, id + 1);
	msp_pb_uint(m, PPROF_FUNCTION_NAME, frame_string(w, frame));
	msp_pb_uint(m, PPROF_FUNCTION_SYSTEM_NAME, string(w, frame->name));
	msp_pb_uint(m, PPROF_FUNCTION_FILENAME, string(w, frame->file));
	msp_pb_uint(m, PPROF_FUNCTION_START_LINE, frame->defined);
	msp_pb_message(&w->out, PPROF_FUNCTION, m);
	return id + 1;
}

static uint32_t mapping_number(struct writer *w, const struct msp_frame *frame)
{
	struct msp_frame key = {.name = frame->object};
	uint32_t id;

	if (!frame->object || !frame->object[0])
		return 0;
	id = checked(w, msp_profile_frame(w->mappings, &key));
	if (w->mapping[id].highest < frame->address)
		w->mapping[id].highest = frame->address;
	if (!is_named(frame))
		w->mapping[id].unnamed = true;
	return id + 1;
}

static const struct msp_frame *frame_of(const struct writer *w, uint32_t node)
{
	return msp_profile_frame_at(w->profile, w->tree.frame[node]);
}

/* Is the function of this node part of its caller's compiled code? Then they share a location. */
static bool is_joined(const struct writer *w, uint32_t node)
{
	const struct msp_frame *frame = frame_of(w, node), *caller;

	if (frame->kind != MSP_FRAME_INLINED || !w->tree.parent[node])
		return false;
	caller = frame_of(w, w->tree.parent[node]);
	return (caller->kind == MSP_FRAME_JIT || caller->kind == MSP_FRAME_INLINED) &&
	       caller->trace == frame->trace;
}

/* The frames that a location is made of, as a node of w->chains. */
static void make_chains(struct writer *w)
{
	for (uint32_t i = 0; i < w->tree.n_frames; i++)
		checked(w, msp_profile_frame(w->chains, msp_profile_frame_at(w->profile, i)));
	for (uint32_t i = 1; i < w->tree.n_nodes && !w->err; i++)
		w->chain[i] = checked(
			w, msp_profile_node(w->chains,
					    is_joined(w, i) ? w->chain[w->tree.parent[i]] : 0,
					    w->tree.frame[i]));
}

static void put_line(struct writer *w, uint32_t function, uint32_t line)
{
	struct msp_buffer *m = &w->nested;

	msp_pb_uint(m, PPROF_LINE_FUNCTION_ID, function);
	msp_pb_uint(m, PPROF_LINE_LINE, line);
	msp_pb_message(&w->message, PPROF_LOCATION_LINE, m);
}

static uint32_t function_of(struct writer *w, uint32_t node)
{
	uint32_t *function = &w->function[w->tree.frame[node]];

	if (!*function)
		*function = function_number(w, frame_of(w, node));
	return *function;
}

/* Innermost function first; the last one is that which the others are inlined into. */
static uint32_t write_location(struct writer *w, uint32_t node)
{
	const struct msp_frame *frame = frame_of(w, node);

	w->n_locations++;
	msp_pb_uint(&w->message, PPROF_LOCATION_ID, w->n_locations);
	msp_pb_uint(&w->message, PPROF_LOCATION_MAPPING_ID, mapping_number(w, frame));
	msp_pb_uint(&w->message, PPROF_LOCATION_ADDRESS, frame->address);
	for (;; node = w->tree.parent[node]) {
		put_line(w, function_of(w, node), frame_of(w, node)->line);
		if (!is_joined(w, node))
			break;
	}
	put(w, PPROF_LOCATION);
	return w->n_locations;
}

static uint32_t no_frames_location(struct writer *w)
{
	struct msp_frame frame = {.kind = MSP_FRAME_ERROR, .certain = true, .name = NO_FRAMES};

	if (!w->no_frames) {
		w->no_frames = ++w->n_locations;
		msp_pb_uint(&w->message, PPROF_LOCATION_ID, w->no_frames);
		put_line(w, function_number(w, &frame), 0);
		put(w, PPROF_LOCATION);
	}
	return w->no_frames;
}

static void write_locations(struct writer *w, uint32_t leaf)
{
	for (uint32_t node = leaf; node && !w->err; node = w->tree.parent[node]) {
		uint32_t *location = &w->location[w->chain[node]];

		if (!*location)
			*location = write_location(w, node);
		while (is_joined(w, node))
			node = w->tree.parent[node];
	}
}

static void put_location_ids(struct writer *w, uint32_t leaf)
{
	if (!leaf)
		msp_put_varint(&w->nested, w->no_frames);
	for (uint32_t node = leaf; node; node = w->tree.parent[node]) {
		msp_put_varint(&w->nested, w->location[w->chain[node]]);
		while (is_joined(w, node))
			node = w->tree.parent[node];
	}
	msp_pb_message(&w->message, PPROF_SAMPLE_LOCATION_ID, &w->nested);
}

static void put_label(struct writer *w, const char *key, uint64_t text, int64_t number)
{
	msp_pb_uint(&w->nested, PPROF_LABEL_KEY, string(w, key));
	msp_pb_uint(&w->nested, PPROF_LABEL_STR, text);
	msp_pb_uint(&w->nested, PPROF_LABEL_NUM, (uint64_t)number);
	msp_pb_message(&w->message, PPROF_SAMPLE_LABEL, &w->nested);
}

static const char *kind_name(enum msp_frame_kind kind)
{
	static const char *const names[] = {
#define _(id, name) name,
		MSP_FRAME_KINDS(_)
#undef _
	};

	return names[kind];
}

static void put_labels(struct writer *w, const struct msp_count *count)
{
	const struct msp_frame *leaf = count->node ? frame_of(w, count->node) : NULL;
	const struct thread_strings *names = &w->threads[count->thread];
	int32_t tid = w->tree.threads[count->thread].tid;

	put_label(w, "pid", 0, w->tree.threads[count->thread].pid);
	if (tid)
		put_label(w, "tid", 0, tid);
	if (names->process)
		put_label(w, "process", names->process, 0);
	if (names->thread)
		put_label(w, "thread", names->thread, 0);
	put_label(w, "kind", string(w, kind_name(leaf ? leaf->kind : MSP_FRAME_ERROR)), 0);
	if (leaf && leaf->trace)
		put_label(w, "trace", 0, leaf->trace);
}

static void write_sample(struct writer *w, const struct msp_count *count)
{
	uint64_t time;

	if (count->node)
		write_locations(w, count->node);
	else
		no_frames_location(w);
	put_location_ids(w, count->node);
	if (__builtin_mul_overflow(count->count, w->period, &time) || time > INT64_MAX)
		time = INT64_MAX;
	msp_put_varint(&w->nested, count->count > INT64_MAX ? INT64_MAX : count->count);
	msp_put_varint(&w->nested, time);
	msp_pb_message(&w->message, PPROF_SAMPLE_VALUE, &w->nested);
	put_labels(w, count);
	put(w, PPROF_SAMPLE);
}

static void write_type(struct writer *w, unsigned field, const char *type, const char *unit)
{
	msp_pb_uint(&w->message, PPROF_VALUE_TYPE_TYPE, string(w, type));
	msp_pb_uint(&w->message, PPROF_VALUE_TYPE_UNIT, string(w, unit));
	put(w, field);
}

/* Nanoseconds since 1970 of a time as RFC 3339 has it; 0 where it is none. */
static uint64_t nanoseconds(const char *text)
{
	struct tm tm = {0}, zone = {0};
	const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	uint64_t fraction = 0, unit = 1000000000;
	int64_t ns;

	if (!rest)
		return 0;
	if (*rest == '.')
		for (rest++; *rest >= '0' && *rest <= '9' && unit > 1; rest++)
			fraction += (uint64_t)(*rest - '0') * (unit /= 10);
	strptime(rest, "%z", &zone);
	if (__builtin_mul_overflow(timegm(&tm) - zone.tm_gmtoff, 1000000000, &ns) || ns < 0)
		return 0;
	return (uint64_t)ns + fraction;
}

static void write_comments(struct writer *w)
{
	char quality[400];
	struct msp_buffer comments = {0}, line = {0};

	msp_quality_text(msp_profile_quality_of(w->profile), quality, sizeof(quality));
	msp_put_varint(&comments, string(w, quality));
	for (size_t i = 0; i < msp_profile_meta_count(w->profile); i++) {
		const char *key, *value;

		msp_profile_meta_at(w->profile, i, &key, &value);
		line.size = 0;
		msp_buffer_text(&line, key);
		msp_buffer_text(&line, ": ");
		msp_buffer_put(&line, value, strlen(value) + 1);
		msp_put_varint(&comments, line.err ? checked(w, line.err) : string(w, line.data));
	}
	msp_pb_message(&w->out, PPROF_COMMENT, &comments);
	msp_buffer_free(&comments);
	msp_buffer_free(&line);
}

static void write_head(struct writer *w)
{
	const struct msp_quality *quality = msp_profile_quality_of(w->profile);
	double duration = quality->seconds * 1e9;

	string(w, "");
	w->period = quality->rate ? 1000000000 / quality->rate : 0;
	write_type(w, PPROF_SAMPLE_TYPE, "samples", "count");
	write_type(w, PPROF_SAMPLE_TYPE, "cpu", "nanoseconds");
	write_type(w, PPROF_PERIOD_TYPE, "cpu", "nanoseconds");
	msp_pb_uint(&w->out, PPROF_PERIOD, w->period);
	msp_pb_uint(&w->out, PPROF_DEFAULT_SAMPLE_TYPE, string(w, "cpu"));
	msp_pb_uint(&w->out, PPROF_TIME_NANOS, nanoseconds(msp_profile_meta(w->profile, "start")));
	if (duration > 0 && duration < 9e18)
		msp_pb_uint(&w->out, PPROF_DURATION_NANOS, (uint64_t)duration);
	write_comments(w);
}

/* Readers take the first mapping for the program: it is, where an object has the command's name. */
static void find_program(struct writer *w)
{
	const char *command = msp_profile_meta(w->profile, "command"), *end, *at;

	if (!command)
		return;
	end = command + strcspn(command, " :");
	for (at = end; at > command && at[-1] != '/'; at--)
		;
	for (uint32_t i = 0; i < w->tree.n_frames && end > at; i++) {
		struct msp_frame key = {.name = msp_profile_frame_at(w->profile, i)->object};

		if (!key.name || strncmp(key.name, at, (size_t)(end - at)) || key.name[end - at])
			continue;
		checked(w, msp_profile_frame(w->mappings, &key));
		return;
	}
}

static void write_mappings(struct writer *w)
{
	for (uint32_t i = 0; i < msp_profile_frame_count(w->mappings); i++) {
		const char *object = msp_profile_frame_at(w->mappings, i)->name, *build_id, *path;
		uint64_t limit = w->mapping[i].highest | (PAGE - 1);
		struct msp_buffer *m = &w->message;

		msp_profile_object(w->profile, object, &build_id, &path);
		msp_pb_uint(m, PPROF_MAPPING_ID, i + 1);
		msp_pb_uint(m, PPROF_MAPPING_MEMORY_LIMIT, limit == UINT64_MAX ? limit : limit + 1);
		msp_pb_uint(m, PPROF_MAPPING_FILENAME, string(w, path ? path : object));
		msp_pb_uint(m, PPROF_MAPPING_BUILD_ID, string(w, build_id));
		msp_pb_uint(m, PPROF_MAPPING_HAS_FUNCTIONS, !w->mapping[i].unnamed);
		put(w, PPROF_MAPPING);
	}
}

/* Last, when all are known. */
static void write_strings(struct writer *w)
{
	for (uint32_t i = 0; i < msp_profile_frame_count(w->strings); i++) {
		const char *text = msp_profile_frame_at(w->strings, i)->name;

		msp_buffer_text(&w->message, text);
		put(w, PPROF_STRING_TABLE);
	}
}

static void name_threads(struct writer *w)
{
	for (uint32_t i = 0; i < w->tree.n_threads; i++) {
		w->threads[i].process =
			string(w, msp_profile_name(w->profile, w->tree.threads[i].pid, 0));
		if (w->tree.threads[i].tid)
			w->threads[i].thread = string(w, w->tree.threads[i].name);
	}
}

static void write_all(struct writer *w)
{
	make_chains(w);
	write_head(w);
	name_threads(w);
	find_program(w);
	for (uint32_t i = 0; i < w->tree.n_counts && !w->err && !w->gzip.err; i++)
		write_sample(w, &w->tree.counts[i]);
	write_mappings(w);
	write_strings(w);
	if (w->err)
		w->out.size = 0;
	msp_gzip_take(&w->gzip, &w->out);
}

/* A mapping for each frame is more than there can be. */
static int make_tables(struct writer *w)
{
	w->strings = msp_profile_new();
	w->functions = msp_profile_new();
	w->mappings = msp_profile_new();
	w->chains = msp_profile_new();
	w->mapping = calloc((size_t)w->tree.n_frames + 1, sizeof(*w->mapping));
	w->threads = calloc((size_t)w->tree.n_threads + 1, sizeof(*w->threads));
	w->function = calloc((size_t)w->tree.n_frames + 1, sizeof(*w->function));
	w->chain = calloc(w->tree.n_nodes, sizeof(*w->chain));
	w->location = calloc(w->tree.n_nodes, sizeof(*w->location));
	return w->strings && w->functions && w->mappings && w->chains && w->mapping && w->threads &&
			       w->function && w->chain && w->location
		       ? 0
		       : MSP_E_NOMEM;
}

static void free_tables(struct writer *w)
{
	msp_profile_free(w->strings);
	msp_profile_free(w->functions);
	msp_profile_free(w->mappings);
	msp_profile_free(w->chains);
	free(w->mapping);
	free(w->threads);
	free(w->function);
	free(w->chain);
	free(w->location);
	msp_buffer_free(&w->out);
	msp_buffer_free(&w->message);
	msp_buffer_free(&w->nested);
	msp_buffer_free(&w->text);
	msp_tree_free(&w->tree);
}

int msp_write_pprof(const struct msp_profile *profile, FILE *out)
{
	struct writer w = {.profile = profile};
	int err = msp_profile_tree(profile, &w.tree), io;

	if (err)
		return err;
	err = make_tables(&w);
	if (!err)
		err = msp_gzip_begin(&w.gzip, out);
	if (!err) {
		write_all(&w);
		io = msp_gzip_finish(&w.gzip);
		err = io ? io : w.err;
	}
	free_tables(&w);
	return err;
}

/* SPDX-License-Identifier: MIT */
#include "output/json_writer.h"

#include <math.h>
#include <string.h>

#include "profile/tree.h"

static const char hex[] = "0123456789abcdef";

/* What stands before a value or key: a comma, and a line of its own in the outer two levels. */
static void begin_value(struct msp_json *json)
{
	uint64_t level = 1ull << json->depth;

	if (json->after_key) {
		json->after_key = false;
		return;
	}
	if (json->filled & level)
		msp_buffer_char(&json->buffer, ',');
	if (json->depth && json->depth <= 2)
		msp_buffer_char(&json->buffer, '\n');
	json->filled |= level;
}

static void open(struct msp_json *json, bool object)
{
	begin_value(json);
	msp_buffer_char(&json->buffer, object ? '{' : '[');
	if (json->depth < MSP_JSON_MAX_DEPTH)
		json->depth++;
	json->filled &= ~(1ull << json->depth);
	json->objects &= ~(1ull << json->depth);
	json->objects |= (uint64_t)object << json->depth;
}

void msp_json_object(struct msp_json *json)
{
	open(json, true);
}

void msp_json_array(struct msp_json *json)
{
	open(json, false);
}

void msp_json_end(struct msp_json *json)
{
	bool object = json->objects >> json->depth & 1;

	msp_buffer_char(&json->buffer, object ? '}' : ']');
	json->depth--;
}

/* Escapes what JSON forbids, and what the text rule does not let through. */
static void put_bytes(struct msp_json *json, const char *text, size_t left)
{
	struct msp_buffer *b = &json->buffer;
	size_t n;

	msp_buffer_char(b, '"');
	for (; left; text += n, left -= n) {
		unsigned char c = (unsigned char)*text;

		n = msp_utf8_printable(text, left);
		if (c < 0x20 || c == 0x7f || (c == '<' && json->html)) {
			msp_buffer_put(b, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]},
				       6);
			n = 1;
		} else if (c == '"') {
			msp_buffer_put(b, "\\\"", 2);
		} else if (c == '\\') {
			msp_buffer_put(b, "\\\\\\\\", 4);
		} else if (n == 0) {
			msp_buffer_put(b, (char[]){'\\', '\\', 'x', hex[c >> 4], hex[c & 15]}, 5);
			n = 1;
		} else {
			msp_buffer_put(b, text, n);
		}
	}
	msp_buffer_char(b, '"');
}

static void put_string(struct msp_json *json, const char *text)
{
	put_bytes(json, text, strlen(text));
}

void msp_json_key(struct msp_json *json, const char *key)
{
	begin_value(json);
	put_string(json, key);
	msp_buffer_char(&json->buffer, ':');
	json->after_key = true;
}

void msp_json_string(struct msp_json *json, const char *text)
{
	if (!text) {
		msp_json_null(json);
		return;
	}
	begin_value(json);
	put_string(json, text);
}

void msp_json_bytes(struct msp_json *json, const char *text, size_t size)
{
	begin_value(json);
	put_bytes(json, text, size);
}

void msp_json_raw(struct msp_json *json, const char *value, size_t size)
{
	begin_value(json);
	msp_buffer_put(&json->buffer, value, size);
}

void msp_json_uint(struct msp_json *json, uint64_t value)
{
	begin_value(json);
	msp_buffer_uint(&json->buffer, value);
}

void msp_json_int(struct msp_json *json, int64_t value)
{
	begin_value(json);
	if (value < 0)
		msp_buffer_char(&json->buffer, '-');
	msp_buffer_uint(&json->buffer, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void msp_json_double(struct msp_json *json, double value)
{
	char text[64];
	int size = snprintf(text, sizeof(text), "%.17g", value);

	if (!isfinite(value)) {
		msp_json_null(json);
		return;
	}
	/* The shortest that reads back as the same number; a locale may have put a comma in. */
	for (int digits = 6; digits < 17; digits += 3) {
		double back = 0;

		size = snprintf(text, sizeof(text), "%.*g", digits, value);
		if (sscanf(text, "%lf", &back) == 1 && back == value)
			break;
		size = snprintf(text, sizeof(text), "%.17g", value);
	}
	for (char *p = text; *p; p++)
		if (*p == ',')
			*p = '.';
	msp_json_raw(json, text, (size_t)size);
}

void msp_json_bool(struct msp_json *json, bool value)
{
	msp_json_raw(json, value ? "true" : "false", value ? 4 : 5);
}

void msp_json_null(struct msp_json *json)
{
	msp_json_raw(json, "null", 4);
}

void msp_json_hex(struct msp_json *json, uint64_t value)
{
	char text[24];

	msp_json_raw(json, text,
		     (size_t)snprintf(text, sizeof(text), "\"0x%llx\"", (unsigned long long)value));
}

int msp_json_finish(struct msp_json *json)
{
	msp_buffer_char(&json->buffer, '\n');
	return msp_buffer_finish(&json->buffer);
}

static const char *kind_name(enum msp_frame_kind kind)
{
	static const char *const names[] = {
#define _(id, name) name,
		MSP_FRAME_KINDS(_)
#undef _
	};

	return (unsigned)kind < MSP_FRAME_KIND_COUNT ? names[kind] : "error";
}

static void uint_or_null(struct msp_json *json, uint64_t value, bool there)
{
	if (there)
		msp_json_uint(json, value);
	else
		msp_json_null(json);
}

void msp_json_frame_open(struct msp_json *json, const struct msp_frame *f)
{
	bool lua = f->kind <= MSP_FRAME_INLINED;

	msp_json_object(json);
	msp_json_key(json, "kind");
	msp_json_string(json, kind_name(f->kind));
	msp_json_key(json, "name");
	msp_json_string(json, f->name);
	msp_json_key(json, "file");
	msp_json_string(json, f->file);
	msp_json_key(json, "line");
	uint_or_null(json, f->line, f->line != 0);
	msp_json_key(json, "defined");
	uint_or_null(json, f->defined, lua || f->defined);
	msp_json_key(json, "object");
	msp_json_string(json, f->object);
	msp_json_key(json, "address");
	if (f->address)
		msp_json_hex(json, f->address);
	else
		msp_json_null(json);
	msp_json_key(json, "certain");
	msp_json_bool(json, f->certain || f->kind > MSP_FRAME_CFUNCTION);
	msp_json_key(json, "trace");
	uint_or_null(json, f->trace, f->trace != 0);
	if (f->vm) {
		msp_json_key(json, "vm");
		msp_json_bool(json, true);
	}
}

void msp_json_frame(struct msp_json *json, const struct msp_frame *frame)
{
	msp_json_frame_open(json, frame);
	msp_json_end(json);
}

static void put_counter(struct msp_json *json, const char *key, uint64_t value)
{
	msp_json_key(json, key);
	msp_json_uint(json, value);
}

static void put_reasons(struct msp_json *json, const char *key,
			const struct msp_quality_reason *list)
{
	msp_json_key(json, key);
	msp_json_object(json);
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS && list[i].reason[0]; i++)
		put_counter(json, list[i].reason, list[i].count);
	msp_json_end(json);
}

void msp_json_quality(struct msp_json *json, const struct msp_quality *q)
{
	msp_json_object(json);
	put_counter(json, "samples", q->samples);
	put_counter(json, "lost", q->lost);
	put_counter(json, "whole", q->whole);
	put_counter(json, "truncated", q->truncated);
	put_reasons(json, "errors", q->errors);
	put_reasons(json, "ways", q->ways);
	put_counter(json, "estimated", q->estimated);
	msp_json_key(json, "seconds");
	msp_json_double(json, q->seconds);
	put_counter(json, "rate", q->rate);
	msp_json_key(json, "bpf_ns_per_sample");
	uint_or_null(json, q->bpf_ns_per_sample, q->bpf_ns_per_sample != 0);
	msp_json_key(json, "bpf_ns_median");
	uint_or_null(json, q->bpf_ns_median, q->bpf_ns_median != 0);
	msp_json_key(json, "bpf_ns_p99");
	uint_or_null(json, q->bpf_ns_p99, q->bpf_ns_p99 != 0);
	msp_json_end(json);
}

void msp_json_meta(struct msp_json *json, const struct msp_profile *profile)
{
	msp_json_key(json, "meta");
	msp_json_object(json);
	for (size_t i = 0; i < msp_profile_meta_count(profile); i++) {
		const char *key, *value;

		msp_profile_meta_at(profile, i, &key, &value);
		msp_json_key(json, key);
		msp_json_string(json, value);
	}
	msp_json_end(json);
}

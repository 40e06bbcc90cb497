/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "output/msp_format.h"
#include "output/sysprof.h"

struct record {
	struct sysprof_in *in;
	const unsigned char *at, *end;
};

void sysprof_records_free(struct sysprof_records *records)
{
	free(records->frame);
	free(records->id);
}

bool sysprof_is_record(uint64_t addr, struct sysprof_string name)
{
	return addr == SYSPROF_RECORD_ADDRESS && name.size > strlen(SYSPROF_RECORD_MAGIC) &&
	       !memcmp(name.data, SYSPROF_RECORD_MAGIC, strlen(SYSPROF_RECORD_MAGIC));
}

static int broken(struct record *r)
{
	return sysprof_bad(r->in, "byte %llu: a broken record of moonspy's",
			   (unsigned long long)r->in->offset);
}

static int number(struct record *r, uint64_t *value)
{
	*value = 0;
	for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
		unsigned char byte = *r->at++;

		if (shift == 63 && byte > 1)
			break;
		*value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return 0;
	}
	return broken(r);
}

/* Text with a NUL of its own behind it. Length 0: NULL. */
static int text(struct record *r, const char **out)
{
	uint64_t length;
	int err = number(r, &length);

	*out = NULL;
	if (err || !length)
		return err;
	if (length > (uint64_t)(r->end - r->at) || r->at[length - 1])
		return broken(r);
	*out = (const char *)r->at;
	r->at += length;
	return 0;
}

static int numbers(struct record *r, uint64_t *value, size_t n)
{
	int err = 0;

	for (size_t i = 0; !err && i < n; i++)
		err = number(r, &value[i]);
	return err;
}

static int texts(struct record *r, const char **out, size_t n)
{
	int err = 0;

	for (size_t i = 0; !err && i < n; i++)
		err = text(r, &out[i]);
	return err;
}

/* Pairs and objects are looked for among all, or move all: lists of any length would take their square. */
#define MOST_PAIRS 1024
#define MOST_OBJECTS 65536

static int read_meta(struct record *r, struct sysprof_records *records, struct msp_profile *profile)
{
	const char *pair[2];
	int err = texts(r, pair, 2);

	if (err)
		return err;
	if (!pair[0] || !pair[1] || records->pairs++ >= MOST_PAIRS)
		return broken(r);
	return msp_profile_set_meta(profile, pair[0], pair[1]);
}

static int read_name(struct record *r, struct msp_profile *profile)
{
	uint64_t of[2];
	const char *name;
	int err;

	if ((err = numbers(r, of, 2)) || (err = text(r, &name)))
		return err;
	if (of[0] > INT32_MAX || of[1] > INT32_MAX || !name)
		return broken(r);
	return msp_profile_set_name(profile, (int32_t)of[0], (int32_t)of[1], name);
}

static int read_object(struct record *r, struct sysprof_records *records,
		       struct msp_profile *profile)
{
	const char *object[3];
	int err = texts(r, object, 3);

	if (err)
		return err;
	if (!object[0] || records->objects++ >= MOST_OBJECTS)
		return broken(r);
	return msp_profile_set_object(profile, object[0], object[1], object[2]);
}

static int add_frame(struct sysprof_records *records, int64_t id)
{
	if (id < 0)
		return (int)id;
	if (records->frames == records->frame_room) {
		uint32_t room = records->frame_room ? records->frame_room * 2 : 256;
		uint32_t *more = realloc(records->frame, room * sizeof(*more));

		if (!more)
			return MSP_E_NOMEM;
		records->frame = more;
		records->frame_room = room;
	}
	records->frame[records->frames++] = (uint32_t)id;
	return 0;
}

static int read_frame(struct record *r, struct sysprof_records *records,
		      struct msp_profile *profile)
{
	struct msp_frame frame = {0};
	uint64_t head[2], lines[2], tail[2];
	int err;

	if ((err = numbers(r, head, 2)) || (err = text(r, &frame.name)) ||
	    (err = text(r, &frame.file)) || (err = numbers(r, lines, 2)) ||
	    (err = text(r, &frame.object)) || (err = numbers(r, tail, 2)))
		return err;
	if (head[0] >= MSP_FRAME_KIND_COUNT || lines[0] > UINT32_MAX || lines[1] > UINT32_MAX ||
	    tail[1] > UINT32_MAX || records->frames >= UINT32_MAX / 4)
		return broken(r);
	frame.kind = (enum msp_frame_kind)head[0];
	frame.certain = head[1] & MSP_FRAME_CERTAIN;
	frame.vm = head[1] & MSP_FRAME_VM;
	frame.defined = (uint32_t)lines[0];
	frame.line = (uint32_t)lines[1];
	frame.address = tail[0];
	frame.trace = (uint32_t)tail[1];
	return add_frame(records, msp_profile_frame(profile, &frame));
}

/* Why the stack is not whole stands in it. */
static void judge(struct msp_profile *profile, const uint32_t *id, size_t n)
{
	struct msp_quality *quality = msp_profile_quality(profile);
	bool certain = true, whole = true;
	char reason[sizeof(quality->errors[0].reason)];

	for (size_t i = 0; i < n; i++) {
		const struct msp_frame *frame = msp_profile_frame_at(profile, id[i]);

		certain = certain && frame->certain;
		if (frame->kind != MSP_FRAME_ERROR || !whole)
			continue;
		whole = false;
		if (!frame->name || !strcmp(frame->name, "[truncated]")) {
			quality->truncated++;
			continue;
		}
		if (sscanf(frame->name, "[error: %47[^]]", reason) == 1)
			msp_quality_error(quality, reason, 1);
	}
	quality->samples++;
	quality->whole += whole;
	quality->estimated += !certain;
}

static int read_sample(struct record *r, struct sysprof_records *records,
		       struct msp_profile *profile)
{
	uint64_t head[3], number_of;
	int err = numbers(r, head, 3);

	if (err)
		return err;
	if (head[0] > INT32_MAX || head[1] > INT32_MAX || head[2] > MSP_PROFILE_MAX_STACK)
		return broken(r);
	if (!records->id)
		records->id = malloc(MSP_PROFILE_MAX_STACK * sizeof(*records->id));
	if (!records->id)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < head[2]; i++) {
		if ((err = number(r, &number_of)))
			return err;
		if (number_of >= records->frames)
			return broken(r);
		records->id[i] = records->frame[number_of];
	}
	judge(profile, records->id, head[2]);
	records->sampled = true;
	return msp_profile_add(profile, (int32_t)head[0], (int32_t)head[1], records->id, head[2],
			       1);
}

static int read_end(struct record *r, struct msp_profile *profile)
{
	struct msp_quality *quality = msp_profile_quality(profile);
	uint64_t value[3];
	int err = numbers(r, value, 3);

	if (err)
		return err;
	if (value[1] > (1ull << 48) || !value[2])
		return broken(r);
	quality->lost = value[0];
	quality->seconds = (double)value[1] / 1000;
	quality->rate = (uint32_t)((1000000 + value[2] / 2) / value[2]);
	return 0;
}

int sysprof_record(struct sysprof_records *records, struct sysprof_in *in,
		   struct msp_profile *profile, struct sysprof_string record)
{
	struct record r = {in, record.data + strlen(SYSPROF_RECORD_MAGIC),
			   record.data + record.size};

	switch (*r.at++) {
	case SYSPROF_RECORD_META:
		return read_meta(&r, records, profile);
	case SYSPROF_RECORD_NAME:
		return read_name(&r, profile);
	case SYSPROF_RECORD_OBJECT:
		return read_object(&r, records, profile);
	case SYSPROF_RECORD_FRAME:
		return read_frame(&r, records, profile);
	case SYSPROF_RECORD_SAMPLE:
		return read_sample(&r, records, profile);
	case SYSPROF_RECORD_END:
		return read_end(&r, profile);
	default:
		return 0; /* of a newer moonspy */
	}
}

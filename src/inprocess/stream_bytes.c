/* SPDX-License-Identifier: MIT */
/* The bytes of a stream: what is written is gathered, what belongs together is put together first. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inprocess/internal.h"

/* ---- Bytes ---- */

int stream_open(struct stream *s, luam_Sysprof_writer writer, void *ctx, uint8_t *buffer,
		size_t size)
{
	*s = (struct stream){.writer = writer,
			     .ctx = ctx,
			     .buffer = buffer,
			     .size = size,
			     .last_frame = -1,
			     .last_function = -1};
	if (!writer)
		return 0;
	s->frames = msp_profile_new();
	s->functions = msp_profile_new();
	s->number = malloc(MSP_PROFILE_MAX_STACK * sizeof(*s->number));
	s->memo = memo_new();
	return s->frames && s->functions && s->number && s->memo ? 0 : -1;
}

void stream_close(struct stream *s)
{
	msp_profile_free(s->frames);
	msp_profile_free(s->functions);
	free(s->record);
	free(s->number);
	memo_free(s->memo);
	s->memo = NULL;
	s->frames = s->functions = NULL;
	s->record = NULL;
	s->number = NULL;
	s->writer = NULL;
}

void give_up(struct stream *s, int error)
{
	if (!s->error)
		s->error = error ? error : EIO;
	s->ended = true;
	s->used = 0;
}

void stream_flush(struct stream *s)
{
	const void *data = s->buffer;
	size_t written;

	if (s->ended || !s->used)
		return;
	errno = 0;
	written = s->writer(&data, s->used, s->ctx);
	if (written < s->used || !data) {
		give_up(s, errno);
		return;
	}
	s->buffer = (uint8_t *)(uintptr_t)data;
	s->used = 0;
}

void put_bytes(struct stream *s, const void *from, size_t size)
{
	const uint8_t *at = from;

	if (s->memo)
		memo_add(s->memo, from, size);
	while (size && !s->ended) {
		size_t part = s->size - s->used < size ? s->size - s->used : size;

		memcpy(s->buffer + s->used, at, part);
		s->used += part;
		at += part;
		size -= part;
		if (s->used == s->size)
			stream_flush(s);
	}
}

void put_byte(struct stream *s, uint8_t byte)
{
	put_bytes(s, &byte, 1);
}

static size_t encode(uint64_t value, uint8_t out[10])
{
	size_t n = 0;

	for (; value >= 0x80; value >>= 7)
		out[n++] = (uint8_t)(value | 0x80);
	out[n++] = (uint8_t)value;
	return n;
}

void put_number(struct stream *s, uint64_t value)
{
	uint8_t bytes[10];

	put_bytes(s, bytes, encode(value, bytes));
}

/* ---- Records ---- */

static void add(struct stream *s, const void *from, size_t size)
{
	if (s->record_room - s->record_used < size) {
		size_t room = 2 * s->record_room + size + 256;
		uint8_t *more = realloc(s->record, room);

		if (!more) {
			s->no_memory = true;
			return;
		}
		s->record = more;
		s->record_room = room;
	}
	memcpy(s->record + s->record_used, from, size);
	s->record_used += size;
}

void add_number(struct stream *s, uint64_t value)
{
	uint8_t bytes[10];

	add(s, bytes, encode(value, bytes));
}

void add_text(struct stream *s, const char *text)
{
	size_t size = text ? strlen(text) + 1 : 0;

	add_number(s, size);
	if (size)
		add(s, text, size);
}

void begin_record(struct stream *s, enum sysprof_record kind)
{
	uint8_t byte = (uint8_t)kind;

	s->record_used = 0;
	add(s, SYSPROF_RECORD_MAGIC, strlen(SYSPROF_RECORD_MAGIC));
	add(s, &byte, 1);
}

void end_record(struct stream *s)
{
	if (s->no_memory) {
		give_up(s, ENOMEM);
		return;
	}
	put_byte(s, SYSPROF_NEW_CFUNC);
	put_number(s, SYSPROF_RECORD_ADDRESS);
	put_number(s, s->record_used);
	put_bytes(s, s->record, s->record_used);
}

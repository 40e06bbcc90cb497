/* SPDX-License-Identifier: MIT */
/* Texts of the names part: building names, chunk labels, strings kept once. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "luajit/names.h"

#define LABEL_LONG 255 /* longer paths lose their head, longer names their tail */
#define SOURCE_SCAN 48 /* LuaJIT's short_src: LUA_IDSIZE 60, less the decoration */
#define SOURCE_CUT 45

void msp_text_clear(struct msp_text *text)
{
	text->len = 0;
	text->s[0] = 0;
}

void msp_text_add(struct msp_text *text, const char *s)
{
	size_t len = strnlen(s, sizeof(text->s) - 1 - text->len);

	memcpy(text->s + text->len, s, len);
	text->len += len;
	text->s[text->len] = 0;
}

static bool is_identifier(const char *s)
{
	if (!isalpha((unsigned char)*s) && *s != '_')
		return false;
	while (isalnum((unsigned char)*s) || *s == '_')
		s++;
	return !*s;
}

void msp_text_add_key(struct msp_text *text, const char *key, char separator)
{
	char before[2] = {separator, 0};

	if (is_identifier(key)) {
		if (text->len)
			msp_text_add(text, before);
		msp_text_add(text, key);
		return;
	}
	msp_text_add(text, "[\"");
	msp_text_add(text, key);
	msp_text_add(text, "\"]");
}

void msp_text_add_index(struct msp_text *text, int index)
{
	char number[16];

	snprintf(number, sizeof(number), "[%d]", index);
	msp_text_add(text, number);
}

uint64_t msp_hash_bytes(const void *data, size_t size)
{
	const unsigned char *p = data;
	uint64_t hash = 0xcbf29ce484222325ull ^ size;
	uint64_t word;

	for (; size >= 8; p += 8, size -= 8) {
		memcpy(&word, p, 8);
		hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 32;
	}
	for (; size; p++, size--)
		hash = (hash ^ *p) * 0x100000001b3ull;
	return hash ^ hash >> 29;
}

/* [string "..."]: the source's first line, as LuaJIT writes it. */
static size_t source_label(const char *chunk, size_t len, bool builtin, char *label)
{
	size_t n = 0;
	bool whole;

	while (n < len && n < SOURCE_SCAN && (unsigned char)chunk[n] >= ' ')
		n++;
	whole = n == len || !chunk[n];
	if (!whole && n > SOURCE_CUT)
		n = SOURCE_CUT;
	return snprintf(label, MSP_LABEL_MAX, "%s%.*s%s%s", builtin ? "[builtin:" : "[string \"",
			(int)n, chunk, whole ? "" : "...", builtin ? "]" : "\"]");
}

size_t msp_chunk_label(const char *chunk, size_t len, bool builtin, char label[MSP_LABEL_MAX])
{
	const char *name = chunk + 1;
	size_t n;

	if (builtin || !len || (*chunk != '@' && *chunk != '='))
		return source_label(chunk, len, builtin, label);
	n = strnlen(name, len - 1);
	if (!n) /* nothing would be left: better a mark than nothing */
		return snprintf(label, MSP_LABEL_MAX, "%c", *chunk);
	if (n <= LABEL_LONG)
		return snprintf(label, MSP_LABEL_MAX, "%.*s", (int)n, name);
	/* The end of a path tells more than its head; other names are cut at the end. */
	if (*chunk == '@')
		return snprintf(label, MSP_LABEL_MAX, "...%.*s", LABEL_LONG - 3,
				name + n - (LABEL_LONG - 3));
	return snprintf(label, MSP_LABEL_MAX, "%.*s...", LABEL_LONG - 3, name);
}

/* The seed differs from run to run: nobody can prepare strings that collide. */
static size_t intern_hash(const struct msp_intern *intern, const char *s)
{
	uint64_t hash = msp_hash_bytes(s, strlen(s));

	return (hash ^ (uintptr_t)intern) * 0x9e3779b97f4a7c15ull >> 20;
}

static int intern_grow(struct msp_intern *intern)
{
	size_t mask = intern->mask ? intern->mask * 2 + 1 : 255;
	char **slot = calloc(mask + 1, sizeof(*slot));

	if (!slot)
		return -1;
	for (size_t i = 0; intern->slot && i <= intern->mask; i++) {
		char *s = intern->slot[i];
		size_t at;

		if (!s)
			continue;
		at = intern_hash(intern, s) & mask;
		while (slot[at])
			at = (at + 1) & mask;
		slot[at] = s;
	}
	free(intern->slot);
	intern->slot = slot;
	intern->mask = mask;
	return 0;
}

const char *msp_intern_add(struct msp_intern *intern, const char *s)
{
	size_t len = strlen(s), at;
	char *copy;

	if (intern->count * 2 >= intern->mask && intern_grow(intern))
		return NULL;
	at = intern_hash(intern, s) & intern->mask;
	for (; intern->slot[at]; at = (at + 1) & intern->mask)
		if (!strcmp(intern->slot[at], s))
			return intern->slot[at];
	copy = malloc(len + 1);
	if (!copy)
		return NULL;
	memcpy(copy, s, len + 1);
	intern->slot[at] = copy;
	intern->count++;
	intern->bytes += len + 1;
	return copy;
}

void msp_intern_free(struct msp_intern *intern)
{
	for (size_t i = 0; intern->slot && i <= intern->mask; i++)
		free(intern->slot[i]);
	free(intern->slot);
	memset(intern, 0, sizeof(*intern));
}

/* SPDX-License-Identifier: MIT */
/* What is remembered of functions: answers, lines, chunk labels. All of it is bounded. */
#include <stdlib.h>
#include <string.h>

#include "luajit/names.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

/*
 * Bounds. A VM that loads new code all the time makes new functions for ever.
 * Entries and lines are forgotten and read again when they are asked for again;
 * what was handed out stays, so beyond its bound no new text is made.
 */
#define ENTRIES_MAX (1u << 15)	   /* in a table of 2.5 MiB */
#define LINE_BYTES_MAX (16u << 20) /* line information of all entries */
#define FUNCTIONS_MAX (1u << 18)   /* different answers */
#define STRING_BYTES_MAX (64u << 20)
#define CHUNK_BYTES_MAX (16u << 20) /* then a chunk name is its label only */

static const struct msp_lj_function overflow = {
	.name = MSP_ANONYMOUS, .file = "[too many chunks]", .chunk = "[too many chunks]"};

/* ---- Entries ---- */

static struct msp_names_entry *entry_slot(struct msp_names_entry *entry, size_t mask, uint64_t pt,
					  uint64_t ident)
{
	size_t at = msp_ident_mix(pt, ident) & mask;

	while (entry[at].ident && (entry[at].pt != pt || entry[at].ident != ident))
		at = (at + 1) & mask;
	return &entry[at];
}

/* A new table, with all entries or those in use. */
static int entries_rebuild(struct msp_lj_names *names, size_t mask, bool only_used)
{
	struct msp_names_entry *fresh = calloc(mask + 1, sizeof(*fresh));
	size_t count = 0;

	if (!fresh)
		return MSP_E_NOMEM;
	for (size_t i = 0; names->entry && i <= names->entry_mask; i++) {
		struct msp_names_entry *e = &names->entry[i];

		if (!e->ident)
			continue;
		if (only_used && !e->used) {
			if (e->lines)
				names->line_bytes -= (size_t)e->lines->sizebc *
						     msp_proto_line_width(e->lines->numline);
			free(e->lines);
			continue;
		}
		e->used = !only_used && e->used;
		*entry_slot(fresh, mask, e->pt, e->ident) = *e;
		count++;
	}
	free(names->entry);
	names->entry = fresh;
	names->entry_mask = mask;
	names->entry_count = count;
	return 0;
}

/* Room for one more. When the table is at its bound, what was not asked for since last time goes. */
int msp_cache_reserve(struct msp_lj_names *names)
{
	size_t mask = names->entry_mask;

	if (names->entry && names->entry_count * 2 < mask)
		return 0;
	if (!names->entry)
		return entries_rebuild(names, 1023, false);
	if (mask + 1 < ENTRIES_MAX * 2)
		return entries_rebuild(names, mask * 2 + 1, false);
	for (size_t i = 0; i <= mask; i++) /* at least half of them must go */
		if (names->entry_count > ENTRIES_MAX / 2 && i & 1)
			names->entry[i].used = false;
	return entries_rebuild(names, mask, true);
}

void msp_cache_drop_lines(struct msp_lj_names *names)
{
	for (size_t i = 0; names->entry && i <= names->entry_mask; i++) {
		free(names->entry[i].lines);
		names->entry[i].lines = NULL;
	}
	names->line_bytes = 0;
}

struct msp_names_entry *msp_cache_find(const struct msp_lj_names *names, uint64_t pt,
				       uint64_t ident)
{
	struct msp_names_entry *entry;

	if (!names->entry)
		return NULL;
	entry = entry_slot(names->entry, names->entry_mask, pt, ident);
	return entry->ident ? entry : NULL;
}

struct msp_names_entry *msp_cache_add(struct msp_lj_names *names, uint64_t pt, uint64_t ident)
{
	struct msp_names_entry *entry = entry_slot(names->entry, names->entry_mask, pt, ident);

	*entry = (struct msp_names_entry){.pt = pt, .ident = ident};
	names->entry_count++;
	return entry;
}

/* ---- Answers ---- */

static uint64_t function_hash(const struct msp_lj_function *fn)
{
	uint64_t hash = msp_ident_mix((uintptr_t)fn->name, (uintptr_t)fn->file);

	hash = msp_ident_mix(hash, (uintptr_t)fn->chunk);
	return msp_ident_mix(hash, (uint64_t)fn->defined << 1 | fn->by_definition);
}

static bool function_equal(const struct msp_lj_function *a, const struct msp_lj_function *b)
{
	return a->name == b->name && a->file == b->file && a->chunk == b->chunk &&
	       a->defined == b->defined && a->by_definition == b->by_definition;
}

static int functions_grow(struct msp_lj_names *names)
{
	size_t mask = names->function_mask ? names->function_mask * 2 + 1 : 255, at;
	struct msp_lj_function **fresh = calloc(mask + 1, sizeof(*fresh));

	if (!fresh)
		return MSP_E_NOMEM;
	for (size_t i = 0; names->function && i <= names->function_mask; i++) {
		if (!names->function[i])
			continue;
		at = function_hash(names->function[i]) & mask;
		while (fresh[at])
			at = (at + 1) & mask;
		fresh[at] = names->function[i];
	}
	free(names->function);
	names->function = fresh;
	names->function_mask = mask;
	return 0;
}

/* The one copy of an answer; its strings are interned already. */
const struct msp_lj_function *msp_cache_function(struct msp_lj_names *names,
						 const struct msp_lj_function *fn)
{
	struct msp_lj_function *copy;
	size_t at;

	if (!fn->name)
		return &overflow;
	if (names->function_count * 2 >= names->function_mask && functions_grow(names))
		return NULL;
	at = function_hash(fn) & names->function_mask;
	for (; names->function[at]; at = (at + 1) & names->function_mask)
		if (function_equal(names->function[at], fn))
			return names->function[at];
	if (names->function_count >= FUNCTIONS_MAX)
		return &overflow;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return NULL;
	*copy = *fn;
	names->function[at] = copy;
	names->function_count++;
	return copy;
}

/* ---- Chunk names ---- */

static int labels_grow(struct msp_lj_names *names)
{
	size_t mask = names->label_mask ? names->label_mask * 2 + 1 : 255, at;
	struct msp_label *fresh = calloc(mask + 1, sizeof(*fresh));

	if (!fresh)
		return MSP_E_NOMEM;
	for (size_t i = 0; names->label && i <= names->label_mask; i++) {
		if (!names->label[i].label)
			continue;
		at = (uintptr_t)names->label[i].label / 16 & mask;
		while (fresh[at].label)
			at = (at + 1) & mask;
		fresh[at] = names->label[i];
	}
	free(names->label);
	names->label = fresh;
	names->label_mask = mask;
	return 0;
}

/* Is the label free, or this chunk's already? Then it is this chunk's from now on. */
static bool label_take(struct msp_lj_names *names, const char *label, uint64_t chunk_hash)
{
	size_t at;

	if (names->label_count * 2 >= names->label_mask && labels_grow(names))
		return true;
	at = (uintptr_t)label / 16 & names->label_mask;
	for (; names->label[at].label; at = (at + 1) & names->label_mask)
		if (names->label[at].label == label)
			return names->label[at].chunk_hash == chunk_hash;
	names->label[at] = (struct msp_label){label, chunk_hash};
	names->label_count++;
	return true;
}

/* Label of the chunk name in names->chunk. Two chunks never share one. */
static const char *label_add(struct msp_lj_names *names, uint32_t len, bool builtin)
{
	static const char digits[] = "0123456789abcdef";
	size_t read = len < MSP_CHUNK_MAX - 1 ? len : MSP_CHUNK_MAX - 1;
	uint64_t hash = msp_ident_mix(msp_hash_bytes(names->chunk, read), len);
	char label[MSP_LABEL_MAX];
	size_t size = msp_chunk_label(names->chunk, read, builtin, label);
	const char *text = msp_intern_add(&names->strings, label);

	if (!text || label_take(names, text, hash))
		return text;
	label[size++] = '#';
	for (int i = 0; i < 8; i++)
		label[size++] = digits[hash >> (60 - 4 * i) & 15];
	label[size] = 0;
	return msp_intern_add(&names->strings, label);
}

int msp_cache_chunk(struct msp_lj_names *names, const struct msp_proto *pt,
		    struct msp_lj_function *fn)
{
	bool builtin = pt->firstline == MSP_PROTO_BUILTIN_LINE;
	uint32_t len;
	int error;

	if (names->strings.bytes > STRING_BYTES_MAX)
		return MSP_E_LIMIT;
	error = msp_lj_string_read(&names->layout, &names->mem, pt->chunkname, names->chunk,
				   MSP_CHUNK_MAX, &len);

	if (error)
		return error;
	fn->file = label_add(names, len, builtin);
	fn->chunk = fn->file;
	if (names->strings.bytes < CHUNK_BYTES_MAX)
		fn->chunk = msp_intern_add(&names->strings, names->chunk);
	return fn->file && fn->chunk ? 0 : MSP_E_NOMEM;
}

/* ---- Lines ---- */

void msp_cache_keep_lines(struct msp_lj_names *names, struct msp_names_entry *entry,
			  const struct msp_proto *pt)
{
	size_t size = (size_t)(pt->sizebc - 1) * msp_proto_line_width(pt->numline);
	size_t bytes = (size_t)pt->sizebc * msp_proto_line_width(pt->numline);

	if (!pt->lineinfo || entry->lines || bytes > LINE_BYTES_MAX)
		return;
	if (names->line_bytes + bytes > LINE_BYTES_MAX)
		msp_cache_drop_lines(names);
	entry->lines = malloc(sizeof(*entry->lines) + size);
	if (!entry->lines)
		return;
	*entry->lines = (struct msp_lines){pt->sizebc, pt->firstline, pt->numline};
	memcpy(entry->lines->delta, pt->data + pt->lineinfo, size);
	names->line_bytes += bytes;
}

uint32_t msp_cache_line(const struct msp_lines *lines, uint32_t pos)
{
	uint32_t width = msp_proto_line_width(lines->numline), delta = 0;

	if (pos > lines->sizebc)
		return 0;
	if (pos == 0)
		return lines->firstline;
	if (pos == lines->sizebc)
		return lines->firstline + lines->numline;
	memcpy(&delta, lines->delta + (size_t)(pos - 1) * width, width);
	return lines->firstline + delta;
}

void msp_cache_free(struct msp_lj_names *names)
{
	msp_cache_drop_lines(names);
	free(names->entry);
	for (size_t i = 0; names->function && i <= names->function_mask; i++)
		free(names->function[i]);
	free(names->function);
	free(names->label);
	msp_intern_free(&names->strings);
}

/* SPDX-License-Identifier: MIT */
/*
 * What was written for a stack, for when the very same one comes again: it is not named once more. A name
 * may get better while the program runs, though: after a while it is, and after as long again.
 */
#include <stdlib.h>
#include <string.h>

#include "inprocess/internal.h"
#include "unwind/ident.h"

#define PLACES 1024	  /* a power of two */
#define MEMORY (4u << 20) /* then it starts again */
#define FIRST_AGE_NS 200000000ull

struct memo_entry {
	uint64_t hash, first_ns, again_ns;
	size_t frames, written, room; /* bytes of each, one behind the other */
	uint8_t *bytes;
	uint8_t state;
};

struct memo {
	struct memo_entry entry[PLACES];
	struct memo_entry *open; /* being written */
	size_t memory;
};

struct memo *memo_new(void)
{
	return calloc(1, sizeof(struct memo));
}

void memo_forget(struct memo *memo)
{
	for (size_t i = 0; memo && i < PLACES; i++) {
		free(memo->entry[i].bytes);
		memo->entry[i] = (struct memo_entry){0};
	}
	if (!memo)
		return;
	memo->open = NULL;
	memo->memory = 0;
}

void memo_free(struct memo *memo)
{
	memo_forget(memo);
	free(memo);
}

static size_t size_of(const struct sample *sample)
{
	return sample->frames * sizeof(*sample->frame);
}

static uint64_t hash_of(const struct sample *sample)
{
	uint64_t hash = sample->state, word;

	for (size_t at = 0; at < size_of(sample); at += sizeof(word)) {
		memcpy(&word, (const uint8_t *)sample->frame + at, sizeof(word));
		hash = msp_ident_mix(hash, word);
	}
	return hash;
}

static bool is_of(const struct memo_entry *entry, const struct sample *sample, uint64_t hash)
{
	return entry->bytes && entry->hash == hash && entry->state == sample->state &&
	       entry->frames && entry->frames == size_of(sample) &&
	       !memcmp(entry->bytes, sample->frame, entry->frames);
}

const uint8_t *memo_find(struct memo *memo, const struct sample *sample, uint64_t now, size_t *size)
{
	uint64_t hash = hash_of(sample);
	const struct memo_entry *entry = &memo->entry[hash % PLACES];

	if (!is_of(entry, sample, hash) || now >= entry->again_ns)
		return NULL;
	*size = entry->written;
	return entry->bytes + entry->frames;
}

static bool make_room(struct memo *memo, struct memo_entry *entry, size_t room)
{
	uint8_t *more;

	if (room <= entry->room)
		return true;
	more = realloc(entry->bytes, room);
	if (!more)
		return false;
	memo->memory += room - entry->room;
	entry->bytes = more;
	entry->room = room;
	return true;
}

void memo_begin(struct memo *memo, const struct sample *sample, uint64_t now)
{
	uint64_t hash = hash_of(sample);
	struct memo_entry *entry = &memo->entry[hash % PLACES];
	bool again;

	if (memo->memory > MEMORY)
		memo_forget(memo);
	again = is_of(entry, sample, hash);
	if (!make_room(memo, entry, 2 * size_of(sample) + 64)) {
		memo->open = NULL;
		return;
	}
	entry->first_ns = again ? entry->first_ns : now;
	entry->again_ns = again ? now + (now - entry->first_ns) : now + FIRST_AGE_NS;
	entry->hash = hash;
	entry->state = sample->state;
	entry->frames = size_of(sample);
	entry->written = 0;
	memcpy(entry->bytes, sample->frame, entry->frames);
	memo->open = entry;
}

void memo_add(struct memo *memo, const void *from, size_t size)
{
	struct memo_entry *entry = memo->open;

	if (!entry)
		return;
	if (!make_room(memo, entry, entry->frames + entry->written + size)) {
		entry->frames = 0; /* is of no stack */
		memo->open = NULL;
		return;
	}
	memcpy(entry->bytes + entry->frames + entry->written, from, size);
	entry->written += size;
}

void memo_end(struct memo *memo)
{
	memo->open = NULL;
}

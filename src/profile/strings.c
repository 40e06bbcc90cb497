/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "profile/internal.h"

#define CHUNK_SIZE (16 * 1024)

struct msp_chunk {
	struct msp_chunk *next;
	size_t used, size;
	char bytes[];
};

static uint32_t hash_text(const char *text, size_t size, uint64_t seed)
{
	uint64_t h = seed, word;

	for (; size >= sizeof(word); text += sizeof(word), size -= sizeof(word)) {
		memcpy(&word, text, sizeof(word));
		h = (h ^ word) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	word = size;
	memcpy(&word, text, size);
	h = (h ^ word ^ ((uint64_t)size << 56)) * 0x9e3779b97f4a7c15ull;
	return msp_hash(h, seed);
}

static char *take(struct msp_strings *strings, size_t size)
{
	struct msp_chunk *chunk = strings->chunks;

	if (!chunk || chunk->size - chunk->used < size) {
		size_t room = size > CHUNK_SIZE ? size : CHUNK_SIZE;

		chunk = malloc(sizeof(*chunk) + room);
		if (!chunk)
			return NULL;
		*chunk = (struct msp_chunk){.next = strings->chunks, .size = room};
		strings->chunks = chunk;
	}
	chunk->used += size;
	return chunk->bytes + chunk->used - size;
}

int msp_intern(struct msp_strings *strings, uint64_t seed, const char *text, const char **out)
{
	struct msp_table_walk walk;
	uint32_t hash, i;
	size_t size;
	char *copy;

	*out = NULL;
	if (!text)
		return 0;
	size = strlen(text);
	hash = hash_text(text, size, seed);
	walk = msp_table_walk(&strings->table, hash);
	while ((i = msp_table_next(&strings->table, &walk)) != MSP_TABLE_NONE) {
		if (!strcmp(strings->list[i], text)) {
			*out = strings->list[i];
			return 0;
		}
	}
	if (msp_grow(&strings->list, strings->n, &strings->room, sizeof(*strings->list)) ||
	    msp_table_reserve(&strings->table) || !(copy = take(strings, size + 1)))
		return MSP_E_NOMEM;
	memcpy(copy, text, size + 1);
	msp_table_insert(&strings->table, hash, strings->n);
	strings->list[strings->n++] = copy;
	*out = copy;
	return 0;
}

size_t msp_strings_memory(const struct msp_strings *strings)
{
	size_t bytes = strings->room * sizeof(*strings->list) + msp_table_memory(&strings->table);

	for (const struct msp_chunk *chunk = strings->chunks; chunk; chunk = chunk->next)
		bytes += sizeof(*chunk) + chunk->size;
	return bytes;
}

void msp_strings_free(struct msp_strings *strings)
{
	while (strings->chunks) {
		struct msp_chunk *next = strings->chunks->next;

		free(strings->chunks);
		strings->chunks = next;
	}
	free(strings->list);
	msp_table_free(&strings->table);
}

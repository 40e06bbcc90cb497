/* SPDX-License-Identifier: MIT */
/*
 * A hash table from a 32-bit hash to indices into an array that its user keeps. The hash is stored
 * beside the index, so growing needs no look at the keys.
 *
 *	struct msp_table_walk w = msp_table_walk(t, hash);
 *	while ((i = msp_table_next(t, &w)) != MSP_TABLE_NONE)
 *		if (array[i] is the key)
 *			return i;
 *	msp_table_insert(t, hash, new index);
 */
#ifndef MSP_PROFILE_TABLE_H
#define MSP_PROFILE_TABLE_H

#include <stdint.h>
#include <stdlib.h>

#include "moonspy/moonspy.h"

#define MSP_TABLE_NONE UINT32_MAX

struct msp_table_slot {
	uint32_t hash, index; /* index MSP_TABLE_NONE: free */
};

struct msp_table {
	struct msp_table_slot *slots;
	uint32_t mask, used; /* slots - 1; 0 while there are none */
};

struct msp_table_walk {
	uint32_t hash, at;
};

/* 64 bits of key to a hash; the seed keeps hostile names from being made to collide. */
static inline uint32_t msp_hash(uint64_t key, uint64_t seed)
{
	key ^= seed;
	key ^= key >> 33;
	key *= 0xff51afd7ed558ccdull;
	key ^= key >> 33;
	key *= 0xc4ceb9fe1a85ec53ull;
	return (uint32_t)(key ^ (key >> 33));
}

static inline struct msp_table_walk msp_table_walk(const struct msp_table *table, uint32_t hash)
{
	return (struct msp_table_walk){hash, hash & table->mask};
}

static inline uint32_t msp_table_next(const struct msp_table *table, struct msp_table_walk *walk)
{
	if (!table->slots)
		return MSP_TABLE_NONE;
	for (;;) {
		struct msp_table_slot slot = table->slots[walk->at];

		walk->at = (walk->at + 1) & table->mask;
		if (slot.index == MSP_TABLE_NONE || slot.hash == walk->hash)
			return slot.index;
	}
}

static inline void msp_table_put(struct msp_table *table, uint32_t hash, uint32_t index)
{
	uint32_t at = hash & table->mask;

	while (table->slots[at].index != MSP_TABLE_NONE)
		at = (at + 1) & table->mask;
	table->slots[at] = (struct msp_table_slot){hash, index};
}

static inline int msp_table_grow(struct msp_table *table)
{
	size_t size = table->slots ? ((size_t)table->mask + 1) * 2 : 16;
	struct msp_table larger = {.mask = (uint32_t)(size - 1), .used = table->used};

	if (size > (size_t)1 << 31)
		return MSP_E_LIMIT;
	larger.slots = malloc(size * sizeof(*larger.slots));
	if (!larger.slots)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < size; i++)
		larger.slots[i].index = MSP_TABLE_NONE;
	for (size_t i = 0; table->slots && i <= table->mask; i++)
		if (table->slots[i].index != MSP_TABLE_NONE)
			msp_table_put(&larger, table->slots[i].hash, table->slots[i].index);
	free(table->slots);
	*table = larger;
	return 0;
}

/* Makes room for one more, so that the insert that follows cannot fail. */
static inline int msp_table_reserve(struct msp_table *table)
{
	if (table->slots && table->used + 1 <= (uint32_t)(((uint64_t)table->mask + 1) * 3 / 4))
		return 0;
	return msp_table_grow(table);
}

/* After msp_table_reserve. */
static inline void msp_table_insert(struct msp_table *table, uint32_t hash, uint32_t index)
{
	msp_table_put(table, hash, index);
	table->used++;
}

static inline size_t msp_table_memory(const struct msp_table *table)
{
	return table->slots ? ((size_t)table->mask + 1) * sizeof(*table->slots) : 0;
}

static inline void msp_table_free(struct msp_table *table)
{
	free(table->slots);
	*table = (struct msp_table){0};
}

#endif

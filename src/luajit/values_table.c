/* SPDX-License-Identifier: MIT */
/* Tables: an array part and a hash of linked nodes (lj_obj.h: GCtab, Node). */
#include <stdlib.h>
#include <string.h>

#include "elf/bytes.h"
#include "luajit/objects.h"

#define ASIZE_MAX ((1u << 27) + 1) /* LJ_MAX_ASIZE */
#define HMASK_MAX ((1u << 26) - 1) /* LJ_MAX_HBITS */
#define SOUND_NODES 64
#define ENTRIES_MAX 24	  /* of a table that are shown */
#define LOOKED_MAX 16384u /* nodes or slots that are looked at for them */

static uint64_t get_ref(const struct msp_lj_object_layout *objects, const uint8_t *at)
{
	uint64_t value = 0;

	memcpy(&value, at, objects->ref);
	return value;
}

bool msp_lj_table_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
		       uint64_t addr, struct msp_lj_table *out)
{
	const struct msp_lj_object_layout *objects = msp_lj_object_layout(layout);
	uint8_t bytes[64];

	if (msp_lj_object_type(layout, mem, addr) != MSP_GCT_TAB ||
	    msp_read(mem, addr, bytes, objects->tab_size))
		return false;
	out->array = get_ref(objects, bytes + objects->tab_array);
	out->node = get_ref(objects, bytes + objects->tab_node);
	out->asize = msp_get32(bytes + objects->tab_asize);
	out->hmask = msp_get32(bytes + objects->tab_hmask);
	if (out->asize > ASIZE_MAX || out->hmask > HMASK_MAX || (out->hmask & (out->hmask + 1)))
		return false;
	if (out->asize && !msp_lj_object_address(out->array))
		return false;
	return msp_lj_object_address(out->node);
}

bool msp_lj_table_sound(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			const struct msp_lj_table *table)
{
	const struct msp_lj_object_layout *objects = msp_lj_object_layout(layout);
	uint64_t size = (table->hmask + 1ull) * objects->node_size, next;
	uint64_t last;

	for (uint32_t i = 0; i <= table->hmask && i < SOUND_NODES; i++) {
		if (!msp_lj_read_ref(layout, mem,
				     table->node + (uint64_t)i * objects->node_size +
					     objects->node_next,
				     &next))
			return false;
		if (next && (next < table->node || next - table->node >= size ||
			     (next - table->node) % objects->node_size))
			return false;
	}
	return !table->asize ||
	       msp_read(mem, table->array + (table->asize - 1ull) * 8, &last, 8) == 0;
}

/* ---- Entries ---- */

/* Room for one more entry, if it is to be shown. */
static struct msp_value_pair *new_entry(struct msp_lj_values *values, struct msp_value *out)
{
	struct msp_value_pair *bigger;

	if (out->entries == ENTRIES_MAX || !*values->left) {
		out->cut = true;
		return NULL;
	}
	if (!(out->entries & (out->entries - 1))) {
		bigger = reallocarray(out->entry, out->entries ? out->entries * 2 : 1,
				      sizeof(*bigger));
		if (!bigger) {
			out->cut = true;
			return NULL;
		}
		out->entry = bigger;
	}
	return &out->entry[out->entries];
}

/* Adds what is at a place, unless it is nil; false: there is no room for more. */
static bool add_entry(struct msp_lj_values *values, uint64_t value_at, uint64_t key_at,
		      uint32_t index, unsigned int depth, struct msp_value *out)
{
	struct msp_value_pair *entry;
	uint64_t word;

	if (msp_read(values->mem, value_at, &word, 8)) {
		out->cut = true; /* a core that is cut off, perhaps: there may have been one */
		return true;
	}
	if (values->layout->gc64 ? word == UINT64_MAX : word >> 32 == UINT32_MAX)
		return true;
	entry = new_entry(values, out);
	if (!entry)
		return false;
	out->entries++;
	memset(entry, 0, sizeof(*entry));
	if (key_at)
		msp_lj_value_at(values, key_at, 0, &entry->key);
	else
		entry->key = (struct msp_value){.type = MSP_TYPE_NUMBER, .number = index};
	msp_lj_value_at(values, value_at, depth, &entry->value);
	return true;
}

void msp_lj_table_entries(struct msp_lj_values *values, unsigned int depth, struct msp_value *out)
{
	const struct msp_lj_object_layout *objects = values->objects;
	struct msp_lj_table table;

	if (!msp_lj_table_read(values->layout, values->mem, out->address, &table) ||
	    !msp_lj_table_sound(values->layout, values->mem, &table))
		return;
	out->expanded = true;
	for (uint32_t i = 0; i < table.asize; i++) {
		if (i == LOOKED_MAX) {
			out->cut = true;
			break;
		}
		if (!add_entry(values, table.array + 8ull * i, 0, i, depth - 1, out))
			return;
	}
	for (uint32_t i = 0; i <= table.hmask; i++) {
		uint64_t node = table.node + (uint64_t)i * objects->node_size;

		if (i == LOOKED_MAX) {
			out->cut = true;
			return;
		}
		if (!add_entry(values, node, node + 8, 0, depth - 1, out))
			return;
	}
}

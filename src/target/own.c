/* SPDX-License-Identifier: MIT */
/* Tables for handlers: made, published, and freed once no handler uses them. */
#include "target/own.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

#define SLOTS 32
#define READS 384

static void free_tables(struct own_tables *tables)
{
	if (!tables)
		return;
	free(tables->mapping);
	free(tables->image);
	free(tables);
}

static int fill(const struct msp_space *space, struct own_tables *out)
{
	struct msp_images *images = msp_space_images(space);
	const struct msp_mapping *mapping = msp_space_mappings(space, &out->mappings);

	out->images = msp_images_count(images) + 1;
	out->mapping = calloc(out->mappings + 1, sizeof(*out->mapping));
	out->image = calloc(out->images, sizeof(*out->image));
	if (!out->mapping || !out->image)
		return MSP_E_NOMEM;
	if (out->mappings)
		memcpy(out->mapping, mapping, out->mappings * sizeof(*mapping));
	for (uint32_t i = 1; i < out->images; i++) {
		const struct msp_image_entry *entry = msp_images_get(images, i);

		if (entry)
			out->image[i] = (struct own_image){entry->table, entry->layout};
	}
	for (uint32_t i = 1; i < MSP_LAYOUT_SLOTS; i++) {
		const struct msp_image_entry *entry = msp_images_by_layout(images, i);

		if (entry && entry->build)
			out->layout[i] = msp_lj_build_layout(entry->build);
	}
	out->vms = (uint32_t)msp_space_host_vms(space, out->vm);
	return 0;
}

static bool is_used(const struct msp_own *own, const struct own_tables *tables)
{
	for (uint32_t i = 0; i < own->slots; i++)
		if (atomic_load(&own->slot[i].tables) == tables)
			return true;
	return false;
}

static void nobody(void *ctx, const struct msp_image_entry *entry)
{
	(void)ctx;
	(void)entry;
}

/* Frees older tables that no handler uses; images that only those had may then go, too. */
static void reclaim(struct msp_own *own, struct own_tables *newest)
{
	struct own_tables **at = &newest->older, *old;

	while ((old = *at)) {
		if (is_used(own, old)) {
			at = &old->older;
			continue;
		}
		*at = old->older;
		free_tables(old);
	}
	if (!newest->older)
		msp_images_trim(msp_space_images(own->space), false, nobody, NULL);
}

int msp_own_update(struct msp_own *own)
{
	struct own_tables *tables = calloc(1, sizeof(*tables));
	int err = tables ? fill(own->space, tables) : MSP_E_NOMEM;

	if (err) {
		free_tables(tables);
		return err;
	}
	tables->older = atomic_load(&own->tables);
	atomic_store(&own->tables, tables);
	reclaim(own, tables);
	return 0;
}

/* Big, and used as far as handlers run at once: pages that nobody touches are not there. */
static struct own_slot *make_slots(uint32_t count)
{
	void *at = mmap(NULL, count * sizeof(struct own_slot), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

int msp_own_new(struct msp_space *space, uint32_t slots, uint32_t reads, struct msp_own **out)
{
	struct msp_own *own = calloc(1, sizeof(*own));
	uint64_t word = 0, copy = 1;
	int err;

	*out = NULL;
	if (!own)
		return MSP_E_NOMEM;
	own->space = space;
	own->slots = slots ? slots : SLOTS;
	own->most_reads = reads ? reads : READS;
	own->slot = own->slots <= 1u << 16 ? make_slots(own->slots) : NULL;
	if (!own->slot)
		err = MSP_E_NOMEM;
	else if (!own_read((uint32_t)getpid(), &copy, (uintptr_t)&word, sizeof(word)) || copy)
		err = MSP_E_UNSUPPORTED;
	else
		err = msp_own_update(own);
	if (err)
		msp_own_free(own);
	else
		*out = own;
	return err;
}

void msp_own_free(struct msp_own *own)
{
	struct own_tables *tables, *older;

	if (!own)
		return;
	for (tables = atomic_load(&own->tables); tables; tables = older) {
		older = tables->older;
		free_tables(tables);
	}
	if (own->slot)
		munmap(own->slot, own->slots * sizeof(*own->slot));
	free(own);
}

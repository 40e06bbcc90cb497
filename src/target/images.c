/* SPDX-License-Identifier: MIT */
/*
 * The registry of images: each file is opened and analysed once, however many processes map it, and
 * is kept for a while after the last of them: a program that is started again and again is not read
 * each time.
 */
#include "target/images.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

/* Files that are remembered; the oldest are forgotten. */
#define MAX_SEEN 4096
/* An index is given to another image no sooner than this after its last use: see space.h. */
#define UNUSED_NS 2000000000ull
/* Of images that nobody uses, so many are kept, and no more bytes than these. */
#define KEEP_COUNT 128
#define KEEP_BYTES (48ull << 20)

int msp_images_new(const struct msp_images_options *opts, struct msp_images **out)
{
	struct msp_images *images = calloc(1, sizeof(*images));
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!images)
		return MSP_E_NOMEM;
	if (opts->cache_dir) {
		images->cache_dir = strdup(opts->cache_dir);
		if (!images->cache_dir) {
			free(images);
			return MSP_E_NOMEM;
		}
	}
	images->no_luajit = opts->no_luajit;
	images->threads = opts->threads ? opts->threads : cpus > 0 ? cpus : 1;
	if (images->threads > MSP_IMAGE_THREADS)
		images->threads = MSP_IMAGE_THREADS;
	*out = images;
	return 0;
}

void msp_image_entry_free(struct msp_image_entry *entry)
{
	if (!entry)
		return;
	msp_lj_build_free(entry->build);
	msp_image_close(entry->image);
	free(entry);
}

void msp_images_free(struct msp_images *images)
{
	if (!images)
		return;
	for (uint32_t i = 0; i < images->count; i++)
		msp_image_entry_free(images->slot[i].entry);
	free(images->slot);
	free(images->seen);
	free(images->cache_dir);
	free(images);
}

const struct msp_image_entry *msp_images_get(const struct msp_images *images, uint32_t index)
{
	return index && index <= images->count ? images->slot[index - 1].entry : NULL;
}

uint32_t msp_images_count(const struct msp_images *images)
{
	return images->count;
}

const struct msp_image_entry *msp_images_by_layout(const struct msp_images *images, uint32_t layout)
{
	return layout < MSP_LAYOUT_SLOTS ? images->layout[layout] : NULL;
}

uint32_t msp_images_builds(const struct msp_images *images)
{
	return images->builds;
}

/* ---- What was seen before ---- */

bool msp_file_same(const struct msp_file_id *a, const struct msp_file_id *b)
{
	return a->inode == b->inode && a->dev == b->dev && a->size == b->size && a->sec == b->sec &&
	       a->nsec == b->nsec;
}

const struct msp_seen_file *msp_images_seen(const struct msp_images *images,
					    const struct msp_file_id *id)
{
	for (size_t i = 0; i < images->seen_count; i++)
		if (msp_file_same(&images->seen[i].id, id))
			return &images->seen[i];
	return NULL;
}

static struct msp_seen_file *seen_place(struct msp_images *images)
{
	struct msp_seen_file *bigger;
	size_t room;

	if (images->seen_count == MAX_SEEN) {
		images->seen_oldest = (images->seen_oldest + 1) % MAX_SEEN;
		return &images->seen[images->seen_oldest];
	}
	if (images->seen_count == images->seen_room) {
		room = images->seen_room ? images->seen_room * 2 : 64;
		bigger = realloc(images->seen, room * sizeof(*bigger));
		if (!bigger)
			return NULL;
		images->seen = bigger;
		images->seen_room = room;
	}
	return &images->seen[images->seen_count++];
}

void msp_images_note(struct msp_images *images, const struct msp_file_id *id,
		     struct msp_image_entry *entry)
{
	struct msp_seen_file *place = seen_place(images);

	if (place)
		*place = (struct msp_seen_file){*id, entry};
}

static void forget_seen(struct msp_images *images, const struct msp_image_entry *entry)
{
	size_t to = 0;

	for (size_t i = 0; i < images->seen_count; i++)
		if (images->seen[i].entry != entry)
			images->seen[to++] = images->seen[i];
	images->seen_count = to;
	images->seen_oldest = 0;
}

struct msp_image_entry *msp_images_by_key(const struct msp_images *images,
					  const struct msp_image_key *key)
{
	struct msp_image_entry *entry;

	for (uint32_t i = 0; i < images->count; i++) {
		entry = images->slot[i].entry;
		if (entry && !strcmp(msp_image_key(entry->image)->text, key->text))
			return entry;
	}
	return NULL;
}

/* ---- Indices ---- */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* Without a free one its LuaJIT is not used. */
static void give_layout(struct msp_images *images, struct msp_image_entry *entry)
{
	for (uint32_t i = 1; i < MSP_LAYOUT_SLOTS; i++) {
		if (images->layout[i])
			continue;
		images->layout[i] = entry;
		entry->layout = i;
		return;
	}
	entry->build_error = MSP_E_LIMIT;
}

/* A free slot; NULL: there is no more room. */
static struct msp_image_slot *free_slot(struct msp_images *images)
{
	struct msp_image_slot *bigger;
	uint32_t room;

	for (uint32_t i = 0; i < images->count; i++)
		if (!images->slot[i].entry)
			return &images->slot[i];
	if (images->count == images->room) {
		room = images->room ? images->room * 2 : 64;
		bigger = realloc(images->slot, room * sizeof(*bigger));
		if (!bigger)
			return NULL;
		images->slot = bigger;
		images->room = room;
	}
	return &images->slot[images->count++];
}

int msp_images_insert(struct msp_images *images, struct msp_image_entry *entry)
{
	struct msp_image_slot *slot = free_slot(images);

	if (!slot)
		return MSP_E_NOMEM;
	*slot = (struct msp_image_slot){.entry = entry, .unused_ns = now_ns()};
	entry->index = slot - images->slot + 1;
	images->builds += entry->build != NULL;
	if (entry->build && entry->build_error == 0)
		give_layout(images, entry);
	return 0;
}

/* ---- Use ---- */

void msp_images_hold(struct msp_images *images, uint32_t index)
{
	images->slot[index - 1].users++;
}

void msp_images_release(struct msp_images *images, uint32_t index)
{
	struct msp_image_slot *slot = &images->slot[index - 1];

	if (--slot->users == 0)
		slot->unused_ns = now_ns();
}

static void free_image(struct msp_images *images, struct msp_image_slot *slot)
{
	struct msp_image_entry *entry = slot->entry;

	forget_seen(images, entry);
	if (entry->layout != MSP_LAYOUT_NONE)
		images->layout[entry->layout] = NULL;
	slot->entry = NULL;
	msp_image_entry_free(entry);
}

/* The one that has not been used for the longest time; what unused ones there are and take is added up. */
static struct msp_image_slot *oldest_unused(struct msp_images *images, uint32_t *count,
					    uint64_t *bytes)
{
	struct msp_image_slot *oldest = NULL, *slot;

	*count = 0;
	*bytes = 0;
	for (uint32_t i = 0; i < images->count; i++) {
		slot = &images->slot[i];
		if (!slot->entry || slot->users)
			continue;
		++*count;
		*bytes += msp_image_memory(slot->entry->image);
		if (!oldest || slot->unused_ns < oldest->unused_ns)
			oldest = slot;
	}
	return oldest;
}

uint32_t msp_images_trim(struct msp_images *images, bool all, msp_image_fn gone, void *ctx)
{
	uint64_t now = now_ns(), bytes;
	struct msp_image_slot *oldest;
	uint32_t count, freed = 0;

	for (;;) {
		oldest = oldest_unused(images, &count, &bytes);
		if (!oldest || now - oldest->unused_ns < UNUSED_NS ||
		    (!all && count <= KEEP_COUNT && bytes <= KEEP_BYTES))
			return freed;
		gone(ctx, oldest->entry);
		free_image(images, oldest);
		freed++;
	}
}

/* SPDX-License-Identifier: MIT */
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "profile/internal.h"

int msp_grow(void *array, uint32_t n, uint32_t *room, size_t size)
{
	void **pointer = array;
	uint32_t larger = *room ? *room * 2 : 16;
	void *p;

	if (n < *room)
		return 0;
	if (*room > UINT32_MAX / 4)
		return MSP_E_LIMIT;
	/* By half above a MiB: doubling would cost a third of a big profile. */
	if (*room * size > 1 << 20)
		larger = *room + *room / 2;
	p = realloc(*pointer, larger * size);
	if (!p)
		return MSP_E_NOMEM;
	*pointer = p;
	*room = larger;
	return 0;
}

struct msp_profile *msp_profile_new(void)
{
	struct msp_profile *profile = calloc(1, sizeof(*profile));

	if (!profile)
		return NULL;
	/* Only against names made to collide: any number will do where there is none. */
	if (getrandom(&profile->seed, sizeof(profile->seed), GRND_NONBLOCK) < 0)
		profile->seed = (uintptr_t)profile ^ (uint64_t)time(NULL) << 32;
	if (msp_grow(&profile->nodes, 0, &profile->nodes_room, sizeof(*profile->nodes)) ||
	    msp_grow(&profile->depths, 0, &profile->depths_room, sizeof(*profile->depths))) {
		msp_profile_free(profile);
		return NULL;
	}
	profile->nodes[0] = (struct msp_node){0, UINT32_MAX};
	profile->depths[0] = 0;
	profile->n_nodes = 1;
	return profile;
}

void msp_profile_free(struct msp_profile *profile)
{
	if (!profile)
		return;
	msp_strings_free(&profile->strings);
	msp_table_free(&profile->frame_table);
	msp_table_free(&profile->node_table);
	msp_table_free(&profile->stack_table);
	msp_table_free(&profile->thread_table);
	msp_table_free(&profile->count_table);
	free(profile->frames);
	free(profile->nodes);
	free(profile->depths);
	free(profile->threads);
	free(profile->counts);
	free(profile->meta);
	free(profile->objects);
	free(profile->events);
	free(profile);
}

static uint32_t hash_frame(const struct msp_frame *f, uint64_t seed)
{
	uint64_t h = (uint64_t)f->kind << 2 | (uint64_t)f->certain << 1 | f->vm;
	const uint64_t parts[] = {(uintptr_t)f->name,
				  (uintptr_t)f->file,
				  (uintptr_t)f->object,
				  f->address,
				  (uint64_t)f->line << 32 | f->defined,
				  f->trace};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		h = (h ^ parts[i]) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 31;
	}
	return msp_hash(h, seed);
}

/* Strings of both are interned: equal text is the same pointer. */
static bool equal_frames(const struct msp_frame *a, const struct msp_frame *b)
{
	return a->kind == b->kind && a->certain == b->certain && a->vm == b->vm &&
	       a->name == b->name && a->file == b->file && a->object == b->object &&
	       a->address == b->address && a->line == b->line && a->defined == b->defined &&
	       a->trace == b->trace;
}

/* A copy of frame with the profile's own strings. */
static int own_frame(struct msp_profile *profile, const struct msp_frame *frame,
		     struct msp_frame *copy)
{
	int err;

	if ((unsigned)frame->kind >= MSP_FRAME_KIND_COUNT)
		return MSP_E_INVALID;
	*copy = *frame;
	if ((err = msp_intern(&profile->strings, profile->seed, frame->name, &copy->name)) ||
	    (err = msp_intern(&profile->strings, profile->seed, frame->file, &copy->file)) ||
	    (err = msp_intern(&profile->strings, profile->seed, frame->object, &copy->object)))
		return err;
	return 0;
}

int msp_profile_replace_frame(struct msp_profile *profile, uint32_t id,
			      const struct msp_frame *frame)
{
	struct msp_frame copy;
	int err;

	if (id >= profile->n_frames)
		return MSP_E_INVALID;
	err = own_frame(profile, frame, &copy);
	if (!err)
		profile->frames[id] =
			copy; /* not found by what it says now: an equal one gets another id */
	return err;
}

int64_t msp_profile_frame(struct msp_profile *profile, const struct msp_frame *frame)
{
	struct msp_frame copy;
	struct msp_table_walk walk;
	uint32_t hash, i;
	int err = own_frame(profile, frame, &copy);

	if (err)
		return err;
	hash = hash_frame(&copy, profile->seed);
	walk = msp_table_walk(&profile->frame_table, hash);
	while ((i = msp_table_next(&profile->frame_table, &walk)) != MSP_TABLE_NONE)
		if (equal_frames(&profile->frames[i], &copy))
			return i;
	if ((err = msp_grow(&profile->frames, profile->n_frames, &profile->frames_room,
			    sizeof(copy))) ||
	    (err = msp_table_reserve(&profile->frame_table)))
		return err;
	msp_table_insert(&profile->frame_table, hash, profile->n_frames);
	profile->frames[profile->n_frames] = copy;
	return profile->n_frames++;
}

int64_t msp_profile_node(struct msp_profile *profile, uint32_t parent, uint32_t frame)
{
	uint32_t hash = msp_hash((uint64_t)parent << 32 | frame, profile->seed), i;
	struct msp_table_walk walk = msp_table_walk(&profile->node_table, hash);
	int err;

	while ((i = msp_table_next(&profile->node_table, &walk)) != MSP_TABLE_NONE)
		if (profile->nodes[i].parent == parent && profile->nodes[i].frame == frame)
			return i;
	if (parent >= profile->n_nodes || frame >= profile->n_frames)
		return MSP_E_INVALID;
	if (profile->depths[parent] >= MSP_PROFILE_MAX_DEPTH)
		return MSP_E_LIMIT;
	if ((err = msp_grow(&profile->nodes, profile->n_nodes, &profile->nodes_room,
			    sizeof(*profile->nodes))) ||
	    (err = msp_grow(&profile->depths, profile->n_nodes, &profile->depths_room,
			    sizeof(*profile->depths))) ||
	    (err = msp_table_reserve(&profile->node_table)))
		return err;
	msp_table_insert(&profile->node_table, hash, profile->n_nodes);
	profile->nodes[profile->n_nodes] = (struct msp_node){parent, frame};
	profile->depths[profile->n_nodes] = profile->depths[parent] + 1;
	return profile->n_nodes++;
}

int64_t msp_profile_thread(struct msp_profile *profile, int32_t pid, int32_t tid)
{
	uint32_t hash = msp_hash((uint64_t)(uint32_t)pid << 32 | (uint32_t)tid, profile->seed), i;
	struct msp_table_walk walk = msp_table_walk(&profile->thread_table, hash);
	int err;

	while ((i = msp_table_next(&profile->thread_table, &walk)) != MSP_TABLE_NONE)
		if (profile->threads[i].pid == pid && profile->threads[i].tid == tid)
			return i;
	if ((err = msp_grow(&profile->threads, profile->n_threads, &profile->threads_room,
			    sizeof(*profile->threads))) ||
	    (err = msp_table_reserve(&profile->thread_table)))
		return err;
	msp_table_insert(&profile->thread_table, hash, profile->n_threads);
	profile->threads[profile->n_threads] = (struct msp_profile_thread){pid, tid, NULL};
	return profile->n_threads++;
}

int msp_profile_add_node(struct msp_profile *profile, int32_t pid, int32_t tid, uint32_t node,
			 uint64_t count)
{
	int64_t thread = msp_profile_thread(profile, pid, tid);
	struct msp_table_walk walk;
	struct msp_count *c;
	uint32_t hash, i;
	int err;

	if (thread < 0)
		return (int)thread;
	if (node >= profile->n_nodes)
		return MSP_E_INVALID;
	hash = msp_hash((uint64_t)thread << 32 | node, profile->seed);
	walk = msp_table_walk(&profile->count_table, hash);
	while ((i = msp_table_next(&profile->count_table, &walk)) != MSP_TABLE_NONE) {
		c = &profile->counts[i];
		if (c->thread == thread && c->node == node) {
			if (__builtin_add_overflow(c->count, count, &c->count))
				c->count = UINT64_MAX;
			return 0;
		}
	}
	if ((err = msp_grow(&profile->counts, profile->n_counts, &profile->counts_room,
			    sizeof(*profile->counts))) ||
	    (err = msp_table_reserve(&profile->count_table)))
		return err;
	msp_table_insert(&profile->count_table, hash, profile->n_counts);
	profile->counts[profile->n_counts++] = (struct msp_count){(uint32_t)thread, node, count};
	return 0;
}

static uint32_t hash_stack(const uint32_t *ids, size_t n, uint64_t seed)
{
	uint64_t h = n;

	for (size_t i = 0; i < n; i++) {
		h = (h ^ ids[i]) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 32;
	}
	return msp_hash(h, seed);
}

static bool is_stack(const struct msp_profile *profile, uint32_t node, const uint32_t *ids,
		     size_t n)
{
	if (profile->depths[node] != n)
		return false;
	for (; n; node = profile->nodes[node].parent)
		if (profile->nodes[node].frame != ids[--n])
			return false;
	return true;
}

/*
 * The node of a whole stack. A stack seen before is found in one step and compared upwards, along
 * nodes that lie beside each other: ten times as fast as a look-up a frame.
 */
static int64_t stack_node(struct msp_profile *profile, const uint32_t *ids, size_t n)
{
	uint32_t hash = hash_stack(ids, n, profile->seed), i;
	struct msp_table_walk walk = msp_table_walk(&profile->stack_table, hash);
	int64_t node = 0;
	int err;

	while ((i = msp_table_next(&profile->stack_table, &walk)) != MSP_TABLE_NONE)
		if (is_stack(profile, i, ids, n))
			return i;
	for (size_t at = 0; at < n; at++) {
		node = msp_profile_node(profile, (uint32_t)node, ids[at]);
		if (node < 0)
			return node;
	}
	if ((err = msp_table_reserve(&profile->stack_table)))
		return err;
	msp_table_insert(&profile->stack_table, hash, (uint32_t)node);
	return node;
}

int msp_profile_add(struct msp_profile *profile, int32_t pid, int32_t tid, const uint32_t *ids,
		    size_t n, uint64_t count)
{
	int64_t node = n > MSP_PROFILE_MAX_STACK ? MSP_E_LIMIT : stack_node(profile, ids, n);

	return node < 0 ? (int)node
			: msp_profile_add_node(profile, pid, tid, (uint32_t)node, count);
}

int msp_profile_set_name(struct msp_profile *profile, int32_t pid, int32_t tid, const char *name)
{
	int64_t thread = msp_profile_thread(profile, pid, tid);

	if (thread < 0)
		return (int)thread;
	return msp_intern(&profile->strings, profile->seed, name, &profile->threads[thread].name);
}

const char *msp_profile_name(const struct msp_profile *profile, int32_t pid, int32_t tid)
{
	uint32_t hash = msp_hash((uint64_t)(uint32_t)pid << 32 | (uint32_t)tid, profile->seed), i;
	struct msp_table_walk walk = msp_table_walk(&profile->thread_table, hash);

	while ((i = msp_table_next(&profile->thread_table, &walk)) != MSP_TABLE_NONE)
		if (profile->threads[i].pid == pid && profile->threads[i].tid == tid)
			return profile->threads[i].name;
	return NULL;
}

struct msp_quality *msp_profile_quality(struct msp_profile *profile)
{
	return &profile->quality;
}

const struct msp_quality *msp_profile_quality_of(const struct msp_profile *profile)
{
	return &profile->quality;
}

/* Kept sorted by key, so that what is written does not depend on who set it first. */
int msp_profile_set_meta(struct msp_profile *profile, const char *key, const char *value)
{
	struct msp_meta entry;
	uint32_t at = 0;
	int err;

	if (!key || !value)
		return MSP_E_INVALID;
	if ((err = msp_intern(&profile->strings, profile->seed, key, &entry.key)) ||
	    (err = msp_intern(&profile->strings, profile->seed, value, &entry.value)) ||
	    (err = msp_grow(&profile->meta, profile->n_meta, &profile->meta_room,
			    sizeof(*profile->meta))))
		return err;
	while (at < profile->n_meta && strcmp(profile->meta[at].key, key) < 0)
		at++;
	if (at < profile->n_meta && profile->meta[at].key == entry.key) {
		profile->meta[at] = entry;
		return 0;
	}
	memmove(&profile->meta[at + 1], &profile->meta[at],
		(profile->n_meta - at) * sizeof(*profile->meta));
	profile->meta[at] = entry;
	profile->n_meta++;
	return 0;
}

const char *msp_profile_meta(const struct msp_profile *profile, const char *key)
{
	for (uint32_t i = 0; i < profile->n_meta; i++)
		if (!strcmp(profile->meta[i].key, key))
			return profile->meta[i].value;
	return NULL;
}

size_t msp_profile_meta_count(const struct msp_profile *profile)
{
	return profile->n_meta;
}

void msp_profile_meta_at(const struct msp_profile *profile, size_t i, const char **key,
			 const char **value)
{
	*key = profile->meta[i].key;
	*value = profile->meta[i].value;
}

size_t msp_profile_memory(const struct msp_profile *profile)
{
	const struct msp_table *const table[] = {&profile->frame_table, &profile->node_table,
						 &profile->stack_table, &profile->thread_table,
						 &profile->count_table};
	size_t bytes = sizeof(*profile) + msp_strings_memory(&profile->strings) +
		       profile->frames_room * sizeof(*profile->frames) +
		       profile->nodes_room * sizeof(*profile->nodes) +
		       profile->depths_room * sizeof(*profile->depths) +
		       profile->threads_room * sizeof(*profile->threads) +
		       profile->counts_room * sizeof(*profile->counts) +
		       profile->meta_room * sizeof(*profile->meta) +
		       profile->objects_room * sizeof(*profile->objects) +
		       profile->events_room * sizeof(*profile->events);

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		bytes += msp_table_memory(table[i]);
	return bytes;
}

size_t msp_profile_stack_count(const struct msp_profile *profile)
{
	return profile->n_counts;
}

size_t msp_profile_frame_count(const struct msp_profile *profile)
{
	return profile->n_frames;
}

const struct msp_frame *msp_profile_frame_at(const struct msp_profile *profile, uint32_t id)
{
	return id < profile->n_frames ? &profile->frames[id] : NULL;
}

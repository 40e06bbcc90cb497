/* SPDX-License-Identifier: MIT */
/*
 * The inside of a profile, for src/profile/ only.
 *
 * Stacks are a tree: a node is (parent node, frame), node 0 is the empty stack, and a parent's
 * number is always below its children's. A counter is (thread, node): that thread was seen count
 * times with the stack that ends in that node. All four arrays are found through hash tables.
 */
#ifndef MSP_PROFILE_INTERNAL_H
#define MSP_PROFILE_INTERNAL_H

#include "profile/profile.h"
#include "profile/table.h"
#include "profile/tree.h"

struct msp_chunk;

struct msp_strings {
	struct msp_chunk *chunks; /* newest first; strings never move */
	const char **list;
	uint32_t n, room;
	struct msp_table table;
};

struct msp_node {
	uint32_t parent, frame;
};

struct msp_profile_thread {
	int32_t pid, tid;
	const char *name; /* NULL unknown */
};

struct msp_meta {
	const char *key, *value;
};

struct msp_object {
	const char *name, *build_id, *path; /* of one file; NULL unknown */
};

struct msp_profile {
	uint64_t seed;
	struct msp_strings strings;
	struct msp_frame *frames;
	uint32_t n_frames, frames_room;
	struct msp_table frame_table;
	struct msp_node *nodes;
	uint16_t *depths; /* of nodes */
	uint32_t n_nodes, nodes_room, depths_room;
	struct msp_table node_table;
	struct msp_table stack_table; /* the nodes at which stacks that were added end */
	struct msp_profile_thread *threads;
	uint32_t n_threads, threads_room;
	struct msp_table thread_table;
	struct msp_count *counts;
	uint32_t n_counts, counts_room;
	struct msp_table count_table;
	struct msp_meta *meta;
	uint32_t n_meta, meta_room;
	struct msp_object *objects; /* sorted by name */
	uint32_t n_objects, objects_room;
	struct msp_vm_events *events; /* sorted by process, VM, event */
	uint32_t n_events, events_room;
	struct msp_quality quality;
};

/* The profile's copy of text, NULL for NULL. Negative: error code. */
int msp_intern(struct msp_strings *strings, uint64_t seed, const char *text, const char **out);
void msp_strings_free(struct msp_strings *strings);
size_t msp_strings_memory(const struct msp_strings *strings);

/* Room for one more element in an array; doubles it. */
int msp_grow(void *array, uint32_t n, uint32_t *room, size_t size);

/* Sorted arrays that have each element once. array: address of the pointer to the first of n. */
struct msp_sorted {
	size_t size;
	int (*compare)(const void *a, const void *b);
	void (*join)(void *there, const void *other); /* the same again */
};
/* Where an element is, or would have to be. */
uint32_t msp_sorted_place(const struct msp_sorted *sorted, void *array, uint32_t n,
			  const void *element, bool *there);
int msp_sorted_add(const struct msp_sorted *sorted, void *array, uint32_t *n, uint32_t *room,
		   const void *element);
/* Adds count others, which are sorted too; takes as long as both are. An error: nothing is added. */
int msp_sorted_merge(const struct msp_sorted *sorted, void *array, uint32_t *n, uint32_t *room,
		     const void *other, uint32_t count);

/* Adds the one's to the other's. */
int msp_objects_copy(const struct msp_profile *from, struct msp_profile *to);
int msp_events_copy(const struct msp_profile *from, struct msp_profile *to);

/* Number of (pid, tid), added where new. Negative: error code. */
int64_t msp_profile_thread(struct msp_profile *profile, int32_t pid, int32_t tid);

#endif

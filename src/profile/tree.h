/* SPDX-License-Identifier: MIT */
/* A profile as a tree in canonical order, for outputs, and its parts for readers of files. */
#ifndef MSP_PROFILE_TREE_H
#define MSP_PROFILE_TREE_H

#include "profile/profile.h"

/* Nodes above one another: room for outputs that put frames for processes and threads at the root. */
#define MSP_PROFILE_MAX_DEPTH (MSP_PROFILE_MAX_STACK + 8)

struct msp_count {
	uint32_t thread, node; /* index into threads, nodes */
	uint64_t count;
};

/*
 * Nodes are in preorder, siblings sorted by what their frames say; node 0 is the empty stack (its
 * parent 0, its frame meaningless). Threads are sorted by pid, tid; tid 0 is the process. Counts
 * are sorted by thread, node. So two profiles that hold the same have the same tree but for the
 * frames' ids; the order of frames in turn is in rank.
 */
struct msp_tree {
	uint32_t n_nodes, n_threads, n_counts, n_frames;
	uint32_t *parent, *frame; /* of a node */
	struct {
		int32_t pid, tid;
		const char *name; /* NULL unknown; belongs to the profile */
	} * threads;
	struct msp_count *counts;
	uint32_t *rank;	   /* frame id -> place in the order of frames */
	uint32_t *by_rank; /* and back */
};

int msp_profile_tree(const struct msp_profile *profile, struct msp_tree *out);
void msp_tree_free(struct msp_tree *tree);

/* Node for a frame below parent (0 = the empty stack). Negative: error code. */
int64_t msp_profile_node(struct msp_profile *profile, uint32_t parent, uint32_t frame);
/* Adds count samples of the stack that ends in node. */
int msp_profile_add_node(struct msp_profile *profile, int32_t pid, int32_t tid, uint32_t node,
			 uint64_t count);

size_t msp_profile_meta_count(const struct msp_profile *profile);
/* i-th pair in order of keys. */
void msp_profile_meta_at(const struct msp_profile *profile, size_t i, const char **key,
			 const char **value);

size_t msp_profile_object_count(const struct msp_profile *profile);
/* i-th object in order of names. */
void msp_profile_object_at(const struct msp_profile *profile, size_t i, const char **object,
			   const char **build_id, const char **path);

#endif

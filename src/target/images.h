/* SPDX-License-Identifier: MIT */
/* The registry of images from inside; for the files of this folder. */
#ifndef MSP_TARGET_IMAGES_H
#define MSP_TARGET_IMAGES_H

#include "target/space.h"

#define MSP_IMAGE_THREADS 8

/* A file as stat tells it apart: spares reading the build id of files seen before. */
struct msp_file_id {
	uint64_t dev, inode, size;
	int64_t sec, nsec;
};

struct msp_seen_file {
	struct msp_file_id id;
	struct msp_image_entry *entry; /* NULL: no image in that file */
};

struct msp_image_slot {
	struct msp_image_entry *entry; /* NULL: free */
	uint32_t users;                /* spaces that hold it */
	uint64_t unused_ns;            /* if there are none: since then */
};

struct msp_images {
	char *cache_dir;
	unsigned int threads;
	bool no_luajit;
	struct msp_image_slot *slot; /* slot[i] has index i + 1 */
	uint32_t count, room;
	struct msp_image_entry *layout[MSP_LAYOUT_SLOTS]; /* by layout index */
	uint32_t builds;
	struct msp_seen_file *seen;
	size_t seen_count, seen_room, seen_oldest;
};

bool msp_file_same(const struct msp_file_id *a, const struct msp_file_id *b);
const struct msp_seen_file *msp_images_seen(const struct msp_images *images,
	const struct msp_file_id *id);
/* Forgetting one for lack of memory costs time later, nothing else. */
void msp_images_note(struct msp_images *images, const struct msp_file_id *id,
	struct msp_image_entry *entry);
struct msp_image_entry *msp_images_by_key(const struct msp_images *images,
	const struct msp_image_key *key);
/* Gives it an index. MSP_E_LIMIT: there is none free. */
int msp_images_insert(struct msp_images *images, struct msp_image_entry *entry);
void msp_image_entry_free(struct msp_image_entry *entry);

/* A space uses the image, and no more. */
void msp_images_hold(struct msp_images *images, uint32_t index);
void msp_images_release(struct msp_images *images, uint32_t index);

/* A file, or bytes that were read from memory (vdso). */
struct msp_image_request {
	int fd; /* -1 if bytes; closed by msp_images_load() in any case */
	const void *bytes;
	size_t size;
	bool partial; /* parts of a file: nothing of it goes into the cache of tables */
	const char *name;	       /* as the target calls it */
	const char *root;	       /* the target's root */
	struct msp_image_entry *entry; /* the answer; NULL: no image */
};

/* Answers all requests, several at once. */
int msp_images_load(struct msp_images *images, struct msp_image_request *requests, size_t count);

#endif

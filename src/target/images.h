/* SPDX-License-Identifier: MIT */
/* Loading images into the registry; for the files of this folder. */
#ifndef MSP_TARGET_IMAGES_H
#define MSP_TARGET_IMAGES_H

#include "target/space.h"

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

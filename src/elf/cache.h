/* SPDX-License-Identifier: MIT */
/* Compiled tables on disk. Every failure means: no cache. */
#ifndef MSP_ELF_CACHE_H
#define MSP_ELF_CACHE_H

#include "elf/image.h"
#include "elf/rows.h"

/* All files together; the ones not used for the longest time go first. */
#define MSP_CACHE_SIZE_MAX (256ull << 20)

struct msp_rows *msp_cache_load(struct msp_image *image);
void msp_cache_store(struct msp_image *image, const struct msp_rows *rows);
/* Writes image->note into its table. */
void msp_cache_note(struct msp_image *image);
/* Removes the oldest tables of a directory until at most max bytes are left. */
void msp_cache_trim(int dir, uint64_t max);

/* For the files of the cache: the directory, -1 if there is none that only we can write. */
int msp_cache_dir(const struct msp_image *image, bool create);
/* What else than the key a file's rows depend on. */
uint64_t msp_cache_fingerprint(struct msp_image *image);
/* All of it, or false. */
bool msp_cache_read(int fd, void *to, size_t size);
bool msp_cache_write(int fd, const void *from, size_t size);

#endif

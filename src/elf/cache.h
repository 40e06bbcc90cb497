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

#endif

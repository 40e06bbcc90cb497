/* SPDX-License-Identifier: MIT */
/*
 * Memory of a target that stands still, page by page: while a whole process
 * is stopped every page is read once, which keeps the stop short.
 */
#ifndef MSP_TARGET_CACHE_H
#define MSP_TARGET_CACHE_H

#include "unwind/memory.h"

struct msp_memory_cache;

/* Reads from under, which must live longer. */
int msp_memory_cache_new(const struct msp_memory *under, struct msp_memory_cache **out);
void msp_memory_cache_free(struct msp_memory_cache *cache);
const struct msp_memory *msp_memory_cache_memory(struct msp_memory_cache *cache);
/* Forgets everything: the target ran. */
void msp_memory_cache_clear(struct msp_memory_cache *cache);

#endif

/* SPDX-License-Identifier: MIT */
/* Made-up profiles, the same at every run. NULL: out of memory. */
#ifndef OUTPUT_SYNTHETIC_H
#define OUTPUT_SYNTHETIC_H

#include "profile/profile.h"

/* A web server's worker under load: all kinds of frames, some recursion, an estimate. */
struct msp_profile *synthetic_server(void);
/* Names that break formats: separators, quotes, control bytes, invalid UTF-8, length, markup. */
struct msp_profile *synthetic_hostile(void);
/* samples samples of stacks distinct stacks, 10 to 60 frames deep, in 4 threads, added one by one. */
struct msp_profile *synthetic_large(size_t samples, size_t stacks);

/* The same in two steps, to time the second. */
struct synthetic_samples *synthetic_samples(size_t samples, size_t stacks);
struct msp_profile *synthetic_gather(const struct synthetic_samples *samples);
void synthetic_samples_free(struct synthetic_samples *samples);

/* "server", "hostile", "large" (a million samples, 50,000 stacks); NULL: no such name. */
struct msp_profile *synthetic_by_name(const char *name);

#endif

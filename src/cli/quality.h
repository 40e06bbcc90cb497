/* SPDX-License-Identifier: MIT */
#ifndef CLI_QUALITY_H
#define CLI_QUALITY_H

#include "profile/profile.h"

/* The last line of a recording: "2,970 samples in 30.0 s (99 Hz), 0 lost, ...". */
void cli_quality_line(const struct msp_quality *quality);
/* For --stats: a counter a line, why stacks were not whole, and what the profile takes. */
void cli_profile_stats(const struct msp_profile *profile);

#endif

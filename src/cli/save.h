/* SPDX-License-Identifier: MIT */
/* A profile into the file and the format the user asked for. */
#ifndef CLI_SAVE_H
#define CLI_SAVE_H

#include "cli/output.h"
#include "output/output.h"
#include "profile/profile.h"

/*
 * The format that -f and -o ask for; html if neither says. Prints what is
 * wrong; NULL then (usage).
 */
const struct msp_format *cli_save_format(const char *format, const char *path);

/*
 * Writes profile into out as format, seen through the options' view, and ends
 * the file. On a full disk it is kept in another place, which is said. Prints
 * errors; returns 0 or the exit code. out is freed.
 */
int cli_save(struct cli_output *out, const struct msp_format *format,
	const struct msp_profile *profile, const struct msp_view *view);

#endif

/* SPDX-License-Identifier: MIT */
/* One file per format; this is the table of them. */
#ifndef MSP_OUTPUT_H
#define MSP_OUTPUT_H

#include <stdio.h>

#include "profile/profile.h"

struct msp_format {
	const char *name;      /* "folded" */
	const char *endings[4]; /* ".folded", NULL-terminated */
	bool raw;              /* takes the whole profile (msp); others get a view */
	bool exact;            /* its view keeps lines, threads, addresses and traces, asked for or not */
	/* Writes to out and flushes. 0, MSP_E_IO (errno tells) or MSP_E_NOMEM. Does not close out. */
	int (*write)(const struct msp_profile *profile, FILE *out);
};

/* By name or by a file's ending; NULL if there is none. */
const struct msp_format *msp_format_by_name(const char *name);
const struct msp_format *msp_format_by_file(const char *path);
/* i-th format, NULL after the last. */
const struct msp_format *msp_format_at(size_t i);

/* Writes the view asked for, or more of it where the format takes more (raw, exact). */
int msp_format_write(const struct msp_format *format, const struct msp_profile *profile,
		     const struct msp_view *asked, FILE *out);

/* A frame as interface.md, "How a frame is written", says: unescaped text into buf, always NUL-terminated.
 * Returns its whole length, like snprintf. With lines, the current line where the frame has one. */
size_t msp_frame_text(const struct msp_frame *frame, bool lines, char *buf, size_t size);

/* "2,970 samples in 30.0 s (99 Hz), 0 lost, ...": the last line of a recording. 400 bytes are enough. */
void msp_quality_text(const struct msp_quality *quality, char *buf, size_t size);

/* msp files back into a profile; MSP_E_FORMAT with the reason in error[]. Hostile input. */
int msp_read_msp(FILE *in, struct msp_profile **out, char *error, size_t error_size);

/*
 * Profiles of Tarantool's sysprof, and of moonspy's in-process profiler. Hostile input. A file that is
 * cut off is no failure: error[] says where it ends. MSP_E_FORMAT with *out: the samples before the
 * damage; NULL: there were none.
 */
int msp_read_sysprof(FILE *in, struct msp_profile **out, char *error, size_t error_size);

/* Either of them: a file's first byte tells. */
int msp_read_profile(FILE *in, struct msp_profile **out, char *error, size_t error_size);

#endif

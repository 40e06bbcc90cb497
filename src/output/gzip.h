/* SPDX-License-Identifier: MIT */
/* A buffer's content into a stream, compressed; without a time in its header: equal files stay equal. */
#ifndef MSP_OUTPUT_GZIP_H
#define MSP_OUTPUT_GZIP_H

#include <stdio.h>
#include <zlib.h>

#include "output/buffer.h"

struct msp_gzip {
	z_stream stream;
	FILE *out;
	int err, errno_at_err; /* the first error; nothing is written after it */
};

/* 0 or MSP_E_NOMEM; after 0, msp_gzip_finish frees. */
int msp_gzip_begin(struct msp_gzip *gzip, FILE *out);
/* Takes what the buffer holds, and empties it; an error of the buffer becomes one of gzip. */
void msp_gzip_take(struct msp_gzip *gzip, struct msp_buffer *buffer);
/* Ends the file, flushes, frees. 0, or the first error, errno restored. */
int msp_gzip_finish(struct msp_gzip *gzip);

#endif

/* SPDX-License-Identifier: MIT */
#include "output/gzip.h"

#include <errno.h>
#include <string.h>

#include "moonspy/moonspy.h"

#define WINDOW_GZIP (15 + 16) /* largest window, with a gzip header */
#define LEVEL 6
#define MEMORY 8

static void fail(struct msp_gzip *gzip, int err)
{
	if (gzip->err)
		return;
	gzip->err = err;
	gzip->errno_at_err = errno;
}

int msp_gzip_begin(struct msp_gzip *gzip, FILE *out)
{
	*gzip = (struct msp_gzip){.out = out};
	return deflateInit2(&gzip->stream, LEVEL, Z_DEFLATED, WINDOW_GZIP, MEMORY,
			    Z_DEFAULT_STRATEGY) == Z_OK
		       ? 0
		       : MSP_E_NOMEM;
}

/* Compresses the input there is, to the end of the file with Z_FINISH. */
static void deflate_all(struct msp_gzip *gzip, int flush)
{
	unsigned char bytes[16 * 1024];

	do {
		size_t size;

		gzip->stream.next_out = bytes;
		gzip->stream.avail_out = sizeof(bytes);
		deflate(&gzip->stream, flush);
		size = sizeof(bytes) - gzip->stream.avail_out;
		if (size && fwrite(bytes, 1, size, gzip->out) != size)
			fail(gzip, MSP_E_IO);
	} while (!gzip->err && gzip->stream.avail_out == 0);
}

void msp_gzip_take(struct msp_gzip *gzip, struct msp_buffer *buffer)
{
	size_t at = 0;

	if (buffer->err)
		fail(gzip, buffer->err);
	while (!gzip->err && at < buffer->size) {
		size_t part = buffer->size - at < 1 << 30 ? buffer->size - at : 1 << 30;

		gzip->stream.next_in = (Bytef *)buffer->data + at;
		gzip->stream.avail_in = (uInt)part;
		deflate_all(gzip, Z_NO_FLUSH);
		at += part;
	}
	buffer->size = 0;
}

int msp_gzip_finish(struct msp_gzip *gzip)
{
	if (!gzip->err)
		deflate_all(gzip, Z_FINISH);
	if (!gzip->err && (fflush(gzip->out) || ferror(gzip->out)))
		fail(gzip, MSP_E_IO);
	deflateEnd(&gzip->stream);
	if (gzip->err)
		errno = gzip->errno_at_err;
	return gzip->err;
}

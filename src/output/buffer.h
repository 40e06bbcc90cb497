/* SPDX-License-Identifier: MIT */
/* Text on its way out: a buffer that empties itself into a stream, or grows where there is none. */
#ifndef MSP_OUTPUT_BUFFER_H
#define MSP_OUTPUT_BUFFER_H

#include <stdint.h>
#include <stdio.h>

/*
 * err is the first error; after it nothing is written any more, so that callers may look once, at
 * the end. errno_at_err is what errno said then. Zero-initialised, with out set or NULL.
 */
struct msp_buffer {
	FILE *out;
	char *data;
	size_t size, room;
	int err, errno_at_err;
};

void msp_buffer_put(struct msp_buffer *buffer, const void *data, size_t size);
void msp_buffer_text(struct msp_buffer *buffer, const char *text);
void msp_buffer_char(struct msp_buffer *buffer, char c);
void msp_buffer_uint(struct msp_buffer *buffer, uint64_t value);
__attribute__((format(printf, 2, 3))) void msp_buffer_printf(struct msp_buffer *buffer,
							     const char *format, ...);
/* All of it to the stream, and flushes that. Frees. 0, or the first error, errno restored. */
int msp_buffer_finish(struct msp_buffer *buffer);
void msp_buffer_free(struct msp_buffer *buffer);

/*
 * Bytes of the printable UTF-8 sequence at text: 1 to 4; 0 for what is to be escaped: control
 * characters, line and paragraph separators, changes of text direction, invalid UTF-8.
 */
size_t msp_utf8_printable(const char *text, size_t size);

/*
 * The text rule of docs/formats.md: bytes that are not printable UTF-8, and those in also, as \xNN,
 * a backslash doubled.
 */
void msp_buffer_escaped(struct msp_buffer *buffer, const char *text, const char *also);
/* The same of bytes among which may be NULs. */
void msp_buffer_escaped_bytes(struct msp_buffer *buffer, const char *text, size_t size,
			      const char *also);

#endif

/* SPDX-License-Identifier: MIT */
/* Unsigned numbers, seven bits a byte, lowest first, the top bit set in all but the last byte. */
#ifndef MSP_OUTPUT_VARINT_H
#define MSP_OUTPUT_VARINT_H

#include "output/buffer.h"

static inline void msp_put_varint(struct msp_buffer *buffer, uint64_t value)
{
	unsigned char bytes[10];
	size_t n = 0;

	for (; value >= 0x80; value >>= 7)
		bytes[n++] = (unsigned char)(value | 0x80);
	bytes[n++] = (unsigned char)value;
	msp_buffer_put(buffer, bytes, n);
}

#endif

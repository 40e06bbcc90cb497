/* SPDX-License-Identifier: MIT */
/*
 * Messages in protocol buffers' wire format, written only. A message within a message is put
 * together in a buffer of its own first, as its length stands before it.
 */
#ifndef MSP_OUTPUT_PROTOBUF_H
#define MSP_OUTPUT_PROTOBUF_H

#include "output/varint.h"

#define MSP_PB_VARINT 0u
#define MSP_PB_BYTES 2u

static inline void msp_pb_bytes(struct msp_buffer *to, unsigned field, const void *data,
				size_t size)
{
	msp_put_varint(to, field << 3 | MSP_PB_BYTES);
	msp_put_varint(to, size);
	msp_buffer_put(to, data, size);
}

/* A number; 0 is what readers take where there is none. */
static inline void msp_pb_uint(struct msp_buffer *to, unsigned field, uint64_t value)
{
	if (!value)
		return;
	msp_put_varint(to, field << 3 | MSP_PB_VARINT);
	msp_put_varint(to, value);
}

/* A message or packed numbers; empties message. */
static inline void msp_pb_message(struct msp_buffer *to, unsigned field, struct msp_buffer *message)
{
	msp_pb_bytes(to, field, message->data, message->size);
	if (message->err && !to->err)
		to->err = message->err;
	message->size = 0;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * JSON as a stream: commas, nesting and escapes are done here, nothing is kept in memory. Strings
 * follow the text rule of docs/formats.md, so the output is valid UTF-8 whatever they hold.
 *
 *	struct msp_json json = {.buffer.out = stdout};
 *	msp_json_object(&json);
 *	msp_json_key(&json, "schema");
 *	msp_json_uint(&json, 1);
 *	msp_json_end(&json);
 *	return msp_json_finish(&json);
 */
#ifndef MSP_OUTPUT_JSON_WRITER_H
#define MSP_OUTPUT_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "output/buffer.h"
#include "profile/profile.h"

#define MSP_JSON_MAX_DEPTH 60

struct msp_json {
	struct msp_buffer buffer;
	uint64_t objects, filled; /* a bit a level: it is an object; it has a member */
	unsigned depth;
	bool after_key;
	bool html; /* within a script element: "<" is escaped, too */
};

void msp_json_object(struct msp_json *json);
void msp_json_array(struct msp_json *json);
void msp_json_end(struct msp_json *json); /* of the innermost object or array */
void msp_json_key(struct msp_json *json, const char *key);
void msp_json_string(struct msp_json *json, const char *text); /* NULL: null */
void msp_json_bytes(struct msp_json *json, const char *text, size_t size); /* a string with NULs */
void msp_json_uint(struct msp_json *json, uint64_t value);
void msp_json_int(struct msp_json *json, int64_t value);
void msp_json_double(struct msp_json *json, double value); /* not finite: null */
void msp_json_bool(struct msp_json *json, bool value);
void msp_json_null(struct msp_json *json);
void msp_json_hex(struct msp_json *json, uint64_t value); /* "0x1f": numbers lose bits above 2^53 */
void msp_json_raw(struct msp_json *json, const char *value,
		  size_t size); /* one value, ready-made */
/* Ends the line and flushes. 0, MSP_E_IO or MSP_E_NOMEM. */
int msp_json_finish(struct msp_json *json);

/* The member "meta". */
void msp_json_meta(struct msp_json *json, const struct msp_profile *profile);
/* The frame object and the quality object of docs/formats.md. */
void msp_json_frame(struct msp_json *json, const struct msp_frame *frame);
/* A frame object to which members can be added; msp_json_end() ends it. */
void msp_json_frame_open(struct msp_json *json, const struct msp_frame *frame);
void msp_json_quality(struct msp_json *json, const struct msp_quality *quality);

#endif

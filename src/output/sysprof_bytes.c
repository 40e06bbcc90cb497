/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "output/sysprof.h"

int sysprof_bad(struct sysprof_in *in, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (in->error_size)
		vsnprintf(in->error, in->error_size, format, args);
	va_end(args);
	return MSP_E_FORMAT;
}

/* At least one byte more, or why there is none. */
static int fill(struct sysprof_in *in)
{
	in->at = 0;
	in->end = fread(in->buffer, 1, sizeof(in->buffer), in->in);
	if (in->end)
		return 0;
	if (ferror(in->in)) {
		if (in->error_size)
			snprintf(in->error, in->error_size, "%s", strerror(errno));
		return MSP_E_IO;
	}
	in->cut = true;
	return sysprof_bad(in, "the file ends early, at byte %llu", (unsigned long long)in->offset);
}

int sysprof_byte(struct sysprof_in *in, unsigned char *byte)
{
	int err = in->at < in->end ? 0 : fill(in);

	if (err)
		return err;
	*byte = in->buffer[in->at++];
	in->offset++;
	return 0;
}

int sysprof_bytes(struct sysprof_in *in, void *to, size_t size)
{
	unsigned char *out = to;

	while (size) {
		size_t part;
		int err = in->at < in->end ? 0 : fill(in);

		if (err)
			return err;
		part = in->end - in->at < size ? in->end - in->at : size;
		memcpy(out, in->buffer + in->at, part);
		in->at += part;
		in->offset += part;
		out += part;
		size -= part;
	}
	return 0;
}

int sysprof_number(struct sysprof_in *in, uint64_t *number)
{
	uint64_t value = 0;
	unsigned char byte;
	int err;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		if ((err = sysprof_byte(in, &byte)))
			return err;
		if (shift == 63 && byte > 1)
			break;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*number = value;
			return 0;
		}
	}
	return sysprof_bad(in, "byte %llu: a number has more than 64 bits",
			   (unsigned long long)in->offset);
}

int sysprof_string(struct sysprof_in *in, struct sysprof_string *string)
{
	uint64_t length, size = 0;
	int err = sysprof_number(in, &length);

	/* Grows with what is really there, so that a length of an exabyte takes no memory. */
	while (!err && size < length) {
		size_t part = length - size < 4096 + size ? length - size : 4096 + size;

		if (in->room < size + part) {
			unsigned char *text = realloc(in->text, size + part);

			if (!text)
				return MSP_E_NOMEM;
			in->text = text;
			in->room = size + part;
		}
		err = sysprof_bytes(in, in->text + size, part);
		size += part;
	}
	*string = (struct sysprof_string){in->text ? in->text : (const unsigned char *)"", size};
	return err;
}

bool sysprof_at_end(struct sysprof_in *in)
{
	int c;

	if (in->at < in->end)
		return false;
	c = getc(in->in);
	if (c == EOF)
		return true;
	ungetc(c, in->in);
	return false;
}

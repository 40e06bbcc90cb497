/* SPDX-License-Identifier: MIT */
#include "output/buffer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"

#define FLUSH_AT (256 * 1024)

static void fail(struct msp_buffer *buffer, int err)
{
	if (buffer->err)
		return;
	buffer->err = err;
	buffer->errno_at_err = errno;
}

static void empty(struct msp_buffer *buffer)
{
	if (buffer->out && !buffer->err && buffer->size &&
	    fwrite(buffer->data, 1, buffer->size, buffer->out) != buffer->size)
		fail(buffer, MSP_E_IO);
	if (buffer->out)
		buffer->size = 0;
}

/* Makes room for size more bytes; false: nothing may be written. */
static bool reserve(struct msp_buffer *buffer, size_t size)
{
	size_t room;
	char *data;

	if (buffer->err)
		return false;
	if (buffer->room - buffer->size >= size)
		return true;
	if (buffer->size >= FLUSH_AT)
		empty(buffer);
	if (buffer->room - buffer->size >= size)
		return !buffer->err;
	room = buffer->room * 2 > buffer->size + size ? buffer->room * 2 : buffer->size + size + 64;
	data = realloc(buffer->data, room);
	if (!data) {
		fail(buffer, MSP_E_NOMEM);
		return false;
	}
	buffer->data = data;
	buffer->room = room;
	return !buffer->err;
}

void msp_buffer_put(struct msp_buffer *buffer, const void *data, size_t size)
{
	if (!size || !reserve(buffer, size))
		return;
	memcpy(buffer->data + buffer->size, data, size);
	buffer->size += size;
}

void msp_buffer_text(struct msp_buffer *buffer, const char *text)
{
	msp_buffer_put(buffer, text, strlen(text));
}

void msp_buffer_char(struct msp_buffer *buffer, char c)
{
	if (reserve(buffer, 1))
		buffer->data[buffer->size++] = c;
}

void msp_buffer_uint(struct msp_buffer *buffer, uint64_t value)
{
	char digits[20];
	size_t at = sizeof(digits);

	do
		digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	msp_buffer_put(buffer, digits + at, sizeof(digits) - at);
}

void msp_buffer_printf(struct msp_buffer *buffer, const char *format, ...)
{
	va_list args, again;
	int size;

	va_start(args, format);
	va_copy(again, args);
	size = vsnprintf(NULL, 0, format, args);
	if (size >= 0 && reserve(buffer, (size_t)size + 1)) {
		vsnprintf(buffer->data + buffer->size, (size_t)size + 1, format, again);
		buffer->size += (size_t)size;
	}
	va_end(again);
	va_end(args);
}

int msp_buffer_finish(struct msp_buffer *buffer)
{
	int err;

	empty(buffer);
	if (buffer->out && !buffer->err && (fflush(buffer->out) || ferror(buffer->out)))
		fail(buffer, MSP_E_IO);
	err = buffer->err;
	free(buffer->data);
	if (err)
		errno = buffer->errno_at_err;
	*buffer = (struct msp_buffer){0};
	return err;
}

void msp_buffer_free(struct msp_buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct msp_buffer){0};
}

/* One character, decoded; its length, or 0 where it is no valid UTF-8. */
static size_t decode(const unsigned char *s, size_t size, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (n == 0 || s[0] > 0xf4 || n > size)
		return 0;
	*code = n == 1 ? s[0] : s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (s[i] & 0x3f);
	}
	if (*code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
		return 0;
	return n;
}

size_t msp_utf8_printable(const char *text, size_t size)
{
	uint32_t c = 0;
	size_t n;

	if (!size)
		return 0;
	n = decode((const unsigned char *)text, size, &c);
	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return 0;
	if ((c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0x200e ||
	    c == 0x200f || c == 0x061c || c == 0xfeff)
		return 0;
	return n;
}

void msp_buffer_escaped_bytes(struct msp_buffer *buffer, const char *text, size_t size,
			      const char *also)
{
	static const char hex[] = "0123456789abcdef";
	size_t left = size;

	while (left) {
		size_t n = msp_utf8_printable(text, left);
		unsigned char c = (unsigned char)*text;

		if (c == '\\') {
			msp_buffer_put(buffer, "\\\\", 2);
		} else if (n == 0 || strchr(also, c)) {
			msp_buffer_put(buffer, (char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, 4);
			n = 1;
		} else {
			msp_buffer_put(buffer, text, n);
		}
		text += n;
		left -= n;
	}
}

void msp_buffer_escaped(struct msp_buffer *buffer, const char *text, const char *also)
{
	msp_buffer_escaped_bytes(buffer, text, strlen(text), also);
}

/* SPDX-License-Identifier: MIT */
/*
 * Demangling with libiberty: it is the reference for GNU C++ names, reads both
 * Rust manglings, and links statically. A hostile name of a few bytes can
 * expand to gigabytes, which only its output callback can notice; that cannot
 * refuse, so it jumps out. The demangler keeps all its state on the stack: nothing
 * is lost.
 */
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "elf/symbols.h"

#define DEMANGLE_MAX 4096	/* bytes of a mangled name */
#define DEMANGLED_MAX (1 << 16) /* bytes of its result */

struct output {
	char *text;
	size_t size, room;
	jmp_buf too_long;
};

static void append(const char *part, size_t length, void *opaque)
{
	struct output *out = opaque;

	if (length > DEMANGLED_MAX - out->size)
		longjmp(out->too_long, 1);
	if (out->size + length + 1 > out->room) {
		size_t room = (out->size + length + 1) * 2;
		char *text = realloc(out->text, room);

		if (!text)
			longjmp(out->too_long, 1);
		out->text = text;
		out->room = room;
	}
	memcpy(out->text + out->size, part, length);
	out->size += length;
	out->text[out->size] = '\0';
}

char *msp_demangle(const char *name)
{
	const int options = DMGL_PARAMS | DMGL_ANSI;
	struct output *out;
	char *text = NULL;

	if ((strncmp(name, "_Z", 2) && strncmp(name, "_R", 2)) || strlen(name) > DEMANGLE_MAX)
		return NULL;
	/* On the heap: what longjmp() finds must not live in registers. */
	out = calloc(1, sizeof(*out));
	if (!out)
		return NULL;
	if (!setjmp(out->too_long) &&
	    (rust_demangle_callback(name, options, append, out) ||
	     (out->size = 0, cplus_demangle_v3_callback(name, options, append, out))))
		text = out->text;
	else
		free(out->text);
	free(out);
	return text;
}

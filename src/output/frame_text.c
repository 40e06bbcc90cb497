/* SPDX-License-Identifier: MIT */
/* Frames as people read them: one rule for every format and for dumps. */
#include <stdarg.h>

#include "output/output.h"

struct text {
	char *buf;
	size_t size, length; /* length of the whole text, which may be more than fits */
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
	size_t at = t->length < t->size ? t->length : t->size;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(at < t->size ? t->buf + at : NULL, t->size - at, format, args);
	va_end(args);
	if (n > 0)
		t->length += (size_t)n;
}

static bool there(const char *text)
{
	return text && text[0];
}

static const char *text_or(const char *text, const char *instead)
{
	return there(text) ? text : instead;
}

static void add_lua(struct text *t, const struct msp_frame *f, bool lines)
{
	add(t, "%s%s (%s:%u)", f->certain ? "" : "~", text_or(f->name, "anonymous"),
	    text_or(f->file, "?"), f->defined);
	if (lines && f->line)
		add(t, ":%u", f->line);
	/* Last, where flamegraph.pl looks for its colours. */
	if (f->kind == MSP_FRAME_JIT)
		add(t, "_[j]");
	if (f->kind == MSP_FRAME_INLINED)
		add(t, "_[i]");
}

static void add_native(struct text *t, const struct msp_frame *f)
{
	if (there(f->name) && there(f->object))
		add(t, "%s (%s)", f->name, f->object);
	else if (there(f->name))
		add(t, "%s", f->name);
	else if (there(f->object))
		add(t, "%s+0x%llx", f->object, (unsigned long long)f->address);
	else
		add(t, "0x%llx", (unsigned long long)f->address);
}

static void add_kernel(struct text *t, const struct msp_frame *f)
{
	if (there(f->name))
		add(t, "%s_[k]", f->name);
	else
		add(t, "0x%llx_[k]", (unsigned long long)f->address);
}

size_t msp_frame_text(const struct msp_frame *f, bool lines, char *buf, size_t size)
{
	struct text t = {buf, size, 0};

	if (size)
		buf[0] = 0;
	switch (f->kind) {
	case MSP_FRAME_LUA:
	case MSP_FRAME_JIT:
	case MSP_FRAME_INLINED:
		add_lua(&t, f, lines);
		break;
	case MSP_FRAME_FAST:
		add(&t, "%s%s", f->certain ? "" : "~", text_or(f->name, "[fast function]"));
		break;
	case MSP_FRAME_CFUNCTION:
		add(&t, "%s", f->certain ? "" : "~");
		add_native(&t, f);
		break;
	case MSP_FRAME_NATIVE:
		if (f->vm)
			add(&t, "[luajit vm]");
		else
			add_native(&t, f);
		break;
	case MSP_FRAME_KERNEL:
		add_kernel(&t, f);
		break;
	case MSP_FRAME_STATE:
		add(&t, "%s", text_or(f->name, "[state]"));
		break;
	default:
		add(&t, "%s", text_or(f->name, "[error: unknown]"));
		break;
	}
	return t.length;
}

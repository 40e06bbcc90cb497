/* SPDX-License-Identifier: MIT */
/*
 * The stream of events, as docs/sysprof.md has it: a sample is written twice, as a record with all
 * that moonspy knows of it, and as other readers expect it. In the latter functions go by numbers of
 * their own: their addresses are used again while the program runs, these are not.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inprocess/internal.h"
#include "output/msp_format.h"

static void put_pair(struct stream *s, const char *key, const char *value)
{
	begin_record(s, SYSPROF_RECORD_META);
	add_text(s, key);
	add_text(s, value);
	end_record(s);
}

/* ---- Names ---- */

/* The number of a frame in the file. Negative: no memory. */
static int64_t frame_number(struct stream *s, const struct msp_frame *frame)
{
	int64_t id = msp_profile_frame(s->frames, frame);

	if (id <= s->last_frame)
		return id;
	s->last_frame = id;
	begin_record(s, SYSPROF_RECORD_FRAME);
	add_number(s, frame->kind);
	add_number(s, (frame->certain ? MSP_FRAME_CERTAIN : 0) | (frame->vm ? MSP_FRAME_VM : 0));
	add_text(s, frame->name);
	add_text(s, frame->file);
	add_number(s, frame->defined);
	add_number(s, frame->line);
	add_text(s, frame->object);
	add_number(s, frame->address);
	add_number(s, frame->trace);
	end_record(s);
	return id;
}

static void put_string(struct stream *s, const char *a, const char *b)
{
	put_number(s, strlen(a) + strlen(b));
	put_bytes(s, a, strlen(a));
	put_bytes(s, b, strlen(b));
}

static void put_symbol(struct stream *s, const struct msp_frame *f, uint64_t number)
{
	char text[64];

	if (f->kind == MSP_FRAME_LUA) {
		put_byte(s, SYSPROF_NEW_LFUNC);
		put_number(s, number);
		put_string(s, f->file && f->file[0] == '[' ? "=" : "@", f->file ? f->file : "?");
		put_number(s, f->defined);
		return;
	}
	put_byte(s, SYSPROF_NEW_CFUNC);
	put_number(s, number);
	snprintf(text, sizeof(text), f->name ? "" : "+0x%llx", (unsigned long long)f->address);
	put_string(s, f->name ? f->name : f->object ? f->object : "?", text);
}

/* The number by which other readers know a function; 0: there is no memory. */
static uint64_t function_number(struct stream *s, const struct msp_frame *frame)
{
	bool lua = frame->kind == MSP_FRAME_LUA || frame->kind == MSP_FRAME_JIT ||
		   frame->kind == MSP_FRAME_INLINED;
	struct msp_frame f = {.kind = lua ? MSP_FRAME_LUA : MSP_FRAME_NATIVE,
			      .name = frame->name,
			      .file = frame->file,
			      .defined = frame->defined,
			      .object = frame->object,
			      .address = frame->name ? 0 : frame->address};
	int64_t id = msp_profile_frame(s->functions, &f);

	if (id > s->last_function) {
		s->last_function = id;
		put_symbol(s, &f, (uint64_t)id + 1);
	}
	return (uint64_t)(id + 1);
}

/* ---- Samples ---- */

struct stack {
	struct stream *s;
	const struct session *session;
	const struct sample *sample;
	const struct msp_backtrace *backtrace;
};

static bool is_host(const struct msp_frame *f)
{
	return (f->kind == MSP_FRAME_NATIVE && !f->vm) || f->kind == MSP_FRAME_CFUNCTION;
}

static bool is_lua(const struct msp_frame *f)
{
	return f->kind <= MSP_FRAME_CFUNCTION;
}

/* In mode L of each kind the innermost, and what says why there are no more. */
static bool wanted(const struct stack *stack, const struct msp_frame *f, size_t *hosts,
		   size_t *luas)
{
	bool first = false;

	if (is_host(f))
		first = !(*hosts)++;
	if (is_lua(f))
		first |= !(*luas)++;
	return first || stack->session->mode == LUAM_SYSPROF_CALLGRAPH ||
	       f->kind == MSP_FRAME_STATE;
}

/* Numbers of the frames to show, leaf first. Returns how many. */
static size_t number_frames(const struct stack *stack)
{
	struct stream *s = stack->s;
	const struct msp_frame *f;
	size_t n = 0, hosts = 0, luas = 0;

	for (size_t i = 0;
	     n < MSP_PROFILE_MAX_STACK && (f = msp_backtrace_frame(stack->backtrace, i)); i++) {
		int64_t id = wanted(stack, f, &hosts, &luas) ? frame_number(s, f) : -1;

		if (id >= 0)
			s->number[n++] = (uint32_t)id;
	}
	return n;
}

static void put_record(const struct stack *stack, size_t n)
{
	struct stream *s = stack->s;

	begin_record(s, SYSPROF_RECORD_SAMPLE);
	add_number(s, (uint64_t)getpid());
	add_number(s, (uint64_t)stack->session->tid);
	add_number(s, n);
	while (n)
		add_number(s, s->number[--n]);
	end_record(s);
}

/* Fast functions have no number in their names: the next one among the raw frames. */
static uint64_t next_ffid(const struct sample *sample, size_t *at)
{
	while (*at < sample->frames && sample->frame[*at].kind != MSP_RAW_FAST)
		++*at;
	return *at < sample->frames ? sample->frame[(*at)++].pos : 0;
}

/* Symbols come before the sample that needs them. */
static void name_functions(const struct stack *stack)
{
	const struct msp_frame *f;

	for (size_t i = 0; (f = msp_backtrace_frame(stack->backtrace, i)); i++)
		if (is_host(f) || (is_lua(f) && f->kind != MSP_FRAME_FAST))
			function_number(stack->s, f);
}

static void put_lua_stack(const struct stack *stack)
{
	const struct msp_frame *f;
	size_t fast = 0, hosts = 0, luas = 0;

	for (size_t i = 0; (f = msp_backtrace_frame(stack->backtrace, i)); i++) {
		if (!is_lua(f) || !wanted(stack, f, &hosts, &luas))
			continue;
		if (f->kind == MSP_FRAME_FAST) {
			put_byte(stack->s, SYSPROF_FRAME_FFUNC);
			put_number(stack->s, next_ffid(stack->sample, &fast));
		} else if (f->kind == MSP_FRAME_CFUNCTION) {
			put_byte(stack->s, SYSPROF_FRAME_CFUNC);
			put_number(stack->s, function_number(stack->s, f));
		} else {
			put_byte(stack->s, SYSPROF_FRAME_LFUNC);
			put_number(stack->s, function_number(stack->s, f));
			put_number(stack->s, f->defined);
		}
	}
	put_byte(stack->s, SYSPROF_END);
}

static void put_host_stack(const struct stack *stack)
{
	const uint64_t *own = (const uint64_t *)(stack->sample->frame + stack->sample->frames);
	const struct msp_frame *f;
	size_t hosts = 0, luas = 0;

	for (size_t i = 0; stack->sample->own && i < stack->sample->hosts; i++)
		put_number(stack->s, own[i]);
	for (size_t i = 0; !stack->sample->own && (f = msp_backtrace_frame(stack->backtrace, i));
	     i++)
		if (is_host(f) && wanted(stack, f, &hosts, &luas))
			put_number(stack->s, function_number(stack->s, f));
	put_number(stack->s, 0);
}

/* The trace that runs, and the function at its bottom. */
static void put_trace(const struct stack *stack)
{
	const struct msp_frame *f, *bottom = NULL;
	uint64_t number;

	for (size_t i = 0; (f = msp_backtrace_frame(stack->backtrace, i)); i++) {
		bool compiled = f->kind == MSP_FRAME_JIT || f->kind == MSP_FRAME_INLINED;

		if (compiled && (!bottom || f->trace == bottom->trace))
			bottom = f;
		else if (bottom && is_lua(f))
			break;
	}
	number = bottom ? function_number(stack->s, bottom) : 0;
	if (bottom) {
		put_byte(stack->s, SYSPROF_NEW_TRACE);
		put_number(stack->s, bottom->trace);
		put_number(stack->s, number);
		put_number(stack->s, bottom->line);
	}
	put_byte(stack->s, SYSPROF_IN_TRACE);
	put_number(stack->s, bottom ? bottom->trace : 0);
	put_number(stack->s, number);
	put_number(stack->s, bottom ? bottom->defined : 0);
}

/* What a backtracer of the user's found, by the dynamic linker's names. */
static void name_own(const struct stack *stack)
{
	const uint64_t *own = (const uint64_t *)(stack->sample->frame + stack->sample->frames);
	Dl_info info;

	for (size_t i = 0; i < stack->sample->hosts; i++) {
		if (!dladdr((const void *)(uintptr_t)own[i], &info) || !info.dli_sname)
			continue;
		put_byte(stack->s, SYSPROF_NEW_CFUNC);
		put_number(stack->s, (uintptr_t)info.dli_saddr);
		put_string(stack->s, info.dli_sname, "");
	}
}

static void put_event(const struct stack *stack)
{
	uint8_t state = stack->sample->state;

	if (state == SYSPROF_IN_TRACE) {
		put_trace(stack);
		return;
	}
	put_byte(stack->s, state);
	if (state >= SYSPROF_IN_LFUNC && state <= SYSPROF_IN_CFUNC)
		put_lua_stack(stack);
	put_host_stack(stack);
}

/* A function that is gone may be back under the same identity. */
static bool has_all_names(const struct msp_backtrace *backtrace)
{
	const struct msp_frame *f;

	for (size_t i = 0; (f = msp_backtrace_frame(backtrace, i)); i++)
		if (is_lua(f) && f->kind < MSP_FRAME_FAST && !f->file)
			return false;
	return true;
}

/* Frames and functions come before the sample that needs them: when the stack comes again they are there. */
static void put_sample(const struct stack *stack, bool lasts, uint64_t now)
{
	struct stream *s = stack->s;
	size_t n = number_frames(stack);

	name_functions(stack);
	if (lasts)
		memo_begin(s->memo, stack->sample, now);
	put_record(stack, n);
	put_event(stack);
	memo_end(s->memo);
}

bool stream_sample(struct stream *s, const struct session *session, const struct sample *sample,
		   struct msp_backtrace *backtrace)
{
	struct stack stack = {s, session, sample, backtrace};
	uint64_t now = now_ns();
	const uint8_t *known;
	size_t size;
	bool lasts;

	if (s->ended)
		return true;
	known = sample->own ? NULL : memo_find(s->memo, sample, now, &size);
	if (known) {
		put_bytes(s, known, size);
		return true;
	}
	if (msp_backtrace_set(backtrace, sample->frame, sample->frames) < 0 ||
	    msp_backtrace_name(backtrace) < 0) {
		give_up(s, ENOMEM);
		return false;
	}
	lasts = has_all_names(backtrace);
	if (!sample->own) {
		put_sample(&stack, lasts, now);
		return lasts;
	}
	name_own(&stack);
	name_functions(&stack);
	put_event(&stack);
	return lasts;
}

/* ---- Begin and end ---- */

static void put_process(struct stream *s)
{
	char name[64] = "";
	FILE *in = fopen("/proc/self/comm", "re");

	if (in && fgets(name, sizeof(name), in))
		name[strcspn(name, "\n")] = 0;
	if (in)
		fclose(in);
	begin_record(s, SYSPROF_RECORD_NAME);
	add_number(s, (uint64_t)getpid());
	add_number(s, 0);
	add_text(s, name[0] ? name : "?");
	end_record(s);
}

static void put_head(struct stream *s, const char *magic, uint8_t version)
{
	const uint8_t rest[1 + SYSPROF_RESERVED] = {version};

	put_bytes(s, magic, strlen(magic));
	put_bytes(s, rest, sizeof(rest));
}

void stream_begin(struct stream *s, const struct session *session)
{
	char text[40];
	time_t now = time(NULL);
	struct tm utc;

	put_head(s, SYSPROF_SYMBOLS_MAGIC, SYSPROF_SYMBOLS_VERSION);
	put_byte(s, SYSPROF_END);
	put_head(s, SYSPROF_EVENTS_MAGIC, SYSPROF_EVENTS_VERSION);
	gmtime_r(&now, &utc);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
	put_pair(s, "start", text);
	put_pair(s, "version", msp_version());
	put_pair(s, "event", "cpu");
	snprintf(text, sizeof(text), "%llu ms", (unsigned long long)session->interval_ms);
	put_pair(s, "interval", text);
	put_pair(s, "mode", session->mode == LUAM_SYSPROF_LEAF ? "L" : "C");
	put_process(s);
	stream_flush(s);
}

static void put_handler_times(struct stream *s, const struct session *session)
{
	uint64_t samples = 0;
	char text[24];

	for (int i = 0; i < SYSPROF_STATE_COUNT; i++)
		samples += atomic_load(&session->counter[i]);
	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)(samples ? atomic_load(&session->handler_ns) / samples : 0));
	put_pair(s, "handler ns, mean", text);
	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)atomic_load(&session->handler_most_ns));
	put_pair(s, "handler ns, most", text);
}

void stream_end(struct stream *s, const struct session *session, uint64_t milliseconds)
{
	put_handler_times(s, session);
	begin_record(s, SYSPROF_RECORD_END);
	add_number(s, atomic_load(&session->lost));
	add_number(s, milliseconds);
	add_number(s, session->interval_ms * 1000);
	end_record(s);
	put_byte(s, SYSPROF_END);
	stream_flush(s);
}

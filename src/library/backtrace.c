/* SPDX-License-Identifier: MIT */
/* Stacks: walked, then named. */
#include <stdlib.h>
#include <string.h>

#include "library/internal.h"

/* ---- Strings of a backtrace, in pieces that are never moved ---- */

#define CHUNK_SIZE 8192

struct lib_chunk {
	struct lib_chunk *next;
	size_t used, size;
	char bytes[];
};

/* All but one piece is freed. */
static void forget_text(struct msp_backtrace *backtrace, bool all)
{
	struct lib_chunk *chunk = backtrace->text, *next;

	while (chunk && (all || chunk->next)) {
		next = chunk->next;
		free(chunk);
		chunk = next;
	}
	if (chunk)
		chunk->used = 0;
	backtrace->text = chunk;
}

/* A copy; NULL stays NULL. *failed: there is no memory. */
static const char *keep(struct msp_backtrace *backtrace, const char *text, bool *failed)
{
	size_t size = text ? strlen(text) + 1 : 0;
	struct lib_chunk *chunk = backtrace->text;
	char *copy;

	if (!text)
		return NULL;
	if (!chunk || chunk->size - chunk->used < size) {
		size_t room = size > CHUNK_SIZE ? size : CHUNK_SIZE;

		chunk = malloc(sizeof(*chunk) + room);
		if (!chunk) {
			*failed = true;
			return NULL;
		}
		*chunk = (struct lib_chunk){.next = backtrace->text, .size = room};
		backtrace->text = chunk;
	}
	copy = chunk->bytes + chunk->used;
	memcpy(copy, text, size);
	chunk->used += size;
	return copy;
}

/* ---- Raw ---- */

int msp_backtrace_new(struct msp_target *target, struct msp_backtrace **out)
{
	struct msp_backtrace *backtrace = calloc(1, sizeof(*backtrace));

	*out = backtrace;
	if (!backtrace)
		return lib_error(target, MSP_E_NOMEM, "out of memory");
	backtrace->target = target;
	return 0;
}

int lib_backtrace_of(struct msp_target *target, const struct msp_raw_frame *raw, size_t count,
		     int reason, const struct msp_variables *variables, struct msp_backtrace **out)
{
	int err = msp_backtrace_new(target, out);

	if (err)
		return err;
	(*out)->raw = raw;
	(*out)->raws = count;
	(*out)->reason = (uint32_t)reason;
	(*out)->variables = variables;
	return 0;
}

void msp_backtrace_forget(struct msp_backtrace *backtrace)
{
	forget_text(backtrace, true);
	free(backtrace->full);
	free(backtrace->from);
	free(backtrace->frame);
	free(backtrace->place);
	backtrace->full = NULL;
	backtrace->from = NULL;
	backtrace->frame = NULL;
	backtrace->place = NULL;
	backtrace->full_room = 0;
	backtrace->frames = 0;
}

void msp_backtrace_free(struct msp_backtrace *backtrace)
{
	if (!backtrace)
		return;
	msp_backtrace_forget(backtrace);
	free(backtrace->own);
	free(backtrace);
}

static int take_raw(struct msp_backtrace *backtrace, const struct msp_raw_frame *frames,
		    size_t count)
{
	struct msp_raw_frame *bigger;

	if (count > backtrace->own_room) {
		bigger = reallocarray(backtrace->own, count, sizeof(*bigger));
		if (!bigger)
			return lib_error(backtrace->target, MSP_E_NOMEM, "out of memory");
		backtrace->own = bigger;
		backtrace->own_room = count;
	}
	if (count)
		memcpy(backtrace->own, frames, count * sizeof(*frames));
	backtrace->raw = backtrace->own;
	backtrace->raws = count;
	backtrace->frames = 0;
	backtrace->variables = NULL;
	return (int)count;
}

int msp_backtrace_unwind(struct msp_backtrace *backtrace, const struct msp_registers *registers)
{
	struct msp_target *target = backtrace->target;
	struct msp_stack stack;
	int err;

	if (!target->space)
		return lib_error(target, MSP_E_INVALID, "the target is not open");
	if (!target->walker && (err = msp_walker_new(target->space, &target->walker)) < 0)
		return lib_error(target, err, "out of memory");
	msp_walker_walk(target->walker, NULL, registers, &stack);
	backtrace->reason = (uint32_t)stack.error;
	return take_raw(backtrace, stack.frames, stack.count);
}

int msp_backtrace_set(struct msp_backtrace *backtrace, const struct msp_raw_frame *frames,
		      size_t count)
{
	int n;

	if (count > MSP_MAX_FRAMES)
		return lib_error(backtrace->target, MSP_E_INVALID, "more than %d frames",
				 MSP_MAX_FRAMES);
	n = take_raw(backtrace, frames, count);
	if (n >= 0)
		backtrace->reason = count && frames[count - 1].kind == MSP_RAW_ERROR
					    ? frames[count - 1].pos
					    : MSP_ERR_NONE;
	return n;
}

const struct msp_raw_frame *msp_backtrace_raw(const struct msp_backtrace *backtrace, size_t *count)
{
	*count = backtrace->raws;
	return backtrace->raw;
}

const char *msp_backtrace_reason(const struct msp_backtrace *backtrace)
{
	static const char *const text[] = {
#define _(id, words) words,
		MSP_ERROR_REASONS(_)
#undef _
	};

	if (backtrace->reason == MSP_ERR_NONE)
		return NULL;
	return backtrace->reason < MSP_ERROR_REASON_COUNT ? text[backtrace->reason] : "unknown";
}

/* ---- Names ---- */

static bool make_room(struct msp_backtrace *backtrace, size_t room)
{
	void *full, *from, *frame, *place;

	if (room <= backtrace->full_room)
		return true;
	full = reallocarray(backtrace->full, room, sizeof(*backtrace->full));
	if (full)
		backtrace->full = full;
	from = reallocarray(backtrace->from, room, sizeof(*backtrace->from));
	if (from)
		backtrace->from = from;
	frame = reallocarray(backtrace->frame, room, sizeof(*backtrace->frame));
	if (frame)
		backtrace->frame = frame;
	place = reallocarray(backtrace->place, room, sizeof(*backtrace->place));
	if (place)
		backtrace->place = place;
	if (!full || !from || !frame || !place)
		return false;
	backtrace->full_room = room;
	return true;
}

static bool name_frame(struct msp_backtrace *backtrace, size_t n, size_t i)
{
	struct msp_frame *frame = &backtrace->frame[backtrace->frames];
	bool failed = false;

	if (msp_symbolizer_frame(backtrace->target->symbols, backtrace->full, n, i, frame) > 0)
		return true; /* shown by another already */
	frame->name = keep(backtrace, frame->name, &failed);
	frame->file = keep(backtrace, frame->file, &failed);
	frame->object = keep(backtrace, frame->object, &failed);
	backtrace->place[backtrace->frames] = (uint32_t)i;
	backtrace->frames++;
	return !failed;
}

int msp_backtrace_name(struct msp_backtrace *backtrace)
{
	size_t room = backtrace->raws + MSP_MAX_FRAMES, n;
	struct msp_inlined info;

	backtrace->frames = 0;
	forget_text(backtrace, false);
	if (!make_room(backtrace, room))
		return lib_error(backtrace->target, MSP_E_NOMEM, "out of memory");
	if (!backtrace->target->symbols)
		return lib_error(backtrace->target, MSP_E_INVALID, "the target is not open");
	n = msp_symbolizer_inline(backtrace->target->symbols, backtrace->raw, backtrace->raws,
				  backtrace->full, backtrace->from, room, &info);
	for (size_t i = 0; i < n; i++)
		if (!name_frame(backtrace, n, i))
			return lib_error(backtrace->target, MSP_E_NOMEM, "out of memory");
	return (int)backtrace->frames;
}

const struct msp_frame *msp_backtrace_frame(const struct msp_backtrace *backtrace, size_t i)
{
	return i < backtrace->frames ? &backtrace->frame[i] : NULL;
}

/* ---- Values ---- */

/* The raw frame on the stack that the i-th named frame shows; MSP_NOT_ON_STACK: none. */
static uint32_t place_of(const struct msp_backtrace *backtrace, size_t i)
{
	return i < backtrace->frames ? backtrace->from[backtrace->place[i]] : MSP_NOT_ON_STACK;
}

int msp_backtrace_variables(const struct msp_backtrace *backtrace, size_t i,
			    const struct msp_variables **out)
{
	uint32_t place = place_of(backtrace, i);

	*out = NULL;
	if (!backtrace->variables || place == MSP_NOT_ON_STACK ||
	    backtrace->full[backtrace->place[i]].kind != MSP_RAW_LUA)
		return MSP_E_NOT_FOUND;
	*out = &backtrace->variables[place];
	return 0;
}

/* The raw frame that would stand for a function of a VM. */
static struct msp_raw_frame frame_of(const struct msp_value *value, uint16_t layout)
{
	struct msp_raw_frame raw = {.addr = value->address, .pos = value->ffid, .image = layout};

	raw.kind = value->ffid == 0 ? MSP_RAW_LUA : value->ffid == 1 ? MSP_RAW_CFUNC : MSP_RAW_FAST;
	if (value->ffid)
		return raw;
	raw.addr = value->pt;
	raw.ident = value->ident;
	raw.flags = MSP_RAWF_NOPC;
	return raw;
}

int msp_backtrace_function(struct msp_backtrace *backtrace, size_t i, const struct msp_value *value,
			   const struct msp_frame **out)
{
	uint32_t place = place_of(backtrace, i);
	const struct msp_raw_frame *vm =
		place == MSP_NOT_ON_STACK ? NULL : msp_raw_vm_of(backtrace->raw, place);
	struct msp_raw_frame raw[2];

	*out = NULL;
	if (!vm || value->type != MSP_TYPE_FUNCTION)
		return MSP_E_INVALID;
	raw[0] = *vm;
	raw[1] = frame_of(value, vm->image);
	msp_symbolizer_frame(backtrace->target->symbols, raw, 2, 1, &backtrace->function);
	*out = &backtrace->function;
	return 0;
}

bool msp_value_entry(const struct msp_value *value, size_t i, const struct msp_value **key,
		     const struct msp_value **content)
{
	if (value->type != MSP_TYPE_TABLE || i >= value->entries)
		return false;
	*key = &value->entry[i].key;
	*content = &value->entry[i].value;
	return true;
}

/* SPDX-License-Identifier: MIT */
/*
 * Names that come late. A Lua function is named when it is first seen, but
 * where it is defined may not have been found by then: the index of the VM's
 * memory is still growing, or the function had no name yet. Such functions are
 * asked for again, at growing intervals, while their process lives, and their
 * frames are changed in the profile: one function, one name.
 */
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"
#include "recorder/internal.h"

#define MAX_LATE 4096 /* of a process */
#define MAX_TRIES 7
#define FIRST_WAIT_NS 100000000ull /* doubled at each try: the last one after 6 s */
#define AT_ONCE 64

struct rec_late_name {
	struct msp_raw_frame
		stack[4]; /* VM, function, what is below, caller: all that its name depends on */
	size_t depth;
	uint32_t id; /* of the profile's frame */
	uint32_t tries;
	uint64_t due_ns;
};

void rec_late_add(struct rec_process *p, const struct msp_raw_frame *raw, size_t n, size_t i,
		  uint32_t id)
{
	const struct msp_raw_frame *vm = msp_raw_vm_of(raw, i),
				   *caller = msp_raw_caller_of(raw, n, i);
	struct rec_late_name *late;

	if (!vm || p->late_count >= MAX_LATE)
		return;
	if (p->late_count == p->late_room) {
		size_t room = p->late_room ? 2 * p->late_room : 64;

		late = realloc(p->late, room * sizeof(*late));
		if (!late)
			return; /* it keeps the name it has */
		p->late = late;
		p->late_room = room;
	}
	late = &p->late[p->late_count++];
	*late = (struct rec_late_name){.stack = {*vm, raw[i]}, .depth = 2, .id = id};
	if (i + 1 < n)
		late->stack[late->depth++] = raw[i + 1];
	if (caller && caller != &raw[i + 1])
		late->stack[late->depth++] = *caller;
	late->due_ns = rec_now_ns() + FIRST_WAIT_NS;
}

/* Asks once more. Positive: there is nothing more to ask; negative: error code. */
static int ask(struct msp_recorder *rec, struct rec_process *p, struct rec_late_name *late)
{
	struct msp_frame frame;
	int err;

	if (msp_symbolizer_frame(p->symbols, late->stack, late->depth, 1, &frame))
		return 1; /* gone: it keeps the name it has */
	err = msp_profile_replace_frame(rec->profile, late->id, &frame);
	if (err)
		return err;
	late->due_ns = rec_now_ns() + (FIRST_WAIT_NS << ++late->tries);
	return msp_symbolizer_final(p->symbols) || late->tries == MAX_TRIES;
}

static bool is_due(const struct rec_process *p, uint64_t now, bool all)
{
	for (size_t i = 0; i < p->late_count; i++)
		if (all || p->late[i].due_ns <= now)
			return true;
	return false;
}

int rec_late_ask(struct msp_recorder *rec, struct rec_process *p, bool all)
{
	uint64_t now = rec_now_ns();
	int asked = 0, err;

	if (!p->symbols || !p->space || !is_due(p, now, all))
		return 0;
	err = rec_refresh(rec, p); /* its heap may have grown: no event tells of that */
	if (err)
		return err;
	for (size_t i = p->late_count; i-- > 0;) {
		if (!all && (p->late[i].due_ns > now || asked == AT_ONCE))
			continue;
		asked++;
		err = ask(rec, p, &p->late[i]);
		if (err < 0)
			return err;
		if (err)
			p->late[i] = p->late[--p->late_count];
	}
	return 0;
}

void rec_late_free(struct rec_process *p)
{
	free(p->late);
	p->late = NULL;
	p->late_count = p->late_room = 0;
}

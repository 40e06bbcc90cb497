/* SPDX-License-Identifier: MIT */
#include "luajit/told_vms.h"

#include <string.h>

#include "moonspy/vm_descriptor.h"

#define MOST_LISTS 256
#define MOST_SLOTS 4096 /* of a list */
#define MOST_OF_ALL 65536
#define CHUNK 4096 /* bytes of slots that are read at once */
#define TRIES 4

static bool read_live(const struct msp_memory *mem, uint64_t descriptor, struct ljvm_live *out,
		      bool *all)
{
	struct ljvm_descriptor head;
	uint64_t at;

	if (!descriptor || msp_read(mem, descriptor, &head, sizeof(head)) ||
	    memcmp(head.magic, LJVM_MAGIC, sizeof(head.magic)) != 0 || head.major != LJVM_MAJOR ||
	    head.pointer_size != sizeof(at) ||
	    !LJVM_HAS(head.addresses.size, struct ljvm_addresses, live) ||
	    msp_read(mem,
		     descriptor + head.addresses.offset + offsetof(struct ljvm_addresses, live),
		     &at, sizeof(at)) ||
	    !at || msp_read(mem, at, out, sizeof(*out)))
		return false;
	*all = !out->missed && !(head.flags & LJVM_FLAG_LIVE_PARTIAL);
	return out->size >= sizeof(*out) && out->slot_size >= sizeof(struct ljvm_slot) &&
	       out->slot_size <= CHUNK;
}

/* A slot as it was at one moment. False: it is empty, or changes all the time. */
static bool read_slot(const struct msp_memory *mem, uint64_t at, struct msp_lj_told_vm *out)
{
	struct ljvm_slot slot, again;

	for (int i = 0; i < TRIES; i++) {
		if (msp_read(mem, at, &slot, sizeof(slot)) ||
		    msp_read(mem, at, &again, sizeof(again)) || !slot.g)
			return false;
		if (slot.g == again.g && slot.serial == again.serial) {
			*out = (struct msp_lj_told_vm){slot.g, slot.thread, slot.tables,
						       slot.serial};
			return true;
		}
	}
	return false;
}

/* Which of the slots are asked for, and for whom. */
struct asked {
	uint64_t g; /* this one; 0: all that are in use */
	msp_lj_told_fn fn;
	void *ctx;
};

/* Of those from at on. *more becomes false if no more are wanted. */
static bool each_slot(const struct msp_memory *mem, uint64_t at, uint32_t count, uint32_t size,
		      const struct asked *asked, bool *more)
{
	_Alignas(8) uint8_t chunk[CHUNK];
	struct msp_lj_told_vm vm;
	uint64_t g;
	uint32_t n;

	for (; count && *more; count -= n, at += (uint64_t)n * size) {
		n = CHUNK / size < count ? CHUNK / size : count;
		if (msp_read(mem, at, chunk, (size_t)n * size))
			return false;
		for (uint32_t i = 0; i < n && *more; i++) {
			memcpy(&g, chunk + (size_t)i * size + offsetof(struct ljvm_slot, g),
			       sizeof(g));
			if (g && (!asked->g || g == asked->g) &&
			    read_slot(mem, at + (uint64_t)i * size, &vm))
				*more = asked->fn(asked->ctx, &vm);
		}
	}
	return true;
}

static bool each(const struct msp_memory *mem, uint64_t descriptor, const struct asked *asked)
{
	struct {
		uint64_t next;
		uint32_t count, unused;
	} head;
	struct ljvm_live live;
	uint32_t slots = 0;
	bool more = true, all;

	_Static_assert(sizeof(head) == offsetof(struct ljvm_slots, slot),
		       "what is before the slots");
	if (!read_live(mem, descriptor, &live, &all))
		return false;
	for (uint32_t i = 0; live.slots && more; i++, live.slots = head.next)
		if (i == MOST_LISTS || msp_read(mem, live.slots, &head, sizeof(head)) ||
		    head.count > MOST_SLOTS || (slots += head.count) > MOST_OF_ALL ||
		    !each_slot(mem, live.slots + sizeof(head), head.count, live.slot_size, asked,
			       &more))
			return false;
	return all && more;
}

bool msp_lj_told_each(const struct msp_memory *mem, uint64_t descriptor, msp_lj_told_fn fn,
		      void *ctx)
{
	return each(mem, descriptor, &(struct asked){.fn = fn, .ctx = ctx});
}

struct wanted {
	uint64_t g;
	struct msp_lj_told_vm *out;
	bool found;
};

static bool is_wanted(void *ctx, const struct msp_lj_told_vm *vm)
{
	struct wanted *wanted = ctx;

	wanted->found = vm->g == wanted->g;
	if (wanted->found)
		*wanted->out = *vm;
	return !wanted->found;
}

bool msp_lj_told_find(const struct msp_memory *mem, uint64_t descriptor, uint64_t g,
		      struct msp_lj_told_vm *out)
{
	struct wanted wanted = {.g = g, .out = out};

	each(mem, descriptor, &(struct asked){.g = g, .fn = is_wanted, .ctx = &wanted});
	return wanted.found;
}

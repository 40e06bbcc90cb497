/* SPDX-License-Identifier: MIT */
/*
 * The list of live VMs. A slot is claimed and given back by compare and swap; readers need no lock, and slots are never
 * freed. Nothing of it lies in the VM's own memory, whose size programs can see.
 */
#ifndef LJVM_NO_LIVE
#include <stdlib.h>

static struct ljvm_slots ljvm_slots = {0, LJVM_SLOTS, 0, {{0}}};
struct ljvm_live ljvm_live = {sizeof(struct ljvm_live), sizeof(struct ljvm_slot), 0, 0, 0, 0, 0, 0};
#define LJVM_LIVE &ljvm_live

#define LJVM_CLAIMED 1
#define LJVM_GET(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
#define LJVM_SET(place, value) __atomic_store_n(place, value, __ATOMIC_RELEASE)

static uint64_t ljvm_this_thread(void)
{
	uint64_t pointer = 0;

#if defined(__x86_64__) && !defined(__ILP32__)
	__asm__("movq %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
	__asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
	return pointer;
}

/* Where in the first list a VM is looked for at first. */
static uint32_t ljvm_home(uint64_t g)
{
	return (uint32_t)((g >> 4) * 0x9e3779b1u >> 16) % LJVM_SLOTS;
}

static struct ljvm_slot *ljvm_slot_of(const void *g)
{
	uint64_t wanted = (uint64_t)(uintptr_t)g;
	uint32_t home = ljvm_home(wanted), i;
	struct ljvm_slots *slots = &ljvm_slots;

	for (; slots; slots = (struct ljvm_slots *)(uintptr_t)LJVM_GET(&slots->next))
		for (i = 0; i < LJVM_SLOTS; i++) {
			struct ljvm_slot *slot = &slots->slot[(home + i) % LJVM_SLOTS];

			if (LJVM_GET(&slot->g) == wanted)
				return slot;
		}
	return NULL;
}

static struct ljvm_slot *ljvm_claim_in(struct ljvm_slots *slots, uint32_t home)
{
	uint32_t i;

	for (i = 0; i < LJVM_SLOTS; i++) {
		struct ljvm_slot *slot = &slots->slot[(home + i) % LJVM_SLOTS];
		uint64_t unused = 0;

		if (__atomic_compare_exchange_n(&slot->unused, &unused, LJVM_CLAIMED, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return slot;
	}
	return NULL;
}

/* More slots behind these, if another thread has not added some meanwhile. */
static struct ljvm_slots *ljvm_more(struct ljvm_slots *slots)
{
	struct ljvm_slots *more = (struct ljvm_slots *)(uintptr_t)LJVM_GET(&slots->next);
	uint64_t none = 0;

	if (more)
		return more;
	more = (struct ljvm_slots *)calloc(1, sizeof(*more));
	if (!more)
		return NULL;
	more->count = LJVM_SLOTS;
	if (__atomic_compare_exchange_n(&slots->next, &none, (uint64_t)(uintptr_t)more, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return more;
	free(more);
	return (struct ljvm_slots *)(uintptr_t)none;
}

static struct ljvm_slot *ljvm_claim(const void *g)
{
	uint32_t home = ljvm_home((uint64_t)(uintptr_t)g);
	struct ljvm_slots *slots = &ljvm_slots;
	struct ljvm_slot *slot = NULL;

	while (slots && !(slot = ljvm_claim_in(slots, home)))
		slots = ljvm_more(slots);
	return slot;
}

static void ljvm_tables_asked(void);
static void ljvm_tables_free(struct ljvm_slot *slot);

void ljvm_created(global_State *g, lua_State *L)
{
	struct ljvm_slot *slot = ljvm_claim(g);

	LJVM_SET(&ljvm_live.slots, (uint64_t)(uintptr_t)&ljvm_slots);
	ljvm_tables_asked();
	if (slot) {
		LJVM_SET(&slot->serial, __atomic_add_fetch(&ljvm_live.created, 1, __ATOMIC_ACQ_REL));
		LJVM_SET(&slot->gc_phase, (uint32_t)g->gc.state);
		LJVM_SET(&slot->thread, ljvm_this_thread());
		LJVM_SET(&slot->g, (uint64_t)(uintptr_t)g);
	} else {
		__atomic_add_fetch(&ljvm_live.missed, 1, __ATOMIC_ACQ_REL);
	}
	LJVM_PROBE2("vm_created", g, L);
	UNUSED(L);
}

void ljvm_closed(global_State *g)
{
	struct ljvm_slot *slot = ljvm_slot_of(g);

	/* A VM that could not be created is freed without having been one. */
	if (!slot)
		return;
	LJVM_PROBE2("vm_closed", g, gcrefp(g->mainthref, void));
	LJVM_SET(&slot->g, 0);
	ljvm_tables_free(slot);
	LJVM_SET(&slot->unused, 0);
}

void ljvm_gc_changed(global_State *g, int phase)
{
	struct ljvm_slot *slot = ljvm_slot_of(g);
	uint32_t old;

	if (!slot)
		return;
	old = slot->gc_phase;
	LJVM_SET(&slot->thread, ljvm_this_thread());
	if (old == (uint32_t)phase)
		return;
	LJVM_SET(&slot->gc_phase, (uint32_t)phase);
	LJVM_PROBE3("gc_phase", g, phase, old);
}

/* The calling thread runs that VM. */
void ljvm_seen(global_State *g)
{
	struct ljvm_slot *slot = ljvm_slot_of(g);

	if (slot)
		LJVM_SET(&slot->thread, ljvm_this_thread());
}
#else
#define LJVM_LIVE NULL
#endif

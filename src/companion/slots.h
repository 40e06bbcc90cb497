/* SPDX-License-Identifier: MIT */
/* The slots of the list of live VMs. Without locks; readers are anywhere, also in other processes. Part of live.c. */
#ifndef MSP_COMPANION_SLOTS_H
#define MSP_COMPANION_SLOTS_H

#include <stdlib.h>

#include "moonspy/vm_descriptor.h"

#define GET(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
#define SET(place, value) __atomic_store_n(place, value, __ATOMIC_RELEASE)
#define COUNT(place) __atomic_add_fetch(place, 1, __ATOMIC_ACQ_REL)

static struct ljvm_slots first_slots = {.count = LJVM_SLOTS};
static struct ljvm_live live = {.size = sizeof(struct ljvm_live),
	.slot_size = sizeof(struct ljvm_slot),
	.slots = 0};

static struct ljvm_slots *next_slots(const struct ljvm_slots *slots)
{
	return (struct ljvm_slots *)(uintptr_t)GET(&slots->next);
}

static struct ljvm_slot *slot_of(uint64_t g)
{
	for (struct ljvm_slots *slots = &first_slots; slots; slots = next_slots(slots))
		for (uint32_t i = 0; i < slots->count; i++)
			if (GET(&slots->slot[i].g) == g)
				return &slots->slot[i];
	return NULL;
}

/* A slot that nobody has; unused is 1 while somebody does. */
static struct ljvm_slot *claim_in(struct ljvm_slots *slots)
{
	for (uint32_t i = 0; i < slots->count; i++) {
		uint64_t unused = 0;

		if (__atomic_compare_exchange_n(&slots->slot[i].unused, &unused, 1, 0,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return &slots->slot[i];
	}
	return NULL;
}

/* The slots behind these, which are full: made if there are none. */
static struct ljvm_slots *more_slots(struct ljvm_slots *slots)
{
	struct ljvm_slots *more = next_slots(slots);
	uint64_t none = 0;

	if (more || !(more = calloc(1, sizeof(*more))))
		return more;
	more->count = LJVM_SLOTS;
	if (__atomic_compare_exchange_n(&slots->next, &none, (uintptr_t)more, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return more;
	free(more); /* another thread was faster */
	return (struct ljvm_slots *)(uintptr_t)none;
}

static struct ljvm_slot *claim_slot(void)
{
	struct ljvm_slots *slots = &first_slots;
	struct ljvm_slot *slot = NULL;

	while (slots && !(slot = claim_in(slots)))
		slots = more_slots(slots);
	return slot;
}

#endif

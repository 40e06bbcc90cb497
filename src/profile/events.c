/* SPDX-License-Identifier: MIT */
/* What VMs did while they were recorded, as their probes told. */
#include <string.h>

#include "profile/internal.h"

static int compare(const struct msp_vm_events *a, const struct msp_vm_events *b)
{
	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->g != b->g)
		return a->g < b->g ? -1 : 1;
	return strcmp(a->event, b->event);
}

/* Where they are, or would have to be: mostly at the end, as readers and copies bring them sorted. */
static uint32_t place(const struct msp_profile *profile, const struct msp_vm_events *events)
{
	uint32_t at = profile->n_events;

	while (at && compare(&profile->events[at - 1], events) >= 0)
		at--;
	return at;
}

int msp_profile_add_vm_events(struct msp_profile *profile, int32_t pid, uint64_t g,
			      const char *event, uint64_t count)
{
	struct msp_vm_events new = {.pid = pid, .g = g, .count = count}, *at;
	uint32_t i;
	int err;

	if (!event || !event[0])
		return MSP_E_INVALID;
	if (!count)
		return 0;
	if ((err = msp_intern(&profile->strings, profile->seed, event, &new.event)) ||
	    (err = msp_grow(&profile->events, profile->n_events, &profile->events_room,
			    sizeof(*profile->events))))
		return err;
	i = place(profile, &new);
	at = &profile->events[i];
	if (i < profile->n_events && !compare(at, &new)) {
		if (__builtin_add_overflow(at->count, count, &at->count))
			at->count = UINT64_MAX;
		return 0;
	}
	memmove(at + 1, at, (profile->n_events - i) * sizeof(*at));
	*at = new;
	profile->n_events++;
	return 0;
}

const struct msp_vm_events *msp_profile_vm_events(const struct msp_profile *profile, size_t i)
{
	return i < profile->n_events ? &profile->events[i] : NULL;
}

/* SPDX-License-Identifier: MIT */
/* What VMs did while they were recorded, as their probes told. */
#include <stdlib.h>
#include <string.h>

#include "profile/internal.h"

int msp_vm_events_compare(const struct msp_vm_events *a, const struct msp_vm_events *b)
{
	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->g != b->g)
		return a->g < b->g ? -1 : 1;
	return strcmp(a->event, b->event);
}

static int compare(const void *a, const void *b)
{
	return msp_vm_events_compare(a, b);
}

static void join(void *there, const void *other)
{
	struct msp_vm_events *events = there;

	if (__builtin_add_overflow(events->count, ((const struct msp_vm_events *)other)->count,
				   &events->count))
		events->count = UINT64_MAX;
}

static const struct msp_sorted sorted = {sizeof(struct msp_vm_events), compare, join};

int msp_profile_add_vm_events(struct msp_profile *profile, int32_t pid, uint64_t g,
			      const char *event, uint64_t count)
{
	struct msp_vm_events new = {.pid = pid, .g = g, .count = count};
	int err;

	if (!event || !event[0])
		return MSP_E_INVALID;
	if (!count)
		return 0;
	if ((err = msp_intern(&profile->strings, profile->seed, event, &new.event)))
		return err;
	return msp_sorted_add(&sorted, &profile->events, &profile->n_events, &profile->events_room,
			      &new);
}

int msp_events_copy(const struct msp_profile *from, struct msp_profile *to)
{
	struct msp_vm_events *copy = calloc(from->n_events ? from->n_events : 1, sizeof(*copy));
	int err = copy ? 0 : MSP_E_NOMEM;

	for (uint32_t i = 0; !err && i < from->n_events; i++) {
		copy[i] = from->events[i];
		err = msp_intern(&to->strings, to->seed, copy[i].event, &copy[i].event);
	}
	if (!err)
		err = msp_sorted_merge(&sorted, &to->events, &to->n_events, &to->events_room, copy,
				       from->n_events);
	free(copy);
	return err;
}

const struct msp_vm_events *msp_profile_vm_events(const struct msp_profile *profile, size_t i)
{
	return i < profile->n_events ? &profile->events[i] : NULL;
}

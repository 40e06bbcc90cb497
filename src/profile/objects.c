/* SPDX-License-Identifier: MIT */
/* The files that native frames lie in. */
#include <string.h>

#include "profile/internal.h"

/* Where an object is, or would have to be. */
static uint32_t place(const struct msp_profile *profile, const char *name, bool *there)
{
	uint32_t low = 0, high = profile->n_objects;

	/* Readers and copies bring them sorted. */
	if (high && strcmp(profile->objects[high - 1].name, name) < 0)
		low = high;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (strcmp(profile->objects[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*there = low < profile->n_objects && !strcmp(profile->objects[low].name, name);
	return low;
}

static int insert(struct msp_profile *profile, uint32_t at, const struct msp_object *object)
{
	int err = msp_grow(&profile->objects, profile->n_objects, &profile->objects_room,
			   sizeof(*profile->objects));

	if (err)
		return err;
	memmove(&profile->objects[at + 1], &profile->objects[at],
		(profile->n_objects - at) * sizeof(*profile->objects));
	profile->objects[at] = *object;
	profile->n_objects++;
	return 0;
}

int msp_profile_set_object(struct msp_profile *profile, const char *object, const char *build_id,
			   const char *path)
{
	struct msp_object new;
	bool there;
	uint32_t at;
	int err;

	if (!object)
		return MSP_E_INVALID;
	if ((err = msp_intern(&profile->strings, profile->seed, object, &new.name)) ||
	    (err = msp_intern(&profile->strings, profile->seed, build_id, &new.build_id)) ||
	    (err = msp_intern(&profile->strings, profile->seed, path, &new.path)))
		return err;
	at = place(profile, object, &there);
	if (!there)
		return insert(profile, at, &new);
	if (profile->objects[at].build_id != new.build_id)
		profile->objects[at].build_id = NULL;
	if (profile->objects[at].path != new.path)
		profile->objects[at].path = NULL;
	return 0;
}

bool msp_profile_object(const struct msp_profile *profile, const char *object,
			const char **build_id, const char **path)
{
	bool there;
	uint32_t at = place(profile, object, &there);

	*build_id = there ? profile->objects[at].build_id : NULL;
	*path = there ? profile->objects[at].path : NULL;
	return there;
}

size_t msp_profile_object_count(const struct msp_profile *profile)
{
	return profile->n_objects;
}

void msp_profile_object_at(const struct msp_profile *profile, size_t i, const char **object,
			   const char **build_id, const char **path)
{
	*object = profile->objects[i].name;
	*build_id = profile->objects[i].build_id;
	*path = profile->objects[i].path;
}

/* SPDX-License-Identifier: MIT */
/* The files that native frames lie in. */
#include <stdlib.h>
#include <string.h>

#include "profile/internal.h"

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct msp_object *)a)->name, ((const struct msp_object *)b)->name);
}

/* What two say differently is not known. */
static void join(void *there, const void *other)
{
	struct msp_object *object = there;
	const struct msp_object *too = other;

	if (object->build_id != too->build_id)
		object->build_id = NULL;
	if (object->path != too->path)
		object->path = NULL;
}

static const struct msp_sorted sorted = {sizeof(struct msp_object), compare, join};

static int intern(struct msp_profile *profile, struct msp_object *object)
{
	int err;

	if ((err = msp_intern(&profile->strings, profile->seed, object->name, &object->name)) ||
	    (err = msp_intern(&profile->strings, profile->seed, object->build_id,
			      &object->build_id)))
		return err;
	return msp_intern(&profile->strings, profile->seed, object->path, &object->path);
}

int msp_profile_set_object(struct msp_profile *profile, const char *object, const char *build_id,
			   const char *path)
{
	struct msp_object new = {.name = object, .build_id = build_id, .path = path};
	int err = object ? intern(profile, &new) : MSP_E_INVALID;

	return err ? err
		   : msp_sorted_add(&sorted, &profile->objects, &profile->n_objects,
				    &profile->objects_room, &new);
}

int msp_objects_copy(const struct msp_profile *from, struct msp_profile *to)
{
	struct msp_object *copy = calloc(from->n_objects ? from->n_objects : 1, sizeof(*copy));
	int err = copy ? 0 : MSP_E_NOMEM;

	for (uint32_t i = 0; !err && i < from->n_objects; i++) {
		copy[i] = from->objects[i];
		err = intern(to, &copy[i]);
	}
	if (!err)
		err = msp_sorted_merge(&sorted, &to->objects, &to->n_objects, &to->objects_room,
				       copy, from->n_objects);
	free(copy);
	return err;
}

bool msp_profile_object(const struct msp_profile *profile, const char *object,
			const char **build_id, const char **path)
{
	struct msp_object *objects = profile->objects, wanted = {.name = object};
	bool there;
	uint32_t at = msp_sorted_place(&sorted, &objects, profile->n_objects, &wanted, &there);

	*build_id = there ? objects[at].build_id : NULL;
	*path = there ? objects[at].path : NULL;
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

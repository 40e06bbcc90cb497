/* SPDX-License-Identifier: MIT */
/* Sorted arrays that have each element once. */
#include <string.h>

#include "profile/internal.h"

static char *at(const struct msp_sorted *sorted, void *array, uint32_t i)
{
	return *(char **)array + (size_t)i * sorted->size;
}

uint32_t msp_sorted_place(const struct msp_sorted *sorted, void *array, uint32_t n,
			  const void *element, bool *there)
{
	uint32_t low = 0, high = n;

	/* Readers bring them sorted. */
	if (n && sorted->compare(at(sorted, array, n - 1), element) < 0)
		low = n;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (sorted->compare(at(sorted, array, middle), element) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*there = low < n && !sorted->compare(at(sorted, array, low), element);
	return low;
}

int msp_sorted_add(const struct msp_sorted *sorted, void *array, uint32_t *n, uint32_t *room,
		   const void *element)
{
	bool there;
	uint32_t i = msp_sorted_place(sorted, array, *n, element, &there);
	int err;

	if (there) {
		sorted->join(at(sorted, array, i), element);
		return 0;
	}
	if ((err = msp_grow(array, *n, room, sorted->size)))
		return err;
	memmove(at(sorted, array, i + 1), at(sorted, array, i), (*n - i) * sorted->size);
	memcpy(at(sorted, array, i), element, sorted->size);
	++*n;
	return 0;
}

/* From the end, so that each is moved once; two that are the same leave a gap before the rest. */
int msp_sorted_merge(const struct msp_sorted *sorted, void *array, uint32_t *n, uint32_t *room,
		     const void *other, uint32_t count)
{
	uint32_t a = *n, b = count, all = *n + count, to = all;
	int err, order;

	if (!count)
		return 0;
	if (all < count)
		return MSP_E_LIMIT;
	while (*room < all)
		if ((err = msp_grow(array, *room, room, sorted->size)))
			return err;
	while (b) {
		const char *last = (const char *)other + (size_t)(b - 1) * sorted->size;

		order = a ? sorted->compare(at(sorted, array, a - 1), last) : -1;
		if (!order)
			sorted->join(at(sorted, array, a - 1), last);
		b -= order <= 0;
		if (order >= 0)
			last = at(sorted, array, --a);
		memmove(at(sorted, array, --to), last, sorted->size);
	}
	memmove(at(sorted, array, a), at(sorted, array, to), (all - to) * sorted->size);
	*n = a + all - to;
	return 0;
}

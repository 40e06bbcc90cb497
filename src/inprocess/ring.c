/* SPDX-License-Identifier: MIT */
#include "inprocess/internal.h"

struct sample *ring_room(struct ring *ring)
{
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	uint64_t free_bytes = RING_SIZE - (head - atomic_load(&ring->tail));
	uint64_t at = head % RING_SIZE, left = RING_SIZE - at;
	struct sample *sample = (struct sample *)(ring->bytes + at);

	if (left >= SAMPLE_MOST)
		return free_bytes >= SAMPLE_MOST ? sample : NULL;
	if (free_bytes < left + SAMPLE_MOST)
		return NULL;
	*sample = (struct sample){.size = (uint32_t)left, .state = SAMPLE_SKIP};
	ring_add(ring, sample);
	return (struct sample *)ring->bytes;
}

void ring_add(struct ring *ring, struct sample *sample)
{
	atomic_store_explicit(&ring->head, atomic_load(&ring->head) + sample->size,
			      memory_order_release);
}

struct sample *ring_first(struct ring *ring)
{
	for (;;) {
		uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
		struct sample *sample = (struct sample *)(ring->bytes + tail % RING_SIZE);

		if (tail == atomic_load_explicit(&ring->head, memory_order_acquire))
			return NULL;
		if (sample->state != SAMPLE_SKIP)
			return sample;
		ring_drop(ring, sample);
	}
}

void ring_drop(struct ring *ring, struct sample *sample)
{
	atomic_store_explicit(&ring->tail, atomic_load(&ring->tail) + sample->size,
			      memory_order_release);
}

bool ring_fills(const struct ring *ring)
{
	return atomic_load(&ring->head) - atomic_load(&ring->tail) > RING_SIZE / 4;
}

/* SPDX-License-Identifier: MIT */
/*
 * A library for swaps.c. Built twice: NAME is what its functions are called after. Both have the same code: what
 * is taken for the other is as whole, and wrong.
 */
#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)
#define FRAME 8
#define NOINLINE __attribute__((noinline, noclone))
#define EXPORTED __attribute__((visibility("default")))

EXPORTED char swapped_page[65536];

NOINLINE static unsigned PASTE(NAME, _inner)(unsigned n)
{
	volatile unsigned room[FRAME];
	unsigned x = 1;

	for (unsigned i = 0; i < n; i++)
		x = x * 1664525 + 1013904223;
	room[n % FRAME] = x;
	return room[n % FRAME];
}

NOINLINE static unsigned PASTE(NAME, _outer)(unsigned n)
{
	volatile unsigned room[2 * FRAME];

	room[n % FRAME] = n;
	return PASTE(NAME, _inner)(room[n % FRAME]) + 1;
}

EXPORTED NOINLINE unsigned swapped(unsigned n)
{
	return PASTE(NAME, _outer)(n) + 1;
}

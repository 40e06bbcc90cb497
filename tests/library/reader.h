/* SPDX-License-Identifier: MIT */
/* A process read with functions of ours, which can be told to fail and lie. */
#ifndef LIBRARY_READER_H
#define LIBRARY_READER_H

#include <sys/mman.h>

#include "help.h"

#define REGIONS 512

struct lies {
	uint32_t seed;
	uint32_t fail, lie, change; /* so many of 1024 reads; change: of the mappings, at each refresh */
};

struct ours {
	struct lies lies;
	int mem;
	size_t count, reads;
	struct msp_region region[REGIONS];
	char name[REGIONS][256];
};

static inline uint32_t our_random(struct ours *ours)
{
	ours->lies.seed = ours->lies.seed * 1664525 + 1013904223;
	return ours->lies.seed >> 8;
}

static inline bool our_chance(struct ours *ours, uint32_t of_1024)
{
	return of_1024 && our_random(ours) % 1024 < of_1024;
}

static inline int our_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct ours *ours = ctx;
	uint8_t *bytes = buf;

	ours->reads++;
	if (our_chance(ours, ours->lies.fail) || pread(ours->mem, buf, size, (off_t)addr) != (ssize_t)size)
		return -1;
	if (our_chance(ours, ours->lies.lie)) {
		if (our_random(ours) % 2)
			bytes[our_random(ours) % size] ^= 1u << our_random(ours) % 8;
		else
			memset(buf, our_random(ours) % 2 ? 0xff : 0, size);
	}
	return 0;
}

static inline int our_region(void *ctx, size_t n, struct msp_region *out)
{
	struct ours *ours = ctx;

	if (n >= ours->count)
		return -1;
	*out = ours->region[n];
	if (our_chance(ours, ours->lies.change)) {
		uint64_t *field[] = {&out->start, &out->end, &out->offset};

		*field[our_random(ours) % 3] ^= 1ull << our_random(ours) % 64;
	}
	return 0;
}

static inline void our_open(struct ours *ours, pid_t pid)
{
	char path[64], line[1024], prot[8];
	unsigned long long start, end, offset, inode;
	FILE *maps;
	int at;

	memset(ours, 0, sizeof(*ours));
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	ours->mem = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(ours->mem >= 0);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "r");
	assert_non_null(maps);
	while (ours->count < REGIONS && fgets(line, sizeof(line), maps)) {
		struct msp_region *r = &ours->region[ours->count];

		assert_int_equal(sscanf(line, "%llx-%llx %7s %llx %*s %llu %n", &start, &end, prot, &offset, &inode, &at), 5);
		snprintf(ours->name[ours->count], sizeof(ours->name[0]), "%.*s", (int)strcspn(line + at, "\n"), line + at);
		*r = (struct msp_region){.start = start,
			.end = end,
			.offset = offset,
			.file = (uint32_t)inode,
			.name = ours->name[ours->count]};
		r->prot = (prot[0] == 'r' ? PROT_READ : 0) | (prot[1] == 'w' ? PROT_WRITE : 0) |
			(prot[2] == 'x' ? PROT_EXEC : 0);
		ours->count++;
	}
	fclose(maps);
}

static inline struct msp_reader our_reader(struct ours *ours)
{
	return (struct msp_reader){
		.size = sizeof(struct msp_reader), .ctx = ours, .read = our_read, .region = our_region};
}

#endif

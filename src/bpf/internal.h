/* SPDX-License-Identifier: MIT */
/* The loader's own state; for the files of this folder. */
#ifndef MSP_BPF_INTERNAL_H
#define MSP_BPF_INTERNAL_H

#include "bpf/sampler.h"
#include "sampler.skel.h"

#define MSP_RULE_ROOM 65536
#define MSP_RING_SIZE (8u << 20)
#define MSP_SEGMENT_ROWS (256u << 10)

/* A store that is cut into ranges: each belongs to somebody, or is free from free_ns on. */
struct msp_extent {
	uint32_t first, count;
	uint32_t owner; /* 0: nobody */
	uint64_t free_ns;
};

struct msp_ranges {
	struct msp_extent *extent; /* sorted, without gaps */
	uint32_t count, room;
};

/* Rows of many images; or of one that is bigger than a usual segment, and then of the next such. */
struct msp_segment {
	int fd; /* -1: none now */
	struct msp_row *rows;
	uint32_t room;
	uint32_t big; /* the image that it is for, MSP_SEGMENT_FREE, or 0: of many */
	struct msp_ranges ranges;
};
#define MSP_SEGMENT_FREE UINT32_MAX

/* What an image has in the stores. */
struct msp_sent_image {
	bool sent;
	uint32_t segment; /* UINT32_MAX: it has no rows */
	uint32_t *rule; /* the numbers of its rules */
	uint32_t rule_count;
};

struct msp_sampler {
	struct sampler_bpf *skel;
	struct ring_buffer *ring;
	const struct msp_sampler_handlers *handlers;
	uint32_t rate;
	bool clock_chosen, hardware;
	uint64_t clock_offset; /* msp_clock_offset() */
	int stats_fd;

	struct bpf_link **links;
	size_t link_count, link_room;

	int segments; /* the map of the segments, -1: none */
	struct msp_segment segment[MSP_MAX_SEGMENTS];
	uint32_t segment_count;

	struct msp_rule *rules; /* as BPF sees them */
	uint32_t rule_count, rule_room; /* numbers given so far, and that there are */
	uint32_t *rule_hash; /* 2 * rule_room places, 0 = free */
	uint32_t *rule_users; /* images that have it */
	uint32_t *rule_free; /* numbers that nobody uses any more */
	uint32_t rule_free_count;

	struct msp_sent_image *image; /* MSP_IMAGE_SLOTS */

	struct msp_mapping *mappings;
	uint32_t mapping_room;
	struct msp_ranges ranges; /* of mappings; the owner is the pid */
};

bool ranges_init(struct msp_ranges *r, uint32_t size);
/* The first element of a free range of count; -1: there is none. */
int64_t ranges_take(struct msp_ranges *r, uint32_t owner, uint32_t count, uint64_t now);
/* Gives back all ranges of an owner but one, to be used again from free_ns on. */
void ranges_release(struct msp_ranges *r, uint32_t owner, uint32_t keep_first, uint64_t free_ns);

/*
 * Path of BTF with no more than the kernel's types that the program uses; it is made if it is not
 * there. False: there is none, libbpf is to look at the kernel's.
 */
bool sampler_kernel_btf(const char *dir, char *path, size_t size);
int sampler_on_record(void *ctx, void *data, size_t size);
/* Before the program is loaded: the map of the segments. */
int sampler_create_segments(struct msp_sampler *s);
/* The first segment; may run while the program is loaded: the kernel takes 10 ms for it. */
int sampler_first_segment(struct msp_sampler *s, uint32_t rows);
int sampler_init_rows(struct msp_sampler *s);
void sampler_free_rows(struct msp_sampler *s);
int sampler_init_tables(struct msp_sampler *s);
void sampler_free_tables(struct msp_sampler *s);

#endif

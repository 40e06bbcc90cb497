/* SPDX-License-Identifier: MIT */
/* The loader's own state; for the files of this folder. */
#ifndef MSP_BPF_INTERNAL_H
#define MSP_BPF_INTERNAL_H

#include "bpf/sampler.h"
#include "sampler.skel.h"

#define MSP_RULE_ROOM 65536
#define MSP_RING_SIZE (8u << 20)
#define MSP_SEGMENT_ROWS (256u << 10)
/* A range of mappings that BPF may still be reading is not written again before this time is over. */
#define MSP_REUSE_NS 1000000000ull

struct msp_segment {
	int fd;
	struct msp_row *rows;
	uint32_t room, used;
};

/* A range of the mapping store. */
struct msp_extent {
	uint32_t first, count;
	pid_t pid;         /* 0: free since freed_ns */
	uint64_t freed_ns;
};

struct msp_sampler {
	struct sampler_bpf *skel;
	struct ring_buffer *ring;
	const struct msp_sampler_handlers *handlers;
	uint32_t rate;
	bool clock_chosen, hardware;
	int stats_fd;

	struct bpf_link **links;
	size_t link_count, link_room;

	struct msp_segment segment[MSP_MAX_SEGMENTS];
	uint32_t segment_count;

	struct msp_rule *rules; /* as BPF sees them */
	uint32_t rule_count, rule_room;
	uint32_t *rule_hash; /* 2 * rule_room places, 0 = free */

	struct msp_mapping *mappings;
	uint32_t mapping_room;
	struct msp_extent *extents; /* sorted, without gaps */
	uint32_t extent_count, extent_room;
};

/*
 * Path of BTF with no more than the kernel's types that the program uses; it is made if it is not
 * there. False: there is none, libbpf is to look at the kernel's.
 */
bool sampler_kernel_btf(const char *dir, char *path, size_t size);
int sampler_on_record(void *ctx, void *data, size_t size);
int sampler_add_segment(struct msp_sampler *s, uint32_t rows);
void sampler_free_tables(struct msp_sampler *s);

#endif

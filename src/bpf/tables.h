/* SPDX-License-Identifier: MIT */
/*
 * What the BPF program knows of processes: unwind rows, rules, layouts, mappings, written into its
 * maps. Whoever has loaded it gives their fds. One thread.
 */
#ifndef MSP_BPF_TABLES_H
#define MSP_BPF_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/records.h"
#include "elf/elf.h"
#include "target/space.h"

/* What BPF may still be reading is not written again before this time is over. */
#define MSP_REUSE_NS 1000000000ull

#define MSP_RULE_ROOM 65536
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

struct msp_table_fds {
	int segments, rules, images, layouts, mappings, processes, pid_namespace;
};

struct msp_tables {
	struct msp_table_fds fd; /* fd.segments is closed with the tables */
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

/* Before the program is loaded: the map of the segments, made here. Zeroed tables; fd.segments -1. */
int msp_tables_create_segments(struct msp_tables *t);
/* The first segment; may run while the program is loaded: the kernel takes 10 ms for it. */
int msp_tables_first_segment(struct msp_tables *t, uint32_t rows);
/* With room for so many mappings and rules, as the maps have. -errno. */
int msp_tables_open(struct msp_tables *t, const struct msp_table_fds *fds, uint32_t mappings, uint32_t rules);
void msp_tables_close(struct msp_tables *t);

/* Images must be added before a process that maps them is set. */
int msp_tables_set_layout(struct msp_tables *t, uint32_t index, const struct msp_lj_layout *layout);
int msp_tables_add_image(struct msp_tables *t, uint32_t index, const struct msp_unwind_table *table,
			 uint32_t layout);
bool msp_tables_has_image(const struct msp_tables *t, uint32_t index);
/*
 * Forgets an image. No sooner than MSP_REUSE_NS after the last process that maps it was replaced or
 * removed: what it had is given to others at once.
 */
void msp_tables_remove_image(struct msp_tables *t, uint32_t index);
/*
 * Replaces what is known of a process. mappings: sorted, files only. If that fails the process is
 * as if nothing were known of it.
 */
int msp_tables_set_process(struct msp_tables *t, pid_t pid, const struct msp_mapping *mappings,
			   uint32_t count, const struct msp_bpf_process *builds);
/* Its mappings are not known now: its samples have no user part. */
void msp_tables_forget_mappings(struct msp_tables *t, pid_t pid);
void msp_tables_remove_process(struct msp_tables *t, pid_t pid);

/* ---- All that is known of a process's address space ---- */

/* What the program is told of the LuaJITs in it. Returns how many are VMs. */
size_t msp_tables_builds(const struct msp_space *space, struct msp_bpf_process *process);
/* Images that it does not have yet, mappings, builds. MSP_E_LIMIT: something is full; then nothing of it is known. */
int msp_tables_send(struct msp_tables *t, const struct msp_space *space, pid_t pid);

/* ---- Within src/bpf ---- */

bool ranges_init(struct msp_ranges *r, uint32_t size);
/* The first element of a free range of count; -1: there is none. */
int64_t ranges_take(struct msp_ranges *r, uint32_t owner, uint32_t count, uint64_t now);
/* Gives back all ranges of an owner but one, to be used again from free_ns on. */
void ranges_release(struct msp_ranges *r, uint32_t owner, uint32_t keep_first, uint64_t free_ns);
int tables_init_rows(struct msp_tables *t);
void tables_free_rows(struct msp_tables *t);

#endif

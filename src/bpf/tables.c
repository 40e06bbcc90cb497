/* SPDX-License-Identifier: MIT */
/* Unwind rows, rules, images, mappings and processes into the BPF maps. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/internal.h"
#include "moonspy/moonspy.h"

/* ---- Rows, in segments that are never moved ---- */

int sampler_add_segment(struct msp_sampler *s, uint32_t rows)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	struct msp_segment *seg = &s->segment[s->segment_count];
	uint32_t key = s->segment_count;
	int err;

	if (s->segment_count == MSP_MAX_SEGMENTS)
		return -E2BIG;
	seg->room = rows > MSP_SEGMENT_ROWS ? rows : MSP_SEGMENT_ROWS;
	seg->used = 0;
	seg->fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "moonspy_rows", 4, sizeof(struct msp_row),
				 seg->room, &opts);
	if (seg->fd < 0)
		return seg->fd;
	seg->rows = mmap(NULL, seg->room * sizeof(*seg->rows), PROT_READ | PROT_WRITE, MAP_SHARED,
			 seg->fd, 0);
	err = seg->rows == MAP_FAILED ? -errno : 0;
	if (!err)
		err = bpf_map_update_elem(bpf_map__fd(s->skel->maps.segments), &key, &seg->fd,
					  BPF_ANY);
	if (err) {
		if (seg->rows != MAP_FAILED)
			munmap(seg->rows, seg->room * sizeof(*seg->rows));
		close(seg->fd);
		return err;
	}
	s->segment_count++;
	return 0;
}

void sampler_free_tables(struct msp_sampler *s)
{
	for (uint32_t i = 0; i < s->segment_count; i++) {
		munmap(s->segment[i].rows, s->segment[i].room * sizeof(struct msp_row));
		close(s->segment[i].fd);
	}
	if (s->mappings && s->mappings != MAP_FAILED)
		munmap(s->mappings, s->mapping_room * sizeof(*s->mappings));
	if (s->rules && s->rules != MAP_FAILED)
		munmap(s->rules, s->rule_room * sizeof(*s->rules));
	free(s->rule_hash);
	free(s->extents);
}

/* A segment with room for count rows; -1: none could be made. */
static int segment_with_room(struct msp_sampler *s, uint32_t count)
{
	for (uint32_t i = 0; i < s->segment_count; i++)
		if (s->segment[i].room - s->segment[i].used >= count)
			return i;
	return sampler_add_segment(s, count) ? -1 : (int)s->segment_count - 1;
}

/* ---- Rules: images have the same few; each is kept once ---- */

static uint32_t rule_hash(const struct msp_rule *rule)
{
	uint64_t word[4], hash = 0;

	_Static_assert(sizeof(word) == sizeof(*rule), "rule size");
	memcpy(word, rule, sizeof(word));
	for (int i = 0; i < 4; i++)
		hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 32;
	return hash;
}

/* Index of an equal rule in the store; 0 (none) for MSP_CFA_NONE; -1: full. */
static int64_t intern_rule(struct msp_sampler *s, const struct msp_rule *rule)
{
	uint32_t places = 2 * s->rule_room, at = rule_hash(rule) % places;

	if (rule->cfa_kind == MSP_CFA_NONE)
		return 0;
	for (; s->rule_hash[at]; at = (at + 1) % places)
		if (!memcmp(&s->rules[s->rule_hash[at]], rule, sizeof(*rule)))
			return s->rule_hash[at];
	if (s->rule_count == s->rule_room)
		return -1;
	s->rules[s->rule_count] = *rule;
	s->rule_hash[at] = s->rule_count;
	return s->rule_count++;
}

/* The image's rule numbers in the store; malloc'ed. */
static uint32_t *intern_rules(struct msp_sampler *s, const struct msp_unwind_table *table)
{
	uint32_t *number = calloc(table->rule_count + 1, sizeof(*number));
	int64_t got;

	if (!s->rule_hash)
		s->rule_hash = calloc(2 * s->rule_room, sizeof(*s->rule_hash));
	if (!number || !s->rule_hash) {
		free(number);
		return NULL;
	}
	for (uint32_t i = 0; i < table->rule_count; i++) {
		got = intern_rule(s, &table->rules[i]);
		if (got < 0) { /* full: those rows count as having no rule */
			got = 0;
		}
		number[i] = got;
	}
	return number;
}

/* Buckets of 256 bytes, or so that there are no more of them than rows. */
static void plan_buckets(const struct msp_unwind_table *table, struct msp_bpf_image *image)
{
	uint32_t last = table->rows[table->row_count - 1].addr;

	image->bucket_shift = 8;
	while (image->bucket_shift < 31 && (last >> image->bucket_shift) + 1 > table->row_count)
		image->bucket_shift++;
	image->bucket_count = (last >> image->bucket_shift) + 1;
}

static void fill_buckets(const struct msp_unwind_table *table, const struct msp_bpf_image *image,
			 struct msp_row *bucket)
{
	uint32_t row = 0; /* last one at or before the bucket's start */
	uint64_t end;

	for (uint32_t b = 0; b < image->bucket_count; b++) {
		bucket[b].addr = row;
		end = (uint64_t)(b + 1) << image->bucket_shift;
		while (row + 1 < table->row_count && table->rows[row + 1].addr < end)
			row++;
		bucket[b].rule = row;
	}
}

static void fill_rows(const struct msp_unwind_table *table, const uint32_t *number,
		      struct msp_row *row)
{
	for (uint32_t i = 0; i < table->row_count; i++) {
		row[i].addr = table->rows[i].addr;
		row[i].rule =
			table->rows[i].rule < table->rule_count ? number[table->rows[i].rule] : 0;
	}
}

static int add_rows(struct msp_sampler *s, const struct msp_unwind_table *table,
		    struct msp_bpf_image *image)
{
	uint32_t *number = intern_rules(s, table);
	struct msp_segment *segment;
	int at;

	plan_buckets(table, image);
	at = segment_with_room(s, table->row_count + image->bucket_count);
	if (at < 0 || !number) {
		free(number);
		return MSP_E_NOMEM;
	}
	segment = &s->segment[at];
	image->segment = at;
	image->first_row = segment->used;
	image->row_count = table->row_count;
	image->first_bucket = image->first_row + image->row_count;
	fill_rows(table, number, segment->rows + image->first_row);
	fill_buckets(table, image, segment->rows + image->first_bucket);
	segment->used += image->row_count + image->bucket_count;
	free(number);
	return 0;
}

int msp_sampler_add_image(struct msp_sampler *s, uint32_t index,
			  const struct msp_unwind_table *table, uint32_t layout)
{
	struct msp_bpf_image image = {.layout = layout};
	int err = 0;

	if (index >= MSP_MAX_IMAGES)
		return MSP_E_LIMIT;
	if (table && table->row_count)
		err = add_rows(s, table, &image);
	if (err)
		return err;
	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.images), &index, &image, BPF_ANY)
		       ? MSP_E_IO
		       : 0;
}

int msp_sampler_set_layout(struct msp_sampler *s, uint32_t index,
			   const struct msp_lj_layout *layout)
{
	if (index >= MSP_MAX_LAYOUTS)
		return MSP_E_LIMIT;
	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.layouts), &index, layout, BPF_ANY)
		       ? MSP_E_IO
		       : 0;
}

/* ---- Mappings: a range of the store for each process ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int insert_extent(struct msp_sampler *s, uint32_t at, struct msp_extent extent)
{
	struct msp_extent *bigger;

	if (s->extent_count == s->extent_room) {
		s->extent_room = s->extent_room ? 2 * s->extent_room : 64;
		bigger = realloc(s->extents, s->extent_room * sizeof(*bigger));
		if (!bigger)
			return MSP_E_NOMEM;
		s->extents = bigger;
	}
	memmove(s->extents + at + 1, s->extents + at, (s->extent_count - at) * sizeof(*s->extents));
	s->extents[at] = extent;
	s->extent_count++;
	return 0;
}

/* Joins neighbours that are free for long enough to be written again. */
static void join_free(struct msp_sampler *s, uint64_t now)
{
	uint32_t to = 0;
	struct msp_extent *e = s->extents;

	for (uint32_t i = 1; i < s->extent_count; i++) {
		if (!e[to].pid && !e[i].pid && now - e[to].freed_ns > MSP_REUSE_NS &&
		    now - e[i].freed_ns > MSP_REUSE_NS)
			e[to].count += e[i].count;
		else
			e[++to] = e[i];
	}
	if (s->extent_count)
		s->extent_count = to + 1;
}

/* A range of count mappings for pid: its index in extents; -1: the store is full. */
static int take_extent(struct msp_sampler *s, pid_t pid, uint32_t count)
{
	uint64_t now = now_ns();
	struct msp_extent rest;

	if (!s->extents && insert_extent(s, 0, (struct msp_extent){0, s->mapping_room, 0, 0}))
		return -1;
	join_free(s, now);
	for (uint32_t i = 0; i < s->extent_count; i++) {
		struct msp_extent *e = &s->extents[i];

		if (e->pid || e->count < count ||
		    (e->freed_ns && now - e->freed_ns <= MSP_REUSE_NS))
			continue;
		rest = (struct msp_extent){e->first + count, e->count - count, 0, e->freed_ns};
		if (rest.count && insert_extent(s, i + 1, rest))
			return -1;
		s->extents[i].count = count;
		s->extents[i].pid = pid;
		return i;
	}
	return -1;
}

/* Gives back all ranges of a process but one. */
static void release_extents(struct msp_sampler *s, pid_t pid, uint32_t keep_first)
{
	for (uint32_t i = 0; i < s->extent_count; i++) {
		if (s->extents[i].pid != pid || s->extents[i].first == keep_first)
			continue;
		s->extents[i].pid = 0;
		s->extents[i].freed_ns = now_ns();
	}
}

int msp_sampler_set_process(struct msp_sampler *s, pid_t pid, const struct msp_mapping *mappings,
			    uint32_t count, const struct msp_bpf_process *builds)
{
	struct msp_bpf_process process = *builds;
	uint32_t key = pid, first = UINT32_MAX;
	int at;

	process.pending = 0;
	process.first_mapping = process.mapping_count = 0;
	if (count) {
		at = take_extent(s, pid, count);
		if (at < 0)
			return MSP_E_LIMIT;
		first = s->extents[at].first;
		memcpy(s->mappings + first, mappings, count * sizeof(*mappings));
		process.first_mapping = first;
		process.mapping_count = count;
	}
	if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.processes), &key, &process, BPF_ANY))
		return MSP_E_LIMIT;
	release_extents(s, pid, first);
	return 0;
}

void msp_sampler_remove_process(struct msp_sampler *s, pid_t pid)
{
	uint32_t key = pid;

	bpf_map_delete_elem(bpf_map__fd(s->skel->maps.processes), &key);
	release_extents(s, pid, UINT32_MAX);
}

/* SPDX-License-Identifier: MIT */
/* Unwind rows, rules and layouts of images into the BPF maps, and out of them again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/tables.h"
#include "moonspy/moonspy.h"

#define NO_SEGMENT UINT32_MAX

/* ---- Rows, in segments that are never moved ---- */

static void close_segment(struct msp_segment *seg)
{
	if (seg->fd < 0)
		return;
	munmap(seg->rows, seg->room * sizeof(*seg->rows));
	close(seg->fd);
	free(seg->ranges.extent);
	seg->fd = -1;
	seg->room = 0;
}

int msp_tables_create_segments(struct msp_tables *t)
{
	LIBBPF_OPTS(bpf_map_create_opts, inner, .map_flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	LIBBPF_OPTS(bpf_map_create_opts, outer);
	int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "moonspy_rows", 4, sizeof(struct msp_row), 1,
				&inner);

	if (fd < 0)
		return fd;
	outer.inner_map_fd = (uint32_t)fd;
	t->fd.segments = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "segments", 4, 4,
					MSP_MAX_SEGMENTS, &outer);
	close(fd);
	return t->fd.segments < 0 ? t->fd.segments : 0;
}

/* Makes the segment number key, with room for so many rows. */
static int make_segment(struct msp_tables *t, uint32_t key, uint32_t room, uint32_t big)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	struct msp_segment seg = {.room = room, .big = big};
	int err;

	seg.fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "moonspy_rows", 4, sizeof(struct msp_row), room,
				&opts);
	if (seg.fd < 0)
		return seg.fd;
	seg.rows =
		mmap(NULL, room * sizeof(*seg.rows), PROT_READ | PROT_WRITE, MAP_SHARED, seg.fd, 0);
	if (seg.rows == MAP_FAILED) {
		err = -errno;
		close(seg.fd);
		return err;
	}
	err = ranges_init(&seg.ranges, room) ? 0 : -ENOMEM;
	if (!err)
		err = bpf_map_update_elem(t->fd.segments, &key, &seg.fd, BPF_ANY);
	if (err) {
		close_segment(&seg);
		return err;
	}
	if (key < t->segment_count)
		close_segment(&t->segment[key]);
	else
		t->segment_count = key + 1;
	t->segment[key] = seg;
	return 0;
}

/* Room in a segment of many images. */
static int64_t take_rows(struct msp_tables *t, uint32_t owner, uint32_t count, uint32_t *segment)
{
	int64_t first;

	for (uint32_t i = 0; i < t->segment_count; i++) {
		first = t->segment[i].big ? -1
					  : ranges_take(&t->segment[i].ranges, owner, count, 0);
		if (first >= 0) {
			*segment = i;
			return first;
		}
	}
	if (t->segment_count == MSP_MAX_SEGMENTS ||
	    make_segment(t, t->segment_count, MSP_SEGMENT_ROWS, 0))
		return -1;
	*segment = t->segment_count - 1;
	return ranges_take(&t->segment[*segment].ranges, owner, count, 0);
}

/* A segment of its own: one that is free and fits, else one that is free is made anew. */
static int64_t take_segment(struct msp_tables *t, uint32_t owner, uint32_t count, uint32_t *segment)
{
	uint32_t fits = NO_SEGMENT, other = t->segment_count;

	for (uint32_t i = 0; i < t->segment_count; i++) {
		if (t->segment[i].big != MSP_SEGMENT_FREE)
			continue;
		if (t->segment[i].room < count)
			other = i;
		else if (fits == NO_SEGMENT || t->segment[i].room < t->segment[fits].room)
			fits = i;
	}
	if (fits == NO_SEGMENT) {
		fits = other;
		if (fits == MSP_MAX_SEGMENTS || make_segment(t, fits, count, owner))
			return -1;
	}
	t->segment[fits].big = owner;
	*segment = fits;
	return 0;
}

static void release_rows(struct msp_tables *t, uint32_t owner, uint32_t segment)
{
	struct msp_segment *seg = &t->segment[segment];

	if (seg->big)
		seg->big = MSP_SEGMENT_FREE;
	else
		ranges_release(&seg->ranges, owner, NO_SEGMENT, 0);
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

static uint32_t rule_place(const struct msp_tables *t, const struct msp_rule *rule)
{
	uint32_t places = 2 * t->rule_room, at = rule_hash(rule) % places;

	while (t->rule_hash[at] && memcmp(&t->rules[t->rule_hash[at]], rule, sizeof(*rule)))
		at = (at + 1) % places;
	return at;
}

/* Number of an equal rule in the store; 0 (none) for MSP_CFA_NONE, and if the store is full. */
static uint32_t take_rule(struct msp_tables *t, const struct msp_rule *rule)
{
	uint32_t at, number;

	if (rule->cfa_kind == MSP_CFA_NONE)
		return 0;
	at = rule_place(t, rule);
	number = t->rule_hash[at];
	if (!number) {
		if (t->rule_free_count)
			number = t->rule_free[--t->rule_free_count];
		else if (t->rule_count < t->rule_room)
			number = t->rule_count++;
		else
			return 0;
		t->rules[number] = *rule;
		t->rule_hash[at] = number;
	}
	t->rule_users[number]++;
	return number;
}

/* Takes the place's rule out of the hash, and moves up those that were put behind it. */
static void clear_place(struct msp_tables *t, uint32_t hole)
{
	uint32_t places = 2 * t->rule_room, at = hole, home;

	t->rule_hash[hole] = 0;
	for (;;) {
		at = (at + 1) % places;
		if (!t->rule_hash[at])
			return;
		home = rule_hash(&t->rules[t->rule_hash[at]]) % places;
		if ((at + places - home) % places < (at + places - hole) % places)
			continue; /* its home is behind the hole */
		t->rule_hash[hole] = t->rule_hash[at];
		t->rule_hash[at] = 0;
		hole = at;
	}
}

static void release_rule(struct msp_tables *t, uint32_t number)
{
	if (!number || --t->rule_users[number])
		return;
	clear_place(t, rule_place(t, &t->rules[number]));
	t->rule_free[t->rule_free_count++] = number;
}

/* The image's rule numbers in the store; one that does not fit there counts as having no rule. */
static bool take_rules(struct msp_tables *t, struct msp_sent_image *sent,
		       const struct msp_unwind_table *table)
{
	sent->rule = calloc(table->rule_count + 1, sizeof(*sent->rule));
	if (!sent->rule)
		return false;
	sent->rule_count = table->rule_count;
	for (uint32_t i = 0; i < table->rule_count; i++)
		sent->rule[i] = take_rule(t, &table->rules[i]);
	return true;
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

/* ---- Images ---- */

bool msp_tables_has_image(const struct msp_tables *t, uint32_t index)
{
	return index < MSP_IMAGE_SLOTS && t->image[index].sent;
}

static void release_image(struct msp_tables *t, uint32_t index)
{
	struct msp_sent_image *sent = &t->image[index];

	if (sent->segment != NO_SEGMENT)
		release_rows(t, index, sent->segment);
	for (uint32_t i = 0; i < sent->rule_count; i++)
		release_rule(t, sent->rule[i]);
	free(sent->rule);
	*sent = (struct msp_sent_image){.segment = NO_SEGMENT};
}

static int add_rows(struct msp_tables *t, uint32_t index, const struct msp_unwind_table *table,
		    struct msp_bpf_image *image)
{
	struct msp_sent_image *sent = &t->image[index];
	uint32_t count;
	int64_t first;
	struct msp_row *rows;

	plan_buckets(table, image);
	count = table->row_count + image->bucket_count;
	first = count > MSP_SEGMENT_ROWS ? take_segment(t, index, count, &sent->segment)
					 : take_rows(t, index, count, &sent->segment);
	if (first < 0)
		return MSP_E_LIMIT;
	if (!take_rules(t, sent, table))
		return MSP_E_NOMEM;
	image->segment = sent->segment;
	image->first_row = first;
	image->row_count = table->row_count;
	image->first_bucket = image->first_row + image->row_count;
	rows = t->segment[sent->segment].rows;
	fill_rows(table, sent->rule, rows + image->first_row);
	fill_buckets(table, image, rows + image->first_bucket);
	return 0;
}

int msp_tables_add_image(struct msp_tables *t, uint32_t index, const struct msp_unwind_table *table,
			 uint32_t layout)
{
	struct msp_bpf_image image = {.layout = layout};
	int err = 0;

	if (index >= MSP_IMAGE_SLOTS)
		return MSP_E_LIMIT;
	t->image[index].segment = NO_SEGMENT;
	if (table && table->row_count)
		err = add_rows(t, index, table, &image);
	if (!err && bpf_map_update_elem(t->fd.images, &index, &image, BPF_ANY))
		err = MSP_E_IO;
	if (err)
		release_image(t, index);
	else
		t->image[index].sent = true;
	return err;
}

void msp_tables_remove_image(struct msp_tables *t, uint32_t index)
{
	const struct msp_bpf_image none = {0};

	if (!msp_tables_has_image(t, index))
		return;
	bpf_map_update_elem(t->fd.images, &index, &none, BPF_ANY);
	release_image(t, index);
}

int msp_tables_set_layout(struct msp_tables *t, uint32_t index, const struct msp_lj_layout *layout)
{
	if (index >= MSP_LAYOUT_SLOTS)
		return MSP_E_LIMIT;
	return bpf_map_update_elem(t->fd.layouts, &index, layout, BPF_ANY) ? MSP_E_IO : 0;
}

/* ---- All of it ---- */

int msp_tables_first_segment(struct msp_tables *t, uint32_t rows)
{
	return make_segment(t, 0, rows > MSP_SEGMENT_ROWS ? rows : MSP_SEGMENT_ROWS, 0);
}

int tables_init_rows(struct msp_tables *t)
{
	t->rule_count = 1; /* rule 0: none */
	t->rule_hash = calloc(2 * t->rule_room, sizeof(*t->rule_hash));
	t->rule_users = calloc(t->rule_room, sizeof(*t->rule_users));
	t->rule_free = calloc(t->rule_room, sizeof(*t->rule_free));
	t->image = calloc(MSP_IMAGE_SLOTS, sizeof(*t->image));
	if (!t->rule_hash || !t->rule_users || !t->rule_free || !t->image)
		return -ENOMEM;
	return 0;
}

void tables_free_rows(struct msp_tables *t)
{
	for (uint32_t i = 0; i < t->segment_count; i++)
		close_segment(&t->segment[i]);
	if (t->fd.segments >= 0)
		close(t->fd.segments);
	for (uint32_t i = 0; t->image && i < MSP_IMAGE_SLOTS; i++)
		free(t->image[i].rule);
	free(t->image);
	free(t->rule_hash);
	free(t->rule_users);
	free(t->rule_free);
}

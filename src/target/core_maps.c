/* SPDX-License-Identifier: MIT */
/* The mappings of a core file: its segments, with the names that NT_FILE has for them. */
#include "target/core_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "moonspy/moonspy.h"

#define KERNEL_HALF (1ull << 63)

/* Files have no inodes here: their numbers tell them apart as well. */
static void set_file(const struct msp_core *core, const struct core_line *line, struct msp_map *map)
{
	const struct core_file *file = &core->file[line->file];

	map->inode = line->file + 1ull;
	map->offset = line->offset + (map->start - line->start);
	map->name = file->name;
	map->deleted = file->deleted;
}

static void add_segment(struct msp_core *core, const struct core_segment *segment,
			struct msp_maps *maps)
{
	struct msp_map *map = &maps->map[maps->count++];
	const struct core_line *line = core_line_at(core, segment->start);

	*map = (struct msp_map){
		.start = segment->start, .end = segment->end, .prot = segment->prot, .name = ""};
	if (line)
		set_file(core, line, map);
	else if (segment->start >= KERNEL_HALF)
		map->name = "[vsyscall]";
	else if (core->vdso && segment->start == core->vdso)
		map->name = "[vdso]";
	else if (core->stack >= segment->start && core->stack < segment->end)
		map->name = "[stack]";
}

/* gcore leaves out what a file has unchanged, the program text above all. */
static void add_line(struct msp_core *core, const struct core_line *line, struct msp_maps *maps)
{
	struct msp_map *map = &maps->map[maps->count++];

	*map = (struct msp_map){.start = line->start, .end = line->end, .prot = PROT_READ};
	set_file(core, line, map);
	if (core_file_executable(&core->file[line->file], line->offset, line->end - line->start))
		map->prot |= PROT_EXEC;
}

static int by_start(const void *a, const void *b)
{
	const struct msp_map *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* No two may overlap, whatever the core says. */
static void drop_overlaps(struct msp_maps *maps)
{
	size_t kept = 0;

	for (size_t i = 0; i < maps->count; i++)
		if (!kept || maps->map[i].start >= maps->map[kept - 1].end)
			maps->map[kept++] = maps->map[i];
	maps->count = kept;
}

int core_maps(void *ctx, struct msp_maps *out)
{
	struct msp_core *core = ctx;

	memset(out, 0, sizeof(*out));
	out->map = calloc(core->segments + core->lines + 1, sizeof(*out->map));
	if (!out->map)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < core->segments; i++)
		add_segment(core, &core->segment[i], out);
	for (size_t i = 0; i < core->lines; i++)
		if (!core_segment_at(core, core->line[i].start))
			add_line(core, &core->line[i], out);
	if (out->count)
		qsort(out->map, out->count, sizeof(*out->map), by_start);
	drop_overlaps(out);
	return 0;
}

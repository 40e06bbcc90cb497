/* SPDX-License-Identifier: MIT */
#include "cli/finder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "elf/elf.h"
#include "luajit/luajit.h"
#include "moonspy/moonspy.h"

static void look_into(struct cli_file *file, int fd)
{
	struct msp_image_options options = {.name = file->name};
	struct msp_lj_build *build = NULL;
	struct msp_image *image;
	int error;

	if (fd < 0 || msp_image_open_fd(fd, &options, &image))
		return;
	error = msp_lj_build_find(image, &build);
	if (build && (!error || error == MSP_E_NOT_PROVED)) {
		const char *version = msp_lj_build_version(build);

		file->luajit = true;
		file->complete = !error;
		file->gc64 = !error && msp_lj_build_layout(build)->gc64;
		snprintf(file->version, sizeof(file->version), "%s",
			 version && *version ? version : "LuaJIT");
	}
	msp_lj_build_free(build);
	msp_image_close(image);
}

/* The entry of a mapping's file, made at the first sight of it. NULL: out of memory. */
static const struct cli_file *file_of(struct cli_finder *finder, struct msp_process *process,
				      const struct msp_map *map)
{
	const char *slash = strrchr(map->name, '/');
	struct cli_file *file, *grown;

	for (size_t i = 0; i < finder->count; i++) {
		file = &finder->files[i];
		if (file->inode == map->inode && file->dev_major == map->dev_major &&
		    file->dev_minor == map->dev_minor)
			return file;
	}
	grown = reallocarray(finder->files, finder->count + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	finder->files = grown;
	file = &grown[finder->count++];
	*file = (struct cli_file){
		.dev_major = map->dev_major, .dev_minor = map->dev_minor, .inode = map->inode};
	snprintf(file->name, sizeof(file->name), "%s", slash ? slash + 1 : map->name);
	look_into(file, msp_process_open_map(process, map));
	return file;
}

const struct cli_file *cli_finder_look(struct cli_finder *finder, struct msp_process *process)
{
	const struct cli_file *found = NULL;
	struct msp_maps maps;

	if (msp_process_maps(process, &maps))
		return NULL;
	for (size_t i = 0; i < maps.count && !found; i++) {
		const struct msp_map *map = &maps.map[i];

		if (!(map->prot & PROT_EXEC) || !map->inode)
			continue;
		found = file_of(finder, process, map);
		if (found && !found->luajit)
			found = NULL;
	}
	msp_maps_free(&maps);
	return found;
}

void cli_finder_free(struct cli_finder *finder)
{
	free(finder->files);
	finder->files = NULL;
	finder->count = 0;
}

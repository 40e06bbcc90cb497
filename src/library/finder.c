/* SPDX-License-Identifier: MIT */
/* Is there a LuaJIT in a process? Looks into files only, stops nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "elf/elf.h"
#include "luajit/luajit.h"
#include "moonspy/moonspy.h"
#include "target/target.h"

/* A file that was looked into; most processes share most of theirs. */
struct finder_file {
	uint32_t dev_major, dev_minor;
	uint64_t inode;
	bool luajit;
	bool complete; /* all of its layout was found */
	bool gc64;     /* known if complete */
	char version[64], name[64];
};

struct msp_finder {
	struct finder_file *files;
	size_t count;
	struct msp_process *process; /* the last one */
	struct msp_found found;
};

static void look_into(struct finder_file *file, int fd)
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
static const struct finder_file *file_of(struct msp_finder *finder, struct msp_process *process,
					 const struct msp_map *map)
{
	const char *slash = strrchr(map->name, '/');
	struct finder_file *file, *grown;

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
	*file = (struct finder_file){
		.dev_major = map->dev_major, .dev_minor = map->dev_minor, .inode = map->inode};
	snprintf(file->name, sizeof(file->name), "%s", slash ? slash + 1 : map->name);
	look_into(file, msp_process_open_map(process, map));
	return file;
}

/* The first file of the process that has a LuaJIT in it; NULL if none. */
static const struct finder_file *look(struct msp_finder *finder, struct msp_process *process)
{
	const struct finder_file *found = NULL;
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

int msp_finder_new(struct msp_finder **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : MSP_E_NOMEM;
}

void msp_finder_free(struct msp_finder *finder)
{
	if (!finder)
		return;
	msp_process_close(finder->process);
	free(finder->files);
	free(finder);
}

int msp_finder_look(struct msp_finder *finder, pid_t pid, const struct msp_found **out)
{
	const struct finder_file *file;
	struct stat st;
	int err;

	*out = NULL;
	msp_process_close(finder->process);
	finder->process = NULL;
	err = msp_process_open(pid, &finder->process);
	if (err < 0)
		return err;
	file = look(finder, finder->process);
	if (!file)
		return 0;
	if (fstat(msp_process_dir(finder->process), &st) < 0)
		return MSP_E_GONE;
	finder->found = (struct msp_found){.pid = msp_process_pid(finder->process),
					   .uid = st.st_uid,
					   .name = msp_process_comm(finder->process),
					   .command = msp_process_cmdline(finder->process),
					   .version = file->version,
					   .object = file->name,
					   .complete = file->complete,
					   .gc64 = file->gc64};
	*out = &finder->found;
	return 1;
}

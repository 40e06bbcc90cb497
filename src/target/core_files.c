/* SPDX-License-Identifier: MIT */
/*
 * The files that a core names. A file of that path is taken only if it is the one that
 * was mapped: its build id, else its first page, must be what the core has of it.
 */
#include "target/core_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

#define HEAD_MAX (64 << 10) /* of a file's beginning so much is looked at */
#define HEAD_SAME 4096	    /* and this much compared where there is no build id */
#define HEADS_MAX 8192
#define BUILD_ID_MIN 16 /* hexadecimal digits; fewer tell nothing apart */
#define DELETED " (deleted)"

const char *core_build_id(const struct core_file *file)
{
	const char *id = file->head ? msp_image_build_id(file->head) : "";

	return strlen(id) >= BUILD_ID_MIN ? id : "";
}

bool core_file_executable(const struct core_file *file, uint64_t offset, uint64_t size)
{
	return file->head && msp_image_offset_executable(file->head, offset, size);
}

/* The line that the file begins in; NULL: it was not mapped. */
static const struct core_line *head_line(const struct msp_core *core, uint32_t file)
{
	for (size_t i = 0; i < core->lines; i++)
		if (core->line[i].file == file && core->line[i].offset == 0)
			return &core->line[i];
	return NULL;
}

/* As much of the beginning of a file as the core has in one piece, into bytes. */
static size_t read_head(struct msp_core *core, const struct core_line *line,
			uint8_t bytes[HEAD_MAX])
{
	const struct core_segment *segment = core_segment_at(core, line->start);
	uint64_t size;

	if (!segment || segment->filled <= line->start)
		return 0;
	size = segment->filled - line->start;
	if (size > line->end - line->start)
		size = line->end - line->start;
	if (size > HEAD_MAX)
		size = HEAD_MAX;
	return core_read(core, line->start, bytes, size) ? 0 : size;
}

static void strip_deleted(struct core_file *file)
{
	size_t length = strlen(file->name), tail = strlen(DELETED);

	if (length <= tail || strcmp(file->name + length - tail, DELETED) != 0)
		return;
	((char *)file->name)[length - tail] = 0; /* in the note, which is ours */
	file->deleted = true;
}

int core_describe_files(struct msp_core *core)
{
	uint8_t *bytes = malloc(HEAD_MAX);
	size_t heads = 0;

	if (!bytes)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < core->files; i++)
		strip_deleted(&core->file[i]);
	for (size_t i = 0; i < core->lines; i++) {
		const struct core_line *line = &core->line[i];
		struct core_file *file = &core->file[line->file];
		size_t size;

		file->exe |= core->entry >= line->start && core->entry < line->end;
		if (line->offset || file->head || heads == HEADS_MAX)
			continue;
		size = read_head(core, line, bytes);
		if (size && msp_image_open_memory(bytes, size, NULL, &file->head) == 0)
			heads++;
		else
			file->head = NULL;
	}
	free(bytes);
	return 0;
}

void core_free_files(struct msp_core *core)
{
	for (size_t i = 0; i < core->files; i++) {
		msp_image_close(core->file[i].head);
		if (core->file[i].fd >= 0)
			close(core->file[i].fd);
	}
	free(core->file);
	free(core->line);
	free(core->file_note);
}

/* ---- Which file on this machine is it? ---- */

/* Does the file begin as the core's copy of its first page does? 1, 0; -1: the core has none. */
static int same_head(struct msp_core *core, uint32_t index, int fd)
{
	const struct core_line *line = head_line(core, index);
	uint8_t mine[HEAD_SAME], *bytes;
	size_t size;
	int same;

	if (!line || !(bytes = malloc(HEAD_MAX)))
		return -1;
	size = read_head(core, line, bytes);
	if (size > HEAD_SAME)
		size = HEAD_SAME;
	same = !size ? -1 : !core_pread(fd, 0, mine, size) && !memcmp(mine, bytes, size);
	free(bytes);
	return same;
}

/* Is fd the file that was mapped? It is closed if not, and file->why says what is wrong. */
static bool accept(struct msp_core *core, uint32_t index, int fd, const char *path)
{
	struct core_file *file = &core->file[index];
	const char *id = core_build_id(file);
	struct msp_image_key key = {""};
	int same = 1;

	if (fd < 0) {
		if (!file->why[0])
			snprintf(file->why, sizeof(file->why), "%s", strerror(errno));
		return false;
	}
	if (msp_image_key_fd(fd, &key) < 0)
		same = 0;
	else if (*id)
		same = !strncmp(key.text, "b-", 2) && !strncmp(key.text + 2, id, strlen(id)) &&
		       strlen(key.text) - 2 <= strlen(id);
	else
		same = same_head(core, index, fd);
	if (same) {
		file->fd = fd;
		file->unchecked = same < 0;
		return true;
	}
	snprintf(file->why, sizeof(file->why), "%.120s is another file%s%.40s", path,
		 key.text[0] == 'b' ? ", of build id " : "",
		 key.text[0] == 'b' ? key.text + 2 : "");
	close(fd);
	return false;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool look_in(struct msp_core *core, uint32_t index, const char *root)
{
	struct core_file *file = &core->file[index];
	const char *id = core_build_id(file);
	char path[160];

	if (accept(core, index, msp_open_in_root(root, file->name), file->name))
		return true;
	if (!*id)
		return false;
	snprintf(path, sizeof(path), "/usr/lib/debug/.build-id/%.2s/%.100s", id, id + 2);
	return accept(core, index, msp_open_in_root(root, path), path);
}

/* The file's path below the sysroot, its name there, and for a build id that is known the path here. */
static bool look(struct msp_core *core, uint32_t index)
{
	struct core_file *file = &core->file[index];

	if (file->exe && core->exe)
		return accept(core, index,
			      open(core->exe, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY),
			      core->exe);
	if (file->name[0] != '/') {
		snprintf(file->why, sizeof(file->why), "it has no path");
		return false;
	}
	if (!core->sysroot)
		return look_in(core, index, "/");
	if (look_in(core, index, core->sysroot))
		return true;
	if (accept(core, index, msp_open_in_root(core->sysroot, base_name(file->name)),
		   base_name(file->name)))
		return true;
	return file->head && look_in(core, index, "/");
}

int core_open_map(void *ctx, const struct msp_map *map, bool *partial)
{
	struct msp_core *core = ctx;
	uint32_t index = (uint32_t)(map->inode - 1);
	struct core_file *file;
	int fd;

	*partial = false;
	if (!map->inode || index >= core->files)
		return MSP_E_NOT_FOUND;
	file = &core->file[index];
	if (!file->looked)
		look(core, index);
	file->looked = true;
	if (file->fd < 0) {
		*partial = true;
		return core_partial_file(core, index);
	}
	fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? MSP_E_LIMIT : fd;
}

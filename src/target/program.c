/* SPDX-License-Identifier: MIT */
/*
 * Loads ahead what a command will map when it is run, so that it is known by
 * then. A guess that can only cost time: what the process really maps is read
 * from the process.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "target/images.h"

#define FILES_MAX 256
#define SCRIPT_DEPTH 3 /* an interpreter may be a script itself */

/* The loader's own, without reading its cache. */
#define SYSTEM_FOLDERS \
	"/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib/aarch64-linux-gnu:" \
	"/usr/lib/aarch64-linux-gnu:/lib64:/usr/lib64:/usr/local/lib:/lib:/usr/lib"

struct program {
	char *file[FILES_MAX]; /* resolved paths, each once */
	size_t count;
};

static void add_path(struct program *program, const char *path)
{
	char *real = realpath(path, NULL);

	for (size_t i = 0; real && i < program->count; i++)
		if (!strcmp(program->file[i], real)) {
			free(real);
			return;
		}
	if (real && program->count < FILES_MAX)
		program->file[program->count++] = real;
	else
		free(real);
}

/* Copies one folder of a list, with $ORIGIN put in; *list moves on. False: the list has ended. */
static bool next_folder(const char **list, const char *origin, char out[PATH_MAX])
{
	const char *at = *list, *dollar;
	size_t n = strcspn(at, ":");
	int skip;

	if (!*at)
		return false;
	*list = at + n + (at[n] == ':');
	dollar = memchr(at, '$', n);
	skip = !dollar				  ? 0
	       : !strncmp(dollar, "$ORIGIN", 7)	  ? 7
	       : !strncmp(dollar, "${ORIGIN}", 9) ? 9
						  : 0;
	if (skip)
		snprintf(out, PATH_MAX, "%.*s%s%.*s", (int)(dollar - at), at, origin,
			 (int)(at + n - dollar - skip), dollar + skip);
	else
		snprintf(out, PATH_MAX, "%.*s", (int)n, at);
	return true;
}

/* False: in none of the folders. */
static bool find_in(const char *folders, const char *origin, const char *name, int mode,
		    char out[PATH_MAX])
{
	char folder[PATH_MAX];
	struct stat st;

	while (folders && next_folder(&folders, origin, folder)) {
		if ((size_t)snprintf(out, PATH_MAX, "%s/%s", folder[0] ? folder : ".", name) >=
		    PATH_MAX)
			continue;
		if (!access(out, mode) && !stat(out, &st) && S_ISREG(st.st_mode))
			return true;
	}
	return false;
}

/* What the loader would map for that file; the order is that of ld.so(8). */
static void add_needed(struct program *program, const struct msp_image *image, const char *path)
{
	struct msp_dynamic dynamic;
	char origin[PATH_MAX], found[PATH_MAX];
	char *slash;

	snprintf(origin, sizeof(origin), "%s", path);
	slash = strrchr(origin, '/');
	if (slash)
		*slash = 0;
	if (msp_image_dynamic(image, &dynamic) == 0 && dynamic.interpreter)
		add_path(program, dynamic.interpreter);
	for (size_t i = 0; i < dynamic.needed_count; i++) {
		if (strchr(dynamic.needed[i], '/'))
			add_path(program, dynamic.needed[i]);
		else if (find_in(getenv("LD_LIBRARY_PATH"), origin, dynamic.needed[i], R_OK,
				 found) ||
			 find_in(dynamic.search, origin, dynamic.needed[i], R_OK, found) ||
			 find_in(SYSTEM_FOLDERS, origin, dynamic.needed[i], R_OK, found))
			add_path(program, found);
	}
	msp_dynamic_free(&dynamic);
}

/* Where execvp() would find it. */
static bool find_command(const char *command, char out[PATH_MAX])
{
	const char *path = getenv("PATH");

	if (strchr(command, '/'))
		return (size_t)snprintf(out, PATH_MAX, "%s", command) < PATH_MAX;
	return find_in(path ? path : "/bin:/usr/bin", "", command, X_OK, out);
}

/* The first words of a "#!" line: out is the program that will really run. */
static bool find_interpreter(const char *path, char out[PATH_MAX])
{
	char line[PATH_MAX + 1], *word[3] = {NULL}, *save = NULL, *base;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd >= 0 ? read(fd, line, sizeof(line) - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (n < 3 || memcmp(line, "#!", 2))
		return false;
	line[n] = 0;
	line[strcspn(line, "\n")] = 0;
	word[0] = strtok_r(line + 2, " \t", &save);
	for (int i = 1; i < 3 && word[i - 1]; i++)
		word[i] = strtok_r(NULL, " \t", &save);
	if (!word[0])
		return false;
	base = strrchr(word[0], '/');
	if (base && !strcmp(base, "/env") && word[1])
		return find_command(!strcmp(word[1], "-S") && word[2] ? word[2] : word[1], out);
	return (size_t)snprintf(out, PATH_MAX, "%s", word[0]) < PATH_MAX;
}

/* Loads file[from..count) at once, then notes what those need. */
static int load_level(struct msp_images *images, struct program *program, size_t from,
		      msp_image_fn each, void *ctx)
{
	struct msp_image_request request[FILES_MAX];
	size_t count = program->count - from;
	int err;

	for (size_t i = 0; i < count; i++)
		request[i] = (struct msp_image_request){
			.fd = open(program->file[from + i], O_RDONLY | O_CLOEXEC | O_NONBLOCK),
			.name = program->file[from + i],
			.root = "/"};
	err = msp_images_load(images, request, count);
	for (size_t i = 0; !err && i < count; i++) {
		if (!request[i].entry)
			continue;
		add_needed(program, request[i].entry->image, program->file[from + i]);
		if (each)
			each(ctx, request[i].entry);
	}
	return err;
}

int msp_images_add_program(struct msp_images *images, const char *command, msp_image_fn each,
			   void *ctx)
{
	struct program program = {.count = 0};
	char path[PATH_MAX], script[PATH_MAX];
	size_t from = 0, end;
	int err = 0;

	if (!find_command(command, path))
		return MSP_E_NOT_FOUND;
	for (int i = 0; i < SCRIPT_DEPTH && find_interpreter(path, script); i++)
		memcpy(path, script, sizeof(path));
	add_path(&program, path);
	while (!err && from < program.count) {
		end = program.count;
		err = load_level(images, &program, from, each, ctx);
		from = end;
	}
	for (size_t i = 0; i < program.count; i++)
		free(program.file[i]);
	return err;
}

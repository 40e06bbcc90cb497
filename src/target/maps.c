/* SPDX-License-Identifier: MIT */
/* /proc/PID/maps, and the files behind its lines. */
#include "target/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

#define DELETED " (deleted)"
#define READ_TRIES 4

static bool parse_hex(const char **at, uint64_t *out)
{
	const char *p = *at;
	uint64_t value = 0;
	int digit;

	for (;; p++) {
		if (*p >= '0' && *p <= '9')
			digit = *p - '0';
		else if (*p >= 'a' && *p <= 'f')
			digit = *p - 'a' + 10;
		else
			break;
		if (value >> 60)
			return false;
		value = value << 4 | digit;
	}
	if (p == *at)
		return false;
	*at = p;
	*out = value;
	return true;
}

static bool parse_char(const char **at, char c)
{
	if (**at != c)
		return false;
	++*at;
	return true;
}

/* The kernel writes a newline in a name as \012, and nothing else is escaped. */
static void unescape_name(char *name)
{
	char *to = strstr(name, "\\012"), *from = to;

	if (!to)
		return;
	while (*from) {
		if (!strncmp(from, "\\012", 4)) {
			*to++ = '\n';
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = 0;
}

static void parse_name(char *name, struct msp_map *map)
{
	size_t len, tail = strlen(DELETED);

	name += strspn(name, " ");
	unescape_name(name);
	len = strlen(name);
	if (map->inode && len > tail && !strcmp(name + len - tail, DELETED)) {
		name[len - tail] = 0;
		map->deleted = true;
	}
	map->name = name;
}

/* "start-end perms offset major:minor inode   name"; line is NUL-terminated and is changed. */
static bool parse_line(char *line, struct msp_map *map)
{
	uint64_t major, minor;
	const char *p = line;
	char *end;

	memset(map, 0, sizeof(*map));
	if (!parse_hex(&p, &map->start) || !parse_char(&p, '-') || !parse_hex(&p, &map->end) ||
	    !parse_char(&p, ' ') || strnlen(p, 5) < 5)
		return false;
	map->prot = (p[0] == 'r' ? PROT_READ : 0) | (p[1] == 'w' ? PROT_WRITE : 0) |
		    (p[2] == 'x' ? PROT_EXEC : 0);
	map->shared = p[3] == 's';
	p += 4;
	if (!parse_char(&p, ' ') || !parse_hex(&p, &map->offset) || !parse_char(&p, ' ') ||
	    !parse_hex(&p, &major) || !parse_char(&p, ':') || !parse_hex(&p, &minor) ||
	    !parse_char(&p, ' '))
		return false;
	map->dev_major = major;
	map->dev_minor = minor;
	map->inode = strtoull(p, &end, 10);
	if (end == p || map->end <= map->start)
		return false;
	parse_name(end, map);
	return true;
}

int msp_maps_parse(char *text, size_t size, struct msp_maps *out)
{
	struct msp_maps maps = {.names = text};
	char *line, *next, *end = text + size;
	size_t room = 0;

	for (line = text; line < end; line++)
		room += *line == '\n';
	/* One more: a last line may lack its newline. */
	maps.map = calloc(room + 1, sizeof(*maps.map));
	if (!maps.map)
		return MSP_E_NOMEM;
	for (line = text; line < end; line = next + 1) {
		next = memchr(line, '\n', end - line);
		if (!next)
			next = end;
		*next = 0;
		if (!parse_line(line, &maps.map[maps.count])) {
			free(maps.map);
			return MSP_E_FORMAT;
		}
		maps.count++;
	}
	*out = maps;
	return 0;
}

static bool ascending(const struct msp_maps *maps)
{
	for (size_t i = 1; i < maps->count; i++)
		if (maps->map[i].start < maps->map[i - 1].end)
			return false;
	return true;
}

/* The text of maps; a dead leader's is empty while other threads live on. */
static int read_maps(struct msp_process *process, char **text, size_t *size)
{
	char path[48];
	pid_t tid;
	int r;

	r = msp_read_file(process->dir, "maps", text, size);
	if (r < 0 || *size || !msp_living_thread(process, &tid) || tid == process->pid)
		return r;
	free(*text);
	snprintf(path, sizeof(path), "task/%d/maps", (int)tid);
	return msp_read_file(process->dir, path, text, size);
}

/*
 * The kernel hands the list out page by page, and lets the process change it
 * in between: what does not fit together is read again.
 */
int msp_process_maps(struct msp_process *process, struct msp_maps *out)
{
	char *text;
	size_t size;
	int r = 0;

	for (int i = 0; i < READ_TRIES; i++) {
		r = read_maps(process, &text, &size);
		if (r < 0)
			return r;
		r = msp_maps_parse(text, size, out);
		if (r < 0) {
			free(text);
			return r;
		}
		if (ascending(out))
			break;
		msp_maps_free(out);
		r = MSP_E_BUSY;
	}
	if (r == 0 && !out->count && !msp_process_alive(process)) {
		msp_maps_free(out);
		return MSP_E_GONE;
	}
	return r;
}

void msp_maps_free(struct msp_maps *maps)
{
	free(maps->map);
	free(maps->names);
	memset(maps, 0, sizeof(*maps));
}

/* How sure we are that path_fd is the file of the map. */
enum match { MATCH_NO, MATCH_INODE, MATCH_ALL };

static enum match match_file(int path_fd, const struct msp_map *map)
{
	struct stat st;

	/* Never open a device: that alone may do something. */
	if (fstat(path_fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_ino != map->inode)
		return MATCH_NO;
	if (st.st_dev == makedev(map->dev_major, map->dev_minor))
		return MATCH_ALL;
	/* overlayfs and btrfs show other devices in maps than in stat: the size must do. */
	return (uint64_t)st.st_size > map->offset ? MATCH_INODE : MATCH_NO;
}

/* A readable fd for a file held by an O_PATH fd, which is closed. */
static int reopen_path(int path_fd)
{
	char path[32];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	err = errno;
	close(path_fd);
	return fd < 0 ? msp_error_of_errno(err) : fd;
}

static int open_checked(int path_fd, const struct msp_map *map)
{
	if (path_fd < 0)
		return msp_error_of_errno(errno);
	if (match_file(path_fd, map) != MATCH_NO)
		return reopen_path(path_fd);
	close(path_fd);
	return MSP_E_NOT_FOUND;
}

/* Does the link in map_files lead to the name that the map has? */
static bool has_name(struct msp_process *process, const char *path, const struct msp_map *map)
{
	char name[4096];
	size_t size = strlen(map->name);
	ssize_t n = readlinkat(process->dir, path, name, sizeof(name));

	return n >= 0 && (size_t)n >= size && !memcmp(name, map->name, size);
}

/*
 * The file itself, whatever became of its name. It needs a capability, and is sure, but for another
 * file that has come to the same place since the maps were read.
 */
static int open_map_files(struct msp_process *process, const struct msp_map *map)
{
	char path[64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "map_files/%llx-%llx", (unsigned long long)map->start,
		 (unsigned long long)map->end);
	fd = openat(process->dir, path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return msp_error_of_errno(errno);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    (st.st_ino != map->inode && !has_name(process, path, map))) {
		close(fd);
		return MSP_E_NOT_FOUND;
	}
	return reopen_path(fd);
}

/* A path as the target sees it: its links must not lead out into our own root. */
static int path_in_root(struct msp_process *process, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
	int root, fd, err;

	root = openat(process->dir, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -1;
	fd = syscall(SYS_openat2, root, path, &how, sizeof(how));
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(root, path + strspn(path, "/"), O_PATH | O_CLOEXEC);
	err = errno;
	close(root);
	errno = err;
	return fd;
}

int msp_process_open_map(struct msp_process *process, const struct msp_map *map)
{
	int fd, first;

	if (map->name[0] != '/')
		return MSP_E_NOT_FOUND;
	fd = first = open_map_files(process, map);
	if (fd >= 0)
		return fd;
	fd = open_checked(path_in_root(process, map->name), map);
	if (fd >= 0)
		return fd;
	fd = open_checked(openat(process->dir, "exe", O_PATH | O_CLOEXEC), map);
	if (fd >= 0)
		return fd;
	/* In a changed root the kernel shows us the path from our own. */
	fd = open_checked(open(map->name, O_PATH | O_CLOEXEC), map);
	if (fd >= 0)
		return fd;
	return first == MSP_E_PERMISSION && map->deleted ? MSP_E_PERMISSION : MSP_E_NOT_FOUND;
}

int msp_process_host_maps(void *ctx, struct msp_maps *out)
{
	return msp_process_maps(ctx, out);
}

int msp_process_host_open_map(void *ctx, const struct msp_map *map, bool *partial)
{
	*partial = false;
	return msp_process_open_map(ctx, map);
}

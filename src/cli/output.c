/* SPDX-License-Identifier: MIT */
#include "cli/output.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/messages.h"
#include "cli/options.h"
#include "cli/sudo.h"

/* Directory of path, in buf; false: too long. */
static bool directory_of(const char *path, char *buf, size_t size)
{
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) + 1 : 0;

	if (!slash)
		return snprintf(buf, size, ".") < (int)size;
	return snprintf(buf, size, "%.*s", (int)length, path) < (int)size;
}

static int failed(const char *path, int error)
{
	const char *todo = "check the path: the directory must exist and be yours to write in";

	if (error == ENOSPC || error == EDQUOT)
		todo = "write to another file system: -o FILE";
	cli_error(cli_fmt("cannot write %s", path), strerror(error), todo);
	return CLI_FAILED;
}

/* With /dev/stdout or /dev/fd/N: that descriptor; -1: path is nothing of the kind. */
static int descriptor_of(const char *path)
{
	uint64_t fd;

	if (!strcmp(path, "-") || !strcmp(path, "/dev/stdout"))
		return STDOUT_FILENO;
	if (!strncmp(path, "/dev/fd/", 8) && cli_parse_number(path + 8, 0, INT_MAX, &fd))
		return (int)fd;
	return -1;
}

/* Pipes and devices: there is nothing to lose in them, and no name to give. */
static int open_direct(struct cli_output *out, int fd)
{
	if (fd < 0)
		return failed(out->path, errno);
	out->file = fdopen(fd, "w");
	if (!out->file) {
		int error = errno;

		close(fd);
		return failed(out->path, error);
	}
	out->direct = true;
	return 0;
}

/*
 * A file without a name if the file system can do that: nothing is left over
 * even if moonspy is killed. Else one with a name of its own beside path.
 */
static int open_temporary(struct cli_output *out)
{
	char directory[PATH_MAX];
	int fd;

	if (!directory_of(out->path, directory, sizeof(directory))) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return fd;
	if (asprintf(&out->temporary, "%s.moonspy-XXXXXX", out->path) < 0) {
		out->temporary = NULL;
		errno = ENOMEM;
		return -1;
	}
	fd = mkostemp(out->temporary, O_CLOEXEC); /* O_EXCL: follows no link */
	if (fd < 0) {
		free(out->temporary);
		out->temporary = NULL;
	}
	return fd;
}

static int open_path(struct cli_output *out)
{
	const char *path = out->path;
	struct stat st;
	int fd;

	fd = descriptor_of(path);
	if (fd >= 0)
		return open_direct(out, fcntl(fd, F_DUPFD_CLOEXEC, 3));
	if (!lstat(path, &st)) {
		if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
			return open_direct(out, open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
		if (S_ISDIR(st.st_mode))
			return failed(path, EISDIR);
		if (!out->force) {
			cli_error(cli_fmt("%s exists already", path),
				  cli_fmt("it has %lld bytes", (long long)st.st_size),
				  "--force, or another name: -o FILE");
			return CLI_FAILED;
		}
	}
	fd = open_temporary(out);
	if (fd < 0)
		return failed(path, errno);
	out->file = fdopen(fd, "w");
	if (!out->file) {
		close(fd);
		return failed(path, ENOMEM);
	}
	return 0;
}

int cli_output_open(struct cli_output *out, const char *path, bool force)
{
	int rc;

	memset(out, 0, sizeof(*out));
	out->force = force;
	out->path = strdup(path);
	rc = out->path ? open_path(out) : failed(path, ENOMEM);
	if (rc)
		cli_output_abandon(out);
	return rc;
}

/* Gives an unnamed file a name of its own in path's directory. */
static int name_unnamed(struct cli_output *out)
{
	char from[32];

	snprintf(from, sizeof(from), "/proc/self/fd/%d", fileno(out->file));
	for (unsigned i = 0; i < 100; i++) {
		if (asprintf(&out->temporary, "%s.moonspy-%d-%u", out->path, getpid(), i) < 0) {
			out->temporary = NULL;
			errno = ENOMEM;
			return -1;
		}
		if (!linkat(AT_FDCWD, from, AT_FDCWD, out->temporary, AT_SYMLINK_FOLLOW))
			return 0;
		free(out->temporary);
		out->temporary = NULL;
		if (errno != EEXIST)
			break;
	}
	return -1;
}

/* The temporary name becomes the real one; without force only if that is free. */
static int move_into_place(struct cli_output *out)
{
	unsigned flags = out->force ? 0 : RENAME_NOREPLACE;

	if (!renameat2(AT_FDCWD, out->temporary, AT_FDCWD, out->path, flags))
		return 0;
	if (out->force || errno != EINVAL)
		return -1;
	/* A file system without RENAME_NOREPLACE: link() does not replace either. */
	if (link(out->temporary, out->path))
		return -1;
	return unlink(out->temporary);
}

/* Whose file it is, and that others may read it as far as umask says. */
static int set_owner(int fd)
{
	struct cli_caller caller;
	mode_t mask = umask(0);

	umask(mask);
	if (fchmod(fd, 0666 & ~mask))
		return -1;
	return cli_sudo_caller(&caller) ? fchown(fd, caller.uid, caller.gid) : 0;
}

int cli_output_finish(struct cli_output *out)
{
	int rc;

	if (fflush(out->file) || ferror(out->file))
		return -1;
	if (!out->direct) {
		if (set_owner(fileno(out->file)))
			return -1;
		if (!out->temporary && name_unnamed(out))
			return -1;
		if (move_into_place(out))
			return -1;
		free(out->temporary);
		out->temporary = NULL;
	}
	rc = fclose(out->file);
	out->file = NULL;
	return rc;
}

void cli_output_abandon(struct cli_output *out)
{
	if (out->file)
		fclose(out->file);
	if (out->temporary)
		unlink(out->temporary);
	free(out->temporary);
	free(out->path);
	memset(out, 0, sizeof(*out));
}

const char *cli_output_name(char *buf, size_t size, const char *name, pid_t pid, const char *ending)
{
	char stamp[32], safe[64], number[16] = "";
	time_t now = time(NULL);
	struct tm tm;
	size_t n = 0;

	localtime_r(&now, &tm);
	strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &tm);
	for (; *name && n < sizeof(safe) - 1; name++)
		safe[n++] = isalnum((unsigned char)*name) || strchr("._+", *name) ? *name : '-';
	safe[n] = '\0';
	if (safe[0] == '.' || safe[0] == '-') /* neither hidden nor taken for an option */
		safe[0] = '_';
	if (pid)
		snprintf(number, sizeof(number), "-%d", pid);
	snprintf(buf, size, "%s%s-%s%s", n ? safe : "profile", number, stamp, ending);
	return buf;
}

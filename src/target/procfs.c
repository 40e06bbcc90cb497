/* SPDX-License-Identifier: MIT */
/* Reading /proc: whole files, stat lines, lists of pids. */
#include "target/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

int msp_error_of_errno(int err)
{
	switch (err) {
	case ENOMEM:
		return MSP_E_NOMEM;
	case ESRCH:
	case ENOENT:
		return MSP_E_GONE;
	case EPERM:
	case EACCES:
		return MSP_E_PERMISSION;
	case EFAULT:
		return MSP_E_FAULT;
	case EMFILE:
	case ENFILE:
		return MSP_E_LIMIT;
	case EINVAL:
		return MSP_E_INVALID;
	case ENOSYS:
		return MSP_E_UNSUPPORTED;
	default:
		return MSP_E_IO;
	}
}

int msp_read_file(int dir, const char *path, char **out, size_t *size)
{
	size_t used = 0, room = 1 << 12;
	char *buf = malloc(room), *bigger;
	ssize_t n;
	int fd, r = 0;

	if (!buf)
		return MSP_E_NOMEM;
	fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		r = msp_error_of_errno(errno);
		goto out;
	}
	while ((n = read(fd, buf + used, room - used - 1)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			r = msp_error_of_errno(errno);
			goto out;
		}
		used += n;
		if (room - used > room / 4)
			continue;
		bigger = realloc(buf, room * 2);
		if (!bigger) {
			r = MSP_E_NOMEM;
			goto out;
		}
		buf = bigger;
		room *= 2;
	}
	buf[used] = 0;
	*out = buf;
	*size = used;
out:
	if (fd >= 0)
		close(fd);
	if (r < 0)
		free(buf);
	return r;
}

int msp_read_stat(int dir, const char *path, struct msp_stat *out)
{
	char *text, *open, *close;
	unsigned long long start;
	size_t size, len;
	int parent, n, r;

	r = msp_read_file(dir, path, &text, &size);
	if (r < 0)
		return r;
	/* The name may hold anything, also parentheses: it ends at the last one. */
	open = strchr(text, '(');
	close = strrchr(text, ')');
	r = MSP_E_FORMAT;
	if (!open || !close || close < open)
		goto out;
	n = sscanf(close + 1,
		   " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu "
		   "%*u %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %d",
		   &out->state, &parent, &out->flags, &start, &out->cpu);
	if (n < 4)
		goto out;
	if (n < 5)
		out->cpu = -1;
	len = close - open - 1;
	if (len >= sizeof(out->comm))
		len = sizeof(out->comm) - 1;
	memcpy(out->comm, open + 1, len);
	out->comm[len] = 0;
	out->parent = parent;
	out->start_time = start;
	r = 0;
out:
	free(text);
	return r;
}

static int compare_pids(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

int msp_list_pids(int dir, const char *path, pid_t **out)
{
	size_t count = 0, room = 0;
	pid_t *pids = NULL, *bigger;
	struct dirent *entry;
	DIR *stream = NULL;
	int fd, r = 0;

	fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || !(stream = fdopendir(fd))) {
		r = msp_error_of_errno(errno);
		if (fd >= 0)
			close(fd);
		return r;
	}
	while ((entry = readdir(stream))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		if (count == room) {
			room = room ? room * 2 : 64;
			bigger = realloc(pids, room * sizeof(*pids));
			if (!bigger) {
				free(pids);
				closedir(stream);
				return MSP_E_NOMEM;
			}
			pids = bigger;
		}
		pids[count++] = atoi(entry->d_name);
	}
	closedir(stream);
	if (count)
		qsort(pids, count, sizeof(*pids), compare_pids);
	*out = pids;
	return count;
}

/* SPDX-License-Identifier: MIT */
/* Processes by name, by parent, or all. */
#include "target/process.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD in the flags of stat */

static bool exe_named(int proc, pid_t pid, const char *name)
{
	char path[32], target[PATH_MAX], *base, *deleted;
	ssize_t n;

	snprintf(path, sizeof(path), "%d/exe", (int)pid);
	n = readlinkat(proc, path, target, sizeof(target) - 1);
	if (n <= 0)
		return false;
	target[n] = 0;
	base = strrchr(target, '/');
	base = base ? base + 1 : target;
	if (!strcmp(base, name))
		return true;
	deleted = strstr(base, " (deleted)");
	if (deleted)
		*deleted = 0;
	return !strcmp(base, name);
}

static int read_pid_stat(int proc, pid_t pid, struct msp_stat *stat)
{
	char path[32];

	snprintf(path, sizeof(path), "%d/stat", (int)pid);
	return msp_read_stat(proc, path, stat);
}

static bool wanted(int proc, pid_t pid, const char *name)
{
	struct msp_stat stat;

	if (pid == getpid() || read_pid_stat(proc, pid, &stat) < 0)
		return false;
	if ((stat.flags & KERNEL_THREAD) || stat.state == 'Z' || stat.state == 'X')
		return false;
	return !name || !strcmp(stat.comm, name) || exe_named(proc, pid, name);
}

int msp_process_find(const char *name, pid_t **out)
{
	int proc, count, kept = 0;
	pid_t *pids;

	proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0)
		return MSP_E_IO;
	count = msp_list_pids(proc, ".", &pids);
	for (int i = 0; i < count; i++)
		if (wanted(proc, pids[i], name))
			pids[kept++] = pids[i];
	close(proc);
	if (count < 0)
		return count;
	*out = pids;
	return kept;
}

static bool contains(const pid_t *pids, int count, pid_t pid)
{
	for (int i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/*
 * Parents mostly have lower numbers than their children, so one pass finds
 * most; passes are repeated until one finds nothing, for numbers that wrapped.
 */
static int descendants(const pid_t *pids, const pid_t *parents, int count, pid_t pid, pid_t *found)
{
	int n = 0, before;

	do {
		before = n;
		for (int i = 0; i < count; i++)
			if ((parents[i] == pid || contains(found, n, parents[i])) &&
			    !contains(found, n, pids[i]) && pids[i] != pid)
				found[n++] = pids[i];
	} while (n > before);
	return n;
}

static int by_number(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

int msp_process_children(pid_t pid, pid_t **out)
{
	pid_t *pids = NULL, *parents = NULL, *found = NULL;
	struct msp_stat stat;
	int proc, count, n;

	proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0)
		return MSP_E_IO;
	n = count = msp_list_pids(proc, ".", &pids);
	if (count < 0)
		goto out;
	parents = calloc(count + 1, sizeof(*parents));
	found = calloc(count + 1, sizeof(*found));
	if (!parents || !found) {
		free(found);
		n = MSP_E_NOMEM;
		goto out;
	}
	for (int i = 0; i < count; i++)
		if (read_pid_stat(proc, pids[i], &stat) == 0 && stat.state != 'Z')
			parents[i] = stat.parent;
	n = descendants(pids, parents, count, pid, found);
	qsort(found, n, sizeof(*found), by_number);
	*out = found;
out:
	close(proc);
	free(pids);
	free(parents);
	return n;
}

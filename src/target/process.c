/* SPDX-License-Identifier: MIT */
/* A live process: identity, names, root. */
#include "target/process.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "unwind/tables.h"

/* The number after "key:" in /proc/PID/status; fallback if it is not there. */
static long status_number(int dir, const char *key, long fallback)
{
	char *text, *line, *next;
	size_t size, len = strlen(key);
	long value = fallback;

	if (msp_read_file(dir, "status", &text, &size) < 0)
		return fallback;
	for (line = text; line; line = next ? next + 1 : NULL) {
		next = strchr(line, '\n');
		if (!strncmp(line, key, len) && line[len] == ':') {
			value = strtol(line + len + 1, NULL, 10);
			break;
		}
	}
	free(text);
	return value;
}

static int open_dir(pid_t pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? msp_error_of_errno(errno) : fd;
}

/*
 * Opens the directory of the process that pid belongs to: a thread's id stands
 * for its process.
 */
static int open_group_dir(pid_t *pid)
{
	int dir = open_dir(*pid);
	long group;

	if (dir < 0)
		return dir;
	group = status_number(dir, "Tgid", *pid);
	if (group == *pid || group <= 0)
		return dir;
	close(dir);
	*pid = group;
	return open_dir(*pid);
}

/* Its maps are what everything needs first; who may not read them can do nothing here. */
static int check_access(const struct msp_process *process)
{
	int fd = openat(process->dir, "maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return msp_error_of_errno(errno);
	close(fd);
	return 0;
}

static void init_host(struct msp_process *process)
{
	process->pagemap = openat(process->dir, "pagemap", O_RDONLY | O_CLOEXEC);
	process->host = (struct msp_host)
	{
		.ctx = process,
#if defined(__aarch64__)
		.arch = MSP_ARCH_ARM64,
#else
		.arch = MSP_ARCH_X86_64,
#endif
		.memory = &process->memory, .root = process->root, .maps = msp_process_host_maps,
		.open_map = msp_process_host_open_map, .present = msp_process_host_present,
	};
}

const struct msp_host *msp_process_host(struct msp_process *process)
{
	return &process->host;
}

int msp_process_open(pid_t pid, struct msp_process **out)
{
	struct msp_process *process;
	struct msp_stat stat;
	int r;

	if (pid <= 0)
		return MSP_E_INVALID;
	process = calloc(1, sizeof(*process));
	if (!process)
		return MSP_E_NOMEM;
	process->mem = process->pidfd = process->pagemap = -1;
	r = process->dir = open_group_dir(&pid);
	if (r < 0)
		goto fail;
	process->pid = pid;
	/* Opened after the directory: if its process is there still, both are the same one. */
	process->pidfd = syscall(SYS_pidfd_open, pid, 0);
	r = msp_read_stat(process->dir, "stat", &stat);
	if (r < 0)
		goto fail;
	if (stat.state == 'Z' || stat.state == 'X') {
		/* A dead leader may have living threads: such a process still has memory maps. */
		if (!msp_process_alive(process)) {
			r = MSP_E_GONE;
			goto fail;
		}
	}
	process->start_time = stat.start_time;
	r = check_access(process);
	if (r < 0)
		goto fail;
	snprintf(process->root, sizeof(process->root), "/proc/%d/root", (int)pid);
	msp_memory_init(process);
	init_host(process);
	*out = process;
	return 0;
fail:
	msp_process_close(process);
	return r;
}

void msp_process_close(struct msp_process *process)
{
	if (!process)
		return;
	msp_stops_release(process);
	if (process->mem >= 0)
		close(process->mem);
	if (process->pidfd >= 0)
		close(process->pidfd);
	if (process->pagemap >= 0)
		close(process->pagemap);
	if (process->dir >= 0)
		close(process->dir);
	free(process->stopped);
	free(process->cmdline);
	free(process);
}

pid_t msp_process_pid(const struct msp_process *process)
{
	return process->pid;
}

uint64_t msp_process_start_time(const struct msp_process *process)
{
	return process->start_time;
}

bool msp_process_alive(const struct msp_process *process)
{
	struct pollfd p = {.fd = process->pidfd, .events = POLLIN};
	struct msp_stat stat;

	if (process->pidfd >= 0)
		return poll(&p, 1, 0) == 0;
	return msp_read_stat(process->dir, "stat", &stat) == 0 && stat.state != 'Z' &&
	       stat.state != 'X';
}

const char *msp_process_comm(struct msp_process *process)
{
	char *text;
	size_t size;

	if (msp_read_file(process->dir, "comm", &text, &size) < 0)
		return process->comm;
	if (size && text[size - 1] == '\n')
		text[--size] = 0;
	snprintf(process->comm, sizeof(process->comm), "%s", text);
	free(text);
	return process->comm;
}

const char *msp_process_cmdline(struct msp_process *process)
{
	char *text;
	size_t size, i;

	if (msp_read_file(process->dir, "cmdline", &text, &size) < 0)
		return process->cmdline ? process->cmdline : "";
	while (size && !text[size - 1])
		size--;
	for (i = 0; i < size; i++)
		if (!text[i])
			text[i] = ' ';
	free(process->cmdline);
	process->cmdline = text;
	return text;
}

const char *msp_process_root(const struct msp_process *process)
{
	return process->root;
}

int msp_process_dir(const struct msp_process *process)
{
	return process->dir;
}

pid_t msp_process_tracer(const struct msp_process *process)
{
	return status_number(process->dir, "TracerPid", 0);
}

int msp_process_bits(struct msp_process *process)
{
	unsigned char ident[EI_NIDENT];
	int fd;

	if (process->bits)
		return process->bits;
	fd = openat(process->dir, "exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return msp_error_of_errno(errno);
	if (pread(fd, ident, sizeof(ident), 0) == sizeof(ident) && !memcmp(ident, ELFMAG, SELFMAG))
		process->bits = ident[EI_CLASS] == ELFCLASS32 ? 32 : 64;
	close(fd);
	return process->bits ? process->bits : MSP_E_FORMAT;
}

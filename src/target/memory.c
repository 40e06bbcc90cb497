/* SPDX-License-Identifier: MIT */
/* Memory of a live process. */
#include "target/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

/*
 * /proc/PID/mem comes first: an open one belongs to the address space it was
 * opened for, so a pid that is used again is never read by mistake, and a
 * small read costs half of process_vm_readv().
 */
static int read_mem(struct msp_process *process, uint64_t addr, char *buf, size_t size)
{
	ssize_t n;

	while (size) {
		n = pread(process->mem, buf, size, addr);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EIO || errno == EINVAL ? MSP_E_FAULT
							       : msp_error_of_errno(errno);
		if (n == 0)
			return MSP_E_GONE;
		buf += n;
		addr += n;
		size -= n;
	}
	return 0;
}

static int read_vm(struct msp_process *process, uint64_t addr, char *buf, size_t size)
{
	struct iovec local, remote;
	ssize_t n;

	while (size) {
		local = (struct iovec){.iov_base = buf, .iov_len = size};
		remote = (struct iovec){.iov_base = (void *)(uintptr_t)addr, .iov_len = size};
		n = process_vm_readv(process->pid, &local, 1, &remote, 1, 0);
		if (n < 0)
			return msp_error_of_errno(errno);
		if (n == 0)
			return MSP_E_FAULT;
		buf += n;
		addr += n;
		size -= n;
	}
	/* It went by number: the answer counts only if that still is our process. */
	return msp_process_alive(process) ? 0 : MSP_E_GONE;
}

/* A dead leader has no memory to show, but its threads do. */
static int open_thread_mem(struct msp_process *process)
{
	char path[48];
	pid_t tid;

	if (!msp_living_thread(process, &tid))
		return MSP_E_GONE;
	snprintf(path, sizeof(path), "task/%d/mem", (int)tid);
	process->mem = openat(process->dir, path, O_RDONLY | O_CLOEXEC);
	return process->mem < 0 ? msp_error_of_errno(errno) : 0;
}

static int open_mem(struct msp_process *process)
{
	process->mem = openat(process->dir, "mem", O_RDONLY | O_CLOEXEC);
	if (process->mem >= 0)
		return 0;
	return errno == EACCES || errno == EPERM ? MSP_E_PERMISSION : open_thread_mem(process);
}

/* An address space ends with the process or with its next exec; then the new one is opened. */
static int reopen_mem(struct msp_process *process)
{
	if (!msp_process_alive(process))
		return MSP_E_GONE;
	close(process->mem);
	return open_thread_mem(process);
}

static int read_process(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct msp_process *process = ctx;
	int r;

	if (!size)
		return 0;
	if (addr + size < addr)
		return MSP_E_FAULT;
	if (process->mem < 0 && open_mem(process) < 0) {
		r = read_vm(process, addr, buf, size);
		return r == MSP_E_UNSUPPORTED ? MSP_E_PERMISSION : r;
	}
	r = read_mem(process, addr, buf, size);
	if (r != MSP_E_GONE || reopen_mem(process) < 0)
		return r;
	return read_mem(process, addr, buf, size);
}

void msp_memory_init(struct msp_process *process)
{
	process->memory =
		(struct msp_memory){.read = read_process, .ctx = process, .running = true};
}

const struct msp_memory *msp_process_memory(struct msp_process *process)
{
	return &process->memory;
}

/* SPDX-License-Identifier: MIT */
/* Which pages of a live process are there. */
#include "target/process.h"

#include <fcntl.h>
#include <unistd.h>

#define PAGES_AT_ONCE 1024
#define PAGE_THERE (3ull << 62) /* in a pagemap entry: present, or swapped out */
#define RUN_GAP 4		/* so many missing pages do not end a run */

/* Pages that follow each other, or nearly so. */
struct run {
	uint64_t first, last; /* numbers of pages; first UINT64_MAX: none yet */
	uint64_t page;
	void (*each)(void *arg, uint64_t start, uint64_t end);
	void *arg;
};

static void end_run(struct run *run)
{
	if (run->first != UINT64_MAX)
		run->each(run->arg, run->first * run->page, (run->last + 1) * run->page);
	run->first = UINT64_MAX;
}

static void add_page(struct run *run, uint64_t page)
{
	if (run->first != UINT64_MAX && page > run->last + RUN_GAP)
		end_run(run);
	if (run->first == UINT64_MAX)
		run->first = page;
	run->last = page;
}

/* Like its memory, the map belongs to an address space, which ends with the next exec: then it reads empty. */
static ssize_t read_entries(struct msp_process *process, uint64_t *entry, size_t count, uint64_t at)
{
	ssize_t n = pread(process->pagemap, entry, count * sizeof(*entry), at * sizeof(*entry));
	int fd;

	if (n != 0 || (fd = openat(process->dir, "pagemap", O_RDONLY | O_CLOEXEC)) < 0)
		return n / (ssize_t)sizeof(*entry);
	close(process->pagemap);
	process->pagemap = fd;
	n = pread(fd, entry, count * sizeof(*entry), at * sizeof(*entry));
	return n / (ssize_t)sizeof(*entry);
}

void msp_process_host_present(void *ctx, uint64_t start, uint64_t end,
			      void (*each)(void *arg, uint64_t start, uint64_t end), void *arg)
{
	struct msp_process *process = ctx;
	struct run run = {.first = UINT64_MAX, .each = each, .arg = arg};
	uint64_t entry[PAGES_AT_ONCE], at, last;
	ssize_t n;

	if (process->pagemap < 0) {
		each(arg, start, end);
		return;
	}
	run.page = sysconf(_SC_PAGESIZE);
	last = end / run.page;
	for (at = start / run.page; at < last; at += n) {
		n = last - at < PAGES_AT_ONCE ? last - at : PAGES_AT_ONCE;
		n = read_entries(process, entry, n, at);
		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			if (entry[i] & PAGE_THERE)
				add_page(&run, at + i);
	}
	end_run(&run);
}

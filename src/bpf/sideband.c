/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bpf/clock.h"
#include "bpf/sideband.h"
#include "moonspy/moonspy.h"

#define RING_PAGES 64 /* a power of two */
#define MAX_RECORD 65536

struct stream {
	int fd;
	struct perf_event_mmap_page *page; /* NULL: CPU not online */
};

struct msp_sideband {
	int epoll;
	int count;
	size_t page_size;
	uint64_t clock_offset; /* msp_clock_offset() */
	struct stream *stream;
	uint8_t record[MAX_RECORD]; /* one that wraps around the ring's end */
};

/* linux/perf_event.h; each record ends with its time, as sample_id_all asks for. */
static uint64_t time_of(const struct perf_event_header *h)
{
	return *(const uint64_t *)((const char *)h + h->size - sizeof(uint64_t));
}

/* PERF_RECORD_FORK and PERF_RECORD_EXIT */
struct task_record {
	struct perf_event_header header;
	uint32_t pid, ppid, tid, ptid;
	uint64_t time;
};

/* The start of PERF_RECORD_MMAP2 and PERF_RECORD_COMM. */
struct pid_record {
	struct perf_event_header header;
	uint32_t pid, tid;
};

struct mmap2_record {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t addr, len, pgoff;
	uint32_t maj, min;
	uint64_t ino, ino_generation;
	uint32_t prot, flags;
};

static int open_stream(struct msp_sideband *sb, struct stream *st, int cpu)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
				       .size = sizeof(attr),
				       .config = PERF_COUNT_SW_DUMMY,
				       .mmap = 1,
				       .mmap2 = 1,
				       .comm = 1,
				       .comm_exec = 1,
				       .task = 1,
				       .sample_type = PERF_SAMPLE_TIME,
				       .sample_id_all = 1,
				       .use_clockid = 1,
				       .clockid = CLOCK_MONOTONIC,
				       .wakeup_events = 1};
	struct epoll_event ev = {.events = EPOLLIN};
	void *page;

	st->fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (st->fd < 0)
		return errno == ENODEV			   ? 0
		       : errno == EACCES || errno == EPERM ? MSP_E_PERMISSION
							   : MSP_E_UNSUPPORTED;
	page = mmap(NULL, (RING_PAGES + 1) * sb->page_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		    st->fd, 0);
	if (page == MAP_FAILED)
		return errno == EPERM ? MSP_E_PERMISSION : MSP_E_NOMEM;
	st->page = page;
	return epoll_ctl(sb->epoll, EPOLL_CTL_ADD, st->fd, &ev) ? MSP_E_IO : 0;
}

int msp_sideband_open(struct msp_sideband **out)
{
	struct msp_sideband *sb = calloc(1, sizeof(*sb));
	int err = 0;

	*out = NULL;
	if (!sb)
		return MSP_E_NOMEM;
	sb->page_size = sysconf(_SC_PAGESIZE);
	sb->clock_offset = msp_clock_offset();
	sb->count = sysconf(_SC_NPROCESSORS_CONF);
	sb->stream = calloc(sb->count, sizeof(*sb->stream));
	sb->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!sb->stream || sb->epoll < 0)
		err = MSP_E_NOMEM;
	for (int i = 0; sb->stream && i < sb->count; i++)
		sb->stream[i].fd = -1;
	for (int i = 0; !err && i < sb->count; i++)
		err = open_stream(sb, &sb->stream[i], i);
	if (err) {
		msp_sideband_close(sb);
		return err;
	}
	*out = sb;
	return 0;
}

void msp_sideband_close(struct msp_sideband *sb)
{
	if (!sb)
		return;
	for (int i = 0; sb->stream && i < sb->count; i++) {
		if (sb->stream[i].page)
			munmap(sb->stream[i].page, (RING_PAGES + 1) * sb->page_size);
		if (sb->stream[i].fd >= 0)
			close(sb->stream[i].fd);
	}
	if (sb->epoll >= 0)
		close(sb->epoll);
	free(sb->stream);
	free(sb);
}

int msp_sideband_fd(const struct msp_sideband *sb)
{
	return sb->epoll;
}

/* True: fn should hear of it. */
static bool decode(const struct perf_event_header *h, struct msp_change *change)
{
	const struct task_record *task = (const void *)h;
	const struct mmap2_record *map = (const void *)h;
	const struct pid_record *comm = (const void *)h;

	memset(change, 0, sizeof(*change));
	change->time = time_of(h);
	switch (h->type) {
	case PERF_RECORD_MMAP2:
		change->kind = MSP_CHANGE_MAPPING;
		change->file = map->ino != 0;
		change->start = map->addr;
		change->end = map->addr + map->len;
		change->pid = map->pid;
		change->tid = map->tid;
		return true;
	case PERF_RECORD_COMM:
		change->kind = MSP_CHANGE_EXEC;
		change->pid = comm->pid;
		change->tid = comm->tid;
		return h->misc & PERF_RECORD_MISC_COMM_EXEC;
	case PERF_RECORD_FORK:
		change->kind = task->pid == task->ppid ? MSP_CHANGE_THREAD : MSP_CHANGE_FORK;
		break;
	case PERF_RECORD_EXIT:
		change->kind = MSP_CHANGE_EXIT;
		break;
	case PERF_RECORD_LOST:
		change->kind = MSP_CHANGE_LOST;
		return true;
	default:
		return false;
	}
	change->pid = task->pid;
	change->tid = task->tid;
	change->ppid = task->ppid;
	change->ptid = task->ptid;
	return true;
}

/* The record at tail, in one piece. */
static const struct perf_event_header *record_at(struct msp_sideband *sb, const uint8_t *data,
						 uint64_t mask, uint64_t tail)
{
	const struct perf_event_header *h =
		(const void *)(data + (tail & mask)); /* 8-aligned: whole */
	uint64_t at = tail & mask, first = mask + 1 - at;

	if (h->size <= first)
		return h;
	memcpy(sb->record, data + at, first);
	memcpy(sb->record + first, data, h->size - first);
	return (const void *)sb->record;
}

static void consume_stream(struct msp_sideband *sb, struct stream *st, msp_change_fn fn, void *ctx)
{
	const uint8_t *data = (const uint8_t *)st->page + sb->page_size;
	uint64_t mask = RING_PAGES * sb->page_size - 1;
	uint64_t head = __atomic_load_n(&st->page->data_head, __ATOMIC_ACQUIRE),
		 tail = st->page->data_tail;
	const struct perf_event_header *h;
	struct msp_change change;

	while (tail < head) {
		h = record_at(sb, data, mask, tail);
		if (h->size < sizeof(*h) + sizeof(uint64_t))
			break;
		if (decode(h, &change)) {
			change.time += sb->clock_offset;
			fn(ctx, &change);
		}
		tail += h->size;
	}
	__atomic_store_n(&st->page->data_tail, head, __ATOMIC_RELEASE);
}

void msp_sideband_consume(struct msp_sideband *sb, msp_change_fn fn, void *ctx)
{
	for (int i = 0; i < sb->count; i++)
		if (sb->stream[i].page)
			consume_stream(sb, &sb->stream[i], fn, ctx);
}

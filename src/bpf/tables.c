/* SPDX-License-Identifier: MIT */
/* Mappings and processes into the BPF maps: each process has a range of the store of mappings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <bpf/bpf.h>

#include "bpf/tables.h"
#include "moonspy/moonspy.h"

#define INIT_PID_NS 0xeffffffcu /* linux/proc_ns.h: the same on every machine */

/* In a container pids differ from those that the kernel counts by. */
static int set_namespace(const struct msp_table_fds *fds)
{
	uint32_t zero = 0;
	uint64_t inode;
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) || st.st_ino == INIT_PID_NS)
		return 0;
	inode = st.st_ino;
	return bpf_map_update_elem(fds->pid_namespace, &zero, &inode, BPF_ANY) ? -errno : 0;
}

int msp_tables_open(struct msp_tables *t, const struct msp_table_fds *fds, uint32_t mappings,
		    uint32_t rules)
{
	int segments = t->fd.segments;

	t->fd = *fds;
	if (segments >= 0)
		t->fd.segments = segments;
	t->mapping_room = mappings;
	t->rule_room = rules;
	t->mappings = mmap(NULL, mappings * sizeof(*t->mappings), PROT_READ | PROT_WRITE,
			   MAP_SHARED, t->fd.mappings, 0);
	t->rules = mmap(NULL, rules * sizeof(*t->rules), PROT_READ | PROT_WRITE, MAP_SHARED,
			t->fd.rules, 0);
	if (t->mappings == MAP_FAILED || t->rules == MAP_FAILED)
		return -errno;
	if (!ranges_init(&t->ranges, t->mapping_room))
		return -ENOMEM;
	return tables_init_rows(t) ?: set_namespace(&t->fd);
}

void msp_tables_close(struct msp_tables *t)
{
	tables_free_rows(t);
	if (t->mappings && t->mappings != MAP_FAILED)
		munmap(t->mappings, t->mapping_room * sizeof(*t->mappings));
	if (t->rules && t->rules != MAP_FAILED)
		munmap(t->rules, t->rule_room * sizeof(*t->rules));
	free(t->ranges.extent);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int set(struct msp_tables *t, pid_t pid, const struct msp_mapping *mappings, uint32_t count,
	       const struct msp_bpf_process *builds)
{
	struct msp_bpf_process process = *builds;
	uint32_t key = pid;
	int64_t first = UINT32_MAX;

	process.pending = 0;
	process.first_mapping = process.mapping_count = 0;
	if (count) {
		first = ranges_take(&t->ranges, pid, count, now_ns());
		if (first < 0)
			return MSP_E_LIMIT;
		memcpy(t->mappings + first, mappings, count * sizeof(*mappings));
		process.first_mapping = first;
		process.mapping_count = count;
	}
	if (bpf_map_update_elem(t->fd.processes, &key, &process, BPF_ANY))
		return MSP_E_LIMIT;
	ranges_release(&t->ranges, pid, first, now_ns() + MSP_REUSE_NS);
	return 0;
}

int msp_tables_set_process(struct msp_tables *t, pid_t pid, const struct msp_mapping *mappings,
			   uint32_t count, const struct msp_bpf_process *builds)
{
	int err = set(t, pid, mappings, count, builds);

	if (err)
		msp_tables_forget_mappings(t, pid);
	return err;
}

void msp_tables_forget_mappings(struct msp_tables *t, pid_t pid)
{
	const struct msp_bpf_process pending = {.pending = 1};
	uint32_t key = pid;

	bpf_map_update_elem(t->fd.processes, &key, &pending, BPF_EXIST);
	ranges_release(&t->ranges, pid, UINT32_MAX, now_ns() + MSP_REUSE_NS);
}

void msp_tables_remove_process(struct msp_tables *t, pid_t pid)
{
	uint32_t key = pid;

	bpf_map_delete_elem(t->fd.processes, &key);
	ranges_release(&t->ranges, pid, UINT32_MAX, now_ns() + MSP_REUSE_NS);
}

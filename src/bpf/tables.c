/* SPDX-License-Identifier: MIT */
/* Mappings and processes into the BPF maps: each process has a range of the store of mappings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/internal.h"
#include "moonspy/moonspy.h"

int sampler_init_tables(struct msp_sampler *s)
{
	return ranges_init(&s->ranges, s->mapping_room) ? sampler_init_rows(s) : -ENOMEM;
}

void sampler_free_tables(struct msp_sampler *s)
{
	sampler_free_rows(s);
	if (s->mappings && s->mappings != MAP_FAILED)
		munmap(s->mappings, s->mapping_room * sizeof(*s->mappings));
	if (s->rules && s->rules != MAP_FAILED)
		munmap(s->rules, s->rule_room * sizeof(*s->rules));
	free(s->ranges.extent);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int set(struct msp_sampler *s, pid_t pid, const struct msp_mapping *mappings, uint32_t count,
	       const struct msp_bpf_process *builds)
{
	struct msp_bpf_process process = *builds;
	uint32_t key = pid;
	int64_t first = UINT32_MAX;

	process.pending = 0;
	process.first_mapping = process.mapping_count = 0;
	if (count) {
		first = ranges_take(&s->ranges, pid, count, now_ns());
		if (first < 0)
			return MSP_E_LIMIT;
		memcpy(s->mappings + first, mappings, count * sizeof(*mappings));
		process.first_mapping = first;
		process.mapping_count = count;
	}
	if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.processes), &key, &process, BPF_ANY))
		return MSP_E_LIMIT;
	ranges_release(&s->ranges, pid, first, now_ns() + MSP_REUSE_NS);
	return 0;
}

int msp_sampler_set_process(struct msp_sampler *s, pid_t pid, const struct msp_mapping *mappings,
			    uint32_t count, const struct msp_bpf_process *builds)
{
	int err = set(s, pid, mappings, count, builds);

	if (err)
		msp_sampler_forget_mappings(s, pid);
	return err;
}

void msp_sampler_forget_mappings(struct msp_sampler *s, pid_t pid)
{
	const struct msp_bpf_process pending = {.pending = 1};
	uint32_t key = pid;

	bpf_map_update_elem(bpf_map__fd(s->skel->maps.processes), &key, &pending, BPF_EXIST);
	ranges_release(&s->ranges, pid, UINT32_MAX, now_ns() + MSP_REUSE_NS);
}

void msp_sampler_remove_process(struct msp_sampler *s, pid_t pid)
{
	uint32_t key = pid;

	bpf_map_delete_elem(bpf_map__fd(s->skel->maps.processes), &key);
	ranges_release(&s->ranges, pid, UINT32_MAX, now_ns() + MSP_REUSE_NS);
}

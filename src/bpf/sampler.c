/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/clock.h"
#include "bpf/internal.h"
#include "moonspy/moonspy.h"

/* Before 5.11 maps count against RLIMIT_MEMLOCK; later a failure here does not matter. */
static void raise_memlock(void)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};

	setrlimit(RLIMIT_MEMLOCK, &limit);
}

static uint32_t mapping_room(const struct msp_sampler_options *opts)
{
	return opts->mappings ? opts->mappings : 65536;
}

static int size_maps(struct msp_sampler *s, const struct msp_sampler_options *opts)
{
	struct sampler_bpf *skel = s->skel;
	int cpus = libbpf_num_possible_cpus(), err;

	if (cpus < 0)
		return cpus;
	err = bpf_map__set_max_entries(skel->maps.walks, cpus);
	if (!err)
		err = bpf_map__set_max_entries(skel->maps.mappings, mapping_room(opts));
	if (!err)
		err = bpf_map__set_max_entries(skel->maps.rules, MSP_RULE_ROOM);
	if (!err)
		err = bpf_map__set_max_entries(skel->maps.ring, MSP_RING_SIZE);
	return err;
}

static int open_tables(struct msp_sampler *s, const struct msp_sampler_options *opts)
{
	struct msp_table_fds fds = {.segments = s->tables.fd.segments,
				    .rules = bpf_map__fd(s->skel->maps.rules),
				    .images = bpf_map__fd(s->skel->maps.images),
				    .layouts = bpf_map__fd(s->skel->maps.layouts),
				    .mappings = bpf_map__fd(s->skel->maps.mappings),
				    .processes = bpf_map__fd(s->skel->maps.processes),
				    .pid_namespace = bpf_map__fd(s->skel->maps.pid_namespace)};

	return msp_tables_open(&s->tables, &fds, mapping_room(opts), MSP_RULE_ROOM);
}

/* Four pages of 4 KB on both architectures, and on arm64 at least one, which may have 64 KB there. */
static uint32_t kernel_stack_size(void)
{
	long page = sysconf(_SC_PAGESIZE);

	return page > 16384 ? page : 16384;
}

/* kernel_btf: see sampler_kernel_btf(); NULL: all of the kernel's. */
static int load_with(struct msp_sampler *s, const struct msp_sampler_options *opts,
		     const char *kernel_btf)
{
	LIBBPF_OPTS(bpf_object_open_opts, open, .btf_custom_path = kernel_btf);
	int err;

	s->skel = sampler_bpf__open_opts(&open);
	if (!s->skel)
		return -errno;
	s->skel->rodata->config.all = opts->all;
	s->skel->rodata->config.kernel = opts->kernel;
	s->skel->rodata->config.kernel_stack = kernel_stack_size();
	if (getenv("MOONSPY_BPF_LOG"))
		bpf_program__set_log_level(s->skel->progs.msp_on_event, 4); /* its statistics */
	err = size_maps(s, opts);
	if (!err)
		err = bpf_map__reuse_fd(s->skel->maps.segments, s->tables.fd.segments);
	return err ? err : sampler_bpf__load(s->skel);
}

static int load(struct msp_sampler *s, const struct msp_sampler_options *opts)
{
	char kernel_btf[4096];
	int err = -ENOENT;

	if (sampler_kernel_btf(opts->cache_dir, kernel_btf, sizeof(kernel_btf))) {
		err = load_with(s, opts, kernel_btf);
		if (err) { /* a file that was damaged, perhaps */
			unlink(kernel_btf);
			sampler_bpf__destroy(s->skel);
			s->skel = NULL;
			sampler_listen_again();
		}
	}
	if (err)
		err = load_with(s, opts, NULL);
	return err ? err : open_tables(s, opts);
}

/* ---- The first segment waits for the kernel while that checks the program ---- */

struct first_segment {
	struct msp_sampler *sampler;
	uint32_t rows;
	int result;
};

static void *make_first_segment(void *arg)
{
	struct first_segment *first = arg;

	first->result = msp_tables_first_segment(&first->sampler->tables, first->rows);
	return NULL;
}

static int load_all(struct msp_sampler *s, const struct msp_sampler_options *opts)
{
	struct first_segment first = {s, opts->rows, 0};
	int err = msp_tables_create_segments(&s->tables);
	pthread_t thread;
	bool threaded;

	if (err)
		return err;
	threaded = !pthread_create(&thread, NULL, make_first_segment, &first);
	if (!threaded)
		make_first_segment(&first);
	err = load(s, opts);
	if (threaded)
		pthread_join(thread, NULL);
	return err ? err : first.result;
}

int msp_sampler_open(const struct msp_sampler_options *opts, struct msp_sampler **out, char *error,
		     size_t error_size)
{
	struct msp_sampler *s = calloc(1, sizeof(*s));
	int err;

	*out = NULL;
	if (!s)
		return MSP_E_NOMEM;
	error[0] = 0;
	s->rate = opts->rate;
	s->clock_offset = msp_clock_offset();
	s->stats_fd = s->tables.fd.segments = -1;
	raise_memlock();
	sampler_listen(error, error_size);
	err = load_all(s, opts);
	sampler_listen(NULL, 0);
	if (!err) {
		s->ring = ring_buffer__new(bpf_map__fd(s->skel->maps.ring), sampler_on_record, s,
					   NULL);
		err = s->ring ? 0 : -errno;
	}
	if (err) {
		sampler_explain(err, error, error_size);
		msp_sampler_close(s);
		return sampler_error(err);
	}
	if (opts->stats)
		s->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	*out = s;
	return 0;
}

void msp_sampler_close(struct msp_sampler *s)
{
	if (!s)
		return;
	msp_sampler_stop(s);
	if (s->stats_fd >= 0)
		close(s->stats_fd);
	ring_buffer__free(s->ring);
	msp_tables_close(&s->tables);
	sampler_bpf__destroy(s->skel);
	free(s->links);
	free(s->apart);
	free(s);
}

struct msp_tables *msp_sampler_tables(struct msp_sampler *s)
{
	return &s->tables;
}

/* ---- Triggers ---- */

static int perf_open(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	return syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Cycles where the machine counts them, else the software clock, in ns. */
static void fill_attr(const struct msp_sampler *s, struct perf_event_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->size = sizeof(*attr);
	if (s->hardware) {
		attr->type = PERF_TYPE_HARDWARE;
		attr->config = PERF_COUNT_HW_CPU_CYCLES;
		attr->freq = 1;
		attr->sample_freq = s->rate;
	} else {
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = PERF_COUNT_SW_CPU_CLOCK;
		attr->sample_period = 1000000000u / s->rate;
	}
}

static void choose_clock(struct msp_sampler *s)
{
	struct perf_event_attr attr;
	int fd;

	if (s->clock_chosen)
		return;
	s->clock_chosen = true;
	s->hardware = true;
	fill_attr(s, &attr);
	attr.disabled = 1;
	fd = perf_open(&attr, 0, -1);
	if (fd < 0)
		s->hardware = false;
	else
		close(fd);
}

static int keep_link(struct msp_sampler *s, struct bpf_link *link)
{
	struct bpf_link **bigger;

	if (s->link_count == s->link_room) {
		size_t room = s->link_room ? 2 * s->link_room : 16;

		bigger = realloc(s->links, room * sizeof(*bigger));
		if (!bigger) {
			bpf_link__destroy(link);
			return MSP_E_NOMEM;
		}
		s->links = bigger;
		s->link_room = room;
	}
	s->links[s->link_count++] = link;
	return 0;
}

static int attach(struct msp_sampler *s, struct perf_event_attr *attr, pid_t pid, int cpu)
{
	struct bpf_link *link;
	int fd = perf_open(attr, pid, cpu), err;

	if (fd < 0)
		return errno == ESRCH	 ? MSP_E_GONE
		       : errno == ENODEV ? MSP_E_NOT_FOUND
					 : sampler_error(-errno);
	link = bpf_program__attach_perf_event(s->skel->progs.msp_on_event, fd);
	if (!link) {
		err = sampler_error(-errno);
		close(fd);
		return err;
	}
	return keep_link(s, link);
}

/* Counts nothing, and is not inherited: see msp_sampler_keep_apart(). */
static int open_apart(pid_t tid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .config = PERF_COUNT_SW_DUMMY};

	return perf_open(&attr, tid, -1);
}

/*
 * Between the event and its program the thread can start another, whose event then has no program:
 * until that is done, the two must not change owners.
 */
int msp_sampler_attach_thread(struct msp_sampler *s, pid_t tid)
{
	struct perf_event_attr attr;
	int apart = open_apart(tid), err;

	choose_clock(s);
	fill_attr(s, &attr);
	attr.inherit = 1;
	err = attach(s, &attr, tid, -1);
	if (apart >= 0)
		close(apart);
	return err;
}

static size_t find_apart(const struct msp_sampler *s, pid_t tid)
{
	size_t i = 0;

	while (i < s->apart_count && s->apart[i].tid != tid)
		i++;
	return i;
}

void msp_sampler_keep_apart(struct msp_sampler *s, pid_t tid)
{
	struct sampler_apart *bigger;
	int fd;

	if (find_apart(s, tid) < s->apart_count)
		return;
	if (s->apart_count == s->apart_room) {
		size_t room = s->apart_room ? 2 * s->apart_room : 16;

		bigger = realloc(s->apart, room * sizeof(*bigger));
		if (!bigger)
			return;
		s->apart = bigger;
		s->apart_room = room;
	}
	fd = open_apart(tid);
	if (fd >= 0)
		s->apart[s->apart_count++] = (struct sampler_apart){tid, fd};
}

void msp_sampler_ended(struct msp_sampler *s, pid_t tid)
{
	size_t i = find_apart(s, tid);

	if (i == s->apart_count)
		return;
	close(s->apart[i].fd);
	s->apart[i] = s->apart[--s->apart_count];
}

int msp_sampler_attach_cpus(struct msp_sampler *s)
{
	struct perf_event_attr attr;
	int cpus = libbpf_num_possible_cpus(), err, attached = 0;

	choose_clock(s);
	fill_attr(s, &attr);
	for (int cpu = 0; cpu < cpus; cpu++) {
		err = attach(s, &attr, -1, cpu);
		if (err == MSP_E_NOT_FOUND)
			continue; /* not online */
		if (err)
			return err;
		attached++;
	}
	return attached ? 0 : MSP_E_NOT_FOUND;
}

bool msp_sampler_hardware(const struct msp_sampler *s)
{
	return s->hardware;
}

void msp_sampler_stop(struct msp_sampler *s)
{
	for (size_t i = 0; i < s->link_count; i++)
		bpf_link__destroy(s->links[i]);
	s->link_count = 0;
	while (s->apart_count)
		close(s->apart[--s->apart_count].fd);
}

/* ---- Records ---- */

int sampler_on_record(void *ctx, void *data, size_t size)
{
	struct msp_sampler *s = ctx;
	const struct msp_sample *sample = data;
	const struct msp_event *event = data;
	struct msp_sample ours;

	if (sample->kind != MSP_RECORD_SAMPLE)
		return s->handlers->event(s->handlers->ctx, event);
	if (size < sizeof(*sample) + sample->frame_count * sizeof(struct msp_raw_frame))
		return 0;
	ours = *sample;
	ours.time += s->clock_offset;
	return s->handlers->sample(s->handlers->ctx, &ours,
				   (const struct msp_raw_frame *)(sample + 1));
}

int msp_sampler_consume(struct msp_sampler *s, const struct msp_sampler_handlers *handlers)
{
	s->handlers = handlers;
	return ring_buffer__consume(s->ring);
}

int msp_sampler_fd(const struct msp_sampler *s)
{
	return ring_buffer__epoll_fd(s->ring);
}

uint64_t msp_sampler_counter(const struct msp_sampler *s, enum msp_counter which)
{
	int cpus = libbpf_num_possible_cpus();
	uint64_t *values, sum = 0;
	uint32_t key = which;

	values = calloc(cpus > 0 ? cpus : 1, sizeof(*values));
	if (!values)
		return 0;
	if (!bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.counters), &key, values))
		for (int i = 0; i < cpus; i++)
			sum += values[i];
	free(values);
	return sum;
}

/* The middle of a bucket of struct msp_run_times. */
static uint64_t bucket_ns(uint32_t bucket)
{
	uint32_t shift = bucket < 32 ? 0 : bucket / 16 - 1;
	uint64_t low = (uint64_t)(bucket - shift * 16) << shift;

	return low + ((1ull << shift) >> 1);
}

uint64_t msp_sampler_run_quantile(const struct msp_sampler *s, double part)
{
	int cpus = libbpf_num_possible_cpus();
	struct msp_run_times *times = calloc(cpus > 0 ? cpus : 1, sizeof(*times));
	uint64_t count[MSP_RUN_BUCKETS] = {0}, all = 0, below = 0;
	uint32_t key = 0, bucket = 0;

	if (times && !bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.run_times), &key, times))
		for (uint32_t i = 0; i < MSP_RUN_BUCKETS; i++) {
			for (int cpu = 0; cpu < cpus; cpu++)
				count[i] += times[cpu].count[i];
			all += count[i];
		}
	free(times);
	while (all && bucket < MSP_RUN_BUCKETS - 1 &&
	       (double)(below + count[bucket]) < part * (double)all)
		below += count[bucket++];
	return all ? bucket_ns(bucket) : 0;
}

uint64_t msp_sampler_run_ns(const struct msp_sampler *s)
{
	struct bpf_prog_info info = {0};
	uint32_t size = sizeof(info);

	if (bpf_obj_get_info_by_fd(bpf_program__fd(s->skel->progs.msp_on_event), &info, &size))
		return 0;
	return info.run_cnt ? info.run_time_ns / info.run_cnt : 0;
}

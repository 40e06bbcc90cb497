/* SPDX-License-Identifier: MIT */
/* Feeds a BPF program that somebody else has loaded, and names what it sends. */
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "bpf/clock.h"
#include "bpf/sideband.h"
#include "bpf/tables.h"
#include "library/internal.h"
#include "moonspy/plugin.h"

#define MAPPINGS 262144
#define RING_SIZE (8u << 20)
#define SLOTS_A_CPU 2 /* of walks: an event's and a probe's */
/* Mappings of a process are read again at most this often for code at unknown addresses. */
#define REFRESH_NS 100000000ull

struct plugin_process {
	pid_t pid, parent;
	struct msp_target *target; /* not open: it was gone before it could be read */
	struct msp_backtrace *backtrace;
	uint64_t
		changed_ns; /* mapped something at that time that the program does not know; 0: nothing */
	uint64_t refreshed_ns;
	bool ended; /* when it was looked at last */
};

struct msp_plugin {
	struct msp_target *root; /* what all processes share files with */
	struct msp_sideband *sideband;
	struct msp_tables tables;
	uint64_t clock_offset;
	struct plugin_process **process; /* by pid */
	size_t count, room;
	struct msp_sample sample;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static uint32_t mappings_of(const struct msp_plugin_options *options)
{
	return options && options->mappings ? options->mappings : MAPPINGS;
}

uint32_t msp_plugin_map_size(const struct msp_plugin_options *given, const char *map)
{
	struct msp_plugin_options options;
	int cpus = libbpf_num_possible_cpus();

	if (!lib_take(&options, sizeof(options), given))
		return 0;
	if (!strcmp(map, "walks"))
		return cpus > 0 ? (uint32_t)cpus * SLOTS_A_CPU : 0;
	if (!strcmp(map, "mappings"))
		return mappings_of(&options);
	if (!strcmp(map, "rules"))
		return MSP_RULE_ROOM;
	return !strcmp(map, "ring") ? RING_SIZE : 0;
}

/* ---- Processes ---- */

static size_t lower_bound(const struct msp_plugin *plugin, pid_t pid)
{
	size_t low = 0, high = plugin->count, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (plugin->process[mid]->pid < pid)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct plugin_process *find(const struct msp_plugin *plugin, pid_t pid)
{
	size_t at = lower_bound(plugin, pid);

	return at < plugin->count && plugin->process[at]->pid == pid ? plugin->process[at] : NULL;
}

static void free_process(struct plugin_process *p)
{
	if (!p)
		return;
	msp_backtrace_free(p->backtrace);
	msp_target_free(p->target);
	free(p);
}

static struct plugin_process *new_process(struct msp_plugin *plugin, pid_t pid)
{
	struct msp_target_options options = {.size = sizeof(options), .share = plugin->root};
	struct plugin_process *p = calloc(1, sizeof(*p));

	if (!p || msp_target_new(&options, &p->target) ||
	    msp_backtrace_new(p->target, &p->backtrace)) {
		free_process(p);
		return NULL;
	}
	p->pid = pid;
	p->target->few_vms = true;
	return p;
}

/* The entry of a process, made if there is none. NULL: out of memory. */
static struct plugin_process *insert(struct msp_plugin *plugin, pid_t pid)
{
	struct plugin_process *p = find(plugin, pid), **bigger;
	size_t at = lower_bound(plugin, pid);

	if (p)
		return p;
	if (plugin->count == plugin->room) {
		size_t room = plugin->room ? 2 * plugin->room : 64;

		bigger = reallocarray(plugin->process, room, sizeof(*bigger));
		if (!bigger)
			return NULL;
		plugin->process = bigger;
		plugin->room = room;
	}
	p = new_process(plugin, pid);
	if (!p)
		return NULL;
	memmove(plugin->process + at + 1, plugin->process + at,
		(plugin->count - at) * sizeof(*plugin->process));
	plugin->process[at] = p;
	plugin->count++;
	return p;
}

static void nobody(void *ctx, const struct msp_image_entry *entry)
{
	struct msp_plugin *plugin = ctx;

	msp_tables_remove_image(&plugin->tables, entry->index);
}

static int send(struct msp_plugin *plugin, struct plugin_process *p)
{
	int err = msp_tables_send(&plugin->tables, p->target->space, p->pid);

	if (err == MSP_E_LIMIT) {
		msp_images_trim(plugin->root->registry->images, true, nobody, plugin);
		err = msp_tables_send(&plugin->tables, p->target->space, p->pid);
	}
	if (err == 0)
		p->changed_ns = 0;
	return err;
}

static int update(struct msp_plugin *plugin, struct plugin_process *p)
{
	int err = p->target->space ? msp_target_refresh(p->target)
				   : msp_target_open_pid(p->target, p->pid);

	p->refreshed_ns = now_ns();
	if (err >= 0)
		err = send(plugin, p);
	return err;
}

int msp_plugin_add(struct msp_plugin *plugin, pid_t pid)
{
	struct plugin_process *p = insert(plugin, pid);
	int err = p ? update(plugin, p) : MSP_E_NOMEM;

	if (err >= 0)
		return 0;
	lib_error(plugin->root, err, "%s",
		  p && *p->target->error ? p->target->error : msp_strerror(err));
	return err;
}

void msp_plugin_remove(struct msp_plugin *plugin, pid_t pid)
{
	size_t at = lower_bound(plugin, pid);
	struct plugin_process *p = find(plugin, pid);

	if (!p)
		return;
	msp_tables_remove_process(&plugin->tables, pid);
	free_process(p);
	memmove(plugin->process + at, plugin->process + at + 1,
		(plugin->count - at - 1) * sizeof(*plugin->process));
	plugin->count--;
}

/* ---- What processes do meanwhile ---- */

static void on_change(void *ctx, const struct msp_change *change)
{
	struct msp_plugin *plugin = ctx;
	struct plugin_process *p;

	if (change->kind == MSP_CHANGE_LOST) { /* anything may have happened */
		for (size_t i = 0; i < plugin->count; i++)
			if (!plugin->process[i]->changed_ns)
				plugin->process[i]->changed_ns = change->time;
		return;
	}
	if (change->kind != MSP_CHANGE_EXEC &&
	    !(change->kind == MSP_CHANGE_MAPPING && change->file))
		return;
	p = find(plugin, change->pid);
	if (p && !p->changed_ns)
		p->changed_ns = change->time;
}

static void take_changes(struct msp_plugin *plugin)
{
	if (plugin->sideband)
		msp_sideband_consume(plugin->sideband, on_change, plugin);
}

/* ---- Records ---- */

static int on_event(struct msp_plugin *plugin, const struct msp_event *event)
{
	struct plugin_process *p = find(plugin, (pid_t)event->pid);

	if (!p || now_ns() - p->refreshed_ns > REFRESH_NS)
		msp_plugin_add(plugin, (pid_t)event->pid); /* if it is gone, its samples say so */
	return 0;
}

/* Who names the frames: the process, else the one that it was forked from, if it runs the same. */
static struct plugin_process *namer_of(struct msp_plugin *plugin, struct plugin_process *p)
{
	struct plugin_process *parent = p->parent ? find(plugin, p->parent) : NULL;

	return !p->target->space && parent && parent->target->space ? parent : p;
}

/* Taken while the program had old mappings: what is not the kernel's counts for nothing. */
static size_t cut(const struct msp_sample *sample, const struct msp_raw_frame *frames,
		  struct msp_raw_frame *out)
{
	size_t n = sample->kernel_frames < MSP_MAX_FRAMES - 1 ? sample->kernel_frames : 0;

	memcpy(out, frames, n * sizeof(*out));
	out[n] = (struct msp_raw_frame){.kind = MSP_RAW_ERROR, .pos = MSP_ERR_NO_MAPPING};
	return n + 1;
}

static int on_sample(struct msp_plugin *plugin, const struct msp_sample *sample,
		     const struct msp_raw_frame *frames, const struct msp_sample **out,
		     struct msp_backtrace **stack)
{
	struct plugin_process *p = insert(plugin, (pid_t)sample->pid);
	struct msp_raw_frame less[MSP_MAX_FRAMES];
	size_t count = sample->frame_count;
	int err;

	if (!p)
		return lib_error(plugin->root, MSP_E_NOMEM, "out of memory");
	plugin->sample = *sample;
	plugin->sample.time += plugin->clock_offset;
	if (sample->parent)
		p->parent = (pid_t)sample->parent;
	take_changes(plugin);
	if (p->changed_ns && plugin->sample.time >= p->changed_ns) {
		count = cut(sample, frames, less);
		frames = less;
		plugin->sample.error = MSP_ERR_NO_MAPPING;
	}
	if (p->changed_ns && now_ns() - p->refreshed_ns > REFRESH_NS / 10)
		update(plugin,
		       p); /* before its names are asked for: what cannot be opened has none after it */
	*out = &plugin->sample;
	*stack = namer_of(plugin, p)->backtrace;
	err = lib_prepare_names((*stack)->target);
	if (err >= 0)
		err = msp_backtrace_set(*stack, frames, count);
	return err < 0 ? err : 1;
}

int msp_plugin_record(struct msp_plugin *plugin, const void *data, size_t size,
		      const struct msp_sample **sample, struct msp_backtrace **out)
{
	const struct msp_sample *head = data;

	*sample = NULL;
	*out = NULL;
	if (size < sizeof(struct msp_event))
		return lib_error(plugin->root, MSP_E_FORMAT, "a record of %zu bytes", size);
	if (head->kind != MSP_RECORD_SAMPLE)
		return on_event(plugin, data);
	if (size < sizeof(*head) || head->frame_count > MSP_MAX_FRAMES ||
	    size < sizeof(*head) + head->frame_count * sizeof(struct msp_raw_frame))
		return lib_error(plugin->root, MSP_E_FORMAT, "a sample of %zu bytes", size);
	return on_sample(plugin, head, (const struct msp_raw_frame *)(head + 1), sample, out);
}

int msp_plugin_tick(struct msp_plugin *plugin)
{
	take_changes(plugin);
	for (size_t i = plugin->count; i-- > 0;) {
		struct plugin_process *p = plugin->process[i];

		if (p->ended) /* its last samples were named */
			msp_plugin_remove(plugin, p->pid);
		else if (!p->target->process || !msp_process_alive(p->target->process))
			p->ended = true;
		else if (p->changed_ns)
			update(plugin, p);
	}
	msp_images_trim(plugin->root->registry->images, false, nobody, plugin);
	return 0;
}

/* ---- The plug-in ---- */

/* The fds of the maps that are filled. */
static int take_maps(struct msp_plugin *plugin, const struct msp_plugin_options *options)
{
	struct msp_table_fds fds;
	const struct {
		const char *name;
		int *fd;
	} maps[] = {{"segments", &fds.segments},
		    {"rules", &fds.rules},
		    {"images", &fds.images},
		    {"layouts", &fds.layouts},
		    {"mappings", &fds.mappings},
		    {"processes", &fds.processes},
		    {"pid_namespace", &fds.pid_namespace}};

	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		*maps[i].fd = options->map_fd(options->ctx, maps[i].name);
		if (*maps[i].fd < 0)
			return MSP_E_INVALID;
	}
	fds.segments = fcntl(fds.segments, F_DUPFD_CLOEXEC, 0);
	if (fds.segments < 0)
		return MSP_E_LIMIT;
	if (msp_tables_open(&plugin->tables, &fds, mappings_of(options), MSP_RULE_ROOM))
		return MSP_E_INVALID;
	return msp_tables_first_segment(&plugin->tables, 0) ? MSP_E_PERMISSION : 0;
}

int msp_plugin_new(const struct msp_plugin_options *given, struct msp_plugin **out)
{
	struct msp_target_options root = {.size = sizeof(root)};
	struct msp_plugin_options options;
	struct msp_plugin *plugin;
	int err;

	*out = NULL;
	if (!given || !lib_take(&options, sizeof(options), given) || !options.map_fd)
		return MSP_E_INVALID;
	plugin = calloc(1, sizeof(*plugin));
	if (!plugin)
		return MSP_E_NOMEM;
	plugin->tables.fd.segments = -1;
	plugin->clock_offset = msp_clock_offset();
	root.cache_dir = options.cache_dir;
	err = msp_target_new(&root, &plugin->root);
	if (!err)
		err = take_maps(plugin, &options);
	if (!err)
		err = msp_sideband_open(&plugin->sideband);
	if (err) {
		msp_plugin_free(plugin);
		return err;
	}
	plugin->root->registry->kernel = msp_kernel_symbols_load();
	*out = plugin;
	return 0;
}

void msp_plugin_free(struct msp_plugin *plugin)
{
	if (!plugin)
		return;
	for (size_t i = 0; i < plugin->count; i++)
		free_process(plugin->process[i]);
	free(plugin->process);
	msp_sideband_close(plugin->sideband);
	msp_tables_close(&plugin->tables);
	msp_target_free(plugin->root);
	free(plugin);
}

const char *msp_plugin_error(const struct msp_plugin *plugin)
{
	return plugin->root->error;
}

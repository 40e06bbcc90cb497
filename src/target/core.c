/* SPDX-License-Identifier: MIT */
/* Core files: opening, what they say of the process, and what is missing. */
#include "target/core_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

static void init_host(struct msp_core *core)
{
	core->memory = (struct msp_memory){.read = core_read, .ctx = core};
	core->host = (struct msp_host){
		.ctx = core,
		.arch = core->arch,
		.memory = &core->memory,
		.root = core->sysroot ? core->sysroot : "/",
		.maps = core_maps,
		.open_map = core_open_map,
		.present = core_present,
	};
}

static int copy_options(struct msp_core *core, const struct msp_core_options *options)
{
	if (options->exe && !(core->exe = strdup(options->exe)))
		return MSP_E_NOMEM;
	if (options->sysroot && !(core->sysroot = strdup(options->sysroot)))
		return MSP_E_NOMEM;
	return 0;
}

static int open_core(struct msp_core *core, const struct msp_core_options *options,
		     char why[MSP_CORE_WHY_SIZE])
{
	struct stat st;
	int r = copy_options(core, options);

	if (r == 0)
		r = core_inflate(&core->fd, why);
	if (r == 0 && (fstat(core->fd, &st) < 0 || !S_ISREG(st.st_mode))) {
		snprintf(why, MSP_CORE_WHY_SIZE, "it is no regular file");
		r = MSP_E_FORMAT;
	}
	if (r < 0)
		return r;
	core->size = (uint64_t)st.st_size;
	r = core_read_headers(core, why);
	if (r == 0 && !core->lines)
		r = core_find_modules(core);
	if (r == 0)
		r = core_describe_files(core);
	return r;
}

int msp_core_open(int fd, const struct msp_core_options *options, struct msp_core **out,
		  char why[MSP_CORE_WHY_SIZE])
{
	struct msp_core *core = calloc(1, sizeof(*core));
	int r;

	why[0] = 0;
	if (!core) {
		close(fd);
		return MSP_E_NOMEM;
	}
	core->fd = fd;
	r = open_core(core, options, why);
	if (r < 0) {
		if (!why[0])
			snprintf(why, MSP_CORE_WHY_SIZE, "%s", msp_strerror(r));
		msp_core_close(core);
		return r;
	}
	init_host(core);
	*out = core;
	return 0;
}

void msp_core_close(struct msp_core *core)
{
	if (!core)
		return;
	core_free_files(core);
	if (core->fd >= 0)
		close(core->fd);
	free(core->segment);
	free(core->thread);
	free(core->gap);
	free(core->exe);
	free(core->sysroot);
	free(core);
}

const struct msp_host *msp_core_host(const struct msp_core *core)
{
	return &core->host;
}

pid_t msp_core_pid(const struct msp_core *core)
{
	return core->pid;
}

const char *msp_core_comm(const struct msp_core *core)
{
	return core->comm;
}

const char *msp_core_command(const struct msp_core *core)
{
	return core->command;
}

const struct msp_core_signal *msp_core_signal(const struct msp_core *core)
{
	return &core->signal;
}

const struct msp_core_thread *msp_core_threads(const struct msp_core *core, size_t *count)
{
	*count = core->threads;
	return core->thread;
}

bool msp_core_all_threads(const struct msp_core *core)
{
	return core->threads && !core->notes_cut;
}

/* ---- What is missing ---- */

static void add_gap(struct msp_core *core, enum msp_core_gap_kind kind, const char *why,
		    uint64_t bytes)
{
	core->gap[core->gaps++] = (struct msp_core_gap){
		.kind = kind, .name = "", .build_id = "", .why = why, .bytes = bytes};
}

static void add_file_gaps(struct msp_core *core)
{
	for (size_t i = 0; i < core->files; i++) {
		const struct core_file *file = &core->file[i];

		if (!file->looked || file->fd >= 0)
			continue;
		core->gap[core->gaps++] = (struct msp_core_gap){.kind = MSP_CORE_GAP_FILE,
								.name = file->name,
								.build_id = core_build_id(file),
								.why = file->why};
	}
}

const struct msp_core_gap *msp_core_gaps(struct msp_core *core, size_t *count)
{
	free(core->gap);
	core->gaps = 0;
	core->gap = calloc(core->files + 4, sizeof(*core->gap));
	*count = 0;
	if (!core->gap)
		return NULL;
	if (core->missing)
		add_gap(core, MSP_CORE_GAP_MEMORY, "the file is cut off", core->missing);
	if (!core->threads)
		add_gap(core, MSP_CORE_GAP_NOTES, "it has no registers of any thread", 0);
	else if (core->notes_cut)
		add_gap(core, MSP_CORE_GAP_NOTES, "a part of the notes cannot be read", 0);
	if (!core->lines)
		add_gap(core, MSP_CORE_GAP_NOTES, "it has no list of the mapped files", 0);
	add_file_gaps(core);
	*count = core->gaps;
	return core->gap;
}

size_t msp_core_unchecked(const struct msp_core *core)
{
	size_t count = 0;

	for (size_t i = 0; i < core->files; i++)
		count += core->file[i].unchecked;
	return count;
}

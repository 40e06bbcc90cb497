/* SPDX-License-Identifier: MIT */
/*
 * Core files that lie. Without an environment variable MOONSPY_FUZZ_CORE an input is a core
 * file; with it, that core file is opened once, and an input says which words of its memory
 * and registers read differently (core_lies.c).
 */
#include "core_fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/*
 * What is there of the files takes long to read, and to look for a LuaJIT in it longer: both in
 * one core of so many. They have fuzzers of their own.
 */
#define FILES_EVERY 16
#define LUAJIT_EVERY 512

static const struct msp_snapshot_options everything = {.coroutines = true, .values = 2};
static bool lies;

uint32_t fuzz_hash(const uint8_t *data, size_t size)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ data[i]) * 16777619u;
	return hash ^ hash >> 16;
}

struct msp_images *fuzz_images(bool luajit)
{
	struct msp_images_options options = {.threads = 1, .no_luajit = !luajit};
	struct msp_images *images;

	if (msp_images_new(&options, &images) < 0)
		abort();
	return images;
}

void fuzz_name_stack(struct msp_symbolizer *symbols, const struct msp_raw_frame *frames,
		     const struct msp_variables *variables, size_t count)
{
	struct msp_raw_frame inlined[MSP_MAX_FRAMES];
	struct msp_inlined info;
	struct msp_frame frame;

	if (count > MSP_MAX_FRAMES || msp_symbolizer_inline(symbols, frames, count, inlined, NULL,
							    MSP_MAX_FRAMES, &info) > MSP_MAX_FRAMES)
		abort();
	for (size_t i = 0; i < count && i < 64; i++) {
		msp_symbolizer_frame(symbols, frames, count, i, &frame);
		if (frame.name && strlen(frame.name) > 1 << 20)
			abort();
		if (variables && variables[i].count > 1000)
			abort();
	}
}

void fuzz_space(struct msp_space *space, struct msp_images *images, const struct msp_core *core)
{
	struct msp_symbolizer *symbols = NULL;
	struct msp_snapshot snapshot;

	if (msp_symbolizer_new(images, space, NULL, &symbols) < 0)
		return;
	if (msp_snapshot_of_core(space, core, &everything, &snapshot) == 0) {
		for (size_t i = 0; i < snapshot.count && i < 8; i++)
			fuzz_name_stack(symbols, snapshot.thread[i].frames,
					snapshot.thread[i].variables, snapshot.thread[i].count);
		for (size_t i = 0; i < snapshot.coroutines && i < 8; i++)
			fuzz_name_stack(symbols, snapshot.coroutine[i].frames,
					snapshot.coroutine[i].variables,
					snapshot.coroutine[i].count);
		msp_snapshot_free(&snapshot);
	}
	msp_symbolizer_free(symbols);
}

static int no_file(void *ctx, const struct msp_map *map, bool *partial)
{
	(void)ctx;
	(void)map;
	*partial = false;
	return MSP_E_NOT_FOUND;
}

static void use_core(struct msp_core *core, uint32_t hash)
{
	struct msp_images *images = fuzz_images(hash % LUAJIT_EVERY == 0);
	struct msp_host host = *msp_core_host(core);
	struct msp_space *space;
	size_t count;

	if (hash % FILES_EVERY)
		host.open_map = no_file;
	msp_core_signal(core);
	if (msp_space_new_host(images, &host, &space) == 0) {
		if (msp_space_refresh(space) >= 0 && msp_space_find_vms(space) >= 0)
			fuzz_space(space, images, core);
		msp_core_gaps(core, &count);
		msp_core_unchecked(core);
		msp_space_free(space);
	}
	msp_images_free(images);
}

/* One file for all inputs: to make one, and to give it back, takes longer than to read it. */
static int input_file(const uint8_t *data, size_t size)
{
	static int file = -1;
	int fd;

	if (file < 0)
		file = memfd_create("fuzz", MFD_CLOEXEC);
	if (file < 0 || pwrite(file, data, size, 0) != (ssize_t)size ||
	    ftruncate(file, (off_t)size))
		abort();
	fd = dup(file);
	if (fd < 0)
		abort();
	return fd;
}

static void fuzz_file(const uint8_t *data, size_t size)
{
	/* No files of this machine: the result must not depend on it. */
	const struct msp_core_options options = {.sysroot = "/proc/self/fdinfo"};
	char why[MSP_CORE_WHY_SIZE];
	struct msp_core *core;

	if (msp_core_open(input_file(data, size), &options, &core, why) < 0) {
		if (!*why)
			abort();
		return;
	}
	use_core(core, fuzz_hash(data, size));
	msp_core_close(core);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *path = getenv("MOONSPY_FUZZ_CORE");

	(void)argc;
	(void)argv;
	if (path)
		fuzz_lies_begin(path);
	lies = path != NULL;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (lies)
		fuzz_lies(data, size);
	else
		fuzz_file(data, size);
	return 0;
}

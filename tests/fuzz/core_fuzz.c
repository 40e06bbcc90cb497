/* SPDX-License-Identifier: MIT */
/*
 * Core files that lie. Without an environment variable MOONSPY_FUZZ_CORE an input is a core
 * file; with it, that core file is opened once, and an input says which words of its memory
 * and registers read differently: the walker, the proof, names, values and coroutines then
 * meet a VM in which anything may point anywhere.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "symbols/symbols.h"
#include "target/core.h"
#include "target/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static const struct msp_snapshot_options everything = {.coroutines = true, .values = 2};

/* ---- What can be asked of a core ---- */

static void name_stack(struct msp_symbolizer *symbols, const struct msp_raw_frame *frames,
		       const struct msp_lj_variables *variables, size_t count)
{
	struct msp_frame frame;

	if (count > MSP_MAX_FRAMES)
		abort();
	for (size_t i = 0; i < count && i < 64; i++) {
		msp_symbolizer_frame(symbols, frames, count, i, &frame);
		if (frame.name && strlen(frame.name) > 1 << 20)
			abort();
		if (variables && variables[i].count > 1000)
			abort();
	}
}

static void use_space(struct msp_space *space, struct msp_images *images,
		      const struct msp_core *core)
{
	struct msp_symbolizer *symbols = NULL;
	struct msp_snapshot snapshot;

	if (msp_symbolizer_new(images, space, NULL, &symbols) < 0)
		return;
	if (msp_snapshot_of_core(space, core, &everything, &snapshot) == 0) {
		for (size_t i = 0; i < snapshot.count && i < 8; i++)
			name_stack(symbols, snapshot.thread[i].frames, snapshot.thread[i].variables,
				   snapshot.thread[i].count);
		for (size_t i = 0; i < snapshot.coroutines && i < 8; i++)
			name_stack(symbols, snapshot.coroutine[i].frames,
				   snapshot.coroutine[i].variables, snapshot.coroutine[i].count);
		msp_snapshot_free(&snapshot);
	}
	msp_symbolizer_free(symbols);
}

static struct msp_images *new_images(bool luajit)
{
	struct msp_images_options options = {.threads = 1, .no_luajit = !luajit};
	struct msp_images *images;

	if (msp_images_new(&options, &images) < 0)
		abort();
	return images;
}

/* ---- Any bytes as a core file ---- */

/* To look for a LuaJIT in what is there of the files takes long: in one core of some. */
static void use_core(struct msp_core *core, bool luajit)
{
	struct msp_images *images = new_images(luajit);
	struct msp_space *space;
	size_t count;

	msp_core_signal(core);
	if (msp_space_new_host(images, msp_core_host(core), &space) == 0) {
		if (msp_space_refresh(space) >= 0 && msp_space_find_vms(space) >= 0)
			use_space(space, images, core);
		msp_core_gaps(core, &count);
		msp_core_unchecked(core);
		msp_space_free(space);
	}
	msp_images_free(images);
}

static void fuzz_file(const uint8_t *data, size_t size)
{
	/* No files of this machine: the result must not depend on it. */
	const struct msp_core_options options = {.sysroot = "/proc/self/fdinfo"};
	char why[MSP_CORE_WHY_SIZE];
	struct msp_core *core;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (msp_core_open(fd, &options, &core, why) < 0) {
		if (!*why)
			abort();
		return;
	}
	use_core(core, size % 16 == 0);
	msp_core_close(core);
}

/* ---- A real VM, some words of which are lies ---- */

#define PATCHES_MAX 64

static struct {
	struct msp_core *core;
	struct msp_images *images;
	struct msp_host host; /* the core's, but for its memory */
	struct msp_memory memory;
	uint64_t seen[4096]; /* addresses that are read without lies: what is worth changing */
	size_t seen_count;
	struct {
		uint64_t addr, value;
	} patch[PATCHES_MAX];
	size_t patches;
	bool noting;
} lie;

static int read_lies(void *ctx, uint64_t addr, void *buf, size_t size)
{
	const struct msp_memory *under = ctx;
	int r = msp_read(under, addr, buf, size);

	if (lie.noting && lie.seen_count < sizeof(lie.seen) / sizeof(lie.seen[0]))
		lie.seen[lie.seen_count++] = addr & ~7ull;
	for (size_t i = 0; r == 0 && i < lie.patches; i++) {
		uint64_t at = lie.patch[i].addr;

		if (at >= addr && at - addr <= size && size - (at - addr) >= 8)
			memcpy((char *)buf + (at - addr), &lie.patch[i].value, 8);
	}
	return r;
}

static uint64_t pick(uint64_t word)
{
	return lie.seen_count ? lie.seen[word % lie.seen_count] + (word >> 13 & 0x78) : 0;
}

/* Each 11 bytes of the input are a lie: where, what kind of value, and the value. */
static void take_patches(const uint8_t *data, size_t size)
{
	lie.patches = 0;
	for (; size >= 11 && lie.patches < PATCHES_MAX; data += 11, size -= 11) {
		uint64_t value;
		uint16_t where;

		memcpy(&where, data, 2);
		memcpy(&value, data + 3, 8);
		lie.patch[lie.patches].addr = pick(where | (uint64_t)data[2] << 12);
		switch (data[2] & 3) {
		case 0: /* anything */
			break;
		case 1: /* an address that is read, too */
			value = pick(value);
			break;
		case 2: /* near what is there */
			if (msp_read(msp_core_host(lie.core)->memory, lie.patch[lie.patches].addr,
				     &value, 8) == 0)
				value += (int8_t)data[3];
			break;
		case 3: /* its own address: a circle */
			value = lie.patch[lie.patches].addr;
			break;
		}
		lie.patch[lie.patches++].value = value;
	}
}

static void walk_lies(void)
{
	struct msp_space *space;

	if (msp_space_new_host(lie.images, &lie.host, &space) < 0)
		return;
	if (msp_space_refresh(space) >= 0)
		use_space(space, lie.images, lie.core);
	msp_space_free(space);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *path = getenv("MOONSPY_FUZZ_CORE");
	const struct msp_core_options options = {.exe = NULL};
	char why[MSP_CORE_WHY_SIZE];
	int fd;

	(void)argc;
	(void)argv;
	if (!path)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || msp_core_open(fd, &options, &lie.core, why) < 0) {
		fprintf(stderr, "core_fuzz: cannot read %s\n", path);
		exit(1);
	}
	lie.images = new_images(true);
	lie.host = *msp_core_host(lie.core);
	lie.memory = (struct msp_memory){read_lies, (void *)msp_core_host(lie.core)->memory};
	lie.host.memory = &lie.memory;
	lie.noting = true;
	walk_lies();
	lie.noting = false;
	if (!msp_images_builds(lie.images) || lie.seen_count < 50) {
		fprintf(stderr, "core_fuzz: no LuaJIT in %s\n", path);
		exit(1);
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!lie.core) {
		fuzz_file(data, size);
		return 0;
	}
	take_patches(data, size);
	walk_lies();
	return 0;
}

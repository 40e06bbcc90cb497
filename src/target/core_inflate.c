/* SPDX-License-Identifier: MIT */
/*
 * Compressed cores, as systemd-coredump keeps them: decompressed into a file without
 * a name, as a core is read from everywhere. Pages of zeros become holes.
 */
#include "target/core_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <lz4frame.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zstd.h>

#include "moonspy/moonspy.h"

#define IN_SIZE (128u << 10)
#define OUT_SIZE (256u << 10)
#define PAGE 4096u
#define SIZE_MAX_CORE (1ull << 40) /* a core that claims more is a bomb */
#define LZMA_MEMORY (256u << 20)

int core_temporary(void)
{
	const char *dirs[] = {getenv("TMPDIR"), "/var/tmp", "/tmp", "/dev/shm"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		int fd = dirs[i] && *dirs[i] ? open(dirs[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
					     : -1;

		if (fd >= 0)
			return fd;
	}
	return MSP_E_IO;
}

struct inflater {
	int in, out;
	uint8_t *in_buf, *out_buf;
	size_t in_pos, in_size; /* of in_buf */
	size_t out_used;
	uint64_t written, on_disk, disk_max;
	bool ended; /* of the input */
	char *why;
};

static int fail(struct inflater *f, int error, const char *why)
{
	snprintf(f->why, MSP_CORE_WHY_SIZE, "%s", why);
	return error;
}

/* More input, if all of it was used. */
static int fill(struct inflater *f)
{
	ssize_t n;

	if (f->in_pos < f->in_size || f->ended)
		return 0;
	do
		n = read(f->in, f->in_buf, IN_SIZE);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return fail(f, MSP_E_IO, strerror(errno));
	f->ended = n == 0;
	f->in_pos = 0;
	f->in_size = (size_t)n;
	return 0;
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
	return !bytes[0] && !memcmp(bytes, bytes + 1, size - 1);
}

static int put_page(struct inflater *f, const uint8_t *bytes, size_t size)
{
	uint64_t at = f->written;

	f->written += size;
	if (f->written > SIZE_MAX_CORE)
		return fail(f, MSP_E_LIMIT, "it would be bigger than a terabyte");
	if (is_zero(bytes, size))
		return 0;
	f->on_disk += size;
	if (f->on_disk > f->disk_max)
		return fail(f, MSP_E_LIMIT,
			    "decompressed, it does not fit on the disk: TMPDIR "
			    "chooses another");
	while (size) {
		ssize_t n = pwrite(f->out, bytes, size, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(f, MSP_E_IO, n ? strerror(errno) : "the disk is full");
		bytes += n;
		at += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

/* Writes what was decompressed. */
static int drain(struct inflater *f)
{
	int r = 0;

	for (size_t at = 0; !r && at < f->out_used; at += PAGE)
		r = put_page(f, f->out_buf + at, f->out_used - at < PAGE ? f->out_used - at : PAGE);
	f->out_used = 0;
	return r;
}

/* One call of a library: takes from the input, appends to the output. 1: all is done. */
typedef int (*step_fn)(struct inflater *f, void *state);

static int run(struct inflater *f, step_fn step, void *state)
{
	size_t used;
	int r = 0;

	while (!r) {
		r = fill(f);
		if (r)
			return r;
		used = f->out_used;
		r = step(f, state);
		/* Cut off: what is there is a core that is cut off. */
		if (!r && f->ended && f->in_pos == f->in_size && f->out_used == used)
			r = 1;
		if (r >= 0 && f->out_used == OUT_SIZE) {
			int error = drain(f);

			r = error ? error : r;
		}
	}
	if (r > 0)
		r = drain(f);
	return r;
}

static int step_zstd(struct inflater *f, void *state)
{
	ZSTD_inBuffer in = {f->in_buf, f->in_size, f->in_pos};
	ZSTD_outBuffer out = {f->out_buf, OUT_SIZE, f->out_used};
	size_t n = ZSTD_decompressStream(state, &out, &in);

	f->in_pos = in.pos;
	f->out_used = out.pos;
	return ZSTD_isError(n) ? fail(f, MSP_E_FORMAT, ZSTD_getErrorName(n)) : 0;
}

static int inflate_zstd(struct inflater *f)
{
	ZSTD_DStream *state = ZSTD_createDStream();
	int r = state ? run(f, step_zstd, state) : MSP_E_NOMEM;

	ZSTD_freeDStream(state);
	return r;
}

static int step_lz4(struct inflater *f, void *state)
{
	size_t in = f->in_size - f->in_pos, out = OUT_SIZE - f->out_used, n;

	n = LZ4F_decompress(state, f->out_buf + f->out_used, &out, f->in_buf + f->in_pos, &in,
			    NULL);
	f->in_pos += in;
	f->out_used += out;
	return LZ4F_isError(n) ? fail(f, MSP_E_FORMAT, LZ4F_getErrorName(n)) : 0;
}

static int inflate_lz4(struct inflater *f)
{
	LZ4F_dctx *state = NULL;
	int r = LZ4F_isError(LZ4F_createDecompressionContext(&state, LZ4F_VERSION))
			? MSP_E_NOMEM
			: run(f, step_lz4, state);

	LZ4F_freeDecompressionContext(state);
	return r;
}

static int step_xz(struct inflater *f, void *state)
{
	lzma_stream *stream = state;
	lzma_ret got;

	stream->next_in = f->in_buf + f->in_pos;
	stream->avail_in = f->in_size - f->in_pos;
	stream->next_out = f->out_buf + f->out_used;
	stream->avail_out = OUT_SIZE - f->out_used;
	got = lzma_code(stream, LZMA_RUN);
	f->in_pos = f->in_size - stream->avail_in;
	f->out_used = OUT_SIZE - stream->avail_out;
	if (got == LZMA_STREAM_END)
		return 1;
	if (got == LZMA_OK || (got == LZMA_BUF_ERROR && f->ended))
		return 0;
	return fail(f, MSP_E_FORMAT, "its xz data is damaged");
}

static int inflate_xz(struct inflater *f)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	int r = lzma_stream_decoder(&stream, LZMA_MEMORY, 0) == LZMA_OK ? run(f, step_xz, &stream)
									: MSP_E_NOMEM;

	lzma_end(&stream);
	return r;
}

static const struct {
	uint8_t magic[6];
	size_t size;
	int (*inflate)(struct inflater *f);
} kinds[] = {
	{{0x28, 0xb5, 0x2f, 0xfd}, 4, inflate_zstd},
	{{0x04, 0x22, 0x4d, 0x18}, 4, inflate_lz4},
	{{0xfd, '7', 'z', 'X', 'Z', 0}, 6, inflate_xz},
};

/* How much of the temporary file's disk may be used: not its last tenth. */
static uint64_t disk_space(int fd)
{
	struct statvfs fs;

	if (fstatvfs(fd, &fs) < 0)
		return SIZE_MAX_CORE;
	return (uint64_t)fs.f_bavail * fs.f_frsize / 10 * 9;
}

static int inflate_with(struct inflater *f, int (*inflate)(struct inflater *f))
{
	int r;

	f->out = core_temporary();
	if (f->out < 0)
		return fail(f, f->out, "no temporary file can be made: TMPDIR chooses where");
	f->disk_max = disk_space(f->out);
	f->in_buf = malloc(IN_SIZE);
	f->out_buf = malloc(OUT_SIZE);
	r = f->in_buf && f->out_buf ? 0 : MSP_E_NOMEM;
	if (!r && lseek(f->in, 0, SEEK_SET) < 0)
		r = fail(f, MSP_E_IO, strerror(errno));
	if (!r)
		r = inflate(f);
	if (!r && !f->written)
		r = fail(f, MSP_E_FORMAT, "it ends before anything can be decompressed");
	if (!r && ftruncate(f->out, (off_t)f->written) < 0)
		r = fail(f, MSP_E_IO, strerror(errno));
	free(f->in_buf);
	free(f->out_buf);
	return r;
}

int core_inflate(int *fd, char why[MSP_CORE_WHY_SIZE])
{
	struct inflater f = {.in = *fd, .out = -1, .why = why};
	uint8_t magic[6];
	int r;

	if (core_pread(*fd, 0, magic, sizeof(magic)))
		return 0;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (memcmp(magic, kinds[i].magic, kinds[i].size) != 0)
			continue;
		r = inflate_with(&f, kinds[i].inflate);
		if (r < 0) {
			if (f.out >= 0)
				close(f.out);
			return r;
		}
		close(*fd);
		*fd = f.out;
		return 0;
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* What was found in a LuaJIT, kept on disk: the same is read back, and damaged files do no harm. */
#include "luajit_help.h"

#include <dirent.h>
#include <sys/stat.h>
#include <zlib.h>

#define STAMP 4711
/* cache_blob.c: magic 8, arch, stamp, key 64, fingerprint 8, size, body_crc, unused, header_crc */
#define HEADER 104
#define BODY_CRC_AT 92
#define HEADER_CRC_AT 100

static char dir[] = "/tmp/moonspy-cache-XXXXXX", path[512];

static struct msp_image *open_cached(void)
{
	struct msp_image_options opts = {.name = LUAJIT, .cache_dir = dir};
	struct msp_image *image;

	assert_int_equal(msp_image_open_fd(open(LUAJIT, O_RDONLY | O_CLOEXEC), &opts, &image), 0);
	return image;
}

static int make_dir(void **state)
{
	struct dirent *entry;
	struct msp_lj_build *build;
	struct msp_image *image;
	DIR *stream;

	(void)state;
	if (!have_file(LUAJIT))
		return 0;
	assert_non_null(mkdtemp(dir));
	image = open_cached();
	assert_int_equal(msp_lj_build_find_cached(image, STAMP, &build), 0);
	msp_lj_build_free(build);
	msp_image_close(image);
	stream = opendir(dir);
	while ((entry = readdir(stream)))
		if (strstr(entry->d_name, "." MSP_CACHE_LUAJIT))
			snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
	closedir(stream);
	assert_true(path[0] != 0);
	return 0;
}

static int remove_dir(void **state)
{
	struct dirent *entry;
	DIR *stream = opendir(dir);
	char name[1024];

	(void)state;
	while (stream && (entry = readdir(stream))) {
		snprintf(name, sizeof(name), "%s/%s", dir, entry->d_name);
		unlink(name);
	}
	if (stream)
		closedir(stream);
	rmdir(dir);
	return 0;
}

static uint8_t *read_file(size_t *size)
{
	struct stat st;
	uint8_t *bytes;
	int fd = open(path, O_RDONLY);

	assert_int_equal(fstat(fd, &st), 0);
	*size = (size_t)st.st_size;
	bytes = malloc(*size);
	assert_int_equal(read(fd, bytes, *size), (ssize_t)*size);
	close(fd);
	return bytes;
}

static void write_file(const uint8_t *bytes, size_t size)
{
	int fd = open(path, O_WRONLY | O_TRUNC);

	assert_int_equal(write(fd, bytes, size), (ssize_t)size);
	close(fd);
}

static void seal(uint8_t *bytes, size_t size)
{
	uint32_t crc = (uint32_t)crc32(0, bytes + HEADER, (uInt)(size - HEADER));

	memcpy(bytes + BODY_CRC_AT, &crc, sizeof(crc));
	crc = (uint32_t)crc32(0, bytes, HEADER_CRC_AT);
	memcpy(bytes + HEADER_CRC_AT, &crc, sizeof(crc));
}

static void compare(const struct msp_lj_build *a, const struct msp_lj_build *b)
{
	assert_memory_equal(&a->layout, &b->layout, sizeof(a->layout));
	assert_memory_equal(a->has, b->has, sizeof(a->has));
	assert_memory_equal(a->segment, b->segment, sizeof(a->segment));
	assert_memory_equal(a->handler, b->handler, sizeof(a->handler));
	assert_string_equal(a->version, b->version);
	assert_int_equal(a->handler_count, b->handler_count);
	assert_int_equal(a->g_gcroot, b->g_gcroot);
	assert_int_equal(a->evidence_count, b->evidence_count);
	for (size_t i = 0; i < a->evidence_count; i++) {
		assert_string_equal(a->evidence[i].field, b->evidence[i].field);
		assert_string_equal(a->evidence[i].source, b->evidence[i].source);
		assert_string_equal(a->evidence[i].why, b->evidence[i].why);
		assert_int_equal(a->evidence[i].value, b->evidence[i].value);
	}
	assert_int_equal(a->rows.row_count, b->rows.row_count);
	assert_int_equal(a->rows.rule_count, b->rows.rule_count);
	assert_memory_equal(a->rows.rows, b->rows.rows, a->rows.row_count * sizeof(struct msp_row));
	assert_memory_equal(a->rows.rules, b->rows.rules,
			    a->rows.rule_count * sizeof(struct msp_rule));
	for (int i = 0; i < MSP_LJ_MAX_FF; i++) {
		assert_true(!a->ff_name[i] == !b->ff_name[i]);
		if (a->ff_name[i])
			assert_string_equal(a->ff_name[i], b->ff_name[i]);
	}
}

static void test_same(void **state)
{
	struct msp_lj_build *fresh, *kept;
	struct msp_image *image;

	(void)state;
	if (!path[0])
		skip();
	image = open_cached();
	assert_int_equal(msp_lj_build_find(image, &fresh), 0);
	assert_int_equal(msp_lj_build_find_cached(image, STAMP, &kept), 0);
	assert_non_null(kept->strings); /* it does come from the file */
	compare(fresh, kept);
	msp_lj_build_free(kept);
	/* Another program's is not used. */
	assert_int_equal(msp_lj_build_find_cached(image, 0, &kept), 0);
	assert_null(kept->strings);
	msp_lj_build_free(kept);
	msp_lj_build_free(fresh);
	msp_image_close(image);
}

/* Reads the file as it is now; true: it was used. */
static bool used(struct msp_image *image)
{
	size_t size;
	void *bytes = msp_image_cache_read(image, MSP_CACHE_LUAJIT, STAMP, &size);

	free(bytes);
	return bytes != NULL;
}

static void test_damaged(void **state)
{
	struct msp_image *image;
	uint8_t *bytes;
	size_t size;

	(void)state;
	if (!path[0])
		skip();
	bytes = read_file(&size);
	image = open_cached();
	for (size_t i = 0; i < size; i += i < HEADER ? 1 : 97) {
		bytes[i] ^= 0x10;
		write_file(bytes, size);
		assert_false(used(image));
		bytes[i] ^= 0x10;
	}
	write_file(bytes, size - 1);
	assert_false(used(image));
	write_file(bytes, size);
	assert_true(used(image));
	msp_image_close(image);
	free(bytes);
}

/* With a right checksum: whatever it says, it is a whole build, or the file is analysed anew. */
static void test_forged(void **state)
{
	struct msp_lj_build *build;
	struct msp_image *image;
	unsigned int kept = 0, anew = 0;
	uint8_t *bytes;
	size_t size;

	(void)state;
	if (!path[0])
		skip();
	bytes = read_file(&size);
	image = open_cached();
	for (size_t i = HEADER; i < size; i += 211) {
		uint8_t *copy = malloc(size);

		memcpy(copy, bytes, size);
		copy[i] = copy[i] == 0xff ? 0x7f : 0xff;
		seal(copy, size);
		write_file(copy, size);
		free(copy);
		if (msp_lj_build_find_cached(image, STAMP, &build) == 0 && build->strings)
			kept++;
		else
			anew++;
		for (size_t e = 0; build && e < build->evidence_count; e++)
			assert_true(strlen(build->evidence[e].source) > 0);
		msp_lj_build_free(build);
	}
	print_message("%u forged files read as something else, %u refused\n", kept, anew);
	write_file(bytes, size);
	msp_image_close(image);
	free(bytes);
}

/* CPU time of the fastest of five. */
static double time_find(uint32_t stamp)
{
	double best = 1e9;

	for (int i = 0; i < 5; i++) {
		struct msp_image *image = open_cached();
		struct msp_lj_build *build;
		double start = cpu_ms();

		/* a stamp of its own: the file is not used, and written anew */
		assert_int_equal(msp_lj_build_find_cached(
					 image, stamp ? stamp : STAMP + 1 + (uint32_t)i, &build),
				 0);
		start = cpu_ms() - start;
		best = start < best ? start : best;
		msp_lj_build_free(build);
		msp_image_close(image);
	}
	return best;
}

/* The budget at first sight is 200 ms; how fast this machine is is not asserted. */
static void test_the_cache_is_faster(void **state)
{
	double anew, cached;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	anew = time_find(0);
	time_find(STAMP);
	cached = time_find(STAMP);
	print_message("analysis of %s: %.1f ms of CPU, from the cache %.2f ms\n", LUAJIT, anew,
		      cached);
	assert_true(cached * 5 < anew);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_forged),
		cmocka_unit_test(test_the_cache_is_faster),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

/* SPDX-License-Identifier: MIT */
/* The table cache on disk: what is written is read back, what is damaged or not ours is not used. */
#include <dirent.h>
#include <dwarf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "elf/cache.h"
#include "elf_help.h"

static const uint8_t id[20] = {0x11, 0x22, 0x33, 4, 5, 6, 7, 8, 9, 10};
static char dir[64];
static struct test_elf elf;

static int setup(void **state)
{
	static const uint8_t initial[] = {DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1};
	static const uint8_t program[] = {DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16};
	struct test_cfi cfi = {.eh = true};

	strcpy(dir, "/tmp/elf-cache-XXXXXX");
	assert_non_null(mkdtemp(dir));
	test_elf_start(&elf, EM_X86_64, 0);
	test_elf_build_id(&elf, id);
	cfi_cie(&cfi, "zR", initial, sizeof(initial));
	for (uint64_t i = 0; i < 20; i++)
		cfi_fde(&cfi, TEXT_OFFSET + 0x40 * i, 0x20 + i, program, sizeof(program));
	test_elf_section(&elf, ".eh_frame", SHT_PROGBITS, cfi.bytes, cfi.size);
	test_elf_finish(&elf);
	return 0;
}

static int teardown(void **state)
{
	DIR *stream = opendir(dir);
	struct dirent *entry;

	while (stream && (entry = readdir(stream)))
		unlinkat(dirfd(stream), entry->d_name, 0);
	closedir(stream);
	return rmdir(dir);
}

static void path_of_table(char *path, size_t size)
{
	snprintf(path, size, "%s/b-1122330405060708090a00000000000000000000.rows", dir);
}

/* Opens the image with the cache; whether the table came from it. */
static bool load(const char *cache_dir)
{
	struct msp_image_options opts = {.cache_dir = cache_dir};
	struct msp_image *image = test_elf_open(&elf, &opts);
	const struct msp_unwind_table *table;
	bool from_cache;

	assert_int_equal(msp_image_unwind(image, &table), 0);
	assert_int_equal(table->row_count, 60);
	assert_int_equal(table->function_count, 20);
	assert_int_equal(rule_of(table, TEXT_OFFSET + 1)->cfa_off, 16);
	from_cache = table->from_cache;
	msp_image_close(image);
	return from_cache;
}

static void round_trip(void **state)
{
	assert_false(load(NULL));
	assert_false(load(dir));
	assert_true(load(dir));
	assert_true(load(dir));
}

static uint32_t note_of(uint32_t set)
{
	struct msp_image_options opts = {.cache_dir = dir};
	struct msp_image *image = test_elf_open(&elf, &opts);
	const struct msp_unwind_table *table;
	uint32_t note;

	assert_int_equal(msp_image_unwind(image, &table), 0);
	note = msp_image_note(image);
	if (set)
		msp_image_set_note(image, set);
	msp_image_close(image);
	return note;
}

/* Kept until the table is made anew. */
static void note(void **state)
{
	assert_int_equal(note_of(0), 0);
	assert_int_equal(note_of(0x12345678), 0);
	assert_int_equal(note_of(0), 0x12345678);
	assert_true(load(dir));
	((Elf64_Phdr *)(elf.bytes + sizeof(Elf64_Ehdr)))[1].p_memsz += 0x1000;
	assert_int_equal(note_of(0), 0);
}

/* The overlay belongs to the one who made it. */
static void without_overlay(void **state)
{
	const struct msp_rule rule = {.cfa_kind = MSP_CFA_END};
	const struct msp_row row = {TEXT_OFFSET, 0};
	struct msp_image_options opts = {.cache_dir = dir};

	for (int i = 0; i < 2; i++) {
		struct msp_image *image = test_elf_open(&elf, &opts);
		const struct msp_unwind_table *table;

		assert_int_equal(msp_image_overlay(image, TEXT_OFFSET, TEXT_OFFSET + 0x400, &row, 1,
						   &rule, 1),
				 0);
		assert_int_equal(msp_image_unwind(image, &table), 0);
		assert_int_equal(rule_of(table, TEXT_OFFSET + 1)->cfa_kind, MSP_CFA_END);
		msp_image_close(image);
	}
	assert_true(load(dir));
}

/* Each byte of the file, changed: compiled anew with the right result, and written again. */
static void damaged(void **state)
{
	char path[128];
	uint8_t bytes[4096], bad[4096];
	ssize_t size;
	int fd;

	assert_false(load(dir));
	path_of_table(path, sizeof(path));
	fd = open(path, O_RDONLY);
	size = read(fd, bytes, sizeof(bytes));
	close(fd);
	assert_true(size > 112);
	for (ssize_t i = 0; i < size; i++) {
		memcpy(bad, bytes, (size_t)size);
		bad[i] ^= (uint8_t)(1 + i % 255);
		fd = open(path, O_WRONLY | O_TRUNC);
		assert_int_equal(write(fd, bad, (size_t)size), size);
		close(fd);
		assert_false(load(dir));
	}
	for (ssize_t i = 0; i < size; i += 7) {
		assert_int_equal(truncate(path, i), 0);
		assert_false(load(dir));
	}
	assert_true(load(dir));
}

/* The same build id, but another layout. */
static void other_file(void **state)
{
	struct test_elf copy = elf;

	assert_false(load(dir));
	((Elf64_Phdr *)(elf.bytes + sizeof(Elf64_Ehdr)))[1].p_memsz += 0x1000;
	assert_false(load(dir));
	elf = copy;
	assert_false(load(dir));
	assert_true(load(dir));
}

static void unsafe_directory(void **state)
{
	char link[128], made[128];

	assert_int_equal(chmod(dir, 0777), 0);
	assert_false(load(dir));
	assert_false(load(dir));
	assert_int_equal(chmod(dir, 0700), 0);
	snprintf(link, sizeof(link), "%s-link", dir);
	assert_int_equal(symlink(dir, link), 0);
	assert_false(load(link));
	assert_false(load(link));
	unlink(link);
	snprintf(made, sizeof(made), "%s/none/there", dir);
	assert_false(load(made));
	if (geteuid() == 0) {
		assert_int_equal(chown(dir, 12345, 12345), 0);
		assert_false(load(dir));
		assert_false(load(dir));
		assert_int_equal(chown(dir, 0, 0), 0);
	}
	assert_false(load(dir));
	assert_true(load(dir));
}

static void links_in_directory(void **state)
{
	char path[128], victim[128];
	struct stat st;
	int fd;

	snprintf(victim, sizeof(victim), "%s/victim", dir);
	fd = open(victim, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(fd, "precious", 8), 8);
	close(fd);
	path_of_table(path, sizeof(path));
	assert_int_equal(symlink(victim, path), 0);
	assert_false(load(dir));
	assert_true(load(dir));
	assert_int_equal(stat(victim, &st), 0);
	assert_int_equal(st.st_size, 8);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode)); /* the link was replaced, not followed */
}

static void trimmed(void **state)
{
	static const char *const names[] = {"a.rows", "b.rows", "c.rows", "other"};
	int fd = open(dir, O_RDONLY | O_DIRECTORY), file;
	struct stat st;

	for (int i = 0; i < 4; i++) {
		struct timespec times[2] = {{.tv_sec = 1000 * (5 - i)}, {.tv_sec = 1000 * (5 - i)}};

		file = openat(fd, names[i], O_WRONLY | O_CREAT, 0600);
		assert_int_equal(ftruncate(file, 1000), 0);
		assert_int_equal(futimens(file, times), 0);
		close(file);
	}
	msp_cache_trim(fd, 4000);
	assert_int_equal(fstatat(fd, "c.rows", &st, 0), 0);
	msp_cache_trim(fd, 2000);
	assert_int_equal(fstatat(fd, "a.rows", &st, 0), 0);
	assert_int_not_equal(fstatat(fd, "b.rows", &st, 0), 0);
	assert_int_not_equal(fstatat(fd, "c.rows", &st, 0), 0);
	assert_int_equal(fstatat(fd, "other", &st, 0), 0); /* not a table of ours */
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(note, setup, teardown),
		cmocka_unit_test_setup_teardown(without_overlay, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(other_file, setup, teardown),
		cmocka_unit_test_setup_teardown(unsafe_directory, setup, teardown),
		cmocka_unit_test_setup_teardown(links_in_directory, setup, teardown),
		cmocka_unit_test_setup_teardown(trimmed, setup, teardown)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

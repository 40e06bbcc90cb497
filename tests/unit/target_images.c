/* SPDX-License-Identifier: MIT */
/* Images of files that nobody maps any more are freed, and their indices given to others. */
#include "target_help.h"

#include "elf_help.h"
#include "target/images.h"

#define MANY 200
#define KEPT 128 /* images.c: KEEP_COUNT */

static char dir[64];

static void path_of(int number, char *path, size_t size)
{
	snprintf(path, size, "%s/%d", dir, number);
}

/* Files that differ in their build id only. */
static int make_files(void **state)
{
	static struct test_elf elf;
	uint8_t id[20] = {1};
	char path[96];
	int fd;

	strcpy(dir, "/tmp/target-images-XXXXXX");
	assert_non_null(mkdtemp(dir));
	for (int i = 0; i < MANY; i++) {
		memcpy(id + 4, &i, sizeof(i));
		test_elf_start(&elf, EM_X86_64, 0);
		test_elf_build_id(&elf, id);
		test_elf_finish(&elf);
		path_of(i, path, sizeof(path));
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
		assert_int_equal(write(fd, elf.bytes, elf.size), elf.size);
		close(fd);
	}
	return 0;
}

static int remove_files(void **state)
{
	char path[96];

	for (int i = 0; i < MANY; i++) {
		path_of(i, path, sizeof(path));
		unlink(path);
	}
	return rmdir(dir);
}

static const struct msp_image_entry *add(struct msp_images *images, int number)
{
	const struct msp_image_entry *entry;
	char path[96];

	path_of(number, path, sizeof(path));
	assert_int_equal(
		msp_images_add_file(images, open(path, O_RDONLY | O_CLOEXEC), path, &entry), 0);
	return entry;
}

static uint32_t alive(const struct msp_images *images)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i <= msp_images_count(images); i++)
		n += msp_images_get(images, i) != NULL;
	return n;
}

static void on_gone(void *ctx, const struct msp_image_entry *entry)
{
	assert_true(entry->index && strlen(msp_image_key(entry->image)->text));
	++*(uint32_t *)ctx;
}

/* Those that nobody uses are freed after a while: all but the last few, or all. */
static void trim(void **state)
{
	struct msp_images_options options = {0};
	struct msp_images *images;
	const struct msp_image_entry *held, *again;
	uint32_t gone = 0, index;

	assert_int_equal(msp_images_new(&options, &images), 0);
	for (int i = 0; i < MANY; i++)
		add(images, i);
	assert_int_equal(alive(images), MANY);
	assert_ptr_equal(add(images, 7), add(images, 7));
	held = add(images, 0);
	msp_images_hold(images, held->index);
	msp_images_hold(images, held->index);
	msp_images_release(images, held->index);
	/* BPF may be reading them still. */
	assert_int_equal(msp_images_trim(images, true, on_gone, &gone), 0);
	sleep(2);
	nap();
	index = add(images, MANY - 1)->index;
	assert_int_equal(msp_images_trim(images, false, on_gone, &gone), MANY - 1 - KEPT);
	assert_int_equal(gone, MANY - 1 - KEPT);
	assert_int_equal(alive(images), KEPT + 1);
	assert_ptr_equal(msp_images_get(images, held->index), held);
	assert_non_null(msp_images_get(images, index)); /* the oldest went first */
	assert_null(msp_images_get(images, 2));
	again = add(images, 1);
	assert_int_equal(again->index, 2);
	assert_int_equal(alive(images), KEPT + 2);
	assert_int_equal(msp_images_trim(images, true, on_gone, &gone), KEPT);
	assert_int_equal(alive(images), 2);
	assert_ptr_equal(add(images, 0), held);
	msp_images_release(images, held->index);
	assert_int_equal(msp_images_trim(images, true, on_gone, &gone), 0);
	msp_images_free(images);
}

static void map_files(struct shared *shared)
{
	void *at[MANY];
	char path[96];
	int fd;

	for (int i = 0; i < MANY; i++) {
		path_of(i, path, sizeof(path));
		fd = open(path, O_RDONLY | O_CLOEXEC);
		at[i] = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		shared->errors += at[i] == MAP_FAILED;
		close(fd);
	}
	shared->ready = 1;
	while (!shared->stop)
		nap();
	for (int i = 1; i < MANY; i++)
		munmap(at[i], 8192);
	shared->count = 1;
	for (;;)
		pause();
}

static uint32_t users(struct msp_images *images, int number)
{
	uint32_t index = add(images, number)->index;

	return images->slot[index - 1].users;
}

/* A space has the images that are mapped in it, and no others. */
static void space_holds(void **state)
{
	struct msp_images_options options = {0};
	struct msp_images *images;
	struct msp_space *space, *other;
	struct child child;

	assert_int_equal(msp_images_new(&options, &images), 0);
	spawn(&child, map_files);
	assert_int_equal(child.shared->errors, 0);
	assert_int_equal(msp_space_new(images, child.process, &space), 0);
	assert_int_equal(msp_space_new(images, child.process, &other), 0);
	assert_int_equal(users(images, 5), 0);
	assert_int_equal(msp_space_refresh(space), 1);
	assert_int_equal(msp_space_refresh(space), 0);
	assert_int_equal(users(images, 0), 1);
	assert_int_equal(users(images, 5), 1);
	assert_int_equal(msp_space_refresh(other), 1);
	assert_int_equal(users(images, 5), 2);
	child.shared->stop = 1;
	wait_for(child.shared->count);
	assert_int_equal(msp_space_refresh(space), 1);
	assert_int_equal(users(images, 0), 2);
	assert_int_equal(users(images, 5), 1);
	msp_space_free(other);
	assert_int_equal(users(images, 0), 1);
	assert_int_equal(users(images, 5), 0);
	msp_space_free(space);
	assert_int_equal(users(images, 0), 0);
	msp_images_free(images);
	finish(&child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trim),
		cmocka_unit_test(space_holds),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}

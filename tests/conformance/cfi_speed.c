/* SPDX-License-Identifier: MIT */
/*
 * How long it takes to have the rows of sixty files, as a large process maps
 * them: compiled, and from the cache. Budgets: 0.25 us a row, and what is left
 * of 0.3 s and 0.05 s to the first sample.
 */
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cfi_compare.h"

#define FILES 60

static double cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* others may share the machine */
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct total {
	int files, cached;
	unsigned long rows;
	double seconds;
};

static void load(const char *path, const char *cache_dir, struct total *total)
{
	struct msp_image_options opts = {.name = path, .cache_dir = cache_dir};
	const struct msp_unwind_table *table;
	struct msp_image *image;
	double start = cpu_time();

	if (msp_image_open_fd(open(path, O_RDONLY | O_CLOEXEC), &opts, &image))
		return;
	if (!msp_image_unwind(image, &table)) {
		total->files++;
		total->cached += table->from_cache;
		total->rows += table->row_count;
	}
	total->seconds += cpu_time() - start;
	msp_image_close(image);
}

/* Libraries of ordinary sizes: the first of them by name, each once, and the big three. */
static int list_files(glob_t *found, const char *paths[FILES])
{
	static const char *const big[] = {"/lib/x86_64-linux-gnu/libc.so.6",
					  "/lib/x86_64-linux-gnu/libcrypto.so.3",
					  "/lib/x86_64-linux-gnu/libstdc++.so.6"};
	struct stat st;
	int count = 0;

	for (int i = 0; i < 3; i++)
		if (!access(big[i], R_OK))
			paths[count++] = big[i];
	if (glob("/lib/x86_64-linux-gnu/lib*.so.[0-9]*", 0, NULL, found))
		return count;
	for (size_t i = 0; i < found->gl_pathc && count < FILES; i++)
		if (!lstat(found->gl_pathv[i], &st) && S_ISREG(st.st_mode) && st.st_size < 4 << 20)
			paths[count++] = found->gl_pathv[i];
	return count;
}

static void print_total(const char *what, const struct total *total)
{
	printf("  %-22s %d files (%d from the cache), %lu rows: %.1f ms of CPU, %.3f us a row\n",
	       what, total->files, total->cached, total->rows, total->seconds * 1e3,
	       total->seconds * 1e6 / (double)(total->rows + 1));
}

static void remove_dir(const char *dir)
{
	DIR *stream = opendir(dir);
	struct dirent *entry;

	while (stream && (entry = readdir(stream)))
		unlinkat(dirfd(stream), entry->d_name, 0);
	if (stream)
		closedir(stream);
	rmdir(dir);
}

int measure_speed(void)
{
	static const char *const runs[] = {"compiled", "compiled and written", "from the cache"};
	char dir[] = "/tmp/cfi-speed-XXXXXX";
	const char *paths[FILES];
	glob_t found = {0};
	int count = list_files(&found, paths), bad = 0;

	if (!mkdtemp(dir))
		return 1;
	printf("rows of the files of a large process:\n");
	for (int i = 0; i < count; i++) /* into the page cache */
		load(paths[i], NULL, &(struct total){0});
	for (int run = 0; run < 3; run++) {
		struct total total = {0};

		for (int i = 0; i < count; i++)
			load(paths[i], run ? dir : NULL, &total);
		print_total(runs[run], &total);
		/* Times are for people to read: other work may share the machine. */
		bad += total.cached != (run == 2 ? total.files : 0);
	}
	remove_dir(dir);
	globfree(&found);
	return bad;
}

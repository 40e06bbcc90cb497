/* SPDX-License-Identifier: MIT */
/*
 * Compiled tables on disk: a file per key in a directory that only we can
 * write. A file is this header, then the rules, the rows and the functions, as
 * they are in memory (tables.h), little-endian. It is written under another
 * name and renamed; what does not check out when it is read is compiled anew.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "elf/cache.h"
#include "moonspy/moonspy.h"

#define CACHE_MAGIC "MSPROWS\n"
/* To be raised whenever the same file could give other rows. */
#define CACHE_VERSION 9
#define SUFFIX ".rows"
/* The directory is looked through at every so many'th table written. */
#define TRIM_EVERY 32
/* The time of use need not be exact, and a write for each read is dear. */
#define TOUCH_AFTER 3600

struct cache_header {
	char magic[8];
	uint32_t version;
	uint32_t arch;
	struct msp_image_key key;
	uint64_t fingerprint; /* of what else the rows depend on */
	uint32_t rule_count, row_count, function_count;
	uint32_t body_crc;
	uint32_t note;	     /* see msp_image_set_note() */
	uint32_t header_crc; /* of all before it */
};

_Static_assert(sizeof(struct cache_header) == 112, "the format has no holes");
_Static_assert(sizeof(struct msp_rule) == 32 && sizeof(struct msp_row) == 8, "as in the file");

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

/*
 * A build id stays when a file is stripped, prelinked or gets a debug file, but
 * its rows may change: the layout and the sources of rows are part of the match.
 */
uint64_t msp_cache_fingerprint(struct msp_image *image)
{
	const struct msp_image *debug = msp_image_debug(image);
	uint64_t hash = mix(1, image->segment_count);

	for (uint32_t i = 0; i < image->segment_count; i++) {
		const struct msp_segment *seg = &image->segments[i];

		hash = mix(hash, seg->vaddr - image->min_vaddr);
		hash = mix(hash, seg->offset);
		hash = mix(hash, seg->file_size);
		hash = mix(hash, seg->mem_size << 1 | seg->exec);
	}
	hash = mix(hash, image->eh_frame_hdr - image->min_vaddr);
	for (int i = 0; i < MSP_SECTION_COUNT; i++) {
		const struct msp_section *section = msp_image_section(image, i);

		hash = mix(hash, section ? section->size : 0);
	}
	if (debug) {
		hash = mix(hash, debug->dev);
		hash = mix(hash, debug->ino);
		hash = mix(hash, debug->mtime_ns);
		hash = mix(hash, debug->size);
	}
	return hash;
}

/* The directory, -1 if there is none that only we can write. */
int msp_cache_dir(const struct msp_image *image, bool create)
{
	struct stat st;
	int dir;

	/* Memory without a build id has no key that would tell it from others. */
	if (!image->cache_dir || (image->fd < 0 && image->key.text[0] != 'b'))
		return -1;
	if (create && mkdir(image->cache_dir, 0700) && errno != EEXIST)
		return -1;
	dir = open(image->cache_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return -1;
	if (fstat(dir, &st) || st.st_uid != geteuid() || st.st_mode & 022) {
		close(dir);
		return -1;
	}
	return dir;
}

static void file_name(const struct msp_image *image, char *name, size_t size)
{
	snprintf(name, size, "%s" SUFFIX, image->key.text);
}

bool msp_cache_read(int fd, void *to, size_t size)
{
	uint8_t *at = to;

	while (size) {
		ssize_t n = read(fd, at, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		size -= (size_t)n;
	}
	return true;
}

static bool header_valid(struct msp_image *image, const struct cache_header *header, uint64_t size)
{
	uint64_t want = sizeof(*header) + (uint64_t)header->rule_count * sizeof(struct msp_rule) +
			(uint64_t)header->row_count * sizeof(struct msp_row) +
			(uint64_t)header->function_count * sizeof(uint32_t);

	return !memcmp(header->magic, CACHE_MAGIC, sizeof(header->magic)) &&
	       header->version == CACHE_VERSION && (int)header->arch == image->arch &&
	       header->header_crc ==
		       crc32(0, (const void *)header, offsetof(struct cache_header, header_crc)) &&
	       !strncmp(header->key.text, image->key.text, sizeof(header->key.text)) &&
	       header->rule_count && header->rule_count <= MSP_RULES_MAX &&
	       header->row_count <= MSP_ROWS_MAX && header->function_count <= MSP_ROWS_MAX &&
	       size == want && header->fingerprint == msp_cache_fingerprint(image);
}

static bool functions_valid(const struct msp_rows *rows)
{
	for (uint32_t i = 1; i < rows->function_count; i++)
		if (rows->functions[i] <= rows->functions[i - 1])
			return false;
	return true;
}

/* The next array of the body, NULL if it is not there. */
static void *read_array(int fd, uint32_t *crc, uint32_t count, uint32_t *room, size_t size)
{
	void *array;

	*room = count ? count : 1;
	array = malloc(*room * size);
	if (!array || !msp_cache_read(fd, array, count * size)) {
		free(array);
		return NULL;
	}
	*crc = (uint32_t)crc32_z(*crc, array, count * size);
	return array;
}

static struct msp_rows *read_table(int fd, const struct cache_header *header)
{
	struct msp_rows *rows = calloc(1, sizeof(*rows));
	uint32_t crc = 0;

	if (!rows)
		return NULL;
	rows->rule_count = header->rule_count;
	rows->count = header->row_count;
	rows->function_count = header->function_count;
	rows->rules =
		read_array(fd, &crc, rows->rule_count, &rows->rule_room, sizeof(*rows->rules));
	if (rows->rules)
		rows->rows = read_array(fd, &crc, rows->count, &rows->room, sizeof(*rows->rows));
	if (rows->rows)
		rows->functions = read_array(fd, &crc, rows->function_count, &rows->function_room,
					     sizeof(*rows->functions));
	if (rows->functions && crc == header->body_crc && functions_valid(rows) &&
	    msp_rows_valid(rows->rows, rows->count, rows->rules, rows->rule_count))
		return rows;
	msp_rows_free(rows);
	return NULL;
}

static void touch(int fd, const struct stat *st)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};

	if (time(NULL) - st->st_atime > TOUCH_AFTER)
		(void)!futimens(fd, times); /* a table that looks old is only removed early */
}

struct msp_rows *msp_cache_load(struct msp_image *image)
{
	char name[MSP_IMAGE_KEY_SIZE + sizeof(SUFFIX)];
	struct cache_header header;
	struct msp_rows *rows = NULL;
	struct stat st;
	int dir = msp_cache_dir(image, false), fd;

	if (dir < 0)
		return NULL;
	file_name(image, name, sizeof(name));
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	close(dir);
	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    msp_cache_read(fd, &header, sizeof(header)) &&
	    header_valid(image, &header, (uint64_t)st.st_size))
		rows = read_table(fd, &header);
	if (rows) {
		touch(fd, &st);
		image->note = header.note;
	}
	close(fd);
	return rows;
}

static void seal(struct cache_header *header)
{
	header->header_crc =
		(uint32_t)crc32(0, (const void *)header, offsetof(struct cache_header, header_crc));
}

/* In place: who reads a header half written finds its sum wrong, and makes the table anew. */
void msp_cache_note(struct msp_image *image)
{
	char name[MSP_IMAGE_KEY_SIZE + sizeof(SUFFIX)];
	struct cache_header header;
	struct stat st;
	int dir = msp_cache_dir(image, false), fd;

	if (dir < 0)
		return;
	file_name(image, name, sizeof(name));
	fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	close(dir);
	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    msp_cache_read(fd, &header, sizeof(header)) &&
	    header_valid(image, &header, (uint64_t)st.st_size)) {
		header.note = image->note;
		seal(&header);
		(void)!pwrite(fd, &header, sizeof(header), 0); /* what is damaged is not used */
	}
	close(fd);
}

bool msp_cache_write(int fd, const void *from, size_t size)
{
	const uint8_t *at = from;

	while (size) {
		ssize_t n = write(fd, at, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		size -= (size_t)n;
	}
	return true;
}

static bool write_table(int fd, struct msp_image *image, const struct msp_rows *rows)
{
	struct cache_header header = {.magic = CACHE_MAGIC,
				      .version = CACHE_VERSION,
				      .arch = (uint32_t)image->arch,
				      .key = image->key,
				      .fingerprint = msp_cache_fingerprint(image),
				      .rule_count = rows->rule_count,
				      .row_count = rows->count,
				      .function_count = rows->function_count};
	size_t rules = rows->rule_count * sizeof(*rows->rules);
	size_t body = rows->count * sizeof(*rows->rows);
	size_t functions = rows->function_count * sizeof(*rows->functions);
	uLong crc = crc32_z(0, (const void *)rows->rules, rules);

	/* crc32() of NULL is a request for its initial value. */
	if (body)
		crc = crc32_z(crc, (const void *)rows->rows, body);
	if (functions)
		crc = crc32_z(crc, (const void *)rows->functions, functions);
	header.body_crc = (uint32_t)crc;
	seal(&header);
	return msp_cache_write(fd, &header, sizeof(header)) &&
	       msp_cache_write(fd, rows->rules, rules) && msp_cache_write(fd, rows->rows, body) &&
	       msp_cache_write(fd, rows->functions, functions);
}

void msp_cache_store(struct msp_image *image, const struct msp_rows *rows)
{
	static atomic_uint counter;
	char name[MSP_IMAGE_KEY_SIZE + sizeof(SUFFIX)], temporary[64];
	unsigned number = atomic_fetch_add(&counter, 1);
	int dir = image->arch < 0 ? -1 : msp_cache_dir(image, true), fd;
	bool ok;

	if (dir < 0)
		return;
	file_name(image, name, sizeof(name));
	snprintf(temporary, sizeof(temporary), "tmp-%d-%u", (int)getpid(), number);
	fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0) {
		ok = write_table(fd, image, rows);
		ok = !close(fd) && ok;
		if (!ok || renameat(dir, temporary, dir, name))
			unlinkat(dir, temporary, 0);
	}
	if (number % TRIM_EVERY == 0)
		msp_cache_trim(dir, MSP_CACHE_SIZE_MAX);
	close(dir);
}

struct cached {
	char name[256];
	uint64_t size;
	time_t used;
};

static int by_use(const void *a, const void *b)
{
	const struct cached *x = a, *y = b;

	return x->used < y->used ? -1 : x->used > y->used;
}

/* Files of ours in the directory, with how much they take together. */
static struct cached *list_dir(int dir, size_t *count, uint64_t *total)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = copy < 0 ? NULL : fdopendir(copy);
	struct cached *list = NULL, *bigger;
	struct dirent *entry;
	size_t room = 0;
	struct stat st;

	*count = 0;
	*total = 0;
	while (stream && (entry = readdir(stream))) {
		if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		if (*count == room) {
			room = room ? room * 2 : 256;
			bigger = reallocarray(list, room, sizeof(*list));
			if (!bigger)
				break;
			list = bigger;
		}
		snprintf(list[*count].name, sizeof(list->name), "%s", entry->d_name);
		list[*count].size = (uint64_t)st.st_size;
		list[*count].used = st.st_atime > st.st_mtime ? st.st_atime : st.st_mtime;
		*total += (uint64_t)st.st_size;
		(*count)++;
	}
	if (stream)
		closedir(stream);
	else if (copy >= 0)
		close(copy);
	return list;
}

/* Only names that we gave: the directory may be shared with other things of the user's. */
static bool ours(const char *name)
{
	static const char *const suffixes[] = {SUFFIX, "." MSP_CACHE_LUAJIT};
	size_t length = strlen(name);

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (length > strlen(suffixes[i]) &&
		    !strcmp(name + length - strlen(suffixes[i]), suffixes[i]))
			return true;
	return !strncmp(name, "tmp-", 4);
}

void msp_cache_trim(int dir, uint64_t max)
{
	size_t count;
	uint64_t total;
	struct cached *list = list_dir(dir, &count, &total);

	if (total > max)
		qsort(list, count, sizeof(*list), by_use);
	for (size_t i = 0; total > max && i < count; i++)
		if (ours(list[i].name) && !unlinkat(dir, list[i].name, 0))
			total -= list[i].size;
	free(list);
}

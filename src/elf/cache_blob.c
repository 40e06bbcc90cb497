/* SPDX-License-Identifier: MIT */
/*
 * What others keep beside an image's rows: a file of the same name with another
 * ending, this header and then bytes that only their owner understands. The
 * rules of cache.c hold: only our own directory, written aside and renamed,
 * what does not check out is as if it were not there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "elf/cache.h"
#include "moonspy/moonspy.h"

#define BLOB_MAGIC "MSPBLOB\n"
#define BLOB_SIZE_MAX (4u << 20)

struct blob_header {
	char magic[8];
	uint32_t arch, stamp;
	struct msp_image_key key;
	uint64_t fingerprint;
	uint32_t size;
	uint32_t body_crc;
	uint32_t unused;
	uint32_t header_crc; /* of all before it */
};

_Static_assert(sizeof(struct blob_header) == 104, "the format has no holes");

static void file_name(const struct msp_image *image, const char *kind, char *name, size_t size)
{
	snprintf(name, size, "%s.%s", image->key.text, kind);
}

static uint32_t header_crc(const struct blob_header *header)
{
	return (uint32_t)crc32(0, (const void *)header, offsetof(struct blob_header, header_crc));
}

static bool header_valid(struct msp_image *image, const struct blob_header *header, uint32_t stamp,
			 uint64_t size)
{
	return !memcmp(header->magic, BLOB_MAGIC, sizeof(header->magic)) &&
	       header->header_crc == header_crc(header) && (int)header->arch == image->arch &&
	       header->stamp == stamp &&
	       !strncmp(header->key.text, image->key.text, sizeof(header->key.text)) &&
	       header->size && header->size <= BLOB_SIZE_MAX &&
	       size == sizeof(*header) + header->size &&
	       header->fingerprint == msp_cache_fingerprint(image);
}

static void *read_body(int fd, const struct blob_header *header)
{
	void *bytes = malloc(header->size);

	if (bytes && msp_cache_read(fd, bytes, header->size) &&
	    crc32_z(0, bytes, header->size) == header->body_crc)
		return bytes;
	free(bytes);
	return NULL;
}

void *msp_image_cache_read(struct msp_image *image, const char *kind, uint32_t stamp, size_t *size)
{
	char name[MSP_IMAGE_KEY_SIZE + 16];
	struct blob_header header;
	void *bytes = NULL;
	struct stat st;
	int dir = msp_cache_dir(image, false), fd;

	if (dir < 0)
		return NULL;
	file_name(image, kind, name, sizeof(name));
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	close(dir);
	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    msp_cache_read(fd, &header, sizeof(header)) &&
	    header_valid(image, &header, stamp, (uint64_t)st.st_size))
		bytes = read_body(fd, &header);
	close(fd);
	*size = bytes ? header.size : 0;
	return bytes;
}

static bool write_blob(int fd, struct msp_image *image, uint32_t stamp, const void *bytes,
		       size_t size)
{
	struct blob_header header = {.magic = BLOB_MAGIC,
				     .arch = (uint32_t)image->arch,
				     .stamp = stamp,
				     .key = image->key,
				     .fingerprint = msp_cache_fingerprint(image),
				     .size = (uint32_t)size,
				     .body_crc = (uint32_t)crc32_z(0, bytes, size)};

	header.header_crc = header_crc(&header);
	return msp_cache_write(fd, &header, sizeof(header)) && msp_cache_write(fd, bytes, size);
}

void msp_image_cache_write(struct msp_image *image, const char *kind, uint32_t stamp,
			   const void *bytes, size_t size)
{
	static atomic_uint counter;
	char name[MSP_IMAGE_KEY_SIZE + 16], temporary[64];
	int dir =
		image->arch < 0 || !size || size > BLOB_SIZE_MAX ? -1 : msp_cache_dir(image, true);
	int fd;
	bool ok;

	if (dir < 0)
		return;
	file_name(image, kind, name, sizeof(name));
	snprintf(temporary, sizeof(temporary), "tmp-%s-%d-%u", kind, (int)getpid(),
		 atomic_fetch_add(&counter, 1));
	fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0) {
		ok = write_blob(fd, image, stamp, bytes, size);
		ok = !close(fd) && ok;
		if (!ok || renameat(dir, temporary, dir, name))
			unlinkat(dir, temporary, 0);
	}
	close(dir);
}

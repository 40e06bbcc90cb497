/* SPDX-License-Identifier: MIT */
/*
 * The separate debug file: by build id, else by the name and checksum in
 * .gnu_debuglink. Looked up below the target's root, where links must not lead
 * out of it: a container's files are its own, and so are its lies.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include "elf/image.h"
#include "moonspy/moonspy.h"

#define DEBUG_DIR "/usr/lib/debug"

int msp_open_in_root(const char *root, const char *path)
{
	/* A FIFO in that place must not block us; what is no regular file is refused later. */
	struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), fd;

	if (dir < 0)
		return -1;
	fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	/* Sandboxes that do not know the call: only our own root is safe then. */
	if (fd < 0 && (errno == ENOSYS || errno == EPERM) && !strcmp(root, "/"))
		fd = open(path, (int)how.flags);
	close(dir);
	return fd;
}

static struct msp_image *open_candidate(const struct msp_image *image, const char *path)
{
	struct msp_image_options opts = {.root = image->root, .name = path};
	struct msp_image *debug;
	int fd = msp_open_in_root(image->root, path);

	if (fd < 0 || msp_image_open_fd(fd, &opts, &debug))
		return NULL;
	debug->debug_tried = true;
	/* The same file again, or one for another processor, helps nothing. */
	if (debug->arch != image->arch ||
	    (image->fd >= 0 && debug->ino == image->ino && debug->dev == image->dev)) {
		msp_image_close(debug);
		return NULL;
	}
	return debug;
}

static struct msp_image *by_build_id(const struct msp_image *image)
{
	char path[sizeof(DEBUG_DIR) + MSP_IMAGE_KEY_SIZE + 32];
	struct msp_image *debug;

	if (strlen(image->build_id) < 16)
		return NULL;
	snprintf(path, sizeof(path), DEBUG_DIR "/.build-id/%.2s/%s.debug", image->build_id,
		 image->build_id + 2);
	debug = open_candidate(image, path);
	if (debug && strcmp(debug->build_id, image->build_id)) {
		msp_image_close(debug);
		return NULL;
	}
	return debug;
}

static bool crc_matches(const struct msp_image *debug, uint32_t want)
{
	uint8_t buffer[65536];
	uLong crc = crc32(0, NULL, 0);

	for (uint64_t at = 0; at < debug->size; at += sizeof(buffer)) {
		size_t n = debug->size - at < sizeof(buffer) ? debug->size - at : sizeof(buffer);

		if (msp_image_read(debug, at, n, buffer))
			return false;
		crc = crc32(crc, buffer, (uInt)n);
	}
	return crc == want;
}

/* Name and checksum of the link; false if there is none or it is malformed. */
static bool read_link(struct msp_image *image, char *name, size_t name_size, uint32_t *crc)
{
	struct msp_bytes bytes;
	size_t length, at;
	bool ok = false;

	if (msp_section_read(image, MSP_SECTION_DEBUGLINK, &bytes))
		return false;
	length = strnlen((const char *)bytes.data, bytes.size);
	at = (length + 4) & ~(size_t)3; /* behind the name's zero, aligned */
	if (length && length < name_size && at + 4 <= bytes.size &&
	    !memchr(bytes.data, '/', length)) {
		memcpy(name, bytes.data, length + 1);
		memcpy(crc, bytes.data + at, 4);
		ok = true;
	}
	msp_bytes_free(&bytes);
	return ok;
}

static struct msp_image *check_link(const struct msp_image *image, const char *path, uint32_t crc)
{
	struct msp_image *debug = open_candidate(image, path);

	if (!debug)
		return NULL;
	/* Equal build ids are a better proof than the checksum, and spare us to read it all. */
	if (image->build_id[0] && debug->build_id[0] ? !strcmp(image->build_id, debug->build_id)
						     : crc_matches(debug, crc))
		return debug;
	msp_image_close(debug);
	return NULL;
}

static struct msp_image *by_debuglink(struct msp_image *image)
{
	static const char *const places[] = {"", "/.debug"};
	char name[256], path[4096];
	const char *slash = strrchr(image->name, '/');
	int dir = slash ? (int)(slash - image->name) : 0;
	struct msp_image *debug = NULL;
	uint32_t crc;

	if (image->name[0] != '/' || dir > 3000 || !read_link(image, name, sizeof(name), &crc))
		return NULL;
	for (int i = 0; i < 2 && !debug; i++) {
		snprintf(path, sizeof(path), "%.*s%s/%s", dir, image->name, places[i], name);
		debug = check_link(image, path, crc);
	}
	if (debug)
		return debug;
	snprintf(path, sizeof(path), DEBUG_DIR "%.*s/%s", dir, image->name, name);
	return check_link(image, path, crc);
}

struct msp_image *msp_image_debug(struct msp_image *image)
{
	if (image->debug_tried)
		return image->debug;
	image->debug_tried = true;
	if (image->arch < 0)
		return NULL;
	image->debug = by_build_id(image);
	if (!image->debug)
		image->debug = by_debuglink(image);
	return image->debug;
}

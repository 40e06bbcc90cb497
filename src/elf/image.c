/* SPDX-License-Identifier: MIT */
/*
 * Opening an image: program headers, key, bytes.
 *
 * Files are read with pread() into buffers, never mapped: a file that shrinks
 * while it is mapped (an update in place, a hostile container) would kill us
 * with SIGBUS, and the library must not install signal handlers. Only the
 * parts that are asked for are read, and segments only when someone wants
 * code bytes.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf/image.h"
#include "elf/rows.h"
#include "elf/symbols.h"
#include "moonspy/moonspy.h"

#define PAGE 4096ull

static void init_libelf(void)
{
	elf_version(EV_CURRENT);
}

int msp_image_read(const struct msp_image *image, uint64_t offset, size_t size, void *out)
{
	uint8_t *at = out;

	if (offset > image->size || size > image->size - offset)
		return MSP_E_FORMAT;
	if (image->fd < 0) {
		memcpy(out, (const uint8_t *)image->memory + offset, size);
		return 0;
	}
	while (size) {
		ssize_t n = pread(image->fd, at, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return MSP_E_IO;
		if (n == 0)
			return MSP_E_FORMAT; /* it has shrunk since we opened it */
		at += n;
		offset += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

int msp_image_read_bytes(const struct msp_image *image, uint64_t offset, uint64_t size,
			 struct msp_bytes *out)
{
	int err;

	memset(out, 0, sizeof(*out));
	if (offset > image->size || size > image->size - offset)
		return MSP_E_FORMAT;
	if (size > MSP_BYTES_MAX)
		return MSP_E_LIMIT;
	out->size = size;
	if (image->fd < 0) {
		out->data = (const uint8_t *)image->memory + offset;
		return 0;
	}
	out->owned = malloc(size ? size : 1);
	if (!out->owned)
		return MSP_E_NOMEM;
	out->data = out->owned;
	err = msp_image_read(image, offset, size, out->owned);
	if (err)
		msp_bytes_free(out);
	return err;
}

void msp_bytes_free(struct msp_bytes *bytes)
{
	free(bytes->owned);
	memset(bytes, 0, sizeof(*bytes));
}

static int arch_of(const GElf_Ehdr *ehdr)
{
	if (ehdr->e_ident[EI_CLASS] != ELFCLASS64)
		return MSP_E_UNSUPPORTED;
	switch (ehdr->e_machine) {
	case EM_X86_64:
		return MSP_ARCH_X86_64;
	case EM_AARCH64:
		return MSP_ARCH_ARM64;
	default:
		return MSP_E_UNSUPPORTED;
	}
}

static void add_segment(struct msp_image *image, const GElf_Phdr *phdr)
{
	struct msp_segment *seg = &image->segments[image->segment_count];

	/* An end that wraps around is a lie; so is more in the file than in memory. */
	if (!phdr->p_memsz || phdr->p_vaddr + phdr->p_memsz < phdr->p_vaddr ||
	    phdr->p_offset + phdr->p_filesz < phdr->p_offset || phdr->p_filesz > phdr->p_memsz ||
	    image->segment_count == MSP_SEGMENTS_MAX)
		return;
	seg->vaddr = phdr->p_vaddr;
	seg->offset = phdr->p_offset;
	seg->file_size = phdr->p_filesz;
	seg->mem_size = phdr->p_memsz;
	seg->exec = phdr->p_flags & PF_X;
	if (!image->segment_count || (seg->vaddr & -PAGE) < image->min_vaddr)
		image->min_vaddr = seg->vaddr & -PAGE;
	if (seg->vaddr + seg->mem_size > image->max_vaddr)
		image->max_vaddr = seg->vaddr + seg->mem_size;
	image->segment_count++;
}

static int read_headers(struct msp_image *image)
{
	GElf_Ehdr ehdr;
	size_t count = 0;

	if (elf_kind(image->elf) != ELF_K_ELF || !gelf_getehdr(image->elf, &ehdr))
		return MSP_E_FORMAT;
	if (ehdr.e_ident[EI_DATA] != ELFDATA2LSB ||
	    (ehdr.e_type != ET_EXEC && ehdr.e_type != ET_DYN))
		return MSP_E_FORMAT;
	image->arch = arch_of(&ehdr);
	image->is64 = ehdr.e_ident[EI_CLASS] == ELFCLASS64;
	if (elf_getphdrnum(image->elf, &count))
		return MSP_E_FORMAT;
	for (size_t i = 0; i < count && i < 4096; i++) {
		GElf_Phdr phdr;

		if (!gelf_getphdr(image->elf, (int)i, &phdr))
			return MSP_E_FORMAT;
		if (phdr.p_type == PT_LOAD)
			add_segment(image, &phdr);
		if (phdr.p_type == PT_GNU_EH_FRAME) {
			image->eh_frame_hdr = phdr.p_vaddr;
			image->eh_frame_hdr_size = phdr.p_filesz;
		}
	}
	msp_elf_build_id(image->elf, image->size, image->build_id, &image->build_id_vaddr);
	return 0;
}

static int copy_options(struct msp_image *image, const struct msp_image_options *opts)
{
	image->name = strdup(opts && opts->name ? opts->name : "");
	image->root = strdup(opts && opts->root && opts->root[0] ? opts->root : "/");
	if (!image->name || !image->root)
		return MSP_E_NOMEM;
	if (!opts || !opts->cache_dir)
		return 0;
	image->cache_dir = strdup(opts->cache_dir);
	return image->cache_dir ? 0 : MSP_E_NOMEM;
}

static struct msp_image *new_image(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct msp_image *image = calloc(1, sizeof(*image));

	pthread_once(&once, init_libelf);
	if (image)
		image->fd = -1;
	return image;
}

/* The second half of both ways to open; image is closed if it fails. */
static int finish_open(struct msp_image *image, const struct msp_image_options *opts,
		       struct msp_image **out)
{
	int err = image->elf ? read_headers(image) : MSP_E_FORMAT;

	if (!err)
		err = copy_options(image, opts);
	if (err) {
		msp_image_close(image);
		return err;
	}
	*out = image;
	return 0;
}

static int regular_file(int fd, struct stat *st)
{
	if (fstat(fd, st))
		return MSP_E_IO;
	return S_ISREG(st->st_mode) ? 0 : MSP_E_FORMAT;
}

static void make_key(struct msp_image_key *key, const char *build_id, const struct stat *st)
{
	/* A short build id is not one that tells files apart. */
	if (strlen(build_id) >= 16) {
		snprintf(key->text, sizeof(key->text), "b-%.61s", build_id);
		return;
	}
	snprintf(key->text, sizeof(key->text), "f-%x-%llx-%llx-%llx", (unsigned)st->st_dev,
		 (unsigned long long)st->st_ino,
		 st->st_mtim.tv_sec * 1000000000ull + (unsigned long long)st->st_mtim.tv_nsec,
		 (unsigned long long)st->st_size);
}

int msp_image_open_fd(int fd, const struct msp_image_options *opts, struct msp_image **out)
{
	struct msp_image *image = new_image();
	struct stat st;
	int err;

	if (!image) {
		close(fd);
		return MSP_E_NOMEM;
	}
	image->fd = fd;
	err = regular_file(fd, &st);
	if (err) {
		msp_image_close(image);
		return err;
	}
	image->size = (uint64_t)st.st_size;
	image->dev = st.st_dev;
	image->ino = st.st_ino;
	image->mtime_ns = st.st_mtim.tv_sec * 1000000000ull + (uint64_t)st.st_mtim.tv_nsec;
	image->elf = elf_begin(fd, ELF_C_READ, NULL);
	err = finish_open(image, opts, &image);
	if (err)
		return err;
	make_key(&image->key, image->build_id, &st);
	*out = image;
	return 0;
}

int msp_image_open_memory(const void *bytes, size_t size, const struct msp_image_options *opts,
			  struct msp_image **out)
{
	struct msp_image *image = new_image();
	struct stat none = {0};
	int err;

	if (!image)
		return MSP_E_NOMEM;
	image->memory = malloc(size ? size : 1);
	if (!image->memory) {
		msp_image_close(image);
		return MSP_E_NOMEM;
	}
	memcpy(image->memory, bytes, size);
	image->size = size;
	image->elf = elf_memory(image->memory, size);
	err = finish_open(image, opts, &image);
	if (err)
		return err;
	none.st_size = (off_t)size;
	make_key(&image->key, image->build_id, &none);
	*out = image;
	return 0;
}

void msp_image_close(struct msp_image *image)
{
	if (!image)
		return;
	msp_rows_free(image->rows);
	msp_symbols_free(image->symbols);
	msp_plt_free(image);
	msp_image_close(image->debug);
	for (uint32_t i = 0; i < image->segment_count; i++)
		free(image->segments[i].bytes);
	elf_end(image->elf);
	if (image->fd >= 0)
		close(image->fd);
	free(image->memory);
	free(image->name);
	free(image->root);
	free(image->cache_dir);
	free(image);
}

int msp_image_key_fd(int fd, struct msp_image_key *key)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char build_id[MSP_IMAGE_KEY_SIZE];
	uint64_t vaddr;
	struct stat st;
	Elf *elf;
	int err = regular_file(fd, &st);

	if (err)
		return err;
	pthread_once(&once, init_libelf);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF) {
		elf_end(elf);
		return MSP_E_FORMAT;
	}
	msp_elf_build_id(elf, (uint64_t)st.st_size, build_id, &vaddr);
	elf_end(elf);
	make_key(key, build_id, &st);
	return 0;
}

const struct msp_image_key *msp_image_key(const struct msp_image *image)
{
	return &image->key;
}

const char *msp_image_name(const struct msp_image *image)
{
	return image->name;
}

bool msp_image_is_mapped(const struct msp_image *image, const struct msp_memory *mem, uint64_t base)
{
	size_t size = strlen(image->build_id) / 2;
	uint8_t bytes[MSP_IMAGE_KEY_SIZE];
	char id[MSP_IMAGE_KEY_SIZE];

	if (!image->build_id_vaddr || !size)
		return true;
	if (msp_read(mem, base + image->build_id_vaddr - image->min_vaddr, bytes, size))
		return false;
	msp_elf_hex(bytes, size, id);
	return !strcmp(id, image->build_id);
}

const char *msp_image_build_id(const struct msp_image *image)
{
	return image->build_id;
}

int msp_image_arch(const struct msp_image *image)
{
	return image->arch;
}

uint64_t msp_image_min_vaddr(const struct msp_image *image)
{
	return image->min_vaddr;
}

/* The kernel maps whole pages: the page that holds the segment's first byte belongs to it too. */
static bool segment_has_offset(const struct msp_segment *seg, uint64_t offset)
{
	uint64_t start = seg->offset & -PAGE, end = seg->offset + seg->file_size;

	return offset >= start && offset < ((end + PAGE - 1) & -PAGE);
}

bool msp_image_offset_to_addr(const struct msp_image *image, uint64_t offset, uint64_t *addr)
{
	/* Neighbours share a page of the file; who asks is mostly interested in code. */
	for (int exec = 1; exec >= 0; exec--) {
		for (uint32_t i = 0; i < image->segment_count; i++) {
			const struct msp_segment *seg = &image->segments[i];

			if (seg->exec != exec || !segment_has_offset(seg, offset))
				continue;
			*addr = offset - seg->offset + seg->vaddr - image->min_vaddr;
			return true;
		}
	}
	return false;
}

bool msp_image_offset_executable(const struct msp_image *image, uint64_t offset, uint64_t size)
{
	for (uint32_t i = 0; i < image->segment_count; i++) {
		const struct msp_segment *seg = &image->segments[i];

		if (seg->exec && offset < seg->offset + seg->file_size &&
		    seg->offset < offset + size)
			return true;
	}
	return false;
}

const struct msp_segment *msp_image_segment(const struct msp_image *image, uint64_t vaddr)
{
	for (uint32_t i = 0; i < image->segment_count; i++) {
		const struct msp_segment *seg = &image->segments[i];

		if (vaddr >= seg->vaddr && vaddr - seg->vaddr < seg->file_size)
			return seg;
	}
	return NULL;
}

bool msp_image_executable(const struct msp_image *image, uint64_t vaddr, uint64_t *end)
{
	for (uint32_t i = 0; i < image->segment_count; i++) {
		const struct msp_segment *seg = &image->segments[i];

		if (!seg->exec || vaddr < seg->vaddr || vaddr - seg->vaddr >= seg->mem_size)
			continue;
		*end = seg->vaddr + seg->mem_size;
		return true;
	}
	return false;
}

uint64_t msp_image_memory(const struct msp_image *image)
{
	uint64_t bytes = sizeof(*image) + (image->memory ? image->size : 0) +
			 msp_symbols_memory(image->symbols);

	if (image->rows)
		bytes += image->rows->room * sizeof(struct msp_row) +
			 image->rows->rule_room * sizeof(struct msp_rule) +
			 image->rows->function_room * sizeof(uint32_t);
	for (uint32_t i = 0; i < image->segment_count; i++)
		bytes += image->segments[i].bytes ? image->segments[i].file_size : 0;
	return image->debug ? bytes + msp_image_memory(image->debug) : bytes;
}

void msp_image_drop_bytes(struct msp_image *image)
{
	for (uint32_t i = 0; i < image->segment_count && image->fd >= 0; i++) {
		free(image->segments[i].bytes);
		image->segments[i].bytes = NULL;
	}
}

const void *msp_image_bytes(const struct msp_image *image, uint64_t addr, size_t *avail)
{
	uint64_t vaddr = addr + image->min_vaddr;
	/* Reading ahead of need would change nothing that a caller sees: the cast hides a cache. */
	struct msp_segment *seg = (struct msp_segment *)msp_image_segment(image, vaddr);
	struct msp_bytes bytes;

	*avail = 0;
	if (!seg)
		return NULL;
	if (!seg->bytes && image->fd >= 0) {
		if (msp_image_read_bytes(image, seg->offset, seg->file_size, &bytes))
			return NULL;
		seg->bytes = bytes.owned;
	}
	if (image->fd < 0 && seg->offset + seg->file_size > image->size)
		return NULL;
	*avail = seg->file_size - (vaddr - seg->vaddr);
	if (image->fd < 0)
		return (const uint8_t *)image->memory + seg->offset + (vaddr - seg->vaddr);
	return (const uint8_t *)seg->bytes + (vaddr - seg->vaddr);
}

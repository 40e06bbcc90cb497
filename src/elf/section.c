/* SPDX-License-Identifier: MIT */
/* Sections by name, and their content, decompressed. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "elf/image.h"
#include "moonspy/moonspy.h"

/* elf.h of older systems does not know it. */
#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2
#endif

/* A section that grows more than this is a bomb; deflate itself ends at about 1,030. */
#define RATIO_MAX 1100

static const char *const section_names[] = {
#define _(id, name) name,
	MSP_SECTIONS(_)
#undef _
};

static void note_section(struct msp_image *image, const char *name, const GElf_Shdr *shdr)
{
	for (int i = 0; i < MSP_SECTION_COUNT; i++) {
		struct msp_section *section = &image->sections[i];

		if (section->found || strcmp(name, section_names[i]))
			continue;
		section->found = true;
		section->compressed = shdr->sh_flags & SHF_COMPRESSED;
		section->vaddr = shdr->sh_addr;
		section->offset = shdr->sh_offset;
		section->size = shdr->sh_size;
		section->link = shdr->sh_link;
		section->entry_size = shdr->sh_entsize;
		return;
	}
}

static void note_code(struct msp_image *image, const GElf_Shdr *shdr)
{
	if (!(shdr->sh_flags & SHF_EXECINSTR) || image->code_count == MSP_CODE_SECTIONS_MAX)
		return;
	image->code[image->code_count].start = shdr->sh_addr;
	image->code[image->code_count].end = shdr->sh_addr + shdr->sh_size;
	image->code_count++;
}

static void read_sections(struct msp_image *image)
{
	size_t names = 0;
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	image->sections_read = true;
	if (elf_getshdrstrndx(image->elf, &names))
		return;
	/* The name table is read whole by libelf: not if it claims to be huge. */
	scn = elf_getscn(image->elf, names);
	if (!scn || !gelf_getshdr(scn, &shdr) || shdr.sh_size > MSP_BYTES_MAX / 16 ||
	    shdr.sh_flags & SHF_COMPRESSED)
		return;
	scn = NULL;
	while ((scn = elf_nextscn(image->elf, scn))) {
		const char *name;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type == SHT_NOBITS || !shdr.sh_size)
			continue;
		note_code(image, &shdr);
		name = elf_strptr(image->elf, names, shdr.sh_name);
		if (name)
			note_section(image, name, &shdr);
	}
}

const struct msp_section *msp_image_section(struct msp_image *image, enum msp_section_id id)
{
	if (!image->sections_read)
		read_sections(image);
	return image->sections[id].found ? &image->sections[id] : NULL;
}

/* Decompresses in[skip..] to exactly size bytes. */
static int inflate_bytes(const struct msp_bytes *in, size_t skip, uint64_t size, uint32_t type,
			 struct msp_bytes *out)
{
	const uint8_t *from = in->data + skip;
	size_t from_size = in->size - skip;
	uLongf got = size;

	if (size > MSP_BYTES_MAX || size / RATIO_MAX > from_size)
		return MSP_E_LIMIT;
	out->owned = malloc(size ? size : 1);
	if (!out->owned)
		return MSP_E_NOMEM;
	out->data = out->owned;
	out->size = size;
	out->vaddr = in->vaddr;
	if (type == ELFCOMPRESS_ZLIB && uncompress(out->owned, &got, from, from_size) == Z_OK &&
	    got == size)
		return 0;
	if (type == ELFCOMPRESS_ZSTD && ZSTD_decompress(out->owned, size, from, from_size) == size)
		return 0;
	msp_bytes_free(out);
	return MSP_E_FORMAT;
}

static uint64_t big_endian(const uint8_t *bytes)
{
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | bytes[i];
	return value;
}

bool msp_section_same_code(struct msp_image *image, uint64_t vaddr, uint64_t other)
{
	if (!image->sections_read)
		read_sections(image);
	for (uint32_t i = 0; i < image->code_count; i++)
		if (vaddr >= image->code[i].start && vaddr < image->code[i].end)
			return other >= image->code[i].start && other < image->code[i].end;
	return !image->code_count;
}

bool msp_image_is_code(struct msp_image *image, uint64_t addr)
{
	return msp_section_same_code(image, addr + image->min_vaddr, addr + image->min_vaddr);
}

int msp_section_inflate(const struct msp_image *image, bool gnu, struct msp_bytes *in,
			struct msp_bytes *out)
{
	Elf64_Chdr chdr;
	Elf32_Chdr chdr32;
	int err = MSP_E_FORMAT;

	memset(out, 0, sizeof(*out));
	if (gnu) {
		if (in->size > 12 && !memcmp(in->data, "ZLIB", 4))
			err = inflate_bytes(in, 12, big_endian(in->data + 4), ELFCOMPRESS_ZLIB,
					    out);
	} else if (image->is64 && in->size > sizeof(chdr)) {
		memcpy(&chdr, in->data, sizeof(chdr));
		err = inflate_bytes(in, sizeof(chdr), chdr.ch_size, chdr.ch_type, out);
	} else if (!image->is64 && in->size > sizeof(chdr32)) {
		memcpy(&chdr32, in->data, sizeof(chdr32));
		err = inflate_bytes(in, sizeof(chdr32), chdr32.ch_size, chdr32.ch_type, out);
	}
	msp_bytes_free(in);
	return err;
}

int msp_section_read(struct msp_image *image, enum msp_section_id id, struct msp_bytes *out)
{
	const struct msp_section *section = msp_image_section(image, id);
	struct msp_bytes raw;
	int err;

	memset(out, 0, sizeof(*out));
	if (!section)
		return MSP_E_NOT_FOUND;
	err = msp_image_read_bytes(image, section->offset, section->size, &raw);
	if (err)
		return err;
	raw.vaddr = section->vaddr;
	if (section->compressed || id == MSP_SECTION_ZDEBUG_FRAME)
		return msp_section_inflate(image, !section->compressed, &raw, out);
	*out = raw;
	return 0;
}

int msp_section_read_index(struct msp_image *image, uint32_t index, struct msp_bytes *out)
{
	Elf_Scn *scn = elf_getscn(image->elf, index);
	GElf_Shdr shdr;

	memset(out, 0, sizeof(*out));
	if (!scn || !gelf_getshdr(scn, &shdr) || shdr.sh_type == SHT_NOBITS ||
	    shdr.sh_flags & SHF_COMPRESSED)
		return MSP_E_FORMAT;
	return msp_image_read_bytes(image, shdr.sh_offset, shdr.sh_size, out);
}

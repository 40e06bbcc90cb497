/* SPDX-License-Identifier: MIT */
/* What a file asks the dynamic loader for: System V gABI, "Dynamic Section". */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "elf/image.h"
#include "moonspy/moonspy.h"

#define ENTRIES_MAX 4096
#define STRINGS_MAX (1u << 20)
#define NEEDED_MAX 256

static bool find_header(const struct msp_image *image, uint32_t type, GElf_Phdr *out)
{
	size_t count = 0;

	if (elf_getphdrnum(image->elf, &count))
		return false;
	for (size_t i = 0; i < count && i < MSP_SEGMENTS_MAX; i++)
		if (gelf_getphdr(image->elf, (int)i, out) && out->p_type == type)
			return true;
	return false;
}

/* File content as a string; NULL if there is none. */
static char *read_text(const struct msp_image *image, uint64_t offset, uint64_t size)
{
	char *text;

	if (!size || size > STRINGS_MAX || !(text = malloc(size + 1)))
		return NULL;
	if (msp_image_read(image, offset, size, text) < 0) {
		free(text);
		return NULL;
	}
	text[size] = 0;
	return text;
}

struct dynamic {
	Elf64_Dyn *entry;
	size_t count;
	char *strings;
	uint64_t size;
};

static uint64_t value_of(const struct dynamic *dynamic, int64_t tag)
{
	for (size_t i = 0; i < dynamic->count; i++)
		if (dynamic->entry[i].d_tag == tag)
			return dynamic->entry[i].d_un.d_val;
	return 0;
}

static int read_dynamic(const struct msp_image *image, struct dynamic *out)
{
	const struct msp_segment *segment;
	GElf_Phdr header;
	uint64_t strings, size;
	size_t most;

	if (!image->is64 || !find_header(image, PT_DYNAMIC, &header))
		return MSP_E_NOT_FOUND;
	most = header.p_filesz / sizeof(*out->entry);
	most = most < ENTRIES_MAX ? most : ENTRIES_MAX;
	out->entry = calloc(most + 1, sizeof(*out->entry));
	if (!out->entry)
		return MSP_E_NOMEM;
	if (msp_image_read(image, header.p_offset, most * sizeof(*out->entry), out->entry) < 0)
		return MSP_E_FORMAT;
	while (out->count < most && out->entry[out->count].d_tag != DT_NULL)
		out->count++;
	strings = value_of(out, DT_STRTAB);
	size = value_of(out, DT_STRSZ);
	segment = msp_image_segment(image, strings);
	if (!segment || size > segment->file_size - (strings - segment->vaddr))
		return MSP_E_FORMAT;
	out->strings = read_text(image, segment->offset + (strings - segment->vaddr), size);
	out->size = out->strings ? size : 0;
	return 0;
}

/* A copy of the string at an offset; NULL if there is none. */
static char *string_at(const struct dynamic *dynamic, uint64_t offset)
{
	return offset && offset < dynamic->size ? strdup(dynamic->strings + offset) : NULL;
}

static int take_needed(const struct dynamic *dynamic, struct msp_dynamic *out)
{
	char *name;

	out->needed = calloc(NEEDED_MAX, sizeof(*out->needed));
	if (!out->needed)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < dynamic->count && out->needed_count < NEEDED_MAX; i++) {
		if (dynamic->entry[i].d_tag != DT_NEEDED)
			continue;
		name = string_at(dynamic, dynamic->entry[i].d_un.d_val);
		if (name)
			out->needed[out->needed_count++] = name;
	}
	return 0;
}

int msp_image_dynamic(const struct msp_image *image, struct msp_dynamic *out)
{
	struct dynamic dynamic = {0};
	GElf_Phdr header;
	int err;

	memset(out, 0, sizeof(*out));
	if (find_header(image, PT_INTERP, &header))
		out->interpreter = read_text(image, header.p_offset, header.p_filesz);
	err = read_dynamic(image, &dynamic);
	if (!err)
		err = take_needed(&dynamic, out);
	if (!err) {
		out->search = string_at(&dynamic, value_of(&dynamic, DT_RUNPATH));
		if (!out->search)
			out->search = string_at(&dynamic, value_of(&dynamic, DT_RPATH));
	}
	free(dynamic.entry);
	free(dynamic.strings);
	return err == MSP_E_NOT_FOUND && out->interpreter ? 0 : err;
}

void msp_dynamic_free(struct msp_dynamic *dynamic)
{
	for (size_t i = 0; i < dynamic->needed_count; i++)
		free(dynamic->needed[i]);
	free(dynamic->needed);
	free(dynamic->interpreter);
	free(dynamic->search);
	memset(dynamic, 0, sizeof(*dynamic));
}

/* SPDX-License-Identifier: MIT */
/*
 * Probes: the notes that sys/sdt.h, and others like it, leave in the section .note.stapsdt, which strip keeps. Each is
 *
 *	name size, content size, type 3 | "stapsdt\0" | address, address of .stapsdt.base, of a semaphore |
 *	provider, name, arguments: three texts that end with NUL
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf/bytes.h"
#include "elf/image.h"
#include "moonspy/moonspy.h"

#define OWNER "stapsdt"
#define TYPE 3
#define HEAD 12
#define MOST_BYTES (1u << 20)

static const char *const x64_names[] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
					"r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

/* The number of a register that a word such as 8@%rax or 8@x19 names: of 8 bytes, unsigned. */
static uint8_t register_of(int arch, const char *word, size_t size)
{
	char text[16];

	for (uint8_t i = 0; i < (arch == MSP_ARCH_X86_64 ? 16 : 31); i++) {
		if (arch == MSP_ARCH_X86_64)
			snprintf(text, sizeof(text), "8@%%%s", x64_names[i]);
		else
			snprintf(text, sizeof(text), "8@x%u", i);
		if (strlen(text) == size && !memcmp(text, word, size))
			return i;
	}
	return MSP_PROBE_NO_REG;
}

static void read_arguments(int arch, const char *text, struct msp_probe *out)
{
	size_t size;

	memset(out->arg, MSP_PROBE_NO_REG, sizeof(out->arg));
	for (int i = 0; i < MSP_PROBE_ARGS; i++, text += size) {
		text += strspn(text, " ");
		size = strcspn(text, " ");
		if (!size)
			return;
		out->arg[i] = register_of(arch, text, size);
	}
}

static size_t nop_size(const struct msp_image *image)
{
	return image->arch == MSP_ARCH_X86_64 ? 1 : 4;
}

/* A breakpoint on anything else than a nop costs more, and within an instruction it breaks the program. */
static bool is_nop(const struct msp_image *image, const uint8_t *bytes)
{
	static const uint8_t x64[] = {0x90}, arm64[] = {0x1f, 0x20, 0x03, 0xd5};

	return !memcmp(bytes, image->arch == MSP_ARCH_X86_64 ? x64 : arm64, nop_size(image));
}

bool msp_image_nop_at(const struct msp_image *image, int fd, uint64_t offset)
{
	uint8_t bytes[4];
	size_t size = nop_size(image);

	return pread(fd, bytes, size, (off_t)offset) == (ssize_t)size && is_nop(image, bytes);
}

/* False: it lies nowhere where one can listen. */
static bool place(const struct msp_image *image, uint64_t vaddr, struct msp_probe *out)
{
	const struct msp_segment *segment = msp_image_segment(image, vaddr);
	size_t size = nop_size(image);
	uint8_t bytes[4];

	if (!segment || !segment->exec)
		return false;
	out->offset = vaddr - segment->vaddr + segment->offset;
	return out->offset % size == 0 && !msp_image_read(image, out->offset, size, bytes) &&
	       is_nop(image, bytes);
}

/* The text at *at, which moves behind its end; NULL: there is none. */
static const char *next_text(const uint8_t **at, const uint8_t *end)
{
	const uint8_t *text = *at, *nul = memchr(text, 0, (size_t)(end - text));

	if (!nul)
		return NULL;
	*at = nul + 1;
	return (const char *)text;
}

/* base: where .stapsdt.base is; if not where the note says, all addresses have been moved (prelink). */
static bool read_note(const struct msp_image *image, const char *provider, const uint8_t *at,
		      const uint8_t *end, uint64_t base, struct msp_probe *out)
{
	const char *theirs, *name, *arguments;
	uint64_t location, of_base;

	if (end - at < 24)
		return false;
	location = msp_get64(at);
	of_base = msp_get64(at + 8);
	if (msp_get64(at + 16)) /* off until a word in the program is counted up */
		return false;
	at += 24;
	theirs = next_text(&at, end);
	name = theirs ? next_text(&at, end) : NULL;
	arguments = name ? next_text(&at, end) : NULL;
	if (!arguments || strcmp(theirs, provider) != 0 || strlen(name) >= sizeof(out->name))
		return false;
	snprintf(out->name, sizeof(out->name), "%s", name);
	if (!place(image, location + (base ? base - of_base : 0), out))
		return false;
	read_arguments(image->arch, arguments, out);
	return true;
}

static uint64_t aligned(uint64_t size)
{
	return (size + 3) & ~3ull;
}

static size_t read_notes(const struct msp_image *image, const char *provider,
			 const struct msp_bytes *bytes, uint64_t base, struct msp_probe *out)
{
	uint64_t at = 0, content, next;
	size_t count = 0;

	for (; bytes->size - at >= HEAD && count < MSP_PROBES_MAX; at = next) {
		const uint8_t *note = bytes->data + at;
		uint32_t name_size = msp_get32(note), size = msp_get32(note + 4);

		content = at + HEAD + aligned(name_size);
		next = content + aligned(size);
		if (content > bytes->size || size > bytes->size - content)
			break;
		if (msp_get32(note + 8) == TYPE && name_size == sizeof(OWNER) &&
		    !memcmp(note + HEAD, OWNER, sizeof(OWNER)))
			count += read_note(image, provider, bytes->data + content,
					   bytes->data + content + size, base, &out[count]);
		if (next > bytes->size)
			break;
	}
	return count;
}

int msp_image_probes(struct msp_image *image, const char *provider, struct msp_probe **out)
{
	const struct msp_section *section = msp_image_section(image, MSP_SECTION_PROBES), *base;
	struct msp_bytes bytes;
	size_t count;

	*out = NULL;
	/* what is loaded is never compressed; and would be of any size then */
	if (image->arch < 0 || !section || section->compressed || section->size > MOST_BYTES ||
	    msp_section_read(image, MSP_SECTION_PROBES, &bytes))
		return 0;
	base = msp_image_section(image, MSP_SECTION_PROBES_BASE);
	*out = calloc(MSP_PROBES_MAX, sizeof(**out));
	count = *out ? read_notes(image, provider, &bytes, base ? base->vaddr : 0, *out) : 0;
	msp_bytes_free(&bytes);
	if (!*out)
		return MSP_E_NOMEM;
	if (!count) {
		free(*out);
		*out = NULL;
	}
	return (int)count;
}

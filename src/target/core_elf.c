/* SPDX-License-Identifier: MIT */
/* Headers of a core file. Read by hand: libelf would read all that a header claims. */
#include "target/core_internal.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "unwind/tables.h"

#define HEADERS_AT_ONCE 64

int core_pread(int fd, uint64_t offset, void *buf, size_t size)
{
	char *at = buf;

	if (offset > INT64_MAX - size)
		return MSP_E_FORMAT;
	while (size) {
		ssize_t n = pread(fd, at, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return MSP_E_IO;
		if (n == 0)
			return MSP_E_FORMAT;
		at += n;
		offset += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

int core_read_file(const struct msp_core *core, uint64_t offset, void *buf, size_t size)
{
	return core_pread(core->fd, offset, buf, size);
}

static int refuse(int error, char why[MSP_CORE_WHY_SIZE], const char *text)
{
	snprintf(why, MSP_CORE_WHY_SIZE, "%s", text);
	return error;
}

static int read_file_header(struct msp_core *core, Elf64_Ehdr *header, char *why)
{
	unsigned char ident[EI_NIDENT];

	if (core_read_file(core, 0, ident, sizeof(ident)) || memcmp(ident, ELFMAG, SELFMAG) != 0)
		return refuse(MSP_E_FORMAT, why, "it is no ELF file");
	if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB)
		return refuse(MSP_E_UNSUPPORTED, why,
			      "it is the core of a 32-bit program, or of a "
			      "big-endian machine");
	if (core_read_file(core, 0, header, sizeof(*header)))
		return refuse(MSP_E_FORMAT, why, "it ends within its first header");
	if (header->e_type != ET_CORE)
		return refuse(MSP_E_FORMAT, why, "it is an ELF file, but no core");
	core->arch = header->e_machine == EM_X86_64    ? MSP_ARCH_X86_64
		     : header->e_machine == EM_AARCH64 ? MSP_ARCH_ARM64
						       : 0;
	if (!core->arch)
		return refuse(MSP_E_UNSUPPORTED, why, "it is neither of x86-64 nor of arm64");
	if (header->e_phentsize != sizeof(Elf64_Phdr))
		return refuse(MSP_E_FORMAT, why, "its program headers have a strange size");
	return 0;
}

/* More than 65,534 of them: the number is in the first section header (elf(5), PN_XNUM). */
static int count_headers(const struct msp_core *core, const Elf64_Ehdr *header, uint32_t *count)
{
	Elf64_Shdr section;

	*count = header->e_phnum;
	if (*count != PN_XNUM)
		return 0;
	if (core_read_file(core, header->e_shoff, &section, sizeof(section)))
		return MSP_E_FORMAT;
	*count = section.sh_info;
	return 0;
}

static void add_segment(struct msp_core *core, const Elf64_Phdr *phdr)
{
	struct core_segment *segment = &core->segment[core->segments];
	uint64_t in_file = phdr->p_filesz, there;

	if (!phdr->p_memsz || phdr->p_vaddr + phdr->p_memsz < phdr->p_vaddr)
		return;
	if (in_file > phdr->p_memsz)
		in_file = phdr->p_memsz;
	there = phdr->p_offset < core->size ? core->size - phdr->p_offset : 0;
	if (in_file > there) {
		core->missing += in_file - there;
		in_file = there;
	}
	*segment = (struct core_segment){
		.start = phdr->p_vaddr,
		.filled = phdr->p_vaddr + in_file,
		.end = phdr->p_vaddr + phdr->p_memsz,
		.offset = phdr->p_offset,
		.prot = (phdr->p_flags & PF_R ? PROT_READ : 0) |
			(phdr->p_flags & PF_W ? PROT_WRITE : 0) |
			(phdr->p_flags & PF_X ? PROT_EXEC : 0),
	};
	core->segments++;
}

static int by_start(const void *a, const void *b)
{
	const struct core_segment *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* Sorted, and without what lies over an earlier one. */
static void order_segments(struct msp_core *core)
{
	size_t kept = 0;

	if (core->segments)
		qsort(core->segment, core->segments, sizeof(*core->segment), by_start);
	for (size_t i = 0; i < core->segments; i++)
		if (!kept || core->segment[i].start >= core->segment[kept - 1].end)
			core->segment[kept++] = core->segment[i];
	core->segments = kept;
}

/* Calls each() for all program headers. */
static int each_header(struct msp_core *core, const Elf64_Ehdr *header, uint32_t count,
		       int (*each)(struct msp_core *core, const Elf64_Phdr *phdr))
{
	Elf64_Phdr phdr[HEADERS_AT_ONCE];
	uint32_t n;
	int r;

	for (uint32_t at = 0; at < count; at += n) {
		n = count - at < HEADERS_AT_ONCE ? count - at : HEADERS_AT_ONCE;
		r = core_read_file(core, header->e_phoff + (uint64_t)at * sizeof(*phdr), phdr,
				   n * sizeof(*phdr));
		for (uint32_t i = 0; !r && i < n; i++)
			r = each(core, &phdr[i]);
		if (r)
			return r;
	}
	return 0;
}

static int take_load(struct msp_core *core, const Elf64_Phdr *phdr)
{
	if (phdr->p_type == PT_LOAD)
		add_segment(core, phdr);
	return 0;
}

static int take_notes(struct msp_core *core, const Elf64_Phdr *phdr)
{
	int r = phdr->p_type == PT_NOTE ? core_read_notes(core, phdr->p_offset, phdr->p_filesz) : 0;

	core->notes_cut |= r < 0;
	return r == MSP_E_NOMEM ? r : 0;
}

int core_read_headers(struct msp_core *core, char why[MSP_CORE_WHY_SIZE])
{
	Elf64_Ehdr header;
	uint32_t count = 0;
	int r;

	r = read_file_header(core, &header, why);
	if (r)
		return r;
	if (count_headers(core, &header, &count) || !count)
		return refuse(MSP_E_FORMAT, why, "it has no program headers");
	if (count > MSP_CORE_SEGMENTS_MAX)
		return refuse(MSP_E_LIMIT, why, "it has more than a million segments");
	core->segment = calloc(count, sizeof(*core->segment));
	if (!core->segment)
		return refuse(MSP_E_NOMEM, why, msp_strerror(MSP_E_NOMEM));
	r = each_header(core, &header, count, take_load);
	if (r)
		return refuse(r, why, "it ends within its program headers");
	order_segments(core);
	r = each_header(core, &header, count, take_notes);
	return r ? refuse(r, why, msp_strerror(r)) : 0;
}

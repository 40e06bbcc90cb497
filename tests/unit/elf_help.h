/* SPDX-License-Identifier: MIT */
/* Small ELF files made in memory, with call frame information made of given instructions. */
#ifndef ELF_HELP_H
#define ELF_HELP_H

#include <elf.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "elf/elf.h"
#include "moonspy/moonspy.h"

#define TEXT_OFFSET 0x1000
#define TEXT_SIZE 0x1000
#define FILE_ROOM 0x8000
#define SECTIONS_ROOM 12

/* One segment, executable, of the whole file; .text is at TEXT_OFFSET. */
struct test_elf {
	uint8_t bytes[FILE_ROOM];
	uint64_t base; /* vaddr of offset 0 */
	size_t size;
	Elf64_Shdr sections[SECTIONS_ROOM];
	int section_count;
	char names[256];
	size_t names_size;
};

static inline Elf64_Shdr *test_elf_section(struct test_elf *elf, const char *name, uint32_t type,
					   const void *data, size_t size)
{
	Elf64_Shdr *shdr = &elf->sections[elf->section_count++];

	elf->size = (elf->size + 15) & ~(size_t)15;
	memset(shdr, 0, sizeof(*shdr));
	shdr->sh_name = (uint32_t)elf->names_size;
	strcpy(elf->names + elf->names_size, name);
	elf->names_size += strlen(name) + 1;
	shdr->sh_type = type;
	shdr->sh_offset = elf->size;
	shdr->sh_addr = elf->base + elf->size;
	shdr->sh_size = size;
	if (data)
		memcpy(elf->bytes + elf->size, data, size);
	elf->size += size;
	return shdr;
}

static inline void test_elf_start(struct test_elf *elf, int machine, uint64_t base)
{
	Elf64_Ehdr *ehdr = (Elf64_Ehdr *)elf->bytes;

	memset(elf, 0, sizeof(*elf));
	elf->base = base;
	memcpy(ehdr->e_ident, ELFMAG, SELFMAG);
	ehdr->e_ident[EI_CLASS] = ELFCLASS64;
	ehdr->e_ident[EI_DATA] = ELFDATA2LSB;
	ehdr->e_ident[EI_VERSION] = EV_CURRENT;
	ehdr->e_type = ET_DYN;
	ehdr->e_machine = (uint16_t)machine;
	ehdr->e_version = EV_CURRENT;
	ehdr->e_ehsize = sizeof(*ehdr);
	ehdr->e_phoff = sizeof(*ehdr);
	ehdr->e_phentsize = sizeof(Elf64_Phdr);
	ehdr->e_shentsize = sizeof(Elf64_Shdr);
	elf->section_count = 1;
	elf->names_size = 1;
	elf->size = TEXT_OFFSET;
	test_elf_section(elf, ".text", SHT_PROGBITS, NULL, TEXT_SIZE);
}

static inline void test_elf_phdr(struct test_elf *elf, uint32_t type, uint64_t offset,
				 uint64_t size, uint32_t flags)
{
	Elf64_Ehdr *ehdr = (Elf64_Ehdr *)elf->bytes;
	Elf64_Phdr *phdr = (Elf64_Phdr *)(elf->bytes + ehdr->e_phoff) + ehdr->e_phnum++;

	phdr->p_type = type;
	phdr->p_flags = flags;
	phdr->p_offset = offset;
	phdr->p_vaddr = elf->base + offset;
	phdr->p_filesz = phdr->p_memsz = size;
	phdr->p_align = type == PT_NOTE ? 4 : 0x1000;
}

/* Writes the tables; the file is elf->bytes[0..elf->size). */
static inline void test_elf_finish(struct test_elf *elf)
{
	Elf64_Ehdr *ehdr = (Elf64_Ehdr *)elf->bytes;
	size_t names;

	test_elf_section(elf, ".shstrtab", SHT_STRTAB, NULL, sizeof(elf->names));
	names = elf->sections[elf->section_count - 1].sh_offset;
	memcpy(elf->bytes + names, elf->names, sizeof(elf->names));
	elf->size = (elf->size + 15) & ~(size_t)15;
	ehdr->e_shoff = elf->size;
	ehdr->e_shnum = (uint16_t)elf->section_count;
	ehdr->e_shstrndx = (uint16_t)(elf->section_count - 1);
	memcpy(elf->bytes + elf->size, elf->sections,
	       (size_t)elf->section_count * sizeof(elf->sections[0]));
	elf->size += (size_t)elf->section_count * sizeof(elf->sections[0]);
	test_elf_phdr(elf, PT_LOAD, 0, elf->size, PF_R | PF_X);
}

static inline void test_elf_build_id(struct test_elf *elf, const uint8_t id[20])
{
	uint8_t note[36] = {4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0};
	Elf64_Shdr *shdr;

	memcpy(note + 16, id, 20);
	shdr = test_elf_section(elf, ".note.gnu.build-id", SHT_NOTE, note, sizeof(note));
	test_elf_phdr(elf, PT_NOTE, shdr->sh_offset, sizeof(note), PF_R);
}

static inline struct msp_image *test_elf_open(const struct test_elf *elf,
					      const struct msp_image_options *opts)
{
	struct msp_image *image = NULL;

	assert_int_equal(msp_image_open_memory(elf->bytes, elf->size, opts, &image), 0);
	return image;
}

/* Frame information in a buffer: a CIE, then FDEs. Absolute addresses of 8 bytes. */
struct test_cfi {
	uint8_t bytes[4096];
	size_t size;
	bool eh; /* .eh_frame, else .debug_frame */
	bool arm64;
};

static inline void cfi_put(struct test_cfi *cfi, const void *data, size_t size)
{
	memcpy(cfi->bytes + cfi->size, data, size);
	cfi->size += size;
}

/* Completes the entry that starts at `start`: padding with DW_CFA_nop, length. */
static inline void cfi_close(struct test_cfi *cfi, size_t start)
{
	uint32_t length;

	while ((cfi->size - start) % 8 != 4)
		cfi->bytes[cfi->size++] = 0;
	length = (uint32_t)(cfi->size - start - 4);
	memcpy(cfi->bytes + start, &length, 4);
}

static inline void cfi_cie(struct test_cfi *cfi, const char *augmentation, const void *program,
			   size_t size)
{
	size_t start = cfi->size;
	uint32_t id = cfi->eh ? 0 : UINT32_MAX;
	uint8_t tail[] = {1, 0x78, cfi->arm64 ? 30 : 16};
	uint8_t version = 1;

	cfi->size += 4;
	cfi_put(cfi, &id, 4);
	cfi_put(cfi, &version, 1);
	cfi_put(cfi, augmentation, strlen(augmentation) + 1);
	cfi_put(cfi, tail, 3);
	if (augmentation[0] == 'z') {
		uint8_t data[] = {1, 0}; /* absolute pointers */

		if (!strchr(augmentation, 'R'))
			data[0] = 0;
		cfi_put(cfi, data, data[0] + 1u);
	}
	cfi_put(cfi, program, size);
	cfi_close(cfi, start);
}

static inline void cfi_fde(struct test_cfi *cfi, uint64_t addr, uint64_t length,
			   const void *program, size_t size)
{
	size_t start = cfi->size;
	uint32_t cie = cfi->eh ? (uint32_t)(start + 4) : 0;
	uint8_t no_augmentation = 0;

	cfi->size += 4;
	cfi_put(cfi, &cie, 4);
	cfi_put(cfi, &addr, 8);
	cfi_put(cfi, &length, 8);
	if (cfi->eh)
		cfi_put(cfi, &no_augmentation, 1);
	cfi_put(cfi, program, size);
	cfi_close(cfi, start);
}

static inline const struct msp_rule *rule_of(const struct msp_unwind_table *table, uint32_t addr)
{
	uint32_t rule = 0;

	for (uint32_t i = 0; i < table->row_count && table->rows[i].addr <= addr; i++)
		rule = table->rows[i].rule;
	return &table->rules[rule];
}

#endif

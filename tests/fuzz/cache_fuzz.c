/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a cached table. What a header must say to be looked at is put right, so that the
 * counts and the body are what is tried: sizes that fit two times out of three, sums always.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "elf/elf.h"
#include "elf/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* cache.c: struct cache_header */
#define HEADER 112
#define AT_RULES 88
#define AT_ROWS 92
#define AT_FUNCTIONS 96
#define AT_BODY_CRC 100
#define AT_HEADER_CRC 108

static uint8_t elf[4096];
static size_t elf_size;
static uint8_t header[HEADER]; /* of a table that moonspy wrote */
static char dir[] = "/dev/shm/moonspy-fuzz-XXXXXX", path[128];
static int table_fd;

/* A file with a build id and a page of code: enough to have a table. */
static void make_elf(void)
{
	Elf64_Ehdr ehdr = {.e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = EV_CURRENT};
	Elf64_Phdr phdr[2] = {
		{.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = 4096, .p_memsz = 4096},
		{.p_type = PT_NOTE, .p_offset = 0x200, .p_vaddr = 0x200, .p_filesz = 36}};
	Elf64_Nhdr note = {4, 20, NT_GNU_BUILD_ID};

	memcpy(ehdr.e_ident, ELFMAG, SELFMAG);
	ehdr.e_ident[EI_CLASS] = ELFCLASS64;
	ehdr.e_ident[EI_DATA] = ELFDATA2LSB;
	ehdr.e_ident[EI_VERSION] = EV_CURRENT;
	ehdr.e_ehsize = ehdr.e_phoff = sizeof(ehdr);
	ehdr.e_phentsize = sizeof(*phdr);
	ehdr.e_phnum = 2;
	memcpy(elf, &ehdr, sizeof(ehdr));
	memcpy(elf + sizeof(ehdr), phdr, sizeof(phdr));
	memcpy(elf + 0x200, &note, sizeof(note));
	memcpy(elf + 0x20c, "GNU", 4);
	memset(elf + 0x210, 0x5a, 20);
	elf_size = sizeof(elf);
}

static struct msp_image *open_image(void)
{
	const struct msp_image_options opts = {
		.root = "/proc/self/fdinfo", .cache_dir = dir, .name = "/fuzz"};
	struct msp_image *image;

	if (msp_image_open_memory(elf, elf_size, &opts, &image))
		abort();
	return image;
}

static void remove_dir(void)
{
	unlink(path);
	rmdir(dir);
}

/* Has moonspy write a table, for its header; later ones are written over it. */
static void start(void)
{
	const struct msp_unwind_table *table;
	struct msp_image *image;

	if (!mkdtemp(dir))
		abort();
	atexit(remove_dir);
	make_elf();
	image = open_image();
	if (msp_image_unwind(image, &table))
		abort();
	snprintf(path, sizeof(path), "%s/%s.rows", dir, msp_image_key(image)->text);
	msp_image_close(image);
	table_fd = open(path, O_RDWR | O_CLOEXEC);
	if (table_fd < 0 || read(table_fd, header, HEADER) != HEADER)
		abort();
}

static void put32(uint8_t *to, uint32_t value)
{
	memcpy(to, &value, sizeof(value));
}

/* input: three counts, a byte that says what is done with them, the body */
static void write_table(const uint8_t *data, size_t size)
{
	size_t body = size - 13, left = body;
	uint32_t count[3];

	memcpy(count, data, sizeof(count));
	if (data[12] % 3) {
		count[0] = 1 + count[0] % 8;
		left -= left < count[0] * sizeof(struct msp_rule)
				? left
				: count[0] * sizeof(struct msp_rule);
		count[1] = left / sizeof(struct msp_row);
		if (data[12] % 3 == 2)
			count[1] /= 2;
		left -= count[1] * sizeof(struct msp_row);
		count[2] = left / 4;
		body -= left % 4;
	}
	memcpy(header + AT_RULES, count, sizeof(count));
	put32(header + AT_BODY_CRC, crc32_z(0, data + 13, body));
	put32(header + AT_HEADER_CRC, crc32_z(0, header, AT_HEADER_CRC));
	if (pwrite(table_fd, header, HEADER, 0) != HEADER ||
	    pwrite(table_fd, data + 13, body, HEADER) != (ssize_t)body ||
	    ftruncate(table_fd, HEADER + body))
		abort();
}

static void check(const struct msp_unwind_table *table)
{
	if (!msp_rows_valid(table->rows, table->row_count, table->rules, table->rule_count))
		abort();
	for (uint32_t i = 1; i < table->function_count; i++)
		if (table->functions[i] <= table->functions[i - 1])
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned long used, tries;
	const struct msp_rule rule = {.cfa_kind = MSP_CFA_END};
	const struct msp_row row = {100, 0};
	const struct msp_unwind_table *table;
	struct msp_image *image;

	if (!table_fd)
		start();
	if (size < 13)
		return 0;
	write_table(data, size);
	image = open_image();
	if (msp_image_unwind(image, &table))
		abort();
	check(table);
	tries++;
	used += table->from_cache;
	/* A header that is put right in vain would make this a test of nothing. */
	if (tries == 100000 && !used)
		abort();
	if (!msp_image_overlay(image, 90, 200, &row, 1, &rule, 1) &&
	    !msp_image_unwind(image, &table))
		check(table);
	msp_image_close(image);
	if (access(path, F_OK)) /* made anew: a table that is not used is replaced */
		abort();
	/* It may have been replaced: another file has the name now. */
	close(table_fd);
	table_fd = open(path, O_RDWR | O_CLOEXEC);
	return table_fd < 0;
}

/* SPDX-License-Identifier: MIT */
/* Opening images: keys, addresses, symbols, debug files, overlays, stripped and compressed files. */
#include <dirent.h>
#include <dlfcn.h>
#include <dwarf.h>
#include <fcntl.h>
#include <lzma.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <zlib.h>

#include "elf/symbols.h"
#include "elf_help.h"

#define LIBC "/lib/x86_64-linux-gnu/libc.so.6"

static const uint8_t id[20] = {0xab, 0xcd, 1, 2, 3, 4, 5, 6, 7, 8};

static int memory_fd(const void *bytes, size_t size)
{
	int fd = memfd_create("image", MFD_CLOEXEC);

	assert_int_equal(write(fd, bytes, size), (ssize_t)size);
	return fd;
}

static void put_eh_frame(struct test_elf *elf, const char *name, bool compress)
{
	static const uint8_t initial[] = {DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1};
	struct test_cfi cfi = {.eh = name[1] == 'e'};
	uint8_t packed[4096 + 24] = {0};
	Elf64_Chdr chdr = {.ch_type = ELFCOMPRESS_ZLIB};
	uLongf size = 4096;

	cfi_cie(&cfi, cfi.eh ? "zR" : "", initial, sizeof(initial));
	cfi_fde(&cfi, elf->base + TEXT_OFFSET, 0x100, initial, 0);
	if (!compress) {
		test_elf_section(elf, name, SHT_PROGBITS, cfi.bytes, cfi.size);
		return;
	}
	chdr.ch_size = cfi.size;
	memcpy(packed, &chdr, sizeof(chdr));
	assert_int_equal(compress2(packed + sizeof(chdr), &size, cfi.bytes, cfi.size, 9), Z_OK);
	test_elf_section(elf, name, SHT_PROGBITS, packed, sizeof(chdr) + size)->sh_flags =
		SHF_COMPRESSED;
}

static void not_elf(void **state)
{
	struct msp_image *image = NULL;
	struct msp_image_key key;
	int fd = memory_fd("#!/bin/sh\n", 10);

	assert_int_equal(msp_image_key_fd(fd, &key), MSP_E_FORMAT);
	assert_int_equal(msp_image_open_fd(fd, NULL, &image), MSP_E_FORMAT);
	assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed, though it failed */
	assert_int_equal(msp_image_open_memory("", 0, NULL, &image), MSP_E_FORMAT);
	assert_int_equal(msp_image_open_fd(open("/dev/null", O_RDONLY), NULL, &image),
			 MSP_E_FORMAT);
	assert_null(image);
}

static void keys(void **state)
{
	static struct test_elf elf;
	struct msp_image_key key;
	struct msp_image *image;
	int fd;

	test_elf_start(&elf, EM_X86_64, 0);
	test_elf_build_id(&elf, id);
	test_elf_finish(&elf);
	fd = memory_fd(elf.bytes, elf.size);
	assert_int_equal(msp_image_key_fd(fd, &key), 0);
	assert_string_equal(key.text, "b-abcd010203040506070800000000000000000000");
	assert_int_equal(msp_image_open_fd(fd, NULL, &image), 0);
	assert_string_equal(msp_image_key(image)->text, key.text);
	assert_string_equal(msp_image_build_id(image), key.text + 2);
	msp_image_close(image);

	test_elf_start(&elf, EM_X86_64, 0);
	test_elf_finish(&elf);
	fd = memory_fd(elf.bytes, elf.size);
	assert_int_equal(msp_image_open_fd(fd, NULL, &image), 0);
	assert_int_equal(strncmp(msp_image_key(image)->text, "f-", 2), 0);
	assert_string_equal(msp_image_build_id(image), "");
	msp_image_close(image);
}

static void addresses(void **state)
{
	static struct test_elf elf;
	struct msp_image *image;
	uint64_t addr;
	size_t avail;
	const uint8_t *bytes;

	test_elf_start(&elf, EM_X86_64, 0x400000);
	elf.bytes[TEXT_OFFSET] = 0xc3;
	test_elf_finish(&elf);
	for (int memory = 0; memory < 2; memory++) {
		if (memory)
			image = test_elf_open(&elf, NULL);
		else
			assert_int_equal(
				msp_image_open_fd(memory_fd(elf.bytes, elf.size), NULL, &image), 0);
		assert_int_equal(msp_image_min_vaddr(image), 0x400000);
		assert_true(msp_image_offset_to_addr(image, TEXT_OFFSET, &addr));
		assert_int_equal(addr, TEXT_OFFSET);
		assert_false(msp_image_offset_to_addr(image, 1 << 20, &addr));
		bytes = msp_image_bytes(image, TEXT_OFFSET, &avail);
		assert_int_equal(bytes[0], 0xc3);
		assert_int_equal(avail, elf.size - TEXT_OFFSET);
		assert_null(msp_image_bytes(image, elf.size, &avail));
		assert_null(msp_image_bytes(image, UINT64_MAX, &avail));
		msp_image_close(image);
	}
}

/* A file that shrinks after it was opened is an error, not a signal. */
static void shrunk(void **state)
{
	static struct test_elf elf;
	const struct msp_unwind_table *table;
	struct msp_image *image;
	struct msp_symbol symbol;
	size_t avail;
	int fd;

	test_elf_start(&elf, EM_X86_64, 0);
	put_eh_frame(&elf, ".eh_frame", false);
	test_elf_finish(&elf);
	fd = memory_fd(elf.bytes, elf.size);
	assert_int_equal(msp_image_open_fd(fd, NULL, &image), 0);
	assert_int_equal(ftruncate(fd, 0x100), 0);
	assert_null(msp_image_bytes(image, TEXT_OFFSET, &avail));
	assert_int_equal(msp_image_unwind(image, &table), 0);
	assert_int_equal(table->row_count, 0);
	assert_int_equal(msp_image_symbol(image, TEXT_OFFSET, &symbol), MSP_E_NOT_FOUND);
	msp_image_close(image);
}

static void check_rows(struct test_elf *elf)
{
	struct msp_image *image = test_elf_open(elf, NULL);
	const struct msp_unwind_table *table;

	assert_int_equal(msp_image_unwind(image, &table), 0);
	assert_int_equal(table->row_count, 2);
	assert_int_equal(rule_of(table, TEXT_OFFSET)->cfa_off, 8);
	assert_int_equal(rule_of(table, TEXT_OFFSET + 0x100)->cfa_kind, MSP_CFA_NONE);
	msp_image_close(image);
}

/* Whatever way the frame information is stored, the rows are the same. */
static void ways_to_store(void **state)
{
	static struct test_elf elf;
	uint8_t hdr[8] = {1, 0x1b, 0xff, 0xff};
	Elf64_Shdr *shdr;
	int32_t rel;

	for (int i = 0; i < 4; i++) {
		test_elf_start(&elf, EM_X86_64, i & 1 ? 0x400000 : 0);
		put_eh_frame(&elf, i & 2 ? ".debug_frame" : ".eh_frame", i & 2);
		test_elf_finish(&elf);
		check_rows(&elf);
	}
	/* No section headers: only the program header leads there. */
	test_elf_start(&elf, EM_X86_64, 0);
	put_eh_frame(&elf, ".eh_frame", false);
	elf.size += 8; /* the zero that ends .eh_frame */
	shdr = test_elf_section(&elf, ".eh_frame_hdr", SHT_PROGBITS, hdr, sizeof(hdr));
	rel = (int32_t)(elf.sections[elf.section_count - 2].sh_offset - shdr->sh_offset - 4);
	memcpy(elf.bytes + shdr->sh_offset + 4, &rel, 4);
	test_elf_phdr(&elf, PT_GNU_EH_FRAME, shdr->sh_offset, sizeof(hdr), PF_R);
	test_elf_finish(&elf);
	((Elf64_Ehdr *)elf.bytes)->e_shoff = 0;
	((Elf64_Ehdr *)elf.bytes)->e_shnum = ((Elf64_Ehdr *)elf.bytes)->e_shstrndx = 0;
	check_rows(&elf);
}

static void overlay(void **state)
{
	static struct test_elf elf;
	const struct msp_rule rules[] = {{.cfa_kind = MSP_CFA_REG, .cfa_reg = 7, .cfa_off = 88},
					 {.cfa_kind = MSP_CFA_END}};
	const struct msp_row rows[] = {
		{TEXT_OFFSET, 1}, {TEXT_OFFSET + 0x20, 0}, {TEXT_OFFSET + 0x30, 1}};
	const struct msp_unwind_table *table;
	struct msp_image *image;

	test_elf_start(&elf, EM_X86_64, 0);
	put_eh_frame(&elf, ".eh_frame", false);
	test_elf_finish(&elf);
	image = test_elf_open(&elf, NULL);
	assert_int_equal(
		msp_image_overlay(image, TEXT_OFFSET + 0x10, TEXT_OFFSET + 0x40, rows, 3, rules, 1),
		MSP_E_INVALID);
	assert_int_equal(
		msp_image_overlay(image, TEXT_OFFSET + 0x10, TEXT_OFFSET + 0x40, rows, 3, rules, 2),
		0);
	assert_int_equal(msp_image_unwind(image, &table), 0);
	assert_int_equal(rule_of(table, TEXT_OFFSET + 0x0f)->cfa_off, 8);
	assert_int_equal(rule_of(table, TEXT_OFFSET + 0x10)->cfa_kind, MSP_CFA_END);
	assert_int_equal(rule_of(table, TEXT_OFFSET + 0x20)->cfa_off, 88);
	assert_int_equal(rule_of(table, TEXT_OFFSET + 0x3f)->cfa_kind, MSP_CFA_END);
	assert_int_equal(rule_of(table, TEXT_OFFSET + 0x40)->cfa_off, 8);
	assert_int_equal(rule_of(table, TEXT_OFFSET + 0x100)->cfa_kind, MSP_CFA_NONE);
	/* From 0, and beyond all rows. */
	assert_int_equal(msp_image_overlay(image, 0, 0x20, rows, 0, rules, 0), 0);
	assert_int_equal(msp_image_overlay(image, 0x100000, 0x200000,
					   &(struct msp_row){0x100000, 0}, 1, rules, 1),
			 0);
	assert_int_equal(msp_image_unwind(image, &table), 0);
	assert_int_equal(rule_of(table, 0x180000)->cfa_off, 88);
	assert_int_equal(rule_of(table, 0x200000)->cfa_kind, MSP_CFA_NONE);
	assert_int_equal(rule_of(table, TEXT_OFFSET + 0x20)->cfa_off, 88);
	for (uint32_t i = 1; i < table->row_count; i++)
		assert_int_not_equal(table->rows[i].rule, table->rows[i - 1].rule);
	msp_image_close(image);
}

static void put_symbols(struct test_elf *elf, const char *table, uint64_t skip)
{
	static const char names[] = "\0short\0__short\0label\0_ZN4moon3spyEi\0$x\0data";
	const Elf64_Sym syms[] = {
		{0},
		{1, ELF64_ST_INFO(STB_WEAK, STT_FUNC), 0, 1, elf->base + TEXT_OFFSET, 0x10},
		{7, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 1, elf->base + TEXT_OFFSET, 0x10},
		{15, ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE), 0, 1, elf->base + TEXT_OFFSET + 0x28, 0},
		{21, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 1, elf->base + TEXT_OFFSET + 0x20,
		 0x20},
		{36, ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE), 0, 1, elf->base + TEXT_OFFSET + 0x22, 0},
		{39, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), 0, 1, elf->base + TEXT_OFFSET + 0x80,
		 8},
		{15, ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE), 0, 1, elf->base + TEXT_OFFSET + 0x50,
		 0}};
	Elf64_Shdr *shdr;

	shdr = test_elf_section(elf, table, SHT_SYMTAB, syms, sizeof(syms) - skip * sizeof(*syms));
	shdr->sh_link = (uint32_t)elf->section_count;
	shdr->sh_entsize = sizeof(*syms);
	test_elf_section(elf, ".names", SHT_STRTAB, names, sizeof(names));
}

/* A section of code from TEXT_OFFSET + start on. */
static void put_code(struct test_elf *elf, const char *name, uint64_t start, uint64_t size)
{
	static const uint8_t code[0x80];
	Elf64_Shdr *shdr = test_elf_section(elf, name, SHT_PROGBITS, code, size);

	shdr->sh_flags = SHF_ALLOC | SHF_EXECINSTR;
	shdr->sh_addr = elf->base + TEXT_OFFSET + start;
}

/* What the unwind table has for a function at TEXT_OFFSET whose first instruction is a given one. */
static uint8_t leaf_kind(uint32_t first)
{
	static struct test_elf elf;
	uint32_t code[4] = {first, 0x8b2463e4 /* add x4, sp, x4 */, 0xd50323bf /* autiasp */,
			    0xd65f03c0 /* ret */};
	const struct msp_unwind_table *table;
	const struct msp_row *row;
	struct msp_image *image;
	uint8_t kind;

	test_elf_start(&elf, EM_AARCH64, 0);
	put_symbols(&elf, ".symtab", 0);
	memcpy(elf.bytes + TEXT_OFFSET, code, sizeof(code));
	test_elf_finish(&elf);
	image = test_elf_open(&elf, NULL);
	assert_int_equal(msp_image_unwind(image, &table), 0);
	row = msp_unwind_row(table, TEXT_OFFSET + 8);
	kind = row ? table->rules[row->rule].cfa_kind : MSP_CFA_NONE;
	if (kind == MSP_CFA_REG)
		assert_true(table->rules[row->rule].cfa_reg == 31 &&
			    table->rules[row->rule].cfa_off == 0 &&
			    table->rules[row->rule].saved[MSP_SLOT_RA] == MSP_SAVED_SAME);
	msp_image_close(image);
	return kind;
}

/* arm64's vDSO has no CFI: functions that leave the stack and x30 alone are known for what they are. */
static void leaves(void **state)
{
	static const uint32_t good[] = {
		0xd503233f, /* paciasp */
		0x71003c1f, /* cmp w0, #15 */
		0xd53be042, /* mrs x2, cntvct_el0 */
		0xb9400086, /* ldr w6, [x4] */
		0xa9000440, /* stp x0, x1, [x2] */
		0xf240001f, /* tst x0, #1 */
		0xd4000001, /* svc #0 */
	};
	static const uint32_t bad[] = {
		0xd10083ff, /* sub sp, sp, #32 */
		0x910003bf, /* mov sp, x29 */
		0x8b2063ff, /* add sp, sp, x0 */
		0x927cec1f, /* and sp, x0, #-16 */
		0xa9bf7bfd, /* stp x29, x30, [sp, #-16]! */
		0xf84107fe, /* ldr x30, [sp], #16 */
		0xa9400bfe, /* ldp x30, x2, [sp] */
		0xa9407840, /* ldp x0, x30, [x2] */
		0xaa0003fe, /* mov x30, x0 */
		0xd53be05e, /* mrs x30, cntvct_el0 */
		0x9e66001e, /* fmov x30, d0 */
		0x94000010, /* bl */
		0xd63f0000, /* blr x0 */
		0xd2801168, /* mov x8, #139: rt_sigreturn */
		0x00000000, /* udf */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(leaf_kind(good[i]), MSP_CFA_REG);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(leaf_kind(bad[i]), MSP_CFA_NONE);
}

/* _init has no size in many files, and .plt and .text follow it. */
static void label_ends_with_its_section(void **state)
{
	static struct test_elf elf;
	struct msp_symbol symbol;
	struct msp_image *image;

	test_elf_start(&elf, EM_X86_64, 0x400000);
	put_symbols(&elf, ".symtab", 0);
	put_code(&elf, ".init", 0x48, 0x18);
	put_code(&elf, ".text", 0x60, 0x20);
	test_elf_finish(&elf);
	image = test_elf_open(&elf, NULL);
	assert_int_equal(msp_image_symbol(image, TEXT_OFFSET + 0x5f, &symbol), 0);
	assert_string_equal(symbol.name, "label");
	assert_int_equal(msp_image_symbol(image, TEXT_OFFSET + 0x60, &symbol), MSP_E_NOT_FOUND);
	msp_image_close(image);
}

static void symbols(void **state)
{
	static struct test_elf elf;
	struct msp_symbol symbol;
	struct msp_image *image;

	test_elf_start(&elf, EM_X86_64, 0x400000);
	put_symbols(&elf, ".symtab", 0);
	test_elf_finish(&elf);
	image = test_elf_open(&elf, NULL);
	assert_int_equal(msp_image_symbol(image, TEXT_OFFSET + 0xf, &symbol), 0);
	assert_string_equal(symbol.name, "short");
	assert_int_equal(symbol.addr, TEXT_OFFSET);
	assert_int_equal(msp_image_symbol(image, TEXT_OFFSET + 0x10, &symbol), MSP_E_NOT_FOUND);
	assert_int_equal(msp_image_symbol(image, TEXT_OFFSET - 1, &symbol), MSP_E_NOT_FOUND);
	/* A label within a function does not hide it; one behind all functions names what follows. */
	assert_int_equal(msp_image_symbol(image, TEXT_OFFSET + 0x2a, &symbol), 0);
	assert_string_equal(symbol.name, "moon::spy(int)");
	assert_int_equal(msp_image_symbol(image, TEXT_OFFSET + 0x58, &symbol), 0);
	assert_string_equal(symbol.name, "label");
	assert_int_equal(msp_image_find_symbol(image, "data", &symbol), 0);
	assert_int_equal(symbol.addr, TEXT_OFFSET + 0x80);
	assert_int_equal(msp_image_find_symbol(image, "_ZN4moon3spyEi", &symbol), 0);
	assert_int_equal(symbol.size, 0x20);
	assert_int_equal(msp_image_find_symbol(image, "nothing", &symbol), MSP_E_NOT_FOUND);
	msp_image_close(image);
}

/* Symbols of a stripped file, in a compressed file within it. */
static void debugdata(void **state)
{
	static struct test_elf elf, inner;
	static uint8_t packed[FILE_ROOM / 2];
	struct msp_symbol symbol;
	struct msp_image *image;
	size_t size = 0;

	test_elf_start(&inner, EM_X86_64, 0);
	put_symbols(&inner, ".symtab", 0);
	test_elf_finish(&inner);
	assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC32, NULL, inner.bytes, inner.size,
						 packed, &size, sizeof(packed)),
			 LZMA_OK);
	for (size_t cut = 0; cut < 2; cut++) {
		test_elf_start(&elf, EM_X86_64, 0);
		test_elf_section(&elf, ".gnu_debugdata", SHT_PROGBITS, packed, size - cut * 4);
		test_elf_finish(&elf);
		image = test_elf_open(&elf, NULL);
		assert_int_equal(msp_image_symbol(image, TEXT_OFFSET + 0x2a, &symbol),
				 cut ? MSP_E_NOT_FOUND : 0);
		if (!cut)
			assert_string_equal(symbol.name, "moon::spy(int)");
		msp_image_close(image);
	}
}

static void demangle(void **state)
{
	static const struct {
		const char *name, *text;
	} known[] = {
		{"main", NULL},
		{"_Z", NULL},
		{"_ZNSt6vectorIiSaIiEE9push_backEOi",
		 "std::vector<int, std::allocator<int> >::push_back(int&&)"},
		{"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"},
		{"_RNvC6_123foo3bar", "123foo::bar"}};
	/* Each S_ doubles what it stands for: 2^100 bytes, if it were let. */
	char bomb[512] = "_Z1fI1aS0_";

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		char *text = msp_demangle(known[i].name);

		if (known[i].text)
			assert_string_equal(text, known[i].text);
		else
			assert_null(text);
		free(text);
	}
	for (size_t n = strlen(bomb); n < sizeof(bomb) - 1; n++)
		bomb[n] = "SI_PF0KR"[n * 7 % 8];
	free(msp_demangle(bomb));
}

static void write_file(const char *dir, const char *name, const struct test_elf *elf)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(write(fd, elf->bytes, elf->size), (ssize_t)elf->size);
	close(fd);
}

static void make_dirs(const char *root, const char *path)
{
	char full[512], *at;

	snprintf(full, sizeof(full), "%s%s/", root, path);
	for (at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(full, 0700);
		*at = '/';
	}
}

static void remove_tree(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char full[1024];

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(full, sizeof(full), "%s/%s", path, entry->d_name);
		if (unlink(full))
			remove_tree(full);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static int find_in(const struct test_elf *elf, const char *root)
{
	struct msp_image_options opts = {.root = root, .name = "/opt/bin/prog"};
	struct msp_image *image;
	struct msp_symbol symbol;
	int err;

	assert_int_equal(msp_image_open_fd(memory_fd(elf->bytes, elf->size), &opts, &image), 0);
	err = msp_image_symbol(image, TEXT_OFFSET + 4, &symbol);
	if (!err)
		assert_string_equal(symbol.name, "short");
	msp_image_close(image);
	return err;
}

/* By build id, and by link with the right checksum; never by a link that leads out of the root. */
static void debug_files(void **state)
{
	static struct test_elf elf, debug;
	static const char by_id[] = "/usr/lib/debug/.build-id/ab";
	char root[] = "/tmp/elf-image-XXXXXX", path[512], link[16] = "prog.debug";
	uint32_t crc;

	assert_non_null(mkdtemp(root));
	test_elf_start(&debug, EM_X86_64, 0x10000); /* made before the file was prelinked */
	test_elf_build_id(&debug, id);
	put_symbols(&debug, ".symtab", 0);
	test_elf_finish(&debug);
	test_elf_start(&elf, EM_X86_64, 0);
	test_elf_build_id(&elf, id);
	test_elf_finish(&elf);
	assert_int_equal(find_in(&elf, root), MSP_E_NOT_FOUND);
	make_dirs(root, by_id);
	snprintf(path, sizeof(path), "%s%s", root, by_id);
	write_file(path, "cd010203040506070800000000000000000000.debug", &debug);
	assert_int_equal(find_in(&elf, root), 0);

	test_elf_start(&debug, EM_X86_64, 0);
	put_symbols(&debug, ".symtab", 0);
	test_elf_finish(&debug);
	crc = (uint32_t)crc32(0, debug.bytes, (uInt)debug.size);
	memcpy(link + 12, &crc, 4);
	test_elf_start(&elf, EM_X86_64, 0);
	test_elf_section(&elf, ".gnu_debuglink", SHT_PROGBITS, link, sizeof(link));
	test_elf_finish(&elf);
	make_dirs(root, "/opt/bin/.debug");
	snprintf(path, sizeof(path), "%s/opt/bin/.debug", root);
	write_file(path, "prog.debug", &debug);
	assert_int_equal(find_in(&elf, root), 0);
	debug.bytes[TEXT_OFFSET + 100] ^= 1;
	write_file(path, "prog.debug", &debug);
	assert_int_equal(find_in(&elf, root), MSP_E_NOT_FOUND);
	debug.bytes[TEXT_OFFSET + 100] ^= 1;
	write_file(root, "outside", &debug);
	make_dirs(root, "/jail/opt/bin");
	snprintf(path, sizeof(path), "%s/jail/opt/bin/prog.debug", root);
	assert_int_equal(symlink("../../../outside", path), 0);
	snprintf(path, sizeof(path), "%s/jail", root);
	assert_int_equal(find_in(&elf, path), MSP_E_NOT_FOUND);
	remove_tree(root);
}

static void vdso(void **state)
{
	const void *bytes = (const void *)getauxval(AT_SYSINFO_EHDR);
	struct msp_image *image;
	const struct msp_unwind_table *table;
	struct msp_symbol symbol;

	if (!bytes)
		skip();
	assert_int_equal(
		msp_image_open_memory(bytes, 4096, NULL, &image) ? 0 : (msp_image_close(image), 0),
		0);
	assert_int_equal(msp_image_open_memory(bytes, 8192, NULL, &image), 0);
	assert_int_equal(msp_image_unwind(image, &table), 0);
	assert_true(table->row_count > 0);
	assert_int_equal(msp_image_find_symbol(image, "__vdso_clock_gettime", &symbol), 0);
	assert_int_equal(rule_of(table, (uint32_t)symbol.addr)->cfa_kind, MSP_CFA_REG);
	msp_image_close(image);
}

static void libc(void **state)
{
	struct msp_image *image;
	struct msp_symbol symbol;
	Dl_info info;
	int fd = open(LIBC, O_RDONLY);

	if (fd < 0 || !dladdr((void *)lcong48, &info))
		skip();
	assert_int_equal(msp_image_open_fd(fd, NULL, &image), 0);
	assert_int_equal(msp_image_find_symbol(image, "lcong48", &symbol), 0);
	assert_int_equal(symbol.addr, (uintptr_t)info.dli_saddr - (uintptr_t)info.dli_fbase);
	assert_int_equal(msp_image_symbol(image, symbol.addr + 1, &symbol), 0);
	assert_string_equal(symbol.name, "lcong48");
	msp_image_close(image);
}

/* Holds the names of all PLT stubs of a file against those that objdump gives them. Returns how many there were. */
static size_t compare_stubs(const char *path)
{
	struct msp_image *image;
	struct msp_symbol symbol;
	char command[4096], line[4096], name[4096];
	unsigned long vaddr;
	size_t count = 0;
	int fd = open(path, O_RDONLY);
	FILE *said;

	snprintf(command, sizeof(command),
		 "objdump -d -j .plt -j .plt.sec -j .plt.got '%s' 2>/dev/null", path);
	if (fd < 0 || !(said = popen(command, "r")))
		return 0;
	assert_int_equal(msp_image_open_fd(fd, NULL, &image), 0);
	while (fgets(line, sizeof(line), said)) {
		if (sscanf(line, "%lx <%4000[^>]>:", &vaddr, name) != 2 || !strstr(name, "@plt") ||
		    strchr(name, '+') || strstr(name, "-0x"))
			continue; /* the first entry, and indirect functions, which objdump does not name */
		assert_int_equal(
			msp_image_symbol(image, vaddr + 1 - msp_image_min_vaddr(image), &symbol),
			0);
		assert_int_equal(symbol.addr, vaddr - msp_image_min_vaddr(image));
		if (strncmp(name, "_Z", 2))
			assert_string_equal(symbol.name, name);
		count++;
	}
	pclose(said);
	msp_image_close(image);
	return count;
}

static void plt_stubs(void **state)
{
	char *self = realpath("/proc/self/exe", NULL);
	size_t count = compare_stubs(self) + compare_stubs(LIBC) + compare_stubs("/usr/bin/gdb");

	free(self);
	print_message("%zu stubs\n", count);
	if (!count)
		skip();
}

/* A relocation whose function is the stub that asks for it. */
static void plt_of_itself(void **state)
{
	static struct test_elf elf;
	const uint8_t stub[16] = {0xff, 0x25, 0x10}; /* jmp *0x10(%rip) */
	Elf64_Rela rela = {.r_info = ELF64_R_INFO(0, R_X86_64_IRELATIVE)};
	struct msp_image *image;
	struct msp_symbol symbol;
	Elf64_Shdr *plt, *relocations;

	test_elf_start(&elf, EM_X86_64, 0);
	plt = test_elf_section(&elf, ".plt", SHT_PROGBITS, stub, sizeof(stub));
	plt->sh_entsize = sizeof(stub);
	rela.r_offset = plt->sh_addr + 6 + 0x10;
	rela.r_addend = (int64_t)plt->sh_addr;
	relocations = test_elf_section(&elf, ".rela.plt", SHT_RELA, &rela, sizeof(rela));
	relocations->sh_entsize = sizeof(rela);
	test_elf_finish(&elf);
	image = test_elf_open(&elf, NULL);
	assert_int_equal(msp_image_symbol(image, plt->sh_addr, &symbol), MSP_E_NOT_FOUND);
	msp_image_close(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(not_elf),	 cmocka_unit_test(keys),
		cmocka_unit_test(addresses),	 cmocka_unit_test(shrunk),
		cmocka_unit_test(ways_to_store), cmocka_unit_test(overlay),
		cmocka_unit_test(symbols),	 cmocka_unit_test(label_ends_with_its_section),
		cmocka_unit_test(demangle),	 cmocka_unit_test(debug_files),
		cmocka_unit_test(debugdata),	 cmocka_unit_test(vdso),
		cmocka_unit_test(libc),		 cmocka_unit_test(plt_stubs),
		cmocka_unit_test(plt_of_itself), cmocka_unit_test(leaves)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

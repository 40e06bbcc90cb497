/* SPDX-License-Identifier: MIT */
/* Notes of probes: what they say, what is not believed, and notes that lie. */
#include <zlib.h>

#include "elf_help.h"

#define NOP_AT (TEXT_OFFSET + 0x10)

struct note {
	uint8_t bytes[1024];
	size_t size;
};

static void put(struct note *note, const void *data, size_t size)
{
	memcpy(note->bytes + note->size, data, size);
	note->size += size;
}

/* Behind those that are there. texts: provider, name, arguments, as they lie there. */
static void add_note(struct note *note, uint64_t location, uint64_t base, uint64_t semaphore,
		     const char *texts, size_t size)
{
	uint32_t head[3] = {8, (uint32_t)(24 + size), 3};
	uint64_t places[3] = {location, base, semaphore};

	put(note, head, sizeof(head));
	put(note, "stapsdt", 8);
	put(note, places, sizeof(places));
	put(note, texts, size);
	note->size = (note->size + 3) & ~(size_t)3;
}

#define ADD(note, location, semaphore, texts) \
	add_note(note, location, 0x500, semaphore, texts, sizeof(texts))

static struct msp_image *make_image(int machine, uint64_t base, uint64_t base_section,
				    const struct note *note)
{
	static const uint8_t arm64[] = {0x1f, 0x20, 0x03, 0xd5};
	static struct test_elf elf;

	test_elf_start(&elf, machine, base);
	test_elf_section(&elf, ".note.stapsdt", SHT_NOTE, note->bytes, note->size);
	test_elf_section(&elf, ".stapsdt.base", SHT_PROGBITS, "", 1)->sh_addr = base_section;
	memcpy(elf.bytes + NOP_AT, machine == EM_X86_64 ? (const uint8_t *)"\x90" : arm64,
	       machine == EM_X86_64 ? 1 : 4);
	test_elf_finish(&elf);
	return test_elf_open(&elf, &(struct msp_image_options){.name = "x"});
}

static void test_registers(void **state)
{
	struct note note = {.size = 0};
	struct msp_image *image;
	struct msp_probe *p;

	(void)state;
	ADD(&note, 0x400000 + NOP_AT, 0,
	    "luajit\0one\0008@%rdi 8@%r15 4@%eax 8@16(%rsp) 8@$5 8@%rax");
	ADD(&note, 0x400000 + NOP_AT, 0, "other\0two\0008@%rdi");
	ADD(&note, 0x400000 + NOP_AT, 0, "luajit\0three\0");
	image = make_image(EM_X86_64, 0x400000, 0x500, &note);
	assert_int_equal(msp_image_probes(image, "luajit", &p), 2);
	assert_string_equal(p[0].name, "one");
	assert_int_equal(p[0].offset, NOP_AT);
	assert_memory_equal(p[0].arg, "\5\17\377\377\377\0", MSP_PROBE_ARGS);
	assert_string_equal(p[1].name, "three");
	assert_memory_equal(p[1].arg, "\377\377\377\377\377\377", MSP_PROBE_ARGS);
	free(p);
	assert_int_equal(msp_image_probes(image, "none", &p), 0);
	assert_null(p);
	msp_image_close(image);

	note.size = 0;
	ADD(&note, NOP_AT, 0, "luajit\0one\0008@x0 8@x30 8@x31 8@[sp] 8@x7");
	image = make_image(EM_AARCH64, 0, 0x500, &note);
	assert_int_equal(msp_image_probes(image, "luajit", &p), 1);
	assert_memory_equal(p[0].arg, "\0\36\377\377\7\377", MSP_PROBE_ARGS);
	free(p);
	msp_image_close(image);
}

/* A file that prelink has moved has its notes as they were. */
static void test_moved(void **state)
{
	struct note note = {.size = 0};
	struct msp_image *image;
	struct msp_probe *p;

	(void)state;
	ADD(&note, 0x10, 0, "luajit\0one\0008@%rdi");
	image = make_image(EM_X86_64, 0, TEXT_OFFSET + 0x500, &note);
	assert_int_equal(msp_image_probes(image, "luajit", &p), 1);
	assert_int_equal(p[0].offset, NOP_AT);
	free(p);
	msp_image_close(image);
}

/* A breakpoint there would break the program, or nobody would hear it. */
static void test_wrong_places(void **state)
{
	struct note note = {.size = 0};
	struct msp_image *image;
	struct msp_probe *p;

	(void)state;
	ADD(&note, NOP_AT + 1, 0, "luajit\0no nop\0");
	ADD(&note, NOP_AT, 0x2000, "luajit\0semaphore\0");
	ADD(&note, ~0ull, 0, "luajit\0nowhere\0");
	ADD(&note, NOP_AT, 0, "luajit\0a name that is longer than any\0");
	add_note(&note, NOP_AT, 0x500, 0, "luajit\0cut", 10);
	image = make_image(EM_X86_64, 0, 0x500, &note);
	assert_int_equal(msp_image_probes(image, "luajit", &p), 0);
	assert_null(p);
	msp_image_close(image);
}

/* Notes that a program has loaded are never compressed: a small file would become a large one here. */
static void test_compressed(void **state)
{
	static struct test_elf elf;
	struct note note = {.size = 0};
	Elf64_Chdr chdr = {.ch_type = ELFCOMPRESS_ZLIB};
	uint8_t packed[2048] = {0};
	uLongf size = sizeof(packed) - sizeof(chdr);
	struct msp_image *image;
	struct msp_probe *p;

	(void)state;
	ADD(&note, NOP_AT, 0, "luajit\0one\0008@%rdi");
	chdr.ch_size = note.size;
	memcpy(packed, &chdr, sizeof(chdr));
	assert_int_equal(compress2(packed + sizeof(chdr), &size, note.bytes, note.size, 9), Z_OK);
	for (int i = 0; i < 2; i++) {
		test_elf_start(&elf, EM_X86_64, 0);
		if (i)
			test_elf_section(&elf, ".note.stapsdt", SHT_NOTE, packed,
					 sizeof(chdr) + size)
				->sh_flags = SHF_COMPRESSED;
		else
			test_elf_section(&elf, ".note.stapsdt", SHT_NOTE, note.bytes, note.size);
		elf.bytes[NOP_AT] = 0x90;
		test_elf_finish(&elf);
		image = test_elf_open(&elf, &(struct msp_image_options){.name = "x"});
		assert_int_equal(msp_image_probes(image, "luajit", &p), !i);
		free(p);
		msp_image_close(image);
	}
}

/* Whatever byte is changed: what is handed out lies on the nop, and has a name that ends. */
static void test_lies(void **state)
{
	static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
	struct note note = {.size = 0}, lie;
	struct msp_image *image;
	struct msp_probe *p;
	int n, found = 0;

	(void)state;
	ADD(&note, NOP_AT, 0, "luajit\0one\0008@%rdi 8@%r15");
	ADD(&note, NOP_AT, 0, "luajit\0two\0008@%rdi");
	for (size_t i = 0; i < note.size; i++)
		for (size_t k = 0; k < sizeof(values); k++) {
			lie = note;
			lie.bytes[i] = values[k];
			image = make_image(EM_X86_64, 0, 0x500, &lie);
			n = msp_image_probes(image, "luajit", &p);
			assert_in_range(n, 0, 2);
			for (int j = 0; j < n; j++) {
				assert_int_equal(p[j].offset, NOP_AT);
				assert_true(strlen(p[j].name) < sizeof(p[j].name));
			}
			found += n;
			free(p);
			msp_image_close(image);
		}
	assert_true(found > (int)(note.size * sizeof(values)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registers),    cmocka_unit_test(test_moved),
		cmocka_unit_test(test_wrong_places), cmocka_unit_test(test_compressed),
		cmocka_unit_test(test_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Core files made by hand: what is read of them, and what lies do. */
#include "target_help.h"

#include <elf.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zstd.h>

#include "target/core.h"
#include "target/snapshot.h"
#include "unwind/tables.h"

#define MAX_HEADERS 16
#define FIRST_OFFSET 4096

/* A core under construction. */
struct made {
	Elf64_Ehdr header;
	Elf64_Phdr phdr[MAX_HEADERS];
	unsigned char notes[8192];
	size_t notes_size;
	unsigned char bytes[1 << 16]; /* from FIRST_OFFSET on */
	size_t size;
};

static struct made *make(void)
{
	struct made *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	memcpy(m->header.e_ident, ELFMAG, SELFMAG);
	m->header.e_ident[EI_CLASS] = ELFCLASS64;
	m->header.e_ident[EI_DATA] = ELFDATA2LSB;
	m->header.e_ident[EI_VERSION] = EV_CURRENT;
	m->header.e_type = ET_CORE;
	m->header.e_machine = EM_X86_64;
	m->header.e_phoff = sizeof(m->header);
	m->header.e_phentsize = sizeof(Elf64_Phdr);
	m->header.e_phnum = 1; /* the notes */
	return m;
}

static void add_segment(struct made *m, uint64_t addr, uint64_t filled, uint64_t size, int flags,
			int fill)
{
	Elf64_Phdr *phdr = &m->phdr[m->header.e_phnum++];

	*phdr = (Elf64_Phdr){.p_type = PT_LOAD,
			     .p_vaddr = addr,
			     .p_filesz = filled,
			     .p_memsz = size,
			     .p_flags = (Elf64_Word)flags,
			     .p_offset = FIRST_OFFSET + m->size};
	if (m->size + filled <= sizeof(m->bytes)) {
		memset(m->bytes + m->size, fill, filled);
		m->size += filled;
	}
}

static void add_note(struct made *m, uint32_t type, const void *bytes, size_t size)
{
	uint32_t head[3] = {5, (uint32_t)size, type};

	memcpy(m->notes + m->notes_size, head, sizeof(head));
	memcpy(m->notes + m->notes_size + 12, "CORE", 5);
	memcpy(m->notes + m->notes_size + 20, bytes, size);
	m->notes_size += 20 + ((size + 3) & ~3ul);
}

static void add_thread(struct made *m, int tid, int sig, uint64_t pc, uint64_t orig_rax)
{
	unsigned char status[336] = {0};

	memcpy(status + 12, &sig, 2);
	memcpy(status + 32, &tid, 4);
	memcpy(status + 112 + 15 * 8, &orig_rax, 8);
	memcpy(status + 112 + 16 * 8, &pc, 8);
	add_note(m, NT_PRSTATUS, status, sizeof(status));
}

/* The core as a file, cut at some size; 0: whole. */
static int as_file(struct made *m, size_t cut)
{
	int fd = memfd_create("core", MFD_CLOEXEC);
	size_t notes_at = FIRST_OFFSET + m->size;

	m->phdr[0] =
		(Elf64_Phdr){.p_type = PT_NOTE, .p_offset = notes_at, .p_filesz = m->notes_size};
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &m->header, sizeof(m->header), 0), sizeof(m->header));
	assert_int_equal(pwrite(fd, m->phdr, sizeof(m->phdr), (off_t)m->header.e_phoff),
			 sizeof(m->phdr));
	assert_int_equal(pwrite(fd, m->bytes, m->size, FIRST_OFFSET), (ssize_t)m->size);
	assert_int_equal(pwrite(fd, m->notes, m->notes_size, (off_t)notes_at),
			 (ssize_t)m->notes_size);
	if (cut)
		assert_int_equal(ftruncate(fd, (off_t)cut), 0);
	return fd;
}

static int open_made(struct made *m, size_t cut, struct msp_core **core)
{
	const struct msp_core_options options = {.sysroot = "/proc/self/fdinfo"};
	char why[MSP_CORE_WHY_SIZE];
	int r = msp_core_open(as_file(m, cut), &options, core, why);

	assert_true(r == 0 || *why);
	return r;
}

static int read_at(const struct msp_core *core, uint64_t addr, void *buf, size_t size)
{
	return msp_read(msp_core_host(core)->memory, addr, buf, size);
}

static void test_memory(void **state)
{
	struct made *m = make();
	struct msp_core *core;
	unsigned char buf[8192];

	add_segment(m, 0x20000, 4096, 4096, PF_R | PF_W, 'b');
	add_segment(m, 0x10000, 4096, 8192, PF_R, 'a');
	add_segment(m, 0x21000, 4096, 4096, PF_R, 'c');
	assert_int_equal(open_made(m, 0, &core), 0);
	assert_int_equal(read_at(core, 0x10000, buf, 4096), 0);
	assert_int_equal(buf[0], 'a');
	assert_int_equal(read_at(core, 0x20ffc, buf, 8), 0);
	assert_memory_equal(buf, "bbbbcccc", 8);
	assert_int_equal(read_at(core, 0x20fff, buf, 0), 0);
	/* What the core does not have, and where nothing was mapped. */
	assert_int_equal(read_at(core, 0x10ffc, buf, 8), MSP_E_FAULT);
	assert_int_equal(read_at(core, 0x11000, buf, 1), MSP_E_FAULT);
	assert_int_equal(read_at(core, 0x21ffc, buf, 8), MSP_E_FAULT);
	assert_int_equal(read_at(core, 0, buf, 1), MSP_E_FAULT);
	assert_int_equal(read_at(core, UINT64_MAX - 3, buf, 8), MSP_E_FAULT);
	msp_core_close(core);
	free(m);
}

static void test_lying_segments(void **state)
{
	struct made *m = make();
	struct msp_core *core;
	char byte;

	add_segment(m, 0x10000, 4096, 4096, PF_R, 'a');
	add_segment(m, 0x10800, 4096, 4096, PF_R, 'x');		  /* over the first */
	add_segment(m, UINT64_MAX - 100, 4096, 4096, PF_R, 'x');  /* around the end */
	add_segment(m, 0x30000, UINT64_MAX / 2, 4096, PF_R, 'x'); /* more than there is */
	m->phdr[4].p_offset = UINT64_MAX - 10;
	add_segment(m, 0x40000, 1, 0, PF_R, 'x');
	assert_int_equal(open_made(m, 0, &core), 0);
	assert_int_equal(read_at(core, 0x10900, &byte, 1), 0);
	assert_int_equal(byte, 'a');
	assert_int_equal(read_at(core, 0x11100, &byte, 1), MSP_E_FAULT);
	assert_int_equal(read_at(core, 0x30000, &byte, 1), MSP_E_FAULT);
	assert_int_equal(read_at(core, 0x40000, &byte, 1), MSP_E_FAULT);
	msp_core_close(core);
	free(m);
}

static const struct msp_core_gap *gap_of(struct msp_core *core, int kind)
{
	const struct msp_core_gap *gaps;
	size_t count;

	gaps = msp_core_gaps(core, &count);
	for (size_t i = 0; i < count; i++)
		if ((int)gaps[i].kind == kind)
			return &gaps[i];
	return NULL;
}

static void test_cut(void **state)
{
	struct made *m = make();
	struct msp_core *core;
	char byte;

	add_segment(m, 0x10000, 8192, 8192, PF_R, 'a');
	add_thread(m, 1, 0, 0x10000, UINT64_MAX);
	assert_int_equal(open_made(m, FIRST_OFFSET + 5000, &core), 0);
	assert_int_equal(read_at(core, 0x10000 + 4999, &byte, 1), 0);
	assert_int_equal(read_at(core, 0x10000 + 5000, &byte, 1), MSP_E_FAULT);
	assert_int_equal(gap_of(core, MSP_CORE_GAP_MEMORY)->bytes, 3192);
	assert_non_null(gap_of(core, MSP_CORE_GAP_NOTES));
	msp_core_close(core);
	assert_int_not_equal(open_made(m, sizeof(Elf64_Ehdr) + 10, &core), 0);
	assert_int_not_equal(open_made(m, 10, &core), 0);
	assert_int_not_equal(open_made(m, 1, &core), 0);
	free(m);
}

static void refuse(void (*change)(struct made *m), int error)
{
	struct made *m = make();
	struct msp_core *core;

	change(m);
	assert_int_equal(open_made(m, 0, &core), error);
	free(m);
}

static void no_elf(struct made *m)
{
	m->header.e_ident[1] = 'X';
}
static void narrow(struct made *m)
{
	m->header.e_ident[EI_CLASS] = ELFCLASS32;
}
static void big_endian(struct made *m)
{
	m->header.e_ident[EI_DATA] = ELFDATA2MSB;
}
static void program(struct made *m)
{
	m->header.e_type = ET_DYN;
}
static void other_machine(struct made *m)
{
	m->header.e_machine = EM_RISCV;
}
static void strange_headers(struct made *m)
{
	m->header.e_phentsize = 8;
}
static void no_headers(struct made *m)
{
	m->header.e_phnum = 0;
}
static void headers_nowhere(struct made *m)
{
	m->header.e_phnum = PN_XNUM; /* and there is no section that has the number */
	m->header.e_shoff = UINT64_MAX - 10;
}

static void test_refuses(void **state)
{
	refuse(no_elf, MSP_E_FORMAT);
	refuse(narrow, MSP_E_UNSUPPORTED);
	refuse(big_endian, MSP_E_UNSUPPORTED);
	refuse(program, MSP_E_FORMAT);
	refuse(other_machine, MSP_E_UNSUPPORTED);
	refuse(strange_headers, MSP_E_FORMAT);
	refuse(no_headers, MSP_E_FORMAT);
	refuse(headers_nowhere, MSP_E_FORMAT);
}

static void test_notes(void **state)
{
	struct made *m = make();
	const struct msp_core_thread *threads;
	const struct msp_core_signal *sig;
	struct msp_core *core;
	unsigned char info[128] = {0}, process[136] = {0};
	uint64_t address = 0x1234;
	int number = SIGSEGV, code = SEGV_MAPERR, pid = 77;
	size_t count;

	add_thread(m, 78, SIGSEGV, 0x401000, UINT64_MAX);
	memcpy(process + 24, &pid, 4);
	memcpy(process + 40, "a program name that is long", 16);
	memcpy(process + 56, "program --option  ", 18);
	add_note(m, NT_PRPSINFO, process, sizeof(process));
	memcpy(info, &number, 4);
	memcpy(info + 8, &code, 4);
	memcpy(info + 16, &address, 8);
	add_note(m, NT_SIGINFO, info, sizeof(info));
	add_note(m, 0x205, "unknown", 8);
	add_thread(m, 77, 0, 0x402000, 35);
	add_note(m, NT_PRSTATUS, "short", 5);
	assert_int_equal(open_made(m, 0, &core), 0);
	assert_int_equal(msp_core_pid(core), 77);
	assert_string_equal(msp_core_comm(core), "a program name t");
	assert_string_equal(msp_core_command(core), "program --option");
	threads = msp_core_threads(core, &count);
	assert_int_equal(count, 2);
	assert_int_equal(threads[0].tid, 78);
	assert_int_equal(threads[0].regs.pc, 0x401000);
	assert_false(threads[0].in_call);
	assert_true(threads[1].in_call);
	sig = msp_core_signal(core);
	assert_int_equal(sig->number, SIGSEGV);
	assert_int_equal(sig->tid, 78);
	assert_true(sig->has_address);
	assert_int_equal(sig->address, 0x1234);
	assert_int_equal(sig->sender, 0);
	assert_null(gap_of(core, MSP_CORE_GAP_MEMORY));
	msp_core_close(core);
	/* A size that leads out of the notes. */
	memset(m->notes + 4, 0xff, 4);
	assert_int_equal(open_made(m, 0, &core), 0);
	msp_core_threads(core, &count);
	assert_int_equal(count, 0);
	assert_non_null(gap_of(core, MSP_CORE_GAP_NOTES));
	msp_core_close(core);
	free(m);
}

/* NT_FILE of some lines; names follow each other. */
static void add_files(struct made *m, uint64_t count, uint64_t page, const uint64_t *lines,
		      size_t numbers, const char *names, size_t names_size)
{
	unsigned char note[1024];

	memcpy(note, &count, 8);
	memcpy(note + 8, &page, 8);
	memcpy(note + 16, lines, numbers * 8);
	memcpy(note + 16 + numbers * 8, names, names_size);
	add_note(m, NT_FILE, note, 16 + numbers * 8 + names_size);
}

static void test_maps(void **state)
{
	static const uint64_t lines[] = {0x10000, 0x11000, 0, 0x11000, 0x12000, 1,
					 0x30000, 0x31000, 0, 0x12000, 0x11000, 0};
	static const char names[] = "/lib/a b.so\0/lib/a b.so\0/gone (deleted)\0/bad\0";
	const uint64_t auxv[] = {AT_SYSINFO_EHDR, 0x50000, AT_RANDOM, 0x60010, 0, 0};
	struct made *m = make();
	struct msp_core *core;
	struct msp_maps maps;

	add_segment(m, 0x10000, 4096, 4096, PF_R, 0);
	add_segment(m, 0x11000, 0, 4096, PF_R | PF_X, 0);
	add_segment(m, 0x50000, 4096, 4096, PF_R | PF_X, 0);
	add_segment(m, 0x60000, 4096, 4096, PF_R | PF_W, 0);
	add_segment(m, 0xffffffffff600000, 4096, 4096, PF_X, 0);
	add_files(m, 4, 4096, lines, 12, names, sizeof(names) - 1);
	add_note(m, NT_AUXV, auxv, sizeof(auxv));
	assert_int_equal(open_made(m, 0, &core), 0);
	assert_int_equal(msp_core_host(core)->maps(msp_core_host(core)->ctx, &maps), 0);
	assert_int_equal(maps.count, 6);
	assert_string_equal(maps.map[0].name, "/lib/a b.so");
	assert_string_equal(maps.map[1].name, "/lib/a b.so");
	assert_int_equal(maps.map[1].offset, 4096);
	assert_int_equal(maps.map[0].inode, maps.map[1].inode);
	assert_int_not_equal(maps.map[0].inode, 0);
	assert_int_equal(maps.map[1].prot, PROT_READ | PROT_EXEC);
	assert_string_equal(maps.map[2].name, "/gone"); /* in no segment */
	assert_true(maps.map[2].deleted);
	assert_string_equal(maps.map[3].name, "[vdso]");
	assert_string_equal(maps.map[4].name, "[stack]");
	assert_int_equal(maps.map[4].inode, 0);
	assert_string_equal(maps.map[5].name, "[vsyscall]");
	msp_maps_free(&maps);
	msp_core_close(core);
	free(m);
}

static void open_files(uint64_t count, uint64_t page, size_t names_size)
{
	static const uint64_t lines[] = {0x10000, 0x11000, 0};
	struct made *m = make();
	struct msp_core *core;
	struct msp_maps maps;

	add_files(m, count, page, lines, 3, "/a\0/b", names_size);
	assert_int_equal(open_made(m, 0, &core), 0);
	assert_int_equal(msp_core_host(core)->maps(msp_core_host(core)->ctx, &maps), 0);
	assert_int_equal(maps.count, 0);
	msp_maps_free(&maps);
	msp_core_close(core);
	free(m);
}

static void test_lying_files(void **state)
{
	open_files(UINT64_MAX, 4096, 3);
	open_files(1ull << 60, 4096, 3);
	open_files(1, 0, 3);
	open_files(1, UINT64_MAX, 3);
	open_files(1, 4096, 2); /* a name without an end */
	open_files(0, 4096, 3);
}

/* ---- A file that was mapped ---- */

/* The first page of this very program, as a file that was mapped. */
static size_t own_head(unsigned char head[4096])
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, head, 4096);

	close(fd);
	return n > 0 ? (size_t)n : 0;
}

static struct msp_core *core_of_self(const char *exe, const char *path, bool spoilt)
{
	const struct msp_core_options options = {.exe = exe, .sysroot = "/proc/self/fdinfo"};
	static const uint64_t lines[] = {0x400000, 0x401000, 0, 0x401000, 0x402000, 1};
	const uint64_t auxv[] = {AT_ENTRY, 0x401010, 0, 0};
	char names[512], why[MSP_CORE_WHY_SIZE];
	struct made *m = make();
	struct msp_core *core;
	int size = snprintf(names, sizeof(names), "%s%c%s", path, 0, path) + 1;

	add_segment(m, 0x400000, 4096, 4096, PF_R, 0);
	assert_int_equal(own_head(m->bytes), 4096);
	if (spoilt) /* in the build id, or what stands in its place */
		for (size_t i = 0x200; i < 0x400; i++)
			m->bytes[i] ^= 1;
	add_segment(m, 0x401000, 0, 4096, PF_R | PF_X, 0);
	add_thread(m, 1, 0, 0x401000, UINT64_MAX);
	add_files(m, 2, 4096, lines, 6, names, (size_t)size);
	add_note(m, NT_AUXV, auxv, sizeof(auxv));
	assert_int_equal(msp_core_open(as_file(m, 0), &options, &core, why), 0);
	free(m);
	return core;
}

static int open_first(const struct msp_core *core, bool *partial)
{
	const struct msp_host *host = msp_core_host(core);
	struct msp_maps maps;
	int fd;

	assert_int_equal(host->maps(host->ctx, &maps), 0);
	fd = host->open_map(host->ctx, &maps.map[0], partial);
	msp_maps_free(&maps);
	return fd;
}

static void test_files(void **state)
{
	char self[256] = {0};
	struct msp_core *core;
	unsigned char text[64], same[64];
	bool partial;
	int fd, exe;

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	/* By its path: it begins as the core says. */
	core = core_of_self(NULL, self, false);
	assert_int_equal(read_at(core, 0x401100, text, 64), MSP_E_FAULT); /* not looked for yet */
	fd = open_first(core, &partial);
	assert_true(fd >= 0 && !partial);
	close(fd);
	assert_null(gap_of(core, MSP_CORE_GAP_FILE));
	/* Its text is now there, as the program's second page is in the file. */
	exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(exe, same, 64, 4096 + 256), 64);
	close(exe);
	assert_int_equal(read_at(core, 0x401100, text, 64), 0);
	assert_memory_equal(text, same, 64);
	msp_core_close(core);
	/* Elsewhere, and told so. */
	core = core_of_self(self, "/nowhere/program", false);
	fd = open_first(core, &partial);
	assert_true(fd >= 0 && !partial);
	close(fd);
	msp_core_close(core);
	/* Not there: what the core has of it. */
	core = core_of_self(NULL, "/nowhere/program", false);
	fd = open_first(core, &partial);
	assert_true(fd >= 0 && partial);
	assert_int_equal(pread(fd, text, 4, 0), 4);
	assert_memory_equal(text, ELFMAG, 4);
	close(fd);
	assert_string_equal(gap_of(core, MSP_CORE_GAP_FILE)->name, "/nowhere/program");
	assert_int_equal(read_at(core, 0x401100, text, 64), MSP_E_FAULT);
	msp_core_close(core);
	/* Another build of it. */
	core = core_of_self(self, "/nowhere/program", true);
	fd = open_first(core, &partial);
	assert_true(fd < 0 || partial);
	if (fd >= 0)
		close(fd);
	assert_non_null(strstr(gap_of(core, MSP_CORE_GAP_FILE)->why, "another"));
	msp_core_close(core);
}

/* ---- Compressed ---- */

static int file_of(const void *bytes, size_t size)
{
	int fd = memfd_create("core", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), (ssize_t)size);
	return fd;
}

/* Opens a compressed core, whole and with every part of it missing at the end. */
static void check_compressed(const void *bytes, size_t size)
{
	const struct msp_core_options options = {.exe = NULL};
	char why[MSP_CORE_WHY_SIZE];
	struct msp_core *core;
	char byte;

	assert_int_equal(msp_core_open(file_of(bytes, size), &options, &core, why), 0);
	assert_int_equal(read_at(core, 0x10000 + 4095, &byte, 1), 0);
	assert_int_equal(byte, 'a');
	assert_int_equal(read_at(core, 0x20000 + 8191, &byte, 1), 0);
	assert_int_equal(byte, 0);
	assert_null(gap_of(core, MSP_CORE_GAP_MEMORY));
	msp_core_close(core);
	for (size_t part = 0; part < size; part += size / 50 + 1)
		if (msp_core_open(file_of(bytes, part), &options, &core, why) == 0)
			msp_core_close(core);
	for (size_t at = 4; at < size; at += size / 50 + 1) {
		char *damaged = malloc(size);

		memcpy(damaged, bytes, size);
		damaged[at] ^= 0x55;
		if (msp_core_open(file_of(damaged, size), &options, &core, why) == 0)
			msp_core_close(core);
		free(damaged);
	}
}

static void test_compressed(void **state)
{
	struct made *m = make();
	size_t room = 1 << 20, size, position = 0;
	char *raw = malloc(room), *packed = malloc(room);
	int fd;

	add_segment(m, 0x10000, 4096, 4096, PF_R, 'a');
	add_segment(m, 0x20000, 8192, 8192, PF_R, 0);
	add_thread(m, 1, 0, 0, UINT64_MAX);
	fd = as_file(m, 0);
	size = (size_t)lseek(fd, 0, SEEK_END);
	assert_int_equal(pread(fd, raw, size, 0), (ssize_t)size);
	close(fd);
	check_compressed(packed, ZSTD_compress(packed, room, raw, size, 3));
	check_compressed(packed, LZ4F_compressFrame(packed, room, raw, size, NULL));
	assert_int_equal(lzma_easy_buffer_encode(3, LZMA_CHECK_CRC32, NULL, (uint8_t *)raw, size,
						 (uint8_t *)packed, &position, room),
			 LZMA_OK);
	check_compressed(packed, position);
	free(raw);
	free(packed);
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),	    cmocka_unit_test(test_lying_segments),
		cmocka_unit_test(test_cut),	    cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_notes),	    cmocka_unit_test(test_maps),
		cmocka_unit_test(test_lying_files), cmocka_unit_test(test_files),
		cmocka_unit_test(test_compressed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

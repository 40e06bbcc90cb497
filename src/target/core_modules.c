/* SPDX-License-Identifier: MIT */
/*
 * The mapped files of a core that has no list of them (NT_FILE), as qemu's user mode writes:
 * a segment that begins with an ELF header is the beginning of a file, whose program headers
 * say where its other parts lie. Names are those of the dynamic linker's list (<link.h>).
 */
#include "target/core_internal.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"

#define PAGE_MASK 4095ull
#define MODULES_MAX 4096
#define HEADERS_MAX 64
#define LOADS_MAX 16 /* of one file */
#define DYNAMIC_MAX 256
#define NAMES_SIZE (1u << 20)
#define NAME_SIZE 4096
#define NAME_USUAL 512
#define NAME_STEP 64
#define UNNAMED "[file without a name]"

struct naming {
	struct msp_core *core;
	uint64_t *base; /* of each file: address of its address 0 */
	char *names;	/* core->file_note */
	size_t used, room;
};

/* Reads the program headers of the file that begins at addr; how many there are, 0: it is no file. */
static uint32_t read_headers(struct msp_core *core, uint64_t addr, Elf64_Ehdr *header,
			     Elf64_Phdr phdr[HEADERS_MAX])
{
	if (core_read(core, addr, header, sizeof(*header)) ||
	    memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_ident[EI_CLASS] != ELFCLASS64 ||
	    (header->e_type != ET_DYN && header->e_type != ET_EXEC) ||
	    header->e_phentsize != sizeof(*phdr) || header->e_phnum > HEADERS_MAX)
		return 0;
	if (core_read(core, addr + header->e_phoff, phdr, header->e_phnum * sizeof(*phdr)))
		return 0;
	return header->e_phnum;
}

/* The address that the file's address 0 has; false: no part of it begins where the file does. */
static bool find_base(const Elf64_Phdr *phdr, uint32_t count, uint64_t start, uint64_t *base)
{
	for (uint32_t i = 0; i < count; i++) {
		if (phdr[i].p_type != PT_LOAD || phdr[i].p_offset & ~PAGE_MASK)
			continue;
		*base = start - (phdr[i].p_vaddr & ~PAGE_MASK);
		return true;
	}
	return false;
}

static void add_lines(struct msp_core *core, const Elf64_Phdr *phdr, uint32_t count, uint64_t base)
{
	uint32_t loads = 0;

	for (uint32_t i = 0; i < count && loads < LOADS_MAX; i++) {
		struct core_line line = {.file = (uint32_t)core->files,
					 .offset = phdr[i].p_offset & ~PAGE_MASK};
		uint64_t end = base + phdr[i].p_vaddr + phdr[i].p_filesz;

		line.start = (base + phdr[i].p_vaddr) & ~PAGE_MASK;
		line.end = (end + PAGE_MASK) & ~PAGE_MASK;
		if (phdr[i].p_type != PT_LOAD || !phdr[i].p_filesz || line.end <= line.start ||
		    line.offset > UINT64_MAX >> 1)
			continue;
		core->line[core->lines++] = line;
		loads++;
	}
}

static void find_files(struct naming *naming)
{
	struct msp_core *core = naming->core;
	Elf64_Phdr phdr[HEADERS_MAX];
	Elf64_Ehdr header;

	for (size_t i = 0; i < core->segments && core->files < MODULES_MAX; i++) {
		uint64_t start = core->segment[i].start, base;
		uint32_t count;

		if (start == core->vdso || core->segment[i].filled - start < sizeof(header))
			continue;
		count = read_headers(core, start, &header, phdr);
		if (!count || !find_base(phdr, count, start, &base))
			continue;
		add_lines(core, phdr, count, base);
		naming->base[core->files] = base;
		core->file[core->files++] = (struct core_file){.name = UNNAMED, .fd = -1};
	}
}

/* ---- Names ---- */

/* The text at an address, into the names; NULL: it is not there, or too long. */
static char *read_name(struct naming *naming, uint64_t addr)
{
	char *name = naming->names + naming->used;
	size_t size = 0;

	while (size + NAME_STEP <= NAME_SIZE && naming->used + size + NAME_STEP <= naming->room) {
		/* No step over the end of a page: the next may not be there. */
		size_t step = NAME_STEP - (addr + size) % NAME_STEP;
		char *zero;

		if (core_read(naming->core, addr + size, name + size, step))
			return NULL;
		zero = memchr(name + size, 0, step);
		if (zero) {
			naming->used = (size_t)(zero + 1 - naming->names);
			return name;
		}
		size += step;
	}
	return NULL;
}

static void name_file(struct naming *naming, uint64_t base, uint64_t name)
{
	struct msp_core *core = naming->core;
	char *text;

	for (size_t i = 0; i < core->files; i++) {
		if (naming->base[i] != base || strcmp(core->file[i].name, UNNAMED) != 0)
			continue;
		text = read_name(naming, name);
		if (text && *text)
			core->file[i].name = text;
		return;
	}
}

/* An entry of the program's dynamic section; 0: there is none. */
static uint64_t dynamic_entry(struct msp_core *core, uint64_t at, int64_t tag)
{
	Elf64_Dyn entry;

	for (int i = 0; i < DYNAMIC_MAX; i++, at += sizeof(entry)) {
		if (core_read(core, at, &entry, sizeof(entry)) || entry.d_tag == DT_NULL)
			return 0;
		if (entry.d_tag == tag)
			return entry.d_un.d_val;
	}
	return 0;
}

/* Where the program's program headers say that it lies, and its dynamic section. */
static bool find_program(struct msp_core *core, uint64_t *base, uint64_t *dynamic)
{
	Elf64_Phdr phdr;
	bool found = false;

	*dynamic = 0;
	for (uint32_t i = 0; core->phdr && i < HEADERS_MAX && i < core->phnum; i++) {
		if (core_read(core, core->phdr + i * sizeof(phdr), &phdr, sizeof(phdr)))
			return false;
		if (phdr.p_type == PT_DYNAMIC)
			*dynamic = phdr.p_vaddr;
		if (phdr.p_type == PT_PHDR) {
			*base = core->phdr - phdr.p_vaddr;
			found = true;
		}
	}
	if (*dynamic)
		*dynamic += found ? *base : 0;
	return found;
}

/* struct link_map of <link.h> */
struct link {
	uint64_t addr, name, ld, next, prev;
};

static void name_files(struct naming *naming)
{
	struct msp_core *core = naming->core;
	uint64_t base = 0, dynamic, debug, at = 0;
	struct link link;

	if (find_program(core, &base, &dynamic) && core->execfn)
		name_file(naming, base, core->execfn);
	if (!dynamic || !(debug = dynamic_entry(core, dynamic, DT_DEBUG)) ||
	    core_read(core, debug + 8, &at, sizeof(at)))
		return;
	for (int i = 0; at && i < MODULES_MAX; i++, at = link.next) {
		if (core_read(core, at, &link, sizeof(link)))
			return;
		name_file(naming, link.addr, link.name);
	}
}

/* Room for as many files as there can be, in place of a list that was damaged. */
static int make_room(struct naming *naming)
{
	struct msp_core *core = naming->core;
	size_t files = core->segments < MODULES_MAX ? core->segments : MODULES_MAX;

	free(core->line);
	free(core->file);
	core->files = 0;
	core->line = calloc(files * LOADS_MAX + 1, sizeof(*core->line));
	core->file = calloc(files + 1, sizeof(*core->file));
	naming->base = calloc(files + 1, sizeof(*naming->base));
	return core->line && core->file && naming->base ? 0 : MSP_E_NOMEM;
}

int core_find_modules(struct msp_core *core)
{
	struct naming naming = {.core = core};
	int r = make_room(&naming);

	if (r == 0) {
		find_files(&naming);
		core_sort_lines(core);
		naming.room = core->files * NAME_USUAL + NAME_SIZE;
		if (naming.room > NAMES_SIZE)
			naming.room = NAMES_SIZE;
		free(core->file_note);
		naming.names = core->file_note = malloc(naming.room);
		r = naming.names ? 0 : MSP_E_NOMEM;
	}
	if (r == 0)
		name_files(&naming);
	free(naming.base);
	return r;
}

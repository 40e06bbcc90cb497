/* SPDX-License-Identifier: MIT */
/* The same moment from a core file, made of the stopped process as gcore makes one. */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "oracle.h"

#define MAX_MEMORY (256u << 20)
#define MAX_NOTES (1u << 20)
#define PIECE (1u << 20)

struct writer {
	int fd;
	pid_t pid;
	const struct msp_maps *maps;
	uint8_t *notes;
	size_t notes_size;
	Elf64_Phdr *phdr;
	size_t phdrs;
	uint64_t end; /* of the file */
};

static bool add_note(struct writer *w, uint32_t type, const void *content, size_t size)
{
	Elf64_Nhdr head = {.n_namesz = 5, .n_descsz = (uint32_t)size, .n_type = type};
	size_t all = sizeof(head) + 8 + ((size + 3) & ~(size_t)3);

	if (w->notes_size + all > MAX_NOTES)
		return false;
	memcpy(w->notes + w->notes_size, &head, sizeof(head));
	memcpy(w->notes + w->notes_size + sizeof(head), "CORE\0\0\0", 8);
	memcpy(w->notes + w->notes_size + sizeof(head) + 8, content, size);
	w->notes_size += all;
	return true;
}

static bool is_file(const struct msp_map *map)
{
	return map->name[0] == '/' && map->inode;
}

/* count, page size, then start, end, offset in pages of each; then the names */
static bool add_files(struct writer *w)
{
	uint8_t *note = calloc(1, MAX_NOTES);
	uint64_t count = 0, head[2] = {0, 4096};
	size_t at = sizeof(head);
	bool ok;

	if (!note)
		return false;
	for (size_t i = 0; i < w->maps->count; i++) {
		const struct msp_map *m = &w->maps->map[i];
		uint64_t line[3] = {m->start, m->end, m->offset / 4096};

		if (!is_file(m) || at + sizeof(line) > MAX_NOTES / 2)
			continue;
		memcpy(note + at, line, sizeof(line));
		at += sizeof(line);
		count++;
	}
	for (size_t i = 0; i < w->maps->count; i++) {
		size_t size = strlen(w->maps->map[i].name) + 1;

		if (!is_file(&w->maps->map[i]) || at + size > MAX_NOTES)
			continue;
		memcpy(note + at, w->maps->map[i].name, size);
		at += size;
	}
	head[0] = count;
	memcpy(note, head, sizeof(head));
	ok = add_note(w, NT_FILE, note, at);
	free(note);
	return ok;
}

static bool add_notes(struct writer *w, const struct oracle_process *p)
{
	struct elf_prstatus status = {.pr_pid = p->tid};
	struct user_regs_struct set = p->set;
	struct elf_prpsinfo info = {.pr_pid = p->pid, .pr_fname = "oracle"};
	uint8_t auxv[1024];
	char path[64];
	ssize_t size;
	int fd;

	oracle_arch_leave_call(&set);
	memcpy(&status.pr_reg, &set, sizeof(set));
	snprintf(path, sizeof(path), "/proc/%d/auxv", p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	size = fd >= 0 ? read(fd, auxv, sizeof(auxv)) : -1;
	if (fd >= 0)
		close(fd);
	return size > 0 && add_note(w, NT_PRSTATUS, &status, sizeof(status)) &&
	       add_note(w, NT_PRPSINFO, &info, sizeof(info)) &&
	       add_note(w, NT_AUXV, auxv, (size_t)size) && add_files(w);
}

/* What gcore saves: what no file has, and what was written. */
static bool is_saved(const struct msp_map *map)
{
	if (!(map->prot & PROT_READ) || !strncmp(map->name, "[vvar", 5) ||
	    !strcmp(map->name, "[vsyscall]"))
		return false;
	return (map->prot & PROT_WRITE) || !is_file(map) || map->deleted;
}

static bool add_memory(struct writer *w, const struct msp_map *map)
{
	static uint8_t piece[PIECE];
	Elf64_Phdr *phdr = &w->phdr[w->phdrs++];

	*phdr = (Elf64_Phdr){.p_type = PT_LOAD,
			     .p_flags = (map->prot & PROT_READ ? PF_R : 0u) |
					(map->prot & PROT_WRITE ? PF_W : 0u) |
					(map->prot & PROT_EXEC ? PF_X : 0u),
			     .p_offset = w->end,
			     .p_vaddr = map->start,
			     .p_memsz = map->end - map->start};
	for (uint64_t at = map->start; is_saved(map) && at < map->end; at += PIECE) {
		size_t size = map->end - at < PIECE ? map->end - at : PIECE;
		struct iovec local = {piece, size}, remote = {(void *)(uintptr_t)at, size};

		if (process_vm_readv(w->pid, &local, 1, &remote, 1, 0) != (ssize_t)size ||
		    pwrite(w->fd, piece, size, (off_t)w->end) != (ssize_t)size)
			return at == map->start; /* such as of a device: left out */
		w->end += size;
		phdr->p_filesz += size;
	}
	return w->end < MAX_MEMORY;
}

static bool write_core(struct writer *w)
{
	Elf64_Ehdr head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				       EV_CURRENT},
			   .e_type = ET_CORE,
			   .e_machine = oracle_arch.machine,
			   .e_version = EV_CURRENT,
			   .e_phoff = sizeof(head),
			   .e_ehsize = sizeof(head),
			   .e_phentsize = sizeof(Elf64_Phdr)};
	uint64_t notes = sizeof(head) + (w->maps->count + 1) * sizeof(Elf64_Phdr);

	w->phdr[w->phdrs++] =
		(Elf64_Phdr){.p_type = PT_NOTE, .p_offset = notes, .p_filesz = w->notes_size};
	w->end = (notes + w->notes_size + 4095) & ~4095ull;
	for (size_t i = 0; i < w->maps->count; i++)
		if (!add_memory(w, &w->maps->map[i]))
			return false;
	head.e_phnum = (Elf64_Half)w->phdrs;
	return pwrite(w->fd, &head, sizeof(head), 0) == sizeof(head) &&
	       pwrite(w->fd, w->phdr, w->phdrs * sizeof(*w->phdr), sizeof(head)) > 0 &&
	       pwrite(w->fd, w->notes, w->notes_size, (off_t)notes) == (ssize_t)w->notes_size;
}

/* The core file's descriptor; -1: there is none. */
static int make_core(const struct oracle_process *p)
{
	struct msp_maps maps = {0};
	struct writer w = {.fd = memfd_create("core", MFD_CLOEXEC), .pid = p->pid, .maps = &maps};
	bool ok = w.fd >= 0 && msp_process_maps(p->process, &maps) >= 0;

	w.notes = calloc(1, MAX_NOTES);
	w.phdr = calloc(maps.count + 1, sizeof(*w.phdr));
	ok = ok && w.notes && w.phdr && add_notes(&w, p) && write_core(&w);
	free(w.notes);
	free(w.phdr);
	msp_maps_free(&maps);
	if (ok)
		return w.fd;
	if (w.fd >= 0)
		close(w.fd);
	return -1;
}

static bool walk_core(const struct oracle_process *p, struct msp_core *core,
		      struct oracle_stack *out)
{
	struct msp_space *space = NULL;
	struct msp_walker *walker = NULL;
	struct msp_host_vm vm[MSP_MAX_HOST_VMS];
	struct msp_stack stack;
	size_t threads;
	const struct msp_core_thread *thread = msp_core_threads(core, &threads);
	bool ok = threads == 1 && thread->result == 0 &&
		  msp_space_new_host(p->images, msp_core_host(core), &space) == 0 &&
		  msp_space_refresh(space) >= 0 && msp_walker_new(space, &walker) == 0;

	if (ok) {
		if (!msp_space_host_vms(space, vm))
			msp_space_find_host_vms(space);
		msp_walker_walk(walker, NULL, &thread->regs, &stack);
		oracle_stack_take(out, &stack);
	}
	msp_walker_free(walker);
	msp_space_free(space);
	return ok;
}

bool oracle_core_walk(const struct oracle_process *p, struct oracle_stack *out)
{
	struct msp_core_options options = {0};
	struct msp_core *core;
	char why[MSP_CORE_WHY_SIZE];
	int fd = make_core(p);
	bool ok;

	if (fd < 0 || msp_core_open(fd, &options, &core, why) != 0)
		return false;
	ok = walk_core(p, core, out);
	msp_core_close(core);
	return ok;
}

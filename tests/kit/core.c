/* SPDX-License-Identifier: MIT */
#include "core.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool core_map(struct core *core, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat info;

	core->bytes = MAP_FAILED;
	if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size >= (off_t)sizeof(Elf64_Ehdr)) {
		core->size = (size_t)info.st_size;
		core->bytes = mmap(NULL, core->size, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	if (fd >= 0)
		close(fd);
	return core->bytes != MAP_FAILED && memcmp(core->bytes, ELFMAG, SELFMAG) == 0;
}

int core_read(void *context, uint64_t address, void *buffer, size_t size)
{
	const struct core *core = context;
	const Elf64_Ehdr *head = (const void *)core->bytes;
	const Elf64_Phdr *part = (const void *)(core->bytes + head->e_phoff);

	for (unsigned int i = 0; i < head->e_phnum; i++) {
		if (part[i].p_type != PT_LOAD || address < part[i].p_vaddr ||
		    address - part[i].p_vaddr >= part[i].p_filesz ||
		    size > part[i].p_filesz - (address - part[i].p_vaddr))
			continue;
		memcpy(buffer, core->bytes + part[i].p_offset + (address - part[i].p_vaddr), size);
		return 0;
	}
	return -1;
}

void core_close(struct core *core)
{
	munmap(core->bytes, core->size);
}

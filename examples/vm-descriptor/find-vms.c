/* SPDX-License-Identifier: MIT */
/*
 * find-vms PID: all LuaJIT VMs of another process that say of themselves where they are. Needs nothing but the header.
 *
 *	cc -o find-vms find-vms.c $(pkg-config --cflags moonspy)
 */
#include <elf.h>
#include <moonspy/vm_descriptor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

static pid_t pid;

static int get(uint64_t from, void *to, size_t size)
{
	struct iovec local = {to, size}, remote = {(void *)(uintptr_t)from, size};

	return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static void print_vms(uint64_t at)
{
	struct ljvm_descriptor d;
	struct ljvm_addresses a;
	struct ljvm_live live;
	struct ljvm_slots slots;
	char version[64] = "";

	if (!get(at, &d, sizeof(d)) || memcmp(d.magic, LJVM_MAGIC, 8) || d.major != LJVM_MAJOR ||
	    !LJVM_HAS(d.addresses.size, struct ljvm_addresses, live) ||
	    !get(at + d.addresses.offset, &a, sizeof(a)) ||
	    !get((uintptr_t)a.live, &live, sizeof(live)) || live.slot_size != sizeof(slots.slot[0]))
		return; /* none, one that cannot be read, or not filled yet */
	get((uintptr_t)a.version, version, sizeof(version) - 1);
	for (; live.slots && get(live.slots, &slots, sizeof(slots)); live.slots = slots.next)
		for (int i = 0; i < LJVM_SLOTS; i++)
			if (slots.slot[i].g)
				printf("VM %u: global_State 0x%llx, %s\n", slots.slot[i].serial,
				       (unsigned long long)slots.slot[i].g, version);
	if (live.missed || d.flags & LJVM_FLAG_LIVE_PARTIAL)
		printf("there may be others (%u missed)\n", live.missed);
}

/* All descriptors that the notes of a mapped ELF file lead to. */
static void look(uint64_t file)
{
	Elf64_Ehdr e;
	Elf64_Phdr p;
	Elf64_Nhdr n;
	uint64_t bias = 0, at, end, size;
	int64_t distance;
	char name[8];

	if (!get(file, &e, sizeof(e)) || memcmp(e.e_ident, ELFMAG, SELFMAG))
		return;
	for (int i = 0; i < e.e_phnum && get(file + e.e_phoff + i * sizeof(p), &p, sizeof(p));
	     i++) {
		if (p.p_type == PT_LOAD && p.p_offset == 0)
			bias = file - p.p_vaddr;
		end = p.p_type == PT_NOTE ? bias + p.p_vaddr + p.p_filesz : 0;
		for (at = bias + p.p_vaddr; at < end && get(at, &n, sizeof(n)); at += size) {
			size = sizeof(n) + ((n.n_namesz + 3) & ~3ull) + ((n.n_descsz + 3) & ~3ull);
			if (n.n_type == LJVM_NOTE_TYPE && n.n_descsz == 8 && n.n_namesz == 7 &&
			    get(at + sizeof(n), name, 8) && !strcmp(name, LJVM_NOTE_NAME) &&
			    get(at + size - 8, &distance, 8))
				print_vms(at + size - 8 + (uint64_t)distance);
		}
	}
}

int main(int argc, char **argv)
{
	char path[64], line[4096];
	unsigned long long start, offset;
	FILE *maps;

	pid = argc > 1 ? atoi(argv[1]) : 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "r");
	if (!maps)
		return fprintf(stderr, "find-vms: cannot read %s\n", path), 1;
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%llx-%*x %*s %llx", &start, &offset) == 2 && offset == 0 &&
		    strchr(line, '/'))
			look(start);
	return 0;
}

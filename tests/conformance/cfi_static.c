/* SPDX-License-Identifier: MIT */
/*
 * Rules against libdw's expressions, at random addresses: both are applied to
 * random registers and a memory whose every word is a hash of its address, so
 * that equal results mean equal rules.
 */
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cfi_compare.h"

struct file {
	const struct cpu *cpu;
	const char *path;
	struct msp_image *image;
	const struct msp_unwind_table *table;
	uint64_t base;
	Elf *elf;
	Dwarf *dwarf;
	Dwarf_CFI *eh, *debug;
};

struct tally {
	int compared, no_rule, end, equal, lost, unsupported, stubs, only_ours, differ, rbx_default;
};

static bool hash_memory(void *ctx, uint64_t addr, uint64_t *value)
{
	uint64_t hash = (addr ^ 0x5bd1e995) * 0x9e3779b97f4a7c15ull;

	*value = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ull;
	return true;
}

static void print_difference(const struct file *file, uint64_t addr, const char *what)
{
	struct msp_symbol symbol;
	bool named = !msp_image_symbol(file->image, addr - file->base, &symbol);

	printf("    %s at %#lx (%s): %s\n", file->path, (unsigned long)addr,
	       named ? symbol.name : "?", what);
}

/* The registers that differ; those that only a rule does not know are counted as lost. */
static bool same_registers(const struct file *file, uint64_t addr, const struct regs *ours,
			   const struct regs *theirs, struct tally *tally)
{
	bool same = true, lost = false;

	for (int i = 0, reg; (reg = compared_reg(file->cpu, i)) >= 0; i++) {
		uint64_t we = ours->known & 1ull << reg, they = theirs->known & 1ull << reg;
		char text[128];

		if (we == they && (!we || ours->value[reg] == theirs->value[reg]))
			continue;
		if (!we) {
			lost = true;
			continue;
		}
		snprintf(text, sizeof(text), "DIFFERENT register %d", reg);
		if (tally->differ < 10)
			print_difference(file, addr, text);
		same = false;
	}
	tally->lost += lost;
	if (lost && tally->lost <= 3)
		print_difference(file, addr, "explained: a register saved where no rule can say");
	return same;
}

static void compare_at(const struct file *file, uint64_t addr, struct tally *tally)
{
	const struct msp_rule *rule = rule_at(file->table, addr - file->base);
	struct regs in, ours, theirs;
	enum step_result we, they;
	bool rbx_default = false;

	for (int i = 0; i < REG_COUNT; i++)
		in.value[i] = random_number() << 13 & ~7ull;
	in.known = (1ull << REG_COUNT) - 1;
	in.value[file->cpu->pc] = addr;
	we = step_by_rule(file->cpu, rule, &in, addr, hash_memory, NULL, &ours);
	they = step_by_libdw(file->cpu, file->eh, file->debug, addr, &in, hash_memory, NULL,
			     &theirs, &rbx_default);
	tally->rbx_default += rbx_default;
	tally->compared++;
	if (we == STEP_NO_RULE && they == STEP_NO_RULE) {
		tally->no_rule++;
	} else if (we == STEP_END && they == STEP_END) {
		tally->end++;
	} else if (we == STEP_UNSUPPORTED && they != STEP_NO_RULE) {
		if (tally->unsupported++ < 3)
			print_difference(file, addr, "explained: no row can say this rule");
	} else if (we == STEP_OK && they == STEP_NO_RULE) {
		tally->only_ours++; /* linker stubs and signal trampolines without CFI */
	} else if (we != they) {
		if (tally->differ++ < 10)
			print_difference(file, addr, "DIFFERENT: a rule on one side only");
	} else if (rule->flags & MSP_RULE_LANDS && rule->cfa_kind == MSP_CFA_RA_REG) {
		tally->only_ours++; /* arm64's `br x6`, which gcc's CFI does not tell of */
	} else if (rule->flags & MSP_RULE_LANDS) {
		/* gcc's CFI forgets that __builtin_eh_return has restored the registers by then. */
		if (ours.value[file->cpu->pc] == theirs.value[file->cpu->pc] &&
		    ours.value[file->cpu->sp] == theirs.value[file->cpu->sp])
			tally->equal++;
		else
			tally->differ++;
	} else if (same_registers(file, addr, &ours, &theirs, tally)) {
		tally->equal++;
	} else {
		tally->differ++;
	}
}

static bool open_file(struct file *file, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	memset(file, 0, sizeof(*file));
	file->path = path;
	file->image = open_image(path);
	if (fd < 0 || !file->image || msp_image_unwind(file->image, &file->table))
		return false;
	file->cpu = msp_image_arch(file->image) == MSP_ARCH_ARM64 ? &cpu_arm64 : &cpu_x64;
	elf_version(EV_CURRENT);
	file->base = msp_image_min_vaddr(file->image);
	file->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	file->eh = dwarf_getcfi_elf(file->elf);
	file->dwarf = dwarf_begin_elf(file->elf, DWARF_C_READ, NULL);
	file->debug = file->dwarf ? dwarf_getcfi(file->dwarf) : NULL;
	return true;
}

/* The executable segments are one after the other; mostly there is one. */
static uint64_t random_address(const struct file *file)
{
	uint64_t total = 0, at;
	size_t count = 0;
	GElf_Phdr phdr;

	elf_getphdrnum(file->elf, &count);
	for (size_t i = 0; i < count; i++)
		if (gelf_getphdr(file->elf, (int)i, &phdr) && phdr.p_type == PT_LOAD &&
		    phdr.p_flags & PF_X)
			total += phdr.p_filesz;
	at = total ? random_number() % total : 0;
	for (size_t i = 0; i < count; i++) {
		if (!gelf_getphdr(file->elf, (int)i, &phdr) || phdr.p_type != PT_LOAD ||
		    !(phdr.p_flags & PF_X))
			continue;
		if (at < phdr.p_filesz)
			return phdr.p_vaddr + at;
		at -= phdr.p_filesz;
	}
	return 0;
}

static int compare_file(const char *path, int count)
{
	struct tally tally = {0};
	struct file file;
	int skipped = access(path, R_OK) || !open_file(&file, path);

	if (skipped) {
		printf("  %-44s skipped: not on this machine\n", path);
		return 0;
	}
	for (int i = 0; i < count; i++)
		compare_at(&file, random_address(&file), &tally);
	/* Where rows begin is where mistakes are: both sides of boundaries. */
	for (uint32_t i = 0, step = file.table->row_count / (uint32_t)count + 1;
	     i < file.table->row_count; i += step) {
		compare_at(&file, file.base + file.table->rows[i].addr, &tally);
		compare_at(&file, file.base + file.table->rows[i].addr - 1, &tally);
	}
	printf("  %-44s %6d addresses: %d equal, %d none, %d end, %d lost a register, "
	       "%d unsupported, %d only ours, %d differ\n",
	       path, tally.compared, tally.equal, tally.no_rule, tally.end, tally.lost,
	       tally.unsupported, tally.only_ours, tally.differ);
	if (tally.rbx_default)
		printf("    explained: at %d of them libdw calls rbx undefined; its defaults name "
		       "rax "
		       "in its place\n",
		       tally.rbx_default);
	if (file.eh)
		dwarf_cfi_end(file.eh);
	dwarf_end(file.dwarf);
	elf_end(file.elf);
	msp_image_close(file.image);
	return tally.differ;
}

int compare_static(int per_file)
{
	static const char *const paths[] = {"/lib/x86_64-linux-gnu/libc.so.6",
					    "/lib/x86_64-linux-gnu/libstdc++.so.6",
					    "/lib/x86_64-linux-gnu/libgcc_s.so.1",
					    "/lib/x86_64-linux-gnu/libm.so.6",
					    "/usr/sbin/nginx",
					    "/usr/bin/python3.11",
					    "/usr/bin/luajit",
					    "/lib/x86_64-linux-gnu/libluajit-5.1.so.2",
					    "/lib64/ld-linux-x86-64.so.2",
					    "/lib/x86_64-linux-gnu/libcrypto.so.3",
					    "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
					    "/usr/bin/gdb",
					    "/usr/aarch64-linux-gnu/lib/libc.so.6",
					    "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
					    "/usr/aarch64-linux-gnu/lib/libgcc_s.so.1",
					    "/usr/bin/perl"};
	int bad = 0;

	printf("rows against libdw at random addresses:\n");
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		bad += compare_file(paths[i], per_file);
	return bad;
}

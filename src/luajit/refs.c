/* SPDX-License-Identifier: MIT */
/*
 * Who enters the VM block from outside: calls and jumps of C code, addresses
 * that C code takes (pc-relative or absolute) and addresses in tables of
 * pointers. Found in the bytes: a wrong hit is rare (4 in a million places)
 * and does no harm, as it only adds an entry.
 */
#include "luajit/build.h"

#include <elf.h>
#include <string.h>

static void add_ref(struct msp_lj_build *build, uint64_t target, enum msp_lj_ref_kind kind)
{
	if (!msp_lj_in_block(build, target) || msp_lj_insn_at(build, target) < 0)
		return;
	for (unsigned int i = 0; i < build->ref_count; i++) {
		if (build->ref[i].target == target && build->ref[i].kind == kind)
			return;
	}
	if (build->ref_count == MSP_LJ_MAX_REFS)
		return;
	build->ref[build->ref_count].target = (uint32_t)target;
	build->ref[build->ref_count++].kind = (uint8_t)kind;
}

/* What an x86-64 instruction at p that ends in rel32 at p + at refers to. */
static void x64_code_ref(struct msp_lj_build *build, const uint8_t *p, uint64_t addr)
{
	int32_t rel;

	if (p[0] == 0xe8 || p[0] == 0xe9) { /* call, jmp */
		memcpy(&rel, p + 1, 4);
		add_ref(build, addr + 5 + (uint64_t)(int64_t)rel,
			p[0] == 0xe8 ? MSP_LJ_REF_CALL : MSP_LJ_REF_JMP);
	} else if (p[0] == 0x0f && (p[1] & 0xf0) == 0x80) { /* jcc */
		memcpy(&rel, p + 2, 4);
		add_ref(build, addr + 6 + (uint64_t)(int64_t)rel, MSP_LJ_REF_JMP);
	} else if ((p[0] & 0xfb) == 0x48 && p[1] == 0x8d && (p[2] & 0xc7) == 0x05) { /* lea */
		memcpy(&rel, p + 3, 4);
		add_ref(build, addr + 7 + (uint64_t)(int64_t)rel, MSP_LJ_REF_ADDRESS);
	}
}

static void scan_code(struct msp_lj_build *build, unsigned int seg)
{
	size_t size;
	const uint8_t *bytes = msp_lj_segment_bytes(build, seg, &size);
	uint64_t base = build->segment[seg].addr, min_vaddr = msp_image_min_vaddr(build->image);
	uint32_t word;

	for (size_t i = 0; bytes && i + 7 <= size; i++) {
		if (msp_lj_in_block(build, base + i))
			continue;
		x64_code_ref(build, bytes + i, base + i);
		if (!build->position_dependent)
			continue;
		memcpy(&word, bytes + i, sizeof(word));
		add_ref(build, word - min_vaddr, MSP_LJ_REF_ADDRESS);
	}
}

/*
 * Tables of pointers: in a program with fixed addresses, and where packed
 * relative relocations (RELR) leave the address in the data itself.
 */
static void scan_data(struct msp_lj_build *build, unsigned int seg)
{
	size_t size;
	const uint8_t *bytes = msp_lj_segment_bytes(build, seg, &size);
	uint64_t word, min_vaddr = msp_image_min_vaddr(build->image);

	for (size_t i = 0; bytes && i + 8 <= size; i += 8) {
		memcpy(&word, bytes + i, sizeof(word));
		add_ref(build, word - min_vaddr, MSP_LJ_REF_ADDRESS);
	}
}

static void scan_relocations(struct msp_lj_build *build, uint64_t addr, uint64_t size)
{
	uint64_t min_vaddr = msp_image_min_vaddr(build->image);
	size_t avail;
	const uint8_t *bytes = msp_image_bytes(build->image, addr, &avail);
	Elf64_Rela rela;

	if (!bytes)
		return;
	if (size < avail)
		avail = size;
	for (; avail >= sizeof(rela); avail -= sizeof(rela), bytes += sizeof(rela)) {
		memcpy(&rela, bytes, sizeof(rela));
		if (ELF64_R_TYPE(rela.r_info) == R_X86_64_RELATIVE)
			add_ref(build, (uint64_t)rela.r_addend - min_vaddr, MSP_LJ_REF_ADDRESS);
	}
}

/* Where the relocations with addends are. */
static void find_relocations(const struct msp_lj_build *build, uint64_t *rela, uint64_t *rela_size)
{
	uint64_t min_vaddr = msp_image_min_vaddr(build->image);
	size_t avail;
	const uint8_t *bytes = msp_image_bytes(build->image, build->dynamic_addr, &avail);
	Elf64_Dyn dyn;

	*rela = *rela_size = 0;
	if (!bytes || !build->dynamic_size)
		return;
	if (build->dynamic_size < avail)
		avail = build->dynamic_size;
	for (; avail >= sizeof(dyn); avail -= sizeof(dyn), bytes += sizeof(dyn)) {
		memcpy(&dyn, bytes, sizeof(dyn));
		if (dyn.d_tag == DT_NULL)
			break;
		if (dyn.d_tag == DT_RELA)
			*rela = dyn.d_un.d_ptr - min_vaddr;
		if (dyn.d_tag == DT_RELASZ)
			*rela_size = dyn.d_un.d_val;
	}
}

uint64_t msp_lj_pointer_at(const struct msp_lj_build *build, uint64_t addr)
{
	uint64_t min_vaddr = msp_image_min_vaddr(build->image), at, size, word = 0;
	size_t avail;
	const uint8_t *bytes;
	Elf64_Rela rela;

	find_relocations(build, &at, &size);
	bytes = size ? msp_image_bytes(build->image, at, &avail) : NULL;
	if (bytes && size < avail)
		avail = size;
	for (; bytes && avail >= sizeof(rela); avail -= sizeof(rela), bytes += sizeof(rela)) {
		memcpy(&rela, bytes, sizeof(rela));
		if (ELF64_R_TYPE(rela.r_info) == R_X86_64_RELATIVE &&
		    rela.r_offset - min_vaddr == addr)
			return (uint64_t)rela.r_addend - min_vaddr;
	}
	bytes = msp_image_bytes(build->image, addr, &avail);
	if (bytes && avail >= sizeof(word))
		memcpy(&word, bytes, sizeof(word));
	return word ? word - min_vaddr : 0;
}

void msp_lj_find_refs(struct msp_lj_build *build)
{
	uint64_t rela, rela_size;

	for (unsigned int i = 0; i < build->segment_count; i++) {
		if (build->segment[i].exec)
			scan_code(build, i);
		else
			scan_data(build, i);
	}
	find_relocations(build, &rela, &rela_size);
	scan_relocations(build, rela, rela_size);
}

/* SPDX-License-Identifier: MIT */
/*
 * Who enters the VM block from outside: calls and jumps of C code, addresses
 * that C code takes (pc-relative or absolute) and addresses in tables of
 * pointers. Found in the bytes, as decoding all code of a program takes too
 * long; what looks like one is then decoded: an entry that is none would make
 * what is known of the code behind it wrong.
 */
#include "luajit/build.h"

#include <elf.h>
#include <string.h>

#include "elf/bytes.h"

/* How far code is decoded to find where an instruction starts. */
#define MAX_DECODE 0x4000

/* Is it an instruction of the block, and not known yet as a target of that kind? */
static bool is_new(const struct msp_lj_build *build, uint64_t target, enum msp_lj_ref_kind kind)
{
	if (!msp_lj_in_block(build, target) || msp_lj_insn_at(build, target) < 0)
		return false;
	for (unsigned int i = 0; i < build->ref_count; i++) {
		if (build->ref[i].target == target && build->ref[i].kind == kind)
			return false;
	}
	return build->ref_count < MSP_LJ_MAX_REFS;
}

static void add_ref(struct msp_lj_build *build, uint64_t target, enum msp_lj_ref_kind kind)
{
	if (!is_new(build, target, kind))
		return;
	build->ref[build->ref_count].target = (uint32_t)target;
	build->ref[build->ref_count++].kind = (uint8_t)kind;
}

/* The last place up to addr where an instruction starts for certain, as an unwind row does; 0: none. */
static uint64_t certain_start(const struct msp_lj_build *build, uint64_t addr)
{
	const struct msp_unwind_table *table;
	const struct msp_row *row;

	if (msp_image_unwind(build->image, &table) != 0)
		return 0;
	row = msp_unwind_row(table, addr);
	return row ? row->addr : 0;
}

static bool refers_to(const struct msp_lj_build *build, const struct msp_insn *insn,
		      uint64_t target)
{
	uint64_t absolute = target + msp_image_min_vaddr(build->image);

	if (insn->has_target)
		return insn->target == target;
	for (unsigned int i = 0; i < insn->operand_count; i++) {
		const struct msp_operand *o = &insn->operand[i];

		if ((o->kind == MSP_OPND_IMM ||
		     (o->kind == MSP_OPND_MEM && o->base == MSP_REG_NONE)) &&
		    ((uint64_t)o->value == target || (uint64_t)o->value == absolute))
			return true;
	}
	return false;
}

/* Bytes at addr look like a reference: is there an instruction that makes it? */
static void add_code_ref(struct msp_lj_build *build, uint64_t addr, uint64_t target,
			 enum msp_lj_ref_kind kind)
{
	struct msp_insn insn;
	uint64_t at;

	if (!is_new(build, target, kind) || !msp_image_is_code(build->image, addr))
		return;
	at = certain_start(build, addr);
	for (; at && addr - at < MAX_DECODE; at += insn.size) {
		if (msp_code_decode(build->code, at, &insn) != 0)
			break;
		if (at + insn.size <= addr)
			continue;
		if (!refers_to(build, &insn, target))
			return;
		break;
	}
	add_ref(build, target, kind);
}

/* What an x86-64 instruction at p that ends in rel32 at p + at refers to. */
static void x64_code_ref(struct msp_lj_build *build, const uint8_t *p, uint64_t addr)
{
	int32_t rel;

	if (p[0] == 0xe8 || p[0] == 0xe9) { /* call, jmp */
		memcpy(&rel, p + 1, 4);
		add_code_ref(build, addr, addr + 5 + (uint64_t)(int64_t)rel,
			     p[0] == 0xe8 ? MSP_LJ_REF_CALL : MSP_LJ_REF_JMP);
	} else if (p[0] == 0x0f && (p[1] & 0xf0) == 0x80) { /* jcc */
		memcpy(&rel, p + 2, 4);
		add_code_ref(build, addr, addr + 6 + (uint64_t)(int64_t)rel, MSP_LJ_REF_JMP);
	} else if ((p[0] & 0xfb) == 0x48 && p[1] == 0x8d && (p[2] & 0xc7) == 0x05) { /* lea */
		memcpy(&rel, p + 3, 4);
		add_code_ref(build, addr, addr + 7 + (uint64_t)(int64_t)rel, MSP_LJ_REF_ADDRESS);
	}
}

/* arm64: bl, b; and the last of the instructions that make an address. Words of tables look like that, too. */
static void arm64_code_ref(struct msp_lj_build *build, uint32_t word, uint64_t addr)
{
	uint64_t target = addr + (uint64_t)((int64_t)((int32_t)(word << 6) >> 6) * 4);
	enum msp_lj_ref_kind kind = word >> 31 ? MSP_LJ_REF_CALL : MSP_LJ_REF_JMP;

	if ((word & 0x7c000000) != 0x14000000) {
		kind = MSP_LJ_REF_ADDRESS;
		if (!msp_lj_arm64_taken(build, addr, word, &target))
			return;
	}
	if (is_new(build, target, kind) && msp_image_is_code(build->image, addr))
		add_ref(build, target, kind);
}

static void arm64_scan_code(struct msp_lj_build *build, unsigned int seg)
{
	size_t size;
	const uint8_t *bytes = msp_lj_segment_bytes(build, seg, &size);
	uint64_t base = build->segment[seg].addr;

	for (size_t i = 0; bytes && i + 4 <= size; i += 4) {
		if (!msp_lj_in_block(build, base + i))
			arm64_code_ref(build, msp_get32(bytes + i), base + i);
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
		add_code_ref(build, base + i, word - min_vaddr, MSP_LJ_REF_ADDRESS);
	}
}

/* Tables of pointers in a program with fixed addresses. */
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

static bool is_relative(const struct msp_lj_build *build, const Elf64_Rela *rela)
{
	return ELF64_R_TYPE(rela->r_info) == (msp_image_arch(build->image) == MSP_ARCH_ARM64
						      ? R_AARCH64_RELATIVE
						      : R_X86_64_RELATIVE);
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
		if (is_relative(build, &rela))
			add_ref(build, (uint64_t)rela.r_addend - min_vaddr, MSP_LJ_REF_ADDRESS);
	}
}

static void packed_relocation(struct msp_lj_build *build, uint64_t vaddr)
{
	uint64_t min_vaddr = msp_image_min_vaddr(build->image), word;
	size_t avail;
	const uint8_t *bytes = msp_image_bytes(build->image, vaddr - min_vaddr, &avail);

	if (!bytes || avail < sizeof(word))
		return;
	memcpy(&word, bytes, sizeof(word));
	add_ref(build, word - min_vaddr, MSP_LJ_REF_ADDRESS);
}

/* RELR: an address, then bits for the 63 words behind; what is to be relocated is in place. */
static void scan_packed_relocations(struct msp_lj_build *build, uint64_t addr, uint64_t size)
{
	uint64_t vaddr = 0, word;
	size_t avail;
	const uint8_t *bytes = msp_image_bytes(build->image, addr, &avail);

	if (!bytes)
		return;
	if (size < avail)
		avail = size;
	for (; avail >= sizeof(word); avail -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		if (!(word & 1)) {
			packed_relocation(build, word);
			vaddr = word + 8;
			continue;
		}
		for (unsigned int i = 0; i < 63; i++) {
			if (word >> (i + 1) & 1)
				packed_relocation(build, vaddr + 8ULL * i);
		}
		vaddr += 63 * 8;
	}
}

/* Where the relocations are: those with addends, or (packed) those without. */
static void find_relocations(const struct msp_lj_build *build, bool packed, uint64_t *addr,
			     uint64_t *size)
{
	uint64_t min_vaddr = msp_image_min_vaddr(build->image);
	size_t avail;
	const uint8_t *bytes = msp_image_bytes(build->image, build->dynamic_addr, &avail);
	Elf64_Dyn dyn;

	*addr = *size = 0;
	if (!bytes || !build->dynamic_size)
		return;
	if (build->dynamic_size < avail)
		avail = build->dynamic_size;
	for (; avail >= sizeof(dyn); avail -= sizeof(dyn), bytes += sizeof(dyn)) {
		memcpy(&dyn, bytes, sizeof(dyn));
		if (dyn.d_tag == DT_NULL)
			break;
		if (dyn.d_tag == (packed ? DT_RELR : DT_RELA))
			*addr = dyn.d_un.d_ptr - min_vaddr;
		if (dyn.d_tag == (packed ? DT_RELRSZ : DT_RELASZ))
			*size = dyn.d_un.d_val;
	}
}

uint64_t msp_lj_pointer_at(const struct msp_lj_build *build, uint64_t addr)
{
	uint64_t min_vaddr = msp_image_min_vaddr(build->image), at, size, word = 0;
	size_t avail;
	const uint8_t *bytes;
	Elf64_Rela rela;

	find_relocations(build, false, &at, &size);
	bytes = size ? msp_image_bytes(build->image, at, &avail) : NULL;
	if (bytes && size < avail)
		avail = size;
	for (; bytes && avail >= sizeof(rela); avail -= sizeof(rela), bytes += sizeof(rela)) {
		memcpy(&rela, bytes, sizeof(rela));
		if (is_relative(build, &rela) && rela.r_offset - min_vaddr == addr)
			return (uint64_t)rela.r_addend - min_vaddr;
	}
	bytes = msp_image_bytes(build->image, addr, &avail);
	if (bytes && avail >= sizeof(word))
		memcpy(&word, bytes, sizeof(word));
	return word ? word - min_vaddr : 0;
}

void msp_lj_find_refs(struct msp_lj_build *build)
{
	uint64_t at, size;

	for (unsigned int i = 0; i < build->segment_count; i++) {
		if (build->segment[i].exec && msp_image_arch(build->image) == MSP_ARCH_ARM64)
			arm64_scan_code(build, i);
		else if (build->segment[i].exec)
			scan_code(build, i);
		else if (build->position_dependent)
			scan_data(build, i);
	}
	find_relocations(build, false, &at, &size);
	scan_relocations(build, at, size);
	find_relocations(build, true, &at, &size);
	scan_packed_relocations(build, at, size);
}

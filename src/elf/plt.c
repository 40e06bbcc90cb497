/* SPDX-License-Identifier: MIT */
/*
 * Names of PLT stubs: a stub jumps to what is in a place of the GOT, and the relocation of that place
 * says whose address the loader puts there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elf/image.h"
#include "elf/rows.h"
#include "elf/symbols.h"
#include "moonspy/moonspy.h"

#define STUB 16
#define STUB_MAX 32

/* A stub that was asked for. */
struct msp_plt_name {
	uint64_t vaddr;
	char *name;
};

void msp_plt_free(struct msp_image *image)
{
	for (uint32_t i = 0; i < image->plt_count; i++)
		free(image->plt[i].name);
	free(image->plt);
}

/* ---- The place of the GOT that a stub jumps by ---- */

/* [endbr64] [bnd] jmp *x(%rip), the first instruction that does something. False: it is none. */
static bool slot_x64(const uint8_t *at, size_t size, uint64_t vaddr, uint64_t *slot)
{
	size_t pos = size >= 4 && !memcmp(at, "\xf3\x0f\x1e\xfa", 4) ? 4 : 0;
	int32_t distance;

	if (pos < size && at[pos] == 0xf2)
		pos++;
	if (size < pos + 6 || at[pos] != 0xff || at[pos + 1] != 0x25)
		return false;
	memcpy(&distance, at + pos + 2, sizeof(distance));
	*slot = vaddr + pos + 6 + (uint64_t)(int64_t)distance;
	return true;
}

/* [bti c] adrp x16, page; ldr x17, [x16, #offset] */
static bool slot_arm64(const uint8_t *at, size_t size, uint64_t vaddr, uint64_t *slot)
{
	uint32_t adrp, ldr, word = 0;
	uint64_t pages;
	size_t pos;

	if (size >= 4)
		memcpy(&word, at, 4);
	pos = word == 0xd503245f ? 4 : 0;
	if (size < pos + 8)
		return false;
	memcpy(&adrp, at + pos, 4);
	memcpy(&ldr, at + pos + 4, 4);
	if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
		return false;
	pages = (uint64_t)(adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3);
	if (pages >> 20 & 1)
		pages |= ~0ull << 21;
	*slot = ((vaddr + pos) & ~0xfffull) + (pages << 12) + (ldr >> 10 & 0xfff) * 8;
	return true;
}

/* The stub around an address: where it begins, and its size. False: there is none. */
static bool find_stub(struct msp_image *image, uint64_t vaddr, uint64_t *start, uint64_t *size,
		      uint64_t *slot)
{
	static const enum msp_section_id ids[] = {MSP_SECTION_PLT, MSP_SECTION_PLT_SEC,
						  MSP_SECTION_PLT_GOT, MSP_SECTION_IPLT};
	const struct msp_section *section = NULL;
	uint8_t bytes[STUB_MAX];

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		section = msp_image_section(image, ids[i]);
		if (section && vaddr - section->vaddr < section->size)
			break;
		section = NULL;
	}
	if (!section || section->compressed)
		return false;
	*size = section->entry_size >= 8 && section->entry_size <= STUB_MAX ? section->entry_size
									    : STUB;
	*start = vaddr - (vaddr - section->vaddr) % *size;
	if (section->size - (*start - section->vaddr) < *size ||
	    msp_image_read(image, section->offset + (*start - section->vaddr), *size, bytes))
		return false;
	return image->arch == MSP_ARCH_ARM64 ? slot_arm64(bytes, *size, *start, slot)
					     : slot_x64(bytes, *size, *start, slot);
}

/* ---- What the loader puts there ---- */

/* The function that the address is of, by an indirect function's resolver too. NULL: not told. */
static const char *function_of(struct msp_image *image, const Elf64_Rela *rela)
{
	struct msp_symbol symbol;

	if (ELF64_R_SYM(rela->r_info))
		return msp_symbols_dynamic(image, ELF64_R_SYM(rela->r_info));
	if (msp_symbols_at(image, (uint64_t)rela->r_addend - image->min_vaddr, &symbol) ||
	    symbol.addr != (uint64_t)rela->r_addend - image->min_vaddr)
		return NULL;
	return symbol.name;
}

static const char *target_of(struct msp_image *image, uint64_t slot)
{
	static const enum msp_section_id ids[] = {MSP_SECTION_RELA_PLT, MSP_SECTION_RELA_DYN};
	const char *name = NULL;
	struct msp_bytes bytes;
	Elf64_Rela rela;

	for (size_t i = 0; !name && i < sizeof(ids) / sizeof(ids[0]); i++) {
		if (msp_section_read(image, ids[i], &bytes))
			continue;
		for (size_t at = 0; !name && bytes.size - at >= sizeof(rela); at += sizeof(rela)) {
			memcpy(&rela, bytes.data + at, sizeof(rela));
			if (rela.r_offset == slot)
				name = function_of(image, &rela);
		}
		msp_bytes_free(&bytes);
	}
	return name;
}

int msp_plt_symbol(struct msp_image *image, uint64_t addr, struct msp_symbol *out)
{
	uint64_t start, size, slot;
	struct msp_plt_name *grown;
	const char *target;
	char *name, *plain;
	int length;

	if (!image->is64 || !find_stub(image, addr + image->min_vaddr, &start, &size, &slot))
		return MSP_E_NOT_FOUND;
	*out = (struct msp_symbol){.addr = start - image->min_vaddr, .size = size};
	for (uint32_t i = 0; i < image->plt_count && !out->name; i++)
		if (image->plt[i].vaddr == start)
			out->name = image->plt[i].name;
	if (out->name)
		return 0;
	target = target_of(image, slot);
	if (!target)
		return MSP_E_NOT_FOUND;
	grown = msp_elf_grow(image->plt, image->plt_count, &image->plt_room, sizeof(*grown));
	if (!grown)
		return MSP_E_NOMEM;
	image->plt = grown;
	plain = msp_demangle(target);
	length = asprintf(&name, "%s@plt", plain ? plain : target);
	free(plain);
	if (length < 0)
		return MSP_E_NOMEM;
	image->plt[image->plt_count++] = (struct msp_plt_name){start, name};
	out->name = name;
	return 0;
}

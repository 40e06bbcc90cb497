/* SPDX-License-Identifier: MIT */
/*
 * What a LuaJIT says of itself, if it was built with the VM descriptor (moonspy/vm_descriptor.h): its constants, in the
 * file. It is the first evidence, and no more than that: the code has its say too, and a contradiction proves nothing.
 */
#include <elf.h>
#include <string.h>

#include "luajit/build.h"
#include "luajit/descriptor_fields.h"

#include "moonspy/vm_descriptor.h"

static const struct {
	uint16_t offset; /* in struct ljvm_constants */
	uint16_t field;
} said[] = {{offsetof(struct ljvm_constants, arch), MSP_LJ_FIELD_arch},
#define _(name) {offsetof(struct ljvm_constants, name), MSP_LJ_FIELD_##name},
	    MSP_LJ_DESCRIPTOR_SAME(_)
#undef _
#define _(name, theirs) {offsetof(struct ljvm_constants, theirs), MSP_LJ_FIELD_##name},
		    MSP_LJ_DESCRIPTOR_RENAMED(_)
#undef _
};

/* All bytes of [addr, addr + size) of the image; NULL: they are not all in the file. */
static const uint8_t *bytes_at(const struct msp_lj_build *build, uint64_t addr, size_t size)
{
	size_t avail;
	const uint8_t *bytes = msp_image_bytes(build->image, addr, &avail);

	return bytes && avail >= size ? bytes : NULL;
}

static uint32_t aligned(uint32_t size)
{
	return (size + 3) & ~(uint32_t)3;
}

/* The descriptor's address as a note says it, in the image's notes from addr on; 0: none does. */
static uint64_t address_in_notes(const struct msp_lj_build *build, uint64_t addr, uint64_t size)
{
	Elf64_Nhdr note;
	const uint8_t *bytes;
	int64_t distance;

	if (size > UINT16_MAX)
		return 0;
	for (uint64_t at = 0; size - at >= sizeof(note);
	     at += sizeof(note) + aligned(note.n_namesz) + aligned(note.n_descsz)) {
		bytes = bytes_at(build, addr + at, sizeof(note));
		if (!bytes)
			return 0;
		memcpy(&note, bytes, sizeof(note));
		if (note.n_namesz > size || note.n_descsz > size ||
		    sizeof(note) + aligned(note.n_namesz) + aligned(note.n_descsz) > size - at)
			return 0;
		bytes = bytes_at(build, addr + at + sizeof(note),
				 aligned(note.n_namesz) + note.n_descsz);
		if (!bytes)
			return 0;
		if (note.n_type == LJVM_NOTE_TYPE && note.n_namesz == sizeof(LJVM_NOTE_NAME) &&
		    memcmp(bytes, LJVM_NOTE_NAME, sizeof(LJVM_NOTE_NAME)) == 0 &&
		    note.n_descsz == sizeof(distance)) {
			memcpy(&distance, bytes + aligned(note.n_namesz), sizeof(distance));
			return addr + at + sizeof(note) + aligned(note.n_namesz) +
			       (uint64_t)distance;
		}
	}
	return 0;
}

static uint64_t address_by_note(const struct msp_lj_build *build)
{
	uint64_t min_vaddr = msp_image_min_vaddr(build->image), found = 0;
	const uint8_t *bytes = bytes_at(build, 0, sizeof(Elf64_Ehdr));
	Elf64_Ehdr eh;
	Elf64_Phdr ph;

	if (!bytes)
		return 0;
	memcpy(&eh, bytes, sizeof(eh));
	for (unsigned int i = 0; i < eh.e_phnum && !found; i++) {
		bytes = bytes_at(build, eh.e_phoff + (uint64_t)i * sizeof(ph), sizeof(ph));
		if (!bytes)
			return 0;
		memcpy(&ph, bytes, sizeof(ph));
		if (ph.p_type == PT_NOTE && ph.p_vaddr >= min_vaddr)
			found = address_in_notes(build, ph.p_vaddr - min_vaddr, ph.p_filesz);
	}
	return found;
}

/* The constants of the descriptor at addr, as far as it has them; the others are -1. */
static bool read_constants(const struct msp_lj_build *build, uint64_t addr,
			   struct ljvm_constants *out)
{
	const uint8_t *bytes = addr ? bytes_at(build, addr, sizeof(struct ljvm_descriptor)) : NULL;
	struct ljvm_descriptor head;
	size_t size;

	if (!bytes)
		return false;
	memcpy(&head, bytes, sizeof(head));
	if (memcmp(head.magic, LJVM_MAGIC, sizeof(head.magic)) != 0 || head.major != LJVM_MAJOR)
		return false;
	size = head.constants.size < sizeof(*out) ? head.constants.size : sizeof(*out);
	bytes = bytes_at(build, addr + head.constants.offset, size);
	if (!bytes || !size)
		return false;
	memset(out, 0xff, sizeof(*out));
	memcpy(out, bytes, size);
	return true;
}

void msp_lj_evidence_descriptor(struct msp_lj_build *build)
{
	struct ljvm_constants constants;
	struct msp_symbol symbol;
	const char *why = "by its symbol";
	bool found = msp_image_find_symbol(build->image, "luaJIT_vm_descriptor", &symbol) == 0 &&
		     read_constants(build, symbol.addr, &constants);
	uint64_t at = found ? symbol.addr : address_by_note(build);
	int32_t value;

	if (!found) {
		why = "by its note";
		found = read_constants(build, at, &constants);
	}
	if (!found)
		return;
	build->descriptor = at;
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		memcpy(&value, (const char *)&constants + said[i].offset, sizeof(value));
		/* -1: there is none. But where code in a trace begins, other builds must find out otherwise. */
		if (value >= 0 || (said[i].field == MSP_LJ_FIELD_snap_mcofs && constants.jit == 1))
			msp_lj_found(build, said[i].field, "descriptor", value, why);
	}
	if (constants.reg_L == -1)
		MSP_LJ_FOUND(build, reg_l, "descriptor", MSP_REG_NONE, why);
	else
		MSP_LJ_FOUND(build, reg_l, "descriptor", constants.reg_L, why);
}

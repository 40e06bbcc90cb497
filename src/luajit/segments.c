/* SPDX-License-Identifier: MIT */
#include "luajit/build.h"

#include <elf.h>
#include <string.h>

#include "moonspy/moonspy.h"

static void add_segment(struct msp_lj_build *build, const Elf64_Phdr *ph, uint64_t min_vaddr)
{
	struct msp_lj_segment *seg = &build->segment[build->segment_count];

	if (build->segment_count == MSP_LJ_MAX_SEGMENTS || ph->p_vaddr < min_vaddr ||
	    ph->p_vaddr - min_vaddr > UINT32_MAX)
		return;
	seg->addr = ph->p_vaddr - min_vaddr;
	seg->file_size = ph->p_filesz;
	seg->mem_size = ph->p_memsz;
	seg->exec = ph->p_flags & PF_X;
	seg->write = ph->p_flags & PF_W;
	build->segment_count++;
}

int msp_lj_read_segments(struct msp_lj_build *build)
{
	size_t avail;
	const uint8_t *bytes = msp_image_bytes(build->image, 0, &avail);
	uint64_t min_vaddr = msp_image_min_vaddr(build->image);
	Elf64_Ehdr eh;
	Elf64_Phdr ph;

	if (!bytes || avail < sizeof(eh))
		return MSP_E_FORMAT;
	memcpy(&eh, bytes, sizeof(eh));
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
	    eh.e_phentsize != sizeof(ph))
		return MSP_E_FORMAT;
	build->position_dependent = eh.e_type == ET_EXEC;
	for (unsigned int i = 0; i < eh.e_phnum; i++) {
		uint64_t at = eh.e_phoff + (uint64_t)i * sizeof(ph);

		if (at > avail || avail - at < sizeof(ph))
			break;
		memcpy(&ph, bytes + at, sizeof(ph));
		if (ph.p_type == PT_LOAD)
			add_segment(build, &ph, min_vaddr);
		if (ph.p_type == PT_DYNAMIC && ph.p_vaddr >= min_vaddr) {
			build->dynamic_addr = ph.p_vaddr - min_vaddr;
			build->dynamic_size = ph.p_filesz;
		}
	}
	return build->segment_count ? 0 : MSP_E_FORMAT;
}

const uint8_t *msp_lj_segment_bytes(const struct msp_lj_build *build, unsigned int i, size_t *size)
{
	const struct msp_lj_segment *seg = &build->segment[i];
	const uint8_t *bytes = msp_image_bytes(build->image, seg->addr, size);

	if (!bytes)
		return NULL;
	if (*size > seg->file_size)
		*size = seg->file_size;
	return bytes;
}

bool msp_lj_in_exec(const struct msp_lj_build *build, uint64_t addr)
{
	for (unsigned int i = 0; i < build->segment_count; i++) {
		const struct msp_lj_segment *seg = &build->segment[i];

		if (seg->exec && addr >= seg->addr && addr - seg->addr < seg->mem_size)
			return true;
	}
	return false;
}

const char *msp_lj_image_string(const struct msp_lj_build *build, uint64_t addr)
{
	size_t avail;
	const char *bytes = msp_image_bytes(build->image, addr, &avail);

	if (!bytes || !memchr(bytes, 0, avail))
		return NULL;
	return bytes;
}

/* "LuaJIT 2.", then digits, dots, a suffix: ends at the first byte that is none of these. */
static void copy_version(struct msp_lj_build *build, const char *from, size_t avail)
{
	size_t n = strlen("LuaJIT ");

	while (n < avail && n < sizeof(build->version) - 1 && from[n] > ' ' && from[n] < 0x7f)
		n++;
	memcpy(build->version, from, n);
	build->version[n] = 0;
}

void msp_lj_find_version(struct msp_lj_build *build)
{
	static const char start[] = "LuaJIT 2.";

	for (unsigned int i = 0; i < build->segment_count; i++) {
		size_t size;
		const uint8_t *bytes = msp_lj_segment_bytes(build, i, &size);
		const char *hit;

		if (!bytes)
			continue;
		hit = memmem(bytes, size, start, sizeof(start) - 1);
		if (!hit)
			continue;
		copy_version(build, hit, size - (size_t)(hit - (const char *)bytes));
		return;
	}
}

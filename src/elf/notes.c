/* SPDX-License-Identifier: MIT */
/* Build ids: from the notes that are mapped, else (debug files) from note sections. */
#include <string.h>

#include "elf/image.h"

#define NOTES_MAX (1u << 20)

void msp_elf_hex(const uint8_t *bytes, size_t size, char out[MSP_IMAGE_KEY_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	size_t n = 0;

	/* The longest that fits into a key behind its "b-". */
	for (size_t i = 0; i < size && n + 2 < MSP_IMAGE_KEY_SIZE - 2; i++) {
		out[n++] = digits[bytes[i] >> 4];
		out[n++] = digits[bytes[i] & 15];
	}
	out[n] = '\0';
}

/* at: where in the data its bytes are */
static bool find_build_id(Elf_Data *data, char out[MSP_IMAGE_KEY_SIZE], uint64_t *at)
{
	size_t offset = 0, name, desc, next;
	GElf_Nhdr note;

	while (data && (next = gelf_getnote(data, offset, &note, &name, &desc)) > 0) {
		const char *bytes = data->d_buf;

		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof("GNU") &&
		    !memcmp(bytes + name, "GNU", sizeof("GNU")) && note.n_descsz) {
			msp_elf_hex((const uint8_t *)bytes + desc, note.n_descsz, out);
			*at = desc;
			return true;
		}
		offset = next;
	}
	return false;
}

static bool build_id_of_segments(Elf *elf, uint64_t file_size, char out[MSP_IMAGE_KEY_SIZE],
				 uint64_t *vaddr)
{
	size_t count = 0;
	uint64_t at = 0;
	GElf_Phdr phdr;

	if (elf_getphdrnum(elf, &count))
		return false;
	for (size_t i = 0; i < count && i < 4096; i++) {
		if (!gelf_getphdr(elf, (int)i, &phdr))
			return false;
		if (phdr.p_type != PT_NOTE || phdr.p_filesz > NOTES_MAX ||
		    phdr.p_offset > file_size || phdr.p_filesz > file_size - phdr.p_offset)
			continue;
		if (find_build_id(
			    elf_getdata_rawchunk(elf, (int64_t)phdr.p_offset, phdr.p_filesz,
						 phdr.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR),
			    out, &at)) {
			*vaddr = phdr.p_vaddr + at;
			return true;
		}
	}
	return false;
}

void msp_elf_build_id(Elf *elf, uint64_t file_size, char out[MSP_IMAGE_KEY_SIZE], uint64_t *vaddr)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	uint64_t at;

	out[0] = '\0';
	*vaddr = 0;
	if (build_id_of_segments(elf, file_size, out, vaddr))
		return;
	for (uint32_t i = 0; i < 65536 && (scn = elf_nextscn(elf, scn)); i++) {
		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_NOTE ||
		    shdr.sh_size > NOTES_MAX)
			continue;
		if (find_build_id(elf_getdata(scn, NULL), out, &at))
			return;
	}
}

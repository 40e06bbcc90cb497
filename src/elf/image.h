/* SPDX-License-Identifier: MIT */
/* An open ELF file, as the files of src/elf see it. Not for others. */
#ifndef MSP_ELF_IMAGE_H
#define MSP_ELF_IMAGE_H

#include <libelf.h>
#include <gelf.h>
#include <sys/types.h>

#include "elf/elf.h"

/* Nothing we read of a file may be bigger; a section that claims more is not read. */
#define MSP_BYTES_MAX (1u << 30)
/* Program headers beyond are ignored; real files have about a dozen. */
#define MSP_SEGMENTS_MAX 64

/* Sections that are looked at, by name. */
#define MSP_SECTIONS(_) \
	_(EH_FRAME, ".eh_frame") \
	_(DEBUG_FRAME, ".debug_frame") \
	_(ZDEBUG_FRAME, ".zdebug_frame") \
	_(SYMTAB, ".symtab") \
	_(DYNSYM, ".dynsym") \
	_(DEBUGDATA, ".gnu_debugdata") \
	_(DEBUGLINK, ".gnu_debuglink") \
	_(PLT, ".plt") \
	_(PLT_SEC, ".plt.sec") \
	_(PLT_GOT, ".plt.got") \
	_(IPLT, ".iplt") \
	_(RELA_PLT, ".rela.plt") \
	_(RELA_DYN, ".rela.dyn") \
	_(INIT, ".init") \
	_(FINI, ".fini") \
	_(PROBES, ".note.stapsdt") \
	_(PROBES_BASE, ".stapsdt.base")

enum msp_section_id {
#define _(id, name) MSP_SECTION_##id,
	MSP_SECTIONS(_)
#undef _
		MSP_SECTION_COUNT
};

struct msp_section {
	bool found;
	bool compressed; /* SHF_COMPRESSED */
	uint64_t vaddr, offset, size;
	uint32_t link;
	uint64_t entry_size;
};

/* Sections of code are noted up to so many: what lies in a further one has no label. */
#define MSP_CODE_SECTIONS_MAX 32

struct msp_segment {
	uint64_t vaddr, offset, file_size, mem_size;
	bool exec;
	void *bytes; /* read at the first request; see msp_image_bytes() */
};

/* A piece of a file. data is valid until msp_bytes_free(); owned is NULL if it is the image's. */
struct msp_bytes {
	const uint8_t *data;
	size_t size;
	uint64_t vaddr;
	bool open_end; /* size is a bound, not the end: the content says itself where it ends */
	void *owned;
};

struct msp_rows;
struct msp_symbols;

struct msp_image {
	int fd; /* -1: the image is memory */
	void *memory;
	uint64_t size;
	Elf *elf;
	int arch; /* enum msp_arch or MSP_E_UNSUPPORTED */
	bool is64;
	uint64_t min_vaddr, max_vaddr;
	uint64_t eh_frame_hdr, eh_frame_hdr_size; /* PT_GNU_EH_FRAME: vaddr, 0 if none */
	struct msp_segment segments[MSP_SEGMENTS_MAX];
	uint32_t segment_count;
	bool sections_read;
	struct msp_section sections[MSP_SECTION_COUNT];
	struct {
		uint64_t start, end; /* vaddr */
	} code[MSP_CODE_SECTIONS_MAX];
	uint32_t code_count;
	struct msp_image_key key;
	char build_id[MSP_IMAGE_KEY_SIZE];
	uint64_t build_id_vaddr; /* 0: not mapped */
	dev_t dev;
	ino_t ino;
	uint64_t mtime_ns;
	char *name, *root, *cache_dir;
	uint32_t note; /* kept with the table on disk */

	bool debug_tried;
	struct msp_image *debug; /* separate debug file, NULL if there is none */

	struct msp_rows *rows;
	struct msp_unwind_table table;
	struct msp_symbols *symbols;
	struct msp_plt_name *plt; /* stubs that were asked for */
	uint32_t plt_count, plt_room;
};

/* Reads exactly size bytes at a file offset. MSP_E_FORMAT if the file is shorter. */
int msp_image_read(const struct msp_image *image, uint64_t offset, size_t size, void *out);
/* The same into a new buffer, or a pointer into the image's own memory. */
int msp_image_read_bytes(const struct msp_image *image, uint64_t offset, uint64_t size,
			 struct msp_bytes *out);
void msp_bytes_free(struct msp_bytes *bytes);

/* The section of that name, or NULL. */
const struct msp_section *msp_image_section(struct msp_image *image, enum msp_section_id id);
/* Its content, decompressed. MSP_E_NOT_FOUND if there is none. */
int msp_section_read(struct msp_image *image, enum msp_section_id id, struct msp_bytes *out);
/* Do both addresses lie in one section of code? True without section headers. */
bool msp_section_same_code(struct msp_image *image, uint64_t vaddr, uint64_t other);
/* The content of the section with an index (sh_link). */
int msp_section_read_index(struct msp_image *image, uint32_t index, struct msp_bytes *out);
/* Same content as a compressed section holds. Frees in, whatever happens. */
int msp_section_inflate(const struct msp_image *image, bool gnu, struct msp_bytes *in,
			struct msp_bytes *out);

/* Segment that holds a virtual address in its file content, NULL if none. */
const struct msp_segment *msp_image_segment(const struct msp_image *image, uint64_t vaddr);
/* Whether [vaddr, vaddr + 1) is in an executable segment; *end is where that segment ends. */
bool msp_image_executable(const struct msp_image *image, uint64_t vaddr, uint64_t *end);

/* The separate debug file (build id or debuglink, below the image's root), NULL if none. */
struct msp_image *msp_image_debug(struct msp_image *image);

/* Build id in hex, cut to what a key holds; out is "" if there is none. */
/* vaddr: where its bytes are mapped, 0 if they are in no segment. */
void msp_elf_build_id(Elf *elf, uint64_t file_size, char out[MSP_IMAGE_KEY_SIZE], uint64_t *vaddr);
/* As many bytes of a build id as there is room for, in hex. */
void msp_elf_hex(const uint8_t *bytes, size_t size, char out[MSP_IMAGE_KEY_SIZE]);

#endif

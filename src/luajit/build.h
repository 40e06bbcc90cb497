/* SPDX-License-Identifier: MIT */
/* A LuaJIT build while it is being found out: shared by the files of src/luajit that do so. */
#ifndef MSP_LUAJIT_BUILD_H
#define MSP_LUAJIT_BUILD_H

#include "luajit/code.h"
#include "luajit/fields.h"
#include "luajit/luajit.h"

#define MSP_LJ_MAX_SEGMENTS 16
#define MSP_LJ_MAX_REFS 512
#define MSP_LJ_MAX_OPS 512
#define MSP_LJ_MAX_EVIDENCE 384
#define MSP_LJ_MAX_FF 256

struct msp_lj_segment {
	uint64_t addr; /* image-relative */
	uint64_t file_size, mem_size;
	bool exec, write;
};

/* How code or data outside of the VM block refers to a place in it. */
enum msp_lj_ref_kind { MSP_LJ_REF_CALL, MSP_LJ_REF_JMP, MSP_LJ_REF_ADDRESS };

struct msp_lj_ref {
	uint32_t target; /* image-relative */
	uint8_t kind;
};

struct msp_lj_build {
	struct msp_image *image;
	struct msp_code *code;
	char version[64];

	struct msp_lj_segment segment[MSP_LJ_MAX_SEGMENTS];
	unsigned int segment_count;
	uint64_t dynamic_addr, dynamic_size;
	uint64_t descriptor; /* the VM descriptor's address; 0: it has none */
	bool position_dependent;

	struct msp_lj_layout layout;
	bool has[MSP_LJ_FIELD_COUNT];
	bool conflict[MSP_LJ_FIELD_COUNT];
	struct msp_lj_evidence evidence[MSP_LJ_MAX_EVIDENCE];
	size_t evidence_count;

	/* The VM block: its instructions, in order, and who enters it. */
	struct msp_insn *insn;
	uint32_t insn_count;
	uint32_t block_start, block_end;
	struct msp_lj_ref ref[MSP_LJ_MAX_REFS];
	unsigned int ref_count;
	uint32_t handler
		[MSP_LJ_MAX_OPS]; /* of each opcode, then of each fast function; image-relative */
	unsigned int handler_count;
	uint32_t op_count; /* BC__MAX */

	/* Functions of the libraries: jit.util.tracesnap, coroutine.running; 0: not found. */
	uint64_t tracesnap, coroutine_running;
	int32_t g_gcroot; /* head of the list of all objects (gc.root), -1 unknown */

	struct msp_lj_vm_rows rows;
	char *ff_name[MSP_LJ_MAX_FF];
	unsigned int ff_count, ff_asm_count;

	char *strings; /* of the evidence, if it was read from the cache; else they are static */
};

/* Records evidence for a field. The first one sets it; a later one must agree. why is static. */
void msp_lj_found(struct msp_lj_build *build, enum msp_lj_field field, const char *source,
		  int64_t value, const char *why);
void msp_lj_not_found(struct msp_lj_build *build, enum msp_lj_field field, const char *source,
		      const char *why);
#define MSP_LJ_FOUND(build, field, source, value, why) \
	msp_lj_found(build, MSP_LJ_FIELD_##field, source, value, why)

/* segments.c: the image's parts. */
int msp_lj_read_segments(struct msp_lj_build *build);
/* Bytes of a segment; NULL if it has none. */
const uint8_t *msp_lj_segment_bytes(const struct msp_lj_build *build, unsigned int i, size_t *size);
bool msp_lj_in_exec(const struct msp_lj_build *build, uint64_t addr);
/* A NUL-terminated string of the image; NULL if there is none. */
const char *msp_lj_image_string(const struct msp_lj_build *build, uint64_t addr);
void msp_lj_find_version(struct msp_lj_build *build);

/* locate.c: where the VM block is, its instructions, its handlers. */
int msp_lj_locate_block(struct msp_lj_build *build);
/* Index of the block's instruction at an address, -1: none starts there. */
int32_t msp_lj_insn_at(const struct msp_lj_build *build, uint64_t addr);
static inline bool msp_lj_in_block(const struct msp_lj_build *build, uint64_t addr)
{
	return addr >= build->block_start && addr < build->block_end;
}

/* refs.c: references to the block from outside. */
void msp_lj_find_refs(struct msp_lj_build *build);
/* The image-relative address that a pointer in the image's data will hold; 0: none. */
uint64_t msp_lj_pointer_at(const struct msp_lj_build *build, uint64_t addr);

/* arm64_value.c: the address in a register before the instruction at addr; false: it is none, or not plain. */
bool msp_lj_arm64_value(const struct msp_lj_build *build, uint64_t addr, uint8_t reg,
			uint64_t *value);
/* The address that the instruction at addr makes. */
bool msp_lj_arm64_taken(const struct msp_lj_build *build, uint64_t addr, uint32_t word,
			uint64_t *value);
/* The address in a register at the first call from addr on. */
bool msp_lj_arm64_argument(const struct msp_lj_build *build, uint64_t addr, uint8_t reg,
			   uint64_t *value);

/* Evidence. */
void msp_lj_evidence_descriptor(struct msp_lj_build *build);
void msp_lj_evidence_api(struct msp_lj_build *build);
void msp_lj_evidence_vm(struct msp_lj_build *build);
void msp_lj_evidence_states(struct msp_lj_build *build);
void msp_lj_evidence_static(struct msp_lj_build *build);
void msp_lj_evidence_traces(struct msp_lj_build *build);
void msp_lj_evidence_constants(struct msp_lj_build *build);

/* vmblock.c: unwind rows of the block. */
int msp_lj_analyse_block(struct msp_lj_build *build);

/* ffnames.c */
void msp_lj_find_ff_names(struct msp_lj_build *build);

#endif

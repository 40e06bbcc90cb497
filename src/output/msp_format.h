/* SPDX-License-Identifier: MIT */
/* The msp format as docs/formats.md has it, for its writer and its reader. */
#ifndef MSP_OUTPUT_MSP_FORMAT_H
#define MSP_OUTPUT_MSP_FORMAT_H

#include <assert.h>
#include <stdint.h>

#define MSP_FILE_MAGIC "\x8dmsp\r\n\x1a\n"
#define MSP_FILE_MAJOR 1
#define MSP_FILE_MINOR 3

struct msp_file_header {
	char magic[8];
	uint16_t major, minor;
	uint32_t zero;
};

#define MSP_SECTION_CRITICAL 1u

struct msp_section_header {
	char tag[4];
	uint32_t flags;
	uint64_t length;
	uint32_t body_crc, header_crc;
};

static_assert(sizeof(struct msp_file_header) == 16, "as documented");
static_assert(sizeof(struct msp_section_header) == 24, "as documented");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	      "headers are written as they lie in memory");

#define MSP_FRAME_CERTAIN 1u
#define MSP_FRAME_VM 2u

/* Sections in their order: name, tag, columns written (0: no table) */
#define MSP_SECTIONS(_) \
	_(STRINGS, "STRS", 0) \
	_(FRAMES, "FRAM", 9) \
	_(NODES, "NODE", 2) \
	_(THREADS, "THRD", 3) \
	_(COUNTS, "CNTS", 3) \
	_(QUALITY, "QUAL", 10) \
	_(ERRORS, "ERRS", 2) \
	_(WAYS, "WAYS", 2) \
	_(META, "META", 2) \
	_(OBJECTS, "OBJS", 3) \
	_(EVENTS, "EVTS", 4) \
	_(END, "END ", 0)

enum msp_section {
#define _(id, tag, columns) MSP_SECTION_##id,
	MSP_SECTIONS(_)
#undef _
		MSP_SECTION_COUNT
};

#endif

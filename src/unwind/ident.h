/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What identifies a Lua prototype beyond its address. The collector frees
 * prototypes and hands their addresses out again, so (address, identity) is
 * the key of every cache. The kernel computes the identity at sample time,
 * user space when it reads the prototype: both with this function.
 */
#ifndef MSP_UNWIND_IDENT_H
#define MSP_UNWIND_IDENT_H

#include <stdint.h>

#include "unwind/tables.h"

/* The header buffer has this size, aligned to 8, zero after the layout's pt_size bytes. */
#define MSP_PROTO_HEADER_MAX 128

typedef uint32_t __attribute__((may_alias)) msp_hdr_word;

/*
 * A word of the header. The mask is for the BPF verifier, which must see that
 * no layout can lead out of the buffer: 124 + 4 = MSP_PROTO_HEADER_MAX. All
 * fields read with it are 4-aligned. A field that the build does not have is 0.
 */
static inline __attribute__((always_inline)) uint32_t msp_hdr_u32(const uint8_t *header,
								  int32_t off)
{
	return off < 0 ? 0 : *(const msp_hdr_word *)(header + ((uint32_t)off & 0x7c));
}

static inline __attribute__((always_inline)) uint32_t msp_hdr_u8(const uint8_t *header, int32_t off)
{
	return off < 0 ? 0 : header[(uint32_t)off & 0x7f];
}

/* A reference or pointer: 8 bytes, or 4 without GC64. */
static inline __attribute__((always_inline)) uint64_t msp_hdr_ref(const uint8_t *header,
								  int32_t off, int gc64)
{
	uint64_t low = msp_hdr_u32(header, off);

	if (!gc64 || off < 0)
		return low;
	return low | (uint64_t)msp_hdr_u32(header, off + 4) << 32;
}

static inline __attribute__((always_inline)) uint64_t msp_ident_mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/*
 * Mixes what does not change during the prototype's life; so not the mark
 * bits, the gray list, the trace anchor, the flags. Of the pointers into the
 * object only the distances count. Never 0: 0 stands for "unknown".
 */
static inline __attribute__((always_inline)) uint64_t
msp_proto_ident(const uint8_t *header, const struct msp_lj_layout *layout)
{
	int gc64 = layout->gc64 != 0;
	uint64_t k = msp_hdr_ref(header, layout->pt_k, gc64);
	uint64_t lineinfo = msp_hdr_ref(header, layout->pt_lineinfo, gc64);
	uint64_t varinfo = msp_hdr_ref(header, layout->pt_varinfo, gc64);
	uint64_t hash = 0x6d6f6f6e73707931ull;

	hash = msp_ident_mix(hash, msp_hdr_ref(header, layout->pt_chunkname, gc64));
	hash = msp_ident_mix(hash, (uint64_t)msp_hdr_u32(header, layout->pt_firstline) << 32 |
					   msp_hdr_u32(header, layout->pt_numline));
	hash = msp_ident_mix(hash, (uint64_t)msp_hdr_u32(header, layout->pt_sizebc) << 32 |
					   msp_hdr_u32(header, layout->pt_sizept));
	hash = msp_ident_mix(hash, (uint64_t)msp_hdr_u32(header, layout->pt_sizekgc) << 32 |
					   msp_hdr_u32(header, layout->pt_sizekn));
	hash = msp_ident_mix(hash, msp_hdr_u8(header, layout->pt_numparams) << 16 |
					   msp_hdr_u8(header, layout->pt_framesize) << 8 |
					   msp_hdr_u8(header, layout->pt_sizeuv));
	hash = msp_ident_mix(hash, lineinfo ? lineinfo - k : 0);
	hash = msp_ident_mix(hash, varinfo ? varinfo - k : 0);
	return hash ? hash : 1;
}

static inline __attribute__((always_inline)) uint32_t msp_hdr_u16(const uint8_t *header,
								  int32_t off)
{
	return off < 0 ? 0 : msp_hdr_u32(header, off) >> ((uint32_t)off & 2) * 8 & 0xffff;
}

/*
 * A trace is flushed, and its number, its object and its machine code are used
 * again for another. Its identity is of what does not change while it lives:
 * so not its link, which is set when a stitched trace is continued, nor its
 * side traces. Three parts, mixed in this order: the header at `at`; its
 * constants, MSP_TRACE_IR_WORDS at most, among which are the functions and
 * return positions of inlined frames; and the positions of the snapshot around
 * the pc and of the next one. Where snapshots do not say which code is theirs
 * (before March 2021), the third part is their map, which has all their
 * positions: whole, or MSP_TRACE_MAP_PIECES of it.
 */
#define MSP_TRACE_HEADER_MAX 128
#define MSP_TRACE_IR_WORDS 128
#define MSP_TRACE_PIECE 16	/* words that are read at once */
#define MSP_TRACE_MAP_PIECES 8
#define MSP_REF_BIAS 0x8000 /* lj_ir.h, REF_BIAS: constants are below, down to nk */

static inline __attribute__((always_inline)) uint64_t
msp_trace_ident(const uint8_t *header, const struct msp_lj_layout *layout, uint64_t at)
{
	int gc64 = layout->gc64 != 0;
	uint64_t hash = msp_ident_mix(0x6d6f6f6e73707932ull, at);

	hash = msp_ident_mix(hash, msp_hdr_ref(header, layout->T_startpt, gc64));
	hash = msp_ident_mix(hash, msp_hdr_ref(header, layout->T_startpc, gc64));
	hash = msp_ident_mix(hash, msp_hdr_ref(header, layout->T_mcode, 1));
	hash = msp_ident_mix(hash, (uint64_t)msp_hdr_u32(header, layout->T_nins) << 32 |
					   msp_hdr_u32(header, layout->T_nk));
	hash = msp_ident_mix(hash, (uint64_t)msp_hdr_u32(header, layout->T_szmcode) << 32 |
					   msp_hdr_u32(header, layout->T_nsnapmap));
	return msp_ident_mix(hash, (uint64_t)msp_hdr_u16(header, layout->T_traceno) << 32 |
					   msp_hdr_u16(header, layout->T_root) << 16 |
					   msp_hdr_u16(header, layout->T_nsnap));
}

/* Entries of the snapshots' map. */
static inline __attribute__((always_inline)) uint32_t
msp_trace_map_entries(const uint8_t *header, const struct msp_lj_layout *layout)
{
	return layout->snap_size == 8 ? msp_hdr_u16(header, layout->T_nsnapmap)
				      : msp_hdr_u32(header, layout->T_nsnapmap);
}

/* First of the words of piece i of a map that are in the identity. */
static inline __attribute__((always_inline)) uint32_t msp_trace_map_piece(uint32_t words,
									  uint32_t i)
{
	if (words <= MSP_TRACE_PIECE * MSP_TRACE_MAP_PIECES)
		return i * MSP_TRACE_PIECE;
	return i * ((words - MSP_TRACE_PIECE) / (MSP_TRACE_MAP_PIECES - 1));
}

#endif

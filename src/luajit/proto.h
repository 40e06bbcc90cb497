/* SPDX-License-Identifier: MIT */
/* A prototype (GCproto) read out of a target's memory, checked. Internal to src/luajit/. */
#ifndef MSP_LUAJIT_PROTO_H
#define MSP_LUAJIT_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/memory.h"
#include "unwind/tables.h"

/* A larger prototype is not read: no compiler output comes near it. */
#define MSP_PROTO_SIZE_MAX (16u << 20)

/* Bits of GCproto.flags, the same in all LuaJIT 2.x. */
#define MSP_PROTO_CHILD 0x01
#define MSP_PROTO_VARARG 0x02
#define MSP_PROTO_NOJIT 0x08 /* by jit.off() */

/* firstline of functions that the VM's own library has in bytecode; the chunk name is then theirs. */
#define MSP_PROTO_BUILTIN_LINE UINT32_MAX

/*
 * One block of memory in the target:
 *
 *   addr            header, layout->pt_size bytes
 *   +pt_size        bytecode, 4 bytes each, sizebc of them
 *   k - sizekgc*ref collectable constants, the first one last
 *   k               number constants, 8 bytes each
 *                   upvalue references
 *   lineinfo        a line distance an instruction, without the header's
 *   uvinfo          names of upvalues, NUL-terminated
 *   varinfo         names of locals and where they live
 *   +sizept         end
 */
struct msp_proto {
	uint64_t addr, ident;
	uint64_t chunkname; /* reference of the GCstr */
	uint32_t sizebc, sizekgc, sizekn, sizept;
	uint32_t firstline, numline;
	uint8_t numparams, framesize, sizeuv, flags;

	/* Offsets in the block; 0 = not there (stripped, or not credible). */
	uint32_t bc, kgc_end, lineinfo, uvinfo, varinfo;
	uint8_t ref_size;
	uint8_t *data; /* the block; NULL if only the header was parsed */
};

/* Takes a header apart. MSP_E_FORMAT if it is no credible prototype at that address. */
int msp_proto_parse(const struct msp_lj_layout *layout, const uint8_t *header, uint64_t addr,
		    struct msp_proto *out);

/*
 * Reads the prototype at addr. MSP_E_GONE: it changed while it was read.
 * MSP_E_FORMAT, MSP_E_FAULT. *out must be freed with msp_proto_free().
 */
int msp_proto_read(const struct msp_lj_layout *layout, const struct msp_memory *mem, uint64_t addr,
		   struct msp_proto *out);
void msp_proto_free(struct msp_proto *pt);

/* Reads the header alone; header has MSP_PROTO_HEADER_MAX bytes. */
int msp_proto_read_header(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			  uint64_t addr, uint8_t *header);

uint32_t msp_proto_ins(const struct msp_proto *pt, uint32_t pos); /* pos < sizebc */
/* Collectable constant by the operand of an instruction; 0 = there is none. */
uint64_t msp_proto_kgc(const struct msp_proto *pt, uint32_t index);
/* Source line of a bytecode position (0 = header); 0 = unknown. */
uint32_t msp_proto_line(const struct msp_proto *pt, uint32_t pos);

/* Bytes of line information for each instruction: 1, 2 or 4. */
static inline uint32_t msp_proto_line_width(uint32_t numline)
{
	return numline < 256 ? 1 : numline < 65536 ? 2 : 4;
}

/* Name of an upvalue; NULL = unknown. Points into the block. */
const char *msp_proto_uvname(const struct msp_proto *pt, uint32_t index);

/* A local variable: its name (into the block) and where it lives. */
struct msp_proto_var {
	const char *name; /* NULL: one of the loops' hidden variables */
	uint32_t start, end;
};
/*
 * The variable that lives in slot at pos. Each variable looked at takes one
 * off *work, if that is given; at 0 nothing is found any more.
 */
bool msp_proto_var(const struct msp_proto *pt, uint32_t pos, uint32_t slot,
		   struct msp_proto_var *out, uint32_t *work);

/*
 * Collected memory keeps what it held until something is written over it, first mostly by the
 * allocator: dlmalloc, and LuaJIT's lj_alloc.c after it, puts the size of a free block into its
 * last bytes (prev_foot), which are those of the last variable here. Overwritten by a small
 * number and zeros, the last variable at best is one that lives nowhere, as a compiler hardly
 * makes it, or more is broken.
 */
enum msp_proto_tail {
	MSP_TAIL_BROKEN,   /* no list of variables that ends with the block: nothing in it counts */
	MSP_TAIL_DOUBTFUL, /* a variable may be missing */
	MSP_TAIL_WHOLE,	   /* also: there is none */
};
enum msp_proto_tail msp_proto_tail(const struct msp_proto *pt);

/*
 * Reads a string object into buf, at most cap - 1 bytes and a NUL; *len is its
 * whole length (and more than cap - 1 if it was cut).
 */
int msp_lj_string_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
		       uint64_t ref, char *buf, size_t cap, uint32_t *len);

#endif

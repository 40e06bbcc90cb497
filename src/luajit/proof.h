/* SPDX-License-Identifier: MIT */
/* Proving a layout on a live VM: what the files of the proof share. */
#ifndef MSP_LUAJIT_PROOF_H
#define MSP_LUAJIT_PROOF_H

#include "luajit/build.h"

#define MSP_PROOF_PROTOS 64
#define MSP_PROOF_FUNCS 64
#define MSP_PROOF_LINE 256 /* divides a page */
#define MSP_PROOF_LINES 256

struct msp_prover {
	const struct msp_lj_build *build;
	const struct msp_lj_layout *layout;
	const struct msp_memory *mem;
	uint64_t image_base, g;
	struct msp_lj_proof *out;
	uint64_t main_L, cur_L;

	/* Objects to check the layout on, found in the target. */
	uint64_t proto[MSP_PROOF_PROTOS];
	unsigned int proto_count;
	uint64_t func[MSP_PROOF_FUNCS];
	unsigned int func_count;
	unsigned int strings, short_strings; /* among the prototypes' constants */

	/* Lines of memory read lately: thousands of small reads become hundreds of system calls. */
	struct {
		uint64_t addr; /* 0: empty */
		uint8_t bytes[MSP_PROOF_LINE];
	} line[MSP_PROOF_LINES];
};

/* Reads through the cache; false: not readable. */
bool msp_proof_read(struct msp_prover *p, uint64_t addr, void *buf, size_t size);
/* Forgets what was read. */
void msp_proof_refresh(struct msp_prover *p);

/* Reads as the layout's architecture stores it; false: not readable. */
bool msp_proof_u8(struct msp_prover *p, uint64_t addr, uint8_t *out);
bool msp_proof_u16(struct msp_prover *p, uint64_t addr, uint16_t *out);
bool msp_proof_u32(struct msp_prover *p, uint64_t addr, uint32_t *out);
bool msp_proof_u64(struct msp_prover *p, uint64_t addr, uint64_t *out);
/* A reference to an object or into memory (GCRef, MRef): 64 bits with GC64, else 32. */
bool msp_proof_ref(struct msp_prover *p, uint64_t addr, uint64_t *out);
static inline uint64_t msp_proof_ref_size(const struct msp_prover *p)
{
	return p->layout->gc64 ? 8 : 4;
}
/* A plausible pointer to something aligned that is an object, or part of one? */
static inline bool msp_proof_pointer(uint64_t addr, unsigned int align)
{
	return addr >= 4096 && addr < 1ULL << 47 && addr % align == 0;
}
/* The last address that a process has. */
static inline uint64_t msp_proof_last(const struct msp_prover *p)
{
	return p->layout->arch == MSP_ARCH_ARM64 ? MSP_ARM64_ADDRESS : (1ULL << 47) - 1;
}
/* The same of code and C stacks, which on arm64 are above all objects. */
static inline bool msp_proof_address(const struct msp_prover *p, uint64_t addr, unsigned int align)
{
	return addr >= 4096 && addr <= msp_proof_last(p) && addr % align == 0;
}
/* Is there an object with that type at addr? */
bool msp_proof_is(struct msp_prover *p, uint64_t addr, uint8_t gct);

void msp_proof_pass(struct msp_prover *p, enum msp_lj_check check);
/* The first failure of a check stays. */
void msp_proof_fail(struct msp_prover *p, enum msp_lj_check check, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Counts how many samples of a check were right, for each statement by itself
 * (told apart by its format), and remembers the first that was not.
 */
#define MSP_TALLY_STATEMENTS 24
struct msp_tally {
	struct {
		const char *format;
		unsigned int right, wrong;
		char detail[96];
	} of[MSP_TALLY_STATEMENTS];
	unsigned int count;
};
/* Records a sample; returns ok. */
bool msp_tally_add(struct msp_tally *tally, bool ok, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* A running target changes objects while they are read: one or an eighth of each statement may be wrong. */
void msp_tally_result(struct msp_prover *p, enum msp_lj_check check, const struct msp_tally *tally);

/*
 * Counts what a check says of one object of that type. If that is wrong, the object is looked at
 * again: only what stays wrong, in an object that is still there, counts.
 */
typedef void (*msp_object_check)(struct msp_prover *p, struct msp_tally *tally, uint64_t at);
void msp_tally_object(struct msp_prover *p, struct msp_tally *tally, msp_object_check check,
		      uint64_t at, uint8_t gct);

/* proof_objects.c */
void msp_proof_collect(struct msp_prover *p);
void msp_proof_functions(struct msp_prover *p);
/* proof_protos.c */
void msp_proof_protos(struct msp_prover *p);
/* proof_lines.c */
void msp_proof_lines(struct msp_prover *p);
/* proof_traces.c */
void msp_proof_traces(struct msp_prover *p);

/* A prototype, read. */
struct msp_proof_proto {
	uint64_t at;
	uint8_t numparams, framesize, sizeuv, flags, gct;
	uint16_t trace;
	uint32_t sizebc, sizekgc, sizekn, sizept, firstline, numline, header;
	uint64_t k, chunkname, lineinfo, uvinfo, varinfo;
};
bool msp_proof_read_proto(struct msp_prover *p, uint64_t at, struct msp_proof_proto *pt);
/* Sizes are such that walking over them is bounded. */
bool msp_proof_proto_bounded(const struct msp_proof_proto *pt);

#endif

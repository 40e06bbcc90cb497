/* SPDX-License-Identifier: MIT */
/*
 * Finding the VM block by what it is: one stretch of code where nearly every
 * piece has in it the dispatch idiom, an indirect jump through the table at the
 * dispatch register; and a table of 16-bit offsets of those pieces (lj_bc_ofs).
 */
#include "luajit/build.h"

#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"

/* The interpreter has a dispatch per opcode and fast function: far more than any other code. */
#define MIN_DISPATCHES 40
#define MAX_DISPATCHES 1024
#define MAX_DISPATCH_GAP 0x1000
/* Twice what any LuaJIT has. */
#define MAX_BLOCK_SIZE 0x10000
/* How far before the first dispatch the block may start. */
#define MAX_HEAD 0x400

/* What the search for the block has to know of an architecture. */
struct machine {
	uint8_t arch;
	uint8_t reg; /* that the dispatch is relative to */
	/* Length of the jump that is a dispatch and ends at or behind p; 0: it is something else. */
	unsigned int (*dispatch)(const uint8_t *p, size_t avail);
	/* Does nothing run on from the instruction that ends at p, which has MAX_JUMP bytes before it? */
	bool (*stops)(const uint8_t *p);
};

#define MAX_JUMP 8

struct cluster {
	uint32_t end[MAX_DISPATCHES]; /* of each dispatching jump: where the next piece starts */
	unsigned int count;
};

/* jmp [r14 + index*8 (+ disp32)] */
static unsigned int x64_dispatch_jump(const uint8_t *p, size_t avail)
{
	if (avail < MAX_JUMP)
		return 0;
	if ((p[0] != 0x41 && p[0] != 0x43) || p[1] != 0xff)
		return 0;
	if ((p[3] & 0xc7) != 0xc6) /* scale 8, base r14 */
		return 0;
	if (p[2] == 0x24)
		return 4;
	return p[2] == 0xa4 ? 8 : 0;
}

/* Behind such a jump, or one to elsewhere: jmp rel8, jmp rel32. */
static bool x64_stops(const uint8_t *p)
{
	return x64_dispatch_jump(p - 4, MAX_JUMP) == 4 || x64_dispatch_jump(p - 8, MAX_JUMP) == 8 ||
	       p[-2] == 0xeb || p[-5] == 0xe9;
}

static uint32_t word_at(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/* br reg, or braaz reg */
static bool arm64_is_br(uint32_t word)
{
	return (word & 0xfffffc1f) == 0xd61f0000 || (word & 0xfffffc1f) == 0xd61f081f;
}

/* add tmp, x22, opcode, uxtb #3; then within a few instructions: br to what was loaded from there. */
#define ARM64_DISPATCH_WORDS 6
static unsigned int arm64_dispatch(const uint8_t *p, size_t avail)
{
	if (avail < 4 || (word_at(p) & 0xffe0ffe0) != 0x8b200ec0)
		return 0;
	for (unsigned int i = 1; i < ARM64_DISPATCH_WORDS && (i + 1) * 4 <= avail; i++) {
		if (arm64_is_br(word_at(p + i * 4)))
			return (i + 1) * 4;
	}
	return 0;
}

/* Behind br, b and ret. */
static bool arm64_stops(const uint8_t *p)
{
	uint32_t word = word_at(p - 4);

	return arm64_is_br(word) || (word & 0xfc000000) == 0x14000000 ||
	       (word & 0xfffff3ff) == 0xd65f03c0 || (word & 0xfffffbff) == 0xd65f0bff;
}

static const struct machine machines[] = {
	{MSP_ARCH_X86_64, MSP_X64_R14, x64_dispatch_jump, x64_stops},
	{MSP_ARCH_ARM64, 22, arm64_dispatch, arm64_stops},
};

static const struct machine *machine_of(const struct msp_lj_build *build)
{
	int arch = msp_image_arch(build->image);

	return &machines[arch == MSP_ARCH_ARM64];
}

static uint32_t align_of(const struct msp_lj_build *build)
{
	return msp_code_abi(build->code)->align;
}

static void keep_larger(struct cluster *best, struct cluster *now)
{
	if (now->count > best->count)
		*best = *now;
	now->count = 0;
}

static void find_cluster(const struct msp_lj_build *build, unsigned int seg, struct cluster *best,
			 struct cluster *now)
{
	const struct machine *m = machine_of(build);
	size_t size;
	const uint8_t *bytes = msp_lj_segment_bytes(build, seg, &size);
	uint32_t base = (uint32_t)build->segment[seg].addr;

	now->count = 0;
	for (size_t i = 0; bytes && i + 4 <= size; i += align_of(build)) {
		unsigned int len = m->dispatch(bytes + i, size - i);
		uint32_t end = base + (uint32_t)i + len;

		if (!len)
			continue;
		if (now->count && (end - now->end[now->count - 1] > MAX_DISPATCH_GAP ||
				   now->count == MAX_DISPATCHES))
			keep_larger(best, now);
		now->end[now->count++] = end;
	}
	keep_larger(best, now);
}

/* Does this look like lj_bc_ofs: 0, then rising by the size of a handler each time? */
#define TABLE_HEAD 30
static bool looks_like_table(const uint8_t *p, uint16_t *ofs)
{
	memcpy(ofs, p, TABLE_HEAD * sizeof(*ofs));
	if (ofs[0] != 0)
		return false;
	for (unsigned int i = 1; i < TABLE_HEAD; i++) {
		if (ofs[i] <= ofs[i - 1] + 8 || ofs[i] - ofs[i - 1] > 0x200)
			return false;
	}
	return true;
}

/* Does nothing run into that address? */
static bool is_piece_start(const struct msp_lj_build *build, uint32_t addr)
{
	size_t avail;
	const uint8_t *p = msp_image_bytes(build->image, addr - MAX_JUMP, &avail);

	return p && avail >= MAX_JUMP && machine_of(build)->stops(p + MAX_JUMP);
}

/*
 * Where the block starts if that is the table: where most handlers are starts of pieces. Handlers
 * of integers (DUALNUM) end in jumps to a dispatch that they have in their middle.
 */
static uint32_t start_by_table(const struct msp_lj_build *build, const struct cluster *cluster,
			       const uint16_t *ofs, unsigned int *votes)
{
	uint32_t first = cluster->end[0], best = 0;

	*votes = 0;
	for (uint32_t start = first < MAX_HEAD ? 0 : first - MAX_HEAD; start < first;
	     start += align_of(build)) {
		unsigned int n = 0;

		for (unsigned int i = 1; i < TABLE_HEAD; i++)
			n += is_piece_start(build, start + ofs[i]);
		if (n > *votes) {
			*votes = n;
			best = start;
		}
	}
	return best;
}

/* Finds the table of handler offsets, and by it the block's start. */
static const uint8_t *find_table(struct msp_lj_build *build, const struct cluster *cluster,
				 size_t *avail)
{
	uint16_t ofs[TABLE_HEAD];
	const uint8_t *found = NULL;
	unsigned int votes, most = TABLE_HEAD / 2;

	for (unsigned int s = 0; s < build->segment_count; s++) {
		size_t size;
		const uint8_t *bytes = msp_lj_segment_bytes(build, s, &size);

		for (size_t i = 0; bytes && i + TABLE_HEAD * 2 <= size; i += 2) {
			uint32_t start;

			if (bytes[i] || bytes[i + 1] || !looks_like_table(bytes + i, ofs))
				continue;
			start = start_by_table(build, cluster, ofs, &votes);
			if (votes <= most)
				continue;
			most = votes;
			build->block_start = start;
			found = bytes + i;
			*avail = size - i;
		}
	}
	return found;
}

/*
 * The block's end: where its unwind rule ends. The assembler gives the whole
 * block one rule, so one row covers it.
 */
static uint32_t end_by_rows(const struct msp_lj_build *build, const struct cluster *cluster)
{
	const struct msp_unwind_table *table;
	uint32_t last = cluster->end[cluster->count - 1];

	if (msp_image_unwind(build->image, &table) != 0)
		return 0;
	for (uint32_t i = 0; i + 1 < table->row_count; i++) {
		if (table->rows[i].addr > build->block_start)
			break;
		if (table->rows[i + 1].addr > build->block_start &&
		    table->rows[i + 1].addr >= last &&
		    table->rows[i + 1].addr - build->block_start < MAX_BLOCK_SIZE)
			return table->rows[i + 1].addr;
	}
	return 0;
}

static bool starts_function(struct msp_lj_build *build, const struct msp_insn *insn)
{
	struct msp_insn next;

	/* stp x20, x19, [sp, #-32]! or the like (lj_vm_ffi_call) */
	if (msp_code_abi(build->code)->arch == MSP_ARCH_ARM64)
		return insn->second != MSP_REG_NONE && insn->operand[0].kind == MSP_OPND_MEM &&
		       insn->operand[0].base == msp_code_abi(build->code)->sp &&
		       insn->operand[0].step < 0;
	/* push rbp; mov rbp, rsp: a function with a frame pointer (lj_vm_ffi_call). */
	return insn->op == MSP_OP_PUSH && insn->operand[0].reg == MSP_X64_RBP &&
	       msp_code_decode(build->code, insn->addr + insn->size, &next) == 0 &&
	       next.op == MSP_OP_MOV && next.operand[0].reg == MSP_X64_RBP &&
	       next.operand[1].reg == MSP_X64_RSP;
}

/* Without unwind rows: the block ends where another function starts, or code does. */
static uint32_t end_by_code(struct msp_lj_build *build, const struct cluster *cluster)
{
	uint64_t addr = cluster->end[cluster->count - 1];
	uint64_t limit = addr + MAX_DISPATCH_GAP;
	struct msp_insn insn;

	while (addr < limit && msp_code_decode(build->code, addr, &insn) == 0) {
		if (starts_function(build, &insn))
			break;
		addr += insn.size;
	}
	return (uint32_t)addr;
}

/* Decodes the block from start to end. It has no data in it and no gaps. */
static int decode_block(struct msp_lj_build *build)
{
	uint32_t capacity = (build->block_end - build->block_start) / 2 + 1;
	uint64_t addr = build->block_start;

	build->insn = calloc(capacity, sizeof(*build->insn));
	if (!build->insn)
		return MSP_E_NOMEM;
	while (addr < build->block_end && build->insn_count < capacity) {
		struct msp_insn *insn = &build->insn[build->insn_count];

		if (msp_code_decode(build->code, addr, insn) != 0)
			return MSP_E_FORMAT;
		addr += insn->size;
		build->insn_count++;
	}
	return addr == build->block_end ? 0 : MSP_E_FORMAT;
}

int32_t msp_lj_insn_at(const struct msp_lj_build *build, uint64_t addr)
{
	uint32_t low = 0, high = build->insn_count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (build->insn[mid].addr == addr)
			return (int32_t)mid;
		if (build->insn[mid].addr < addr)
			low = mid + 1;
		else
			high = mid;
	}
	return -1;
}

/* Handlers: table entries that are starts of instructions. What follows the table is not. */
static void read_handlers(struct msp_lj_build *build, const uint8_t *table, size_t avail)
{
	for (unsigned int i = 0; i < MSP_LJ_MAX_OPS && (i + 1) * 2 <= avail; i++) {
		uint16_t ofs;
		uint32_t addr;

		memcpy(&ofs, table + i * 2, sizeof(ofs));
		addr = build->block_start + ofs;
		if ((i && !ofs) || msp_lj_insn_at(build, addr) < 0)
			break;
		build->handler[build->handler_count++] = addr;
	}
}

int msp_lj_locate_block(struct msp_lj_build *build)
{
	struct cluster *found = calloc(2, sizeof(*found));
	const uint8_t *table;
	size_t avail = 0;
	int rc = MSP_E_NO_LUAJIT;

	if (!found)
		return MSP_E_NOMEM;
	for (unsigned int i = 0; i < build->segment_count; i++) {
		if (build->segment[i].exec)
			find_cluster(build, i, &found[0], &found[1]);
	}
	if (found->count < MIN_DISPATCHES)
		goto out;
	table = find_table(build, found, &avail);
	if (!table)
		goto out;
	MSP_LJ_FOUND(build, reg_dispatch, "code", machine_of(build)->reg, "the dispatch idiom");
	build->block_end = end_by_rows(build, found);
	if (!build->block_end)
		build->block_end = end_by_code(build, found);
	rc = decode_block(build);
	if (rc == 0)
		read_handlers(build, table, avail);
out:
	free(found);
	return rc;
}

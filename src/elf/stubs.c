/* SPDX-License-Identifier: MIT */
/*
 * Code that linkers and C libraries bring without CFI: PLT stubs (lld never
 * describes them, older GNU linkers only some) and musl's signal trampoline.
 * Their few instructions are decoded; what is not exactly one of them gets no
 * rule.
 */
#include <string.h>

#include "elf/cfi.h"
#include "elf/symbols.h"
#include "moonspy/moonspy.h"

/* A trampoline is looked for in gaps between functions that are more than padding. */
#define GAP_MIN 64

enum stub_op { STUB_OTHER, STUB_PUSH, STUB_JUMP, STUB_PLAIN };

/* Length of the instruction, 0 if it is none that stubs are made of. */
static size_t decode_x64(const uint8_t *at, size_t size, enum stub_op *op)
{
	static const struct {
		uint8_t bytes[4];
		uint8_t match, length;
		enum stub_op op;
	} known[] = {
		{{0xf3, 0x0f, 0x1e, 0xfa}, 4, 4, STUB_PLAIN}, /* endbr64 */
		{{0xff, 0x35}, 2, 6, STUB_PUSH},	      /* push x(%rip) */
		{{0x68}, 1, 5, STUB_PUSH},		      /* push $x */
		{{0xff, 0x25}, 2, 6, STUB_JUMP},	      /* jmp *x(%rip) */
		{{0xf2, 0xff, 0x25}, 3, 7, STUB_JUMP},	      /* bnd jmp *x(%rip) */
		{{0xe9}, 1, 5, STUB_JUMP},		      /* jmp x */
		{{0xf2, 0xe9}, 2, 6, STUB_JUMP},	      /* bnd jmp x */
		{{0x90}, 1, 1, STUB_PLAIN},
		{{0x66, 0x90}, 2, 2, STUB_PLAIN},
		{{0xcc}, 1, 1, STUB_PLAIN},
		{{0x0f, 0x1f, 0x00}, 3, 3, STUB_PLAIN},
		{{0x0f, 0x1f, 0x40}, 3, 4, STUB_PLAIN},
		{{0x0f, 0x1f, 0x44}, 3, 5, STUB_PLAIN},
		{{0x66, 0x0f, 0x1f, 0x44}, 4, 6, STUB_PLAIN},
		{{0x0f, 0x1f, 0x80}, 3, 7, STUB_PLAIN},
		{{0x0f, 0x1f, 0x84}, 3, 8, STUB_PLAIN},
		{{0x66, 0x0f, 0x1f, 0x84}, 4, 9, STUB_PLAIN},
		{{0x66, 0x2e, 0x0f, 0x1f}, 4, 10, STUB_PLAIN},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (size < known[i].length || memcmp(at, known[i].bytes, known[i].match))
			continue;
		*op = known[i].op;
		return known[i].length;
	}
	return 0;
}

static size_t decode_arm64(const uint8_t *at, size_t size, enum stub_op *op)
{
	uint32_t insn;

	if (size < 4)
		return 0;
	memcpy(&insn, at, 4);
	if (insn == 0xa9bf7bf0) /* stp x16, x30, [sp, #-16]! */
		*op = STUB_PUSH;
	else if (insn == 0xd61f0220) /* br x17 */
		*op = STUB_JUMP;
	else if ((insn & 0x9f00001f) == 0x90000010 ||	   /* adrp x16, x */
		 (insn & 0xffc003ff) == 0xf9400211 ||	   /* ldr x17, [x16, x] */
		 (insn & 0xffc003ff) == 0x91000210 ||	   /* add x16, x16, x */
		 insn == 0xd503201f || insn == 0xd503245f) /* nop, bti c */
		*op = STUB_PLAIN;
	else
		return 0;
	return 4;
}

static void stub_rule(int arch, uint32_t depth, struct msp_rule *rule)
{
	memset(rule, 0, sizeof(*rule));
	rule->cfa_kind = MSP_CFA_REG;
	rule->cfa_reg = msp_cfi_arch(arch)->sp;
	rule->cfa_off = (int32_t)depth;
	for (int i = 0; i < msp_cfi_arch(arch)->slot_count; i++)
		rule->saved[i] = MSP_SAVED_SAME;
	if (arch == MSP_ARCH_X86_64 || depth)
		rule->saved[MSP_SLOT_RA] = -8;
}

static int add_stub_row(int arch, uint64_t addr, uint32_t depth, struct msp_rows *rows)
{
	struct msp_rule rule;
	int index;

	stub_rule(arch, depth, &rule);
	index = msp_rows_intern(rows, &rule);
	return index < 0 ? index : msp_rows_add(rows, (uint32_t)addr, (uint32_t)index);
}

/*
 * Each stub starts with an empty frame and ends with a jump. The first one of
 * .plt is entered with one more word, the index that a stub has pushed.
 */
static int decode_stubs(int arch, const struct msp_bytes *bytes, uint64_t addr,
			struct msp_rows *rows)
{
	bool x64 = arch == MSP_ARCH_X86_64;
	uint32_t empty = x64 ? 8 : 0, push = x64 ? 8 : 16, depth = empty;
	size_t at = 0, length;
	int err = 0;

	if (x64 && bytes->size > 2 && bytes->data[0] == 0xff && bytes->data[1] == 0x35)
		depth += 8;
	while (!err && at < bytes->size) {
		enum stub_op op = STUB_OTHER;

		length = x64 ? decode_x64(bytes->data + at, bytes->size - at, &op)
			     : decode_arm64(bytes->data + at, bytes->size - at, &op);
		if (!length)
			break;
		err = add_stub_row(arch, addr + at, depth, rows);
		if (op == STUB_PUSH)
			depth += push;
		if (op == STUB_JUMP)
			depth = empty;
		at += length;
	}
	return err ? err : msp_rows_add(rows, (uint32_t)(addr + at), 0);
}

static int stub_section(struct msp_image *image, enum msp_section_id id, struct msp_rows *rows)
{
	struct msp_rows *more;
	struct msp_bytes bytes;
	uint64_t end;
	int err = msp_section_read(image, id, &bytes);

	if (err)
		return err == MSP_E_NOMEM ? err : 0;
	more = msp_rows_new();
	err = more ? 0 : MSP_E_NOMEM;
	if (!err && msp_image_executable(image, bytes.vaddr, &end) &&
	    bytes.size <= end - bytes.vaddr && end - image->min_vaddr <= UINT32_MAX)
		err = decode_stubs(image->arch, &bytes, bytes.vaddr - image->min_vaddr, more);
	if (!err)
		err = msp_rows_fill(rows, more);
	msp_rows_free(more);
	msp_bytes_free(&bytes);
	return err;
}

/* Offset of the instructions that call rt_sigreturn, and their size; -1 if there are none. */
static int64_t find_trampoline(int arch, const uint8_t *bytes, size_t size, size_t from,
			       size_t *length)
{
	static const uint8_t x64[] = {0x0f, 0, 0, 0, 0x0f, 0x05}; /* ..., $15; syscall */
	static const uint8_t arm64[] = {0x68, 0x11, 0x80, 0xd2,
					1,    0,    0,	  0xd4}; /* mov x8,#139; svc 0 */
	const uint8_t *at = bytes + from;

	if (arch == MSP_ARCH_ARM64) {
		at = memmem(at, size - from, arm64, sizeof(arm64));
		*length = sizeof(arm64);
		return at ? at - bytes : -1;
	}
	while ((at = memmem(at, size - (size_t)(at - bytes), x64, sizeof(x64)))) {
		if (at - bytes >= 3 && !memcmp(at - 3, "\x48\xc7\xc0", 3)) {
			*length = sizeof(x64) + 3;
			return at - 3 - bytes;
		}
		if (at - bytes >= 1 && at[-1] == 0xb8) {
			*length = sizeof(x64) + 1;
			return at - 1 - bytes;
		}
		at++;
	}
	return -1;
}

static int scan_gap(const struct msp_image *image, const struct msp_segment *seg, uint64_t start,
		    uint64_t end, struct msp_rows *rows)
{
	struct msp_rule rule = {.cfa_kind = MSP_CFA_SIGNAL,
				.cfa_reg = msp_cfi_arch(image->arch)->sp};
	struct msp_bytes bytes;
	size_t from = 0, length;
	int64_t at;
	int err;

	if (msp_image_read_bytes(image, seg->offset + (start - seg->vaddr), end - start, &bytes))
		return 0;
	err = msp_rows_intern(rows, &rule);
	while (err >= 0 &&
	       (at = find_trampoline(image->arch, bytes.data, bytes.size, from, &length)) >= 0) {
		uint32_t addr = (uint32_t)(start - image->min_vaddr + (uint64_t)at);
		/*
		 * Nothing calls the trampoline: the address on the stack is its first byte.
		 * Walkers look one byte before a return address, so the rule starts there,
		 * unless that byte is the end of another one.
		 */
		bool touches = from && (size_t)at == from;
		int add = msp_rows_add(rows, addr && !touches ? addr - 1 : addr, (uint32_t)err);

		if (!add)
			add = msp_rows_add(rows, addr + (uint32_t)length, 0);
		if (add)
			err = add;
		from = (size_t)at + length;
	}
	msp_bytes_free(&bytes);
	return err < 0 ? err : 0;
}

/* The gaps of a segment that are large enough. */
static int scan_segment(const struct msp_image *image, const struct msp_segment *seg,
			const struct msp_rows *rows, struct msp_rows *found)
{
	uint64_t at = seg->vaddr, end = seg->vaddr + seg->file_size, next;
	uint32_t i = 0, rule = 0;
	int err = 0;

	if (end - image->min_vaddr > UINT32_MAX)
		return 0;
	while (!err && at < end) {
		while (i < rows->count && rows->rows[i].addr + image->min_vaddr <= at)
			rule = rows->rows[i++].rule;
		next = i < rows->count ? rows->rows[i].addr + image->min_vaddr : end;
		if (next > end)
			next = end;
		if (rule == 0 && next - at >= GAP_MIN)
			err = scan_gap(image, seg, at, next, found);
		at = next;
	}
	return err;
}

static int signal_trampolines(struct msp_image *image, struct msp_rows *rows)
{
	struct msp_rows *found;
	bool dynamic, defines = msp_symbols_export(image, "sigaction", &dynamic);
	int err = 0;

	/* The trampoline is where sigaction() is: in a C library or a static program. */
	if (dynamic && !defines)
		return 0;

	for (uint32_t i = 0; !err && i < image->segment_count; i++) {
		if (!image->segments[i].exec)
			continue;
		found = msp_rows_new();
		err = found ? scan_segment(image, &image->segments[i], rows, found) : MSP_E_NOMEM;
		if (!err)
			err = msp_rows_fill(rows, found);
		msp_rows_free(found);
	}
	return err;
}

int msp_stub_rows(struct msp_image *image, struct msp_rows *rows)
{
	static const enum msp_section_id ids[] = {MSP_SECTION_PLT, MSP_SECTION_PLT_SEC,
						  MSP_SECTION_PLT_GOT, MSP_SECTION_IPLT};
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(ids) / sizeof(ids[0]); i++)
		err = stub_section(image, ids[i], rows);
	return err ? err : signal_trampolines(image, rows);
}

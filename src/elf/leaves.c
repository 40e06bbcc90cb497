/* SPDX-License-Identifier: MIT */
/*
 * The vDSO of arm64 has no CFI. Its signal trampoline is found like that of a C library (stubs.c); most of its
 * functions are leaves: no instruction moves the stack pointer, writes x30, or calls. Each is decoded from
 * its first to its last (Arm ARM, C4.1); what has one that might gets no rule.
 */
#include <string.h>

#include "elf/bytes.h"
#include "elf/cfi.h"
#include "elf/symbols.h"
#include "moonspy/moonspy.h"

#define SP 31
#define LR 30
/* A vDSO is smaller. */
#define FILE_MAX (1 << 16)
#define FUNCTION_MAX (1 << 14)

static uint32_t field(uint32_t word, unsigned int at)
{
	return word >> at & 31;
}

/* Might the instruction move the stack pointer, or write x30? */
static bool moves(uint32_t word)
{
	uint32_t class = word >> 25 & 15;

	if (class < 4 || word >> 26 == 0x25 || (word & 0xfffff81f) == 0xd63f0000) /* bl, blr */
		return true;
	if (class == 10 || class == 11) /* branches, hints; mrs writes a register */
		return (word & 0xfff00000) == 0xd5300000 && field(word, 0) == LR;
	if ((class & 5) ==
	    4) /* loads and stores: the base may move; of two registers; the status of a store */
		return field(word, 5) >= LR || field(word, 0) == LR ||
		       ((word & 0x3a000000) == 0x28000000 && field(word, 10) == LR) ||
		       ((word & 0x3f000000) == 0x08000000 && field(word, 16) == LR);
	if ((class & 7) == 7 || field(word, 0) != SP) /* vectors may write a general register */
		return field(word, 0) == LR;
	/* Mostly 31 is no register, but what a comparison writes; not with these. */
	if ((word & 0x1f800000) == 0x12000000) /* and, orr, eor; tst */
		return (word >> 29 & 3) != 3;
	return !(word >> 29 & 1);
}

static bool is_leaf(const struct msp_bytes *code)
{
	static const uint32_t sigreturn = 0xd2801168; /* mov x8, #139: nothing called this */

	for (size_t at = 0; at + 4 <= code->size; at += 4) {
		uint32_t word = msp_get32(code->data + at);

		if (word == sigreturn || moves(word))
			return false;
	}
	return code->size % 4 == 0 && code->size;
}

static int leaf_row(struct msp_image *image, const struct msp_segment *seg,
		    const struct msp_symbol *function, struct msp_rows *rows)
{
	struct msp_rule rule = {.cfa_kind = MSP_CFA_REG, .cfa_reg = SP};
	uint64_t offset = seg->offset + (function->addr + image->min_vaddr - seg->vaddr);
	struct msp_bytes code;
	int err = 0;

	for (int i = 0; i < MSP_SLOT_COUNT; i++)
		rule.saved[i] = MSP_SAVED_SAME;
	if (msp_image_read_bytes(image, offset, function->size, &code))
		return 0;
	if (is_leaf(&code)) {
		err = msp_rows_intern(rows, &rule);
		if (err >= 0)
			err = msp_rows_add(rows, (uint32_t)function->addr, (uint32_t)err);
		if (!err)
			err = msp_rows_add(rows, (uint32_t)(function->addr + function->size), 0);
	}
	msp_bytes_free(&code);
	return err;
}

static int scan(struct msp_image *image, const struct msp_segment *seg, struct msp_rows *rows)
{
	uint64_t at = seg->vaddr - image->min_vaddr, end = at + seg->file_size;
	struct msp_symbol function;
	int err = 0;

	while (!err && at < end) {
		if (msp_symbols_at(image, at, &function) || function.addr < at || !function.size ||
		    function.size > FUNCTION_MAX || function.addr + function.size > end) {
			at += 4;
			continue;
		}
		err = leaf_row(image, seg, &function, rows);
		at = function.addr + function.size;
	}
	return err;
}

int msp_leaf_rows(struct msp_image *image, struct msp_rows *rows)
{
	struct msp_rows *found;
	int err = 0;

	for (uint32_t i = 0; !err && i < image->segment_count; i++) {
		const struct msp_segment *seg = &image->segments[i];

		if (!seg->exec || seg->file_size > FILE_MAX)
			continue;
		found = msp_rows_new();
		err = found ? scan(image, seg, found) : MSP_E_NOMEM;
		if (!err)
			err = msp_rows_fill(rows, found);
		msp_rows_free(found);
	}
	return err;
}

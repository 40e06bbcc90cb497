/* SPDX-License-Identifier: MIT */
/*
 * The vDSO of arm64 has no CFI. Its signal trampoline is found like that of a C library (stubs.c); most of its
 * functions are leaves: no instruction moves the stack pointer, writes x30, or calls. Each is decoded from
 * its first to its last (Arm ARM, C4.1); what has one that might gets no rule.
 */
#include <string.h>

#include "elf/arm64.h"
#include "elf/bytes.h"
#include "elf/cfi.h"
#include "elf/symbols.h"
#include "moonspy/moonspy.h"

/* A vDSO is smaller. */
#define FILE_MAX (1 << 16)
#define FUNCTION_MAX (1 << 14)

/* Might the instruction move the stack pointer, or write x30? */
static bool moves(uint32_t word)
{
	struct msp_a64_op op;

	msp_a64_decode(word, &op);
	return op.kind == MSP_A64_CALL || msp_a64_may_write(word, MSP_A64_LR) ||
	       msp_a64_may_write(word, MSP_A64_SP);
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
	struct msp_rule rule = {.cfa_kind = MSP_CFA_REG, .cfa_reg = MSP_A64_SP};
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

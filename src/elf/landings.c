/* SPDX-License-Identifier: MIT */
/*
 * Where gcc's __builtin_eh_return of arm64 lands. Behind its epilogue, which leaves sp where the caller has it, is
 *
 *	add sp, sp, x4; ret                       until gcc 13: x4 is 0 if nothing lands
 *	cbz x4, 1f; add sp, sp, x5; br x6; 1: ret since then
 *
 * and the CFI says of all of these that sp is the CFA and x30 the return address.
 */
#include <string.h>

#include "elf/arm64.h"
#include "elf/bytes.h"
#include "elf/cfi.h"
#include "moonspy/moonspy.h"

/* Instructions from a row's first one on. */
#define LOOK 8

/* Code that lands, from an instruction on. */
struct landing {
	uint32_t add;			  /* instructions until sp is added to */
	uint8_t distance, taken, handler; /* registers: how far, 0 if nothing lands, where */
	bool known;
};

static bool adds_register(uint32_t word)
{
	return (word & 0xffe0ffff) == 0x8b2063ff;
}

static bool is_branch(uint32_t word)
{
	return (word & 0xfffffc1f) == 0xd61f0000;
}

static bool is_cbz(uint32_t word)
{
	return word >> 24 == 0xb4;
}

/* Instructions before one that goes elsewhere, or adds a register to sp. */
static uint32_t straight(const uint32_t *word, uint32_t count)
{
	struct msp_a64_op op;
	uint32_t n = 0;

	for (; n < count && !adds_register(word[n]); n++) {
		msp_a64_decode(word[n], &op);
		if (op.kind != MSP_A64_PLAIN && !is_cbz(word[n]))
			return count;
	}
	return n;
}

/* False: the code does not add to sp. */
static bool find_landing(const uint32_t *word, uint32_t count, struct landing *landing)
{
	uint32_t n = straight(word, count);
	struct msp_a64_op op;

	memset(landing, 0, sizeof(*landing));
	if (n + 1 >= count)
		return false;
	landing->add = n;
	landing->distance = landing->taken = word[n] >> 16 & 31;
	landing->handler = MSP_A64_LR;
	msp_a64_decode(word[n + 1], &op);
	landing->known = op.kind == MSP_A64_RETURN;
	if (n && is_branch(word[n + 1]) && is_cbz(word[n - 1])) {
		landing->taken = word[n - 1] & 31;
		landing->handler = word[n + 1] >> 5 & 31;
		landing->known = true;
	}
	return true;
}

static uint32_t read_code(struct msp_image *image, uint32_t addr, uint32_t word[LOOK])
{
	const struct msp_segment *seg = msp_image_segment(image, image->min_vaddr + addr);
	uint64_t at = seg ? image->min_vaddr + addr - seg->vaddr : 0;
	uint8_t bytes[4 * LOOK];
	size_t size = sizeof(bytes);

	if (!seg || !seg->exec || at >= seg->file_size)
		return 0;
	if (size > seg->file_size - at)
		size = (seg->file_size - at) & ~3ull;
	if (msp_image_read(image, seg->offset + at, size, bytes))
		return 0;
	for (uint32_t i = 0; i < size / 4; i++)
		word[i] = msp_get32(bytes + 4 * (size_t)i);
	return (uint32_t)size / 4;
}

static int add_row(struct msp_rows *found, uint32_t addr, uint64_t end, const struct msp_rule *rule)
{
	int index = msp_rows_intern(found, rule);

	return index < 0 || addr >= end ? index : msp_rows_add(found, addr, (uint32_t)index);
}

/* The instructions before sp is added to, that one, and the one behind. */
static int add_rows(struct msp_rows *found, const struct landing *landing, uint32_t addr,
		    uint64_t end, const struct msp_rule *old)
{
	uint32_t last = addr + 4 * (landing->add + 1);
	struct msp_rule rule = *old;
	int err;

	rule.cfa_kind = landing->known ? MSP_CFA_LANDING : MSP_CFA_UNSUPPORTED;
	rule.cfa_reg = landing->distance;
	rule.cfa_off = landing->taken;
	rule.saved[MSP_SLOT_RA] = landing->handler;
	err = add_row(found, addr, end, &rule);
	rule.cfa_kind = landing->known ? MSP_CFA_RA_REG : MSP_CFA_UNSUPPORTED;
	rule.cfa_reg = MSP_A64_SP;
	rule.cfa_off = 0;
	if (err >= 0)
		err = add_row(found, last, end, &rule);
	if (err >= 0)
		err = msp_rows_add(found, last + 4 < end ? last + 4 : (uint32_t)end, 0);
	return err;
}

int msp_landing_rows(struct msp_image *image, struct msp_rows *rows)
{
	struct msp_rows *found = msp_rows_new();
	int err = found ? 0 : MSP_E_NOMEM;

	for (uint32_t i = 0; err >= 0 && i < rows->count; i++) {
		const struct msp_rule *rule = &rows->rules[rows->rows[i].rule];
		uint32_t addr = rows->rows[i].addr, word[LOOK], count;
		uint64_t end = i + 1 < rows->count ? rows->rows[i + 1].addr : UINT32_MAX;
		struct landing landing;

		if (!(rule->flags & MSP_RULE_LANDS) || rule->cfa_kind != MSP_CFA_REG ||
		    rule->cfa_reg != MSP_A64_SP || rule->cfa_off)
			continue;
		count = read_code(image, addr, word);
		if (find_landing(word, count, &landing))
			err = add_rows(found, &landing, addr, end, rule);
	}
	if (err >= 0 && found->count)
		err = msp_rows_override(rows, found);
	msp_rows_free(found);
	return err < 0 ? err : 0;
}

/* SPDX-License-Identifier: MIT */
/* The unwind table of an image: its sources, put together once. */
#include <string.h>

#include "elf/cache.h"
#include "elf/cfi.h"
#include "moonspy/moonspy.h"

/*
 * .eh_frame without section headers: PT_GNU_EH_FRAME gives .eh_frame_hdr, whose
 * first pointer leads to it. Its end is not told: the end of the segment then.
 */
static int eh_frame_by_header(struct msp_image *image, struct msp_bytes *out)
{
	const struct msp_segment *seg = msp_image_segment(image, image->eh_frame_hdr);
	uint8_t hdr[8];
	uint64_t vaddr, offset;
	int32_t rel;
	int err;

	if (!image->eh_frame_hdr || !seg)
		return MSP_E_NOT_FOUND;
	offset = seg->offset + (image->eh_frame_hdr - seg->vaddr);
	err = msp_image_read(image, offset, sizeof(hdr), hdr);
	if (err)
		return err;
	/* Version 1 and pcrel | sdata4 is what all linkers write. */
	if (hdr[0] != 1 || hdr[1] != 0x1b)
		return MSP_E_NOT_FOUND;
	memcpy(&rel, hdr + 4, 4);
	vaddr = image->eh_frame_hdr + 4 + (uint64_t)(int64_t)rel;
	seg = msp_image_segment(image, vaddr);
	if (!seg)
		return MSP_E_FORMAT;
	err = msp_image_read_bytes(image, seg->offset + (vaddr - seg->vaddr),
				   seg->file_size - (vaddr - seg->vaddr), out);
	out->vaddr = vaddr;
	out->open_end = true;
	return err;
}

/* Odd files must not keep a process from being profiled: what cannot be read gives no rows. */
static int soft(int err)
{
	return err == MSP_E_NOMEM ? err : 0;
}

static int add_eh_frame(struct msp_image *image, struct msp_rows *rows)
{
	struct msp_bytes bytes;
	int err = msp_section_read(image, MSP_SECTION_EH_FRAME, &bytes);

	if (err)
		err = eh_frame_by_header(image, &bytes);
	if (err)
		return soft(err);
	err = msp_cfi_compile(image, &bytes, true, 0, rows);
	msp_bytes_free(&bytes);
	return soft(err);
}

/* The .debug_frame of from (the image itself, or its debug file) for where there is no rule yet. */
static int add_debug_frame(struct msp_image *image, struct msp_image *from, struct msp_rows *rows)
{
	struct msp_rows *more;
	struct msp_bytes bytes;
	int err = msp_section_read(from, MSP_SECTION_DEBUG_FRAME, &bytes);

	if (err == MSP_E_NOT_FOUND)
		err = msp_section_read(from, MSP_SECTION_ZDEBUG_FRAME, &bytes);
	if (err)
		return soft(err);
	more = msp_rows_new();
	err = more ? 0 : MSP_E_NOMEM;
	if (!err)
		err = msp_cfi_compile(image, &bytes, false,
				      (int64_t)(image->min_vaddr - from->min_vaddr), more);
	if (!err)
		err = msp_rows_fill(rows, more);
	msp_rows_free(more);
	msp_bytes_free(&bytes);
	return soft(err);
}

static int compile(struct msp_image *image, struct msp_rows *rows)
{
	struct msp_image *debug = msp_image_debug(image);
	bool bare;
	int err;

	if (!msp_cfi_arch(image->arch))
		return 0;
	err = add_eh_frame(image, rows);
	if (!err)
		err = add_debug_frame(image, image, rows);
	if (!err && debug)
		err = add_debug_frame(image, debug, rows);
	if (!err && image->arch == MSP_ARCH_ARM64)
		err = soft(msp_frame_rows(image, rows));
	if (!err && image->arch == MSP_ARCH_ARM64)
		err = soft(msp_landing_rows(image, rows));
	bare = image->arch == MSP_ARCH_ARM64 && !rows->count;
	if (!err)
		err = soft(msp_stub_rows(image, rows));
	if (!err && bare)
		err = soft(msp_leaf_rows(image, rows));
	return err;
}

static void show(struct msp_image *image, bool from_cache)
{
	image->table.rows = image->rows->rows;
	image->table.row_count = image->rows->count;
	image->table.rules = image->rows->rules;
	image->table.rule_count = image->rows->rule_count;
	image->table.functions = image->rows->functions;
	image->table.function_count = image->rows->function_count;
	image->table.from_cache = from_cache;
}

const struct msp_row *msp_unwind_row(const struct msp_unwind_table *table, uint64_t addr)
{
	uint32_t low = 0, high = table->row_count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (table->rows[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? &table->rows[low - 1] : NULL;
}

int msp_image_unwind(struct msp_image *image, const struct msp_unwind_table **out)
{
	struct msp_rows *rows;
	int err;

	if (!image->rows) {
		rows = msp_cache_load(image);
		if (rows) {
			image->rows = rows;
			show(image, true);
			*out = &image->table;
			return 0;
		}
		rows = msp_rows_new();
		err = rows ? compile(image, rows) : MSP_E_NOMEM;
		if (err) {
			msp_rows_free(rows);
			return err;
		}
		image->rows = rows;
		show(image, false);
		msp_cache_store(image, rows);
	}
	*out = &image->table;
	return 0;
}

uint32_t msp_image_note(const struct msp_image *image)
{
	return image->note;
}

void msp_image_set_note(struct msp_image *image, uint32_t note)
{
	image->note = note;
	msp_cache_note(image);
}

int msp_image_overlay(struct msp_image *image, uint32_t start, uint32_t end,
		      const struct msp_row *rows, uint32_t row_count, const struct msp_rule *rules,
		      uint32_t rule_count)
{
	const struct msp_unwind_table *table;
	struct msp_rows *more = NULL;
	int err = msp_image_unwind(image, &table);

	if (err)
		return err;
	if (start >= end)
		return MSP_E_INVALID;
	more = msp_rows_new();
	if (!more)
		return MSP_E_NOMEM;
	for (uint32_t i = 0; err >= 0 && i < row_count; i++) {
		if (rows[i].rule >= rule_count || (i && rows[i].addr <= rows[i - 1].addr))
			err = MSP_E_INVALID;
		else
			err = msp_rows_intern(more, &rules[rows[i].rule]);
		if (err >= 0)
			err = msp_rows_add(more, rows[i].addr, (uint32_t)err);
	}
	if (err >= 0)
		err = msp_rows_replace(image->rows, more, start, end);
	msp_rows_free(more);
	show(image, image->table.from_cache);
	return err < 0 ? err : 0;
}

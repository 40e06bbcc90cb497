/* SPDX-License-Identifier: MIT */
/* CIEs and FDEs of a section, read with libdw, sorted, and run into rows. */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdlib.h>
#include <string.h>

#include "elf/cfi.h"
#include "moonspy/moonspy.h"

struct reader {
	const struct msp_image *image;
	const struct msp_cfi_arch *arch;
	const struct msp_bytes *section;
	bool eh_frame;
	int64_t delta;
	struct msp_cfi_cie *cies; /* ascending offset: the order of reading */
	uint32_t cie_count, cie_room;
	struct msp_cfi_fde *fdes;
	uint32_t fde_count, fde_room;
	struct pending *pending;
	uint32_t pending_count, pending_room;
	bool sorted;		       /* fdes ascend */
	uint64_t exec_start, exec_end; /* the executable segment looked at last */
};

/* An FDE whose CIE comes later in the section; .debug_frame may do that. */
struct pending {
	uint64_t cie;
	const uint8_t *start, *end;
};

static bool take(const uint8_t **at, const uint8_t *end, unsigned size, bool sign, uint64_t *value)
{
	uint64_t raw = 0;

	if ((size_t)(end - *at) < size)
		return false;
	memcpy(&raw, *at, size);
	*at += size;
	*value = !sign || size == 8 ? raw
		 : size == 4	    ? (uint64_t)(int64_t)(int32_t)raw
				    : (uint64_t)(int64_t)(int16_t)raw;
	return true;
}

/* The number of a DW_EH_PE_* encoded pointer, without what it is relative to. */
static bool take_encoded(const uint8_t **at, const uint8_t *end, uint8_t encoding, uint64_t *value)
{
	switch (encoding & 0x0f) {
	case DW_EH_PE_absptr:
		return take(at, end, 8, false, value);
	case DW_EH_PE_uleb128:
		return msp_uleb(at, end, value);
	case DW_EH_PE_udata2:
		return take(at, end, 2, false, value);
	case DW_EH_PE_udata4:
		return take(at, end, 4, false, value);
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		return take(at, end, 8, false, value);
	case DW_EH_PE_sleb128:
		return msp_sleb(at, end, (int64_t *)value);
	case DW_EH_PE_sdata2:
		return take(at, end, 2, true, value);
	case DW_EH_PE_sdata4:
		return take(at, end, 4, true, value);
	default:
		return false;
	}
}

/* What the augmentation says, letter by letter. false: its FDEs may look like anything. */
static bool read_augmentation(const Dwarf_CIE *from, struct msp_cfi_cie *cie)
{
	const uint8_t *at = from->augmentation_data;
	const uint8_t *end = at ? at + from->augmentation_data_size : NULL;
	const char *letter = from->augmentation;
	uint64_t ignored;

	if (*letter == 'z') {
		cie->sized = true;
		letter++;
	}
	for (; *letter; letter++) {
		switch (*letter) {
		case 'R':
			if (!at || at == end)
				return false;
			cie->encoding = *at++;
			break;
		case 'L':
			if (!at || at == end)
				return false;
			at++;
			break;
		case 'P':
			if (!at || at == end)
				return false;
			cie->encoding = *at++;
			if (!take_encoded(&at, end, cie->encoding, &ignored))
				return false;
			cie->encoding = DW_EH_PE_absptr;
			break;
		case 'S':
			cie->signal = true;
			break;
		case 'B': /* arm64: signed with the other key */
		case 'G': /* arm64: tagged stack */
			break;
		default:
			return false;
		}
	}
	return true;
}

static int add_cie(struct reader *r, uint64_t offset, const Dwarf_CIE *from)
{
	struct msp_cfi_cie *cie = msp_elf_grow(r->cies, r->cie_count, &r->cie_room, sizeof(*cie));

	if (!cie)
		return MSP_E_NOMEM;
	r->cies = cie;
	cie += r->cie_count++;
	memset(cie, 0, sizeof(*cie));
	cie->offset = offset;
	cie->code_align = from->code_alignment_factor;
	cie->data_align = from->data_alignment_factor;
	cie->program = from->initial_instructions;
	cie->program_end = from->initial_instructions_end;
	cie->encoding = DW_EH_PE_absptr;
	/* Hand-written code may keep it elsewhere: rawmemchr() of arm64's glibc in x15. */
	cie->other_ra = from->return_address_register != r->arch->ra;
	cie->usable = cie->code_align && cie->program && cie->program <= cie->program_end &&
		      read_augmentation(from, cie);
	return 0;
}

static struct msp_cfi_cie *find_cie(struct reader *r, uint64_t offset)
{
	uint32_t low = 0, high = r->cie_count;

	/* Mostly the last one read. */
	if (high && r->cies[high - 1].offset == offset)
		return &r->cies[high - 1];
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (r->cies[mid].offset == offset)
			return &r->cies[mid];
		if (r->cies[mid].offset < offset)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* Where an FDE's function is: vaddr of the image. */
static bool read_range(struct reader *r, const struct msp_cfi_cie *cie, const uint8_t **at,
		       const uint8_t *end, uint64_t *start, uint64_t *length)
{
	const uint8_t *field = *at;

	if (cie->encoding & DW_EH_PE_indirect || !take_encoded(at, end, cie->encoding, start))
		return false;
	switch (cie->encoding & 0x70) {
	case DW_EH_PE_absptr:
		break;
	case DW_EH_PE_pcrel:
		*start += r->section->vaddr + (uint64_t)(field - r->section->data);
		break;
	default: /* relative to text, data or function: no producer for these processors */
		return false;
	}
	*start += (uint64_t)r->delta;
	return take_encoded(at, end, cie->encoding & 0x07, length);
}

/* Cuts [start, start + length) to the executable segment it starts in. */
static bool clip(struct reader *r, uint64_t start, uint64_t length, struct msp_cfi_fde *fde)
{
	uint64_t base = r->image->min_vaddr, end;

	if (start < r->exec_start || start >= r->exec_end) {
		if (!msp_image_executable(r->image, start, &r->exec_end))
			return false;
		r->exec_start = start; /* a subset is enough: it only saves the search */
	}
	end = r->exec_end - start < length ? r->exec_end : start + length;
	if (!length || start - base > UINT32_MAX || end - base > UINT32_MAX)
		return false;
	fde->start = (uint32_t)(start - base);
	fde->end = (uint32_t)(end - base);
	return true;
}

static int add_fde(struct reader *r, const struct msp_cfi_cie *cie, const uint8_t *at,
		   const uint8_t *end)
{
	struct msp_cfi_fde fde = {.cie = (uint32_t)(cie - r->cies)}, *fdes;
	uint64_t start, length, skip;

	if (!cie->usable || !read_range(r, cie, &at, end, &start, &length))
		return 0;
	/* Linkers leave the description of a function they dropped, at address 0. */
	if (!r->eh_frame && start == (uint64_t)r->delta)
		return 0;
	if (cie->sized) {
		if (!msp_uleb(&at, end, &skip) || skip > (uint64_t)(end - at))
			return 0;
		at += skip;
	}
	if (!clip(r, start, length, &fde))
		return 0;
	fde.program = at;
	fde.program_size = (uint32_t)(end - at);
	fdes = msp_elf_grow(r->fdes, r->fde_count, &r->fde_room, sizeof(fde));
	if (!fdes)
		return MSP_E_NOMEM;
	r->fdes = fdes;
	if (r->fde_count && fde.start < r->fdes[r->fde_count - 1].start)
		r->sorted = false;
	r->fdes[r->fde_count++] = fde;
	return 0;
}

static int add_pending(struct reader *r, const Dwarf_FDE *fde)
{
	struct pending *pending =
		msp_elf_grow(r->pending, r->pending_count, &r->pending_room, sizeof(*pending));

	if (!pending)
		return MSP_E_NOMEM;
	r->pending = pending;
	pending += r->pending_count++;
	pending->cie = fde->CIE_pointer;
	pending->start = fde->start;
	pending->end = fde->end;
	return 0;
}

static int add_entry(struct reader *r, uint64_t offset, const Dwarf_CFI_Entry *entry)
{
	const struct msp_cfi_cie *cie;

	if (dwarf_cfi_cie_p((Dwarf_CFI_Entry *)entry))
		return add_cie(r, offset, &entry->cie);
	if (!entry->fde.start || entry->fde.start > entry->fde.end)
		return 0;
	cie = find_cie(r, entry->fde.CIE_pointer);
	return cie ? add_fde(r, cie, entry->fde.start, entry->fde.end)
		   : add_pending(r, &entry->fde);
}

/* A length of zero ends .eh_frame for the C runtime, but linkers leave some in the middle. */
static bool at_terminator(const struct reader *r, uint64_t offset)
{
	static const uint8_t zero[4];

	return r->eh_frame && r->section->size - offset >= 4 &&
	       !memcmp(r->section->data + offset, zero, 4);
}

static int read_entries(struct reader *r)
{
	unsigned char ident[EI_NIDENT] = {ELFMAG0,    ELFMAG1,	   ELFMAG2,   ELFMAG3,
					  ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
	Elf_Data data = {.d_buf = (void *)r->section->data, .d_size = r->section->size};
	Dwarf_Off offset = 0, next;
	Dwarf_CFI_Entry entry;
	int err = 0;

	while (!err && offset < data.d_size) {
		if (at_terminator(r, offset)) {
			if (r->section->open_end)
				return 0;
			offset += 4;
			continue;
		}
		next = offset;
		switch (dwarf_next_cfi(ident, &data, r->eh_frame, offset, &next, &entry)) {
		case 0:
			err = add_entry(r, offset, &entry);
			break;
		case 1:
			return 0;
		default:
			break; /* this entry is unusable; the next one may not be */
		}
		if (next <= offset)
			return err;
		offset = next;
	}
	return err;
}

static int resolve_pending(struct reader *r)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < r->pending_count; i++) {
		const struct msp_cfi_cie *cie = find_cie(r, r->pending[i].cie);

		if (cie)
			err = add_fde(r, cie, r->pending[i].start, r->pending[i].end);
	}
	return err;
}

static int by_start(const void *a, const void *b)
{
	const struct msp_cfi_fde *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	/* qsort() is not stable: of two for one address the first in the file wins. */
	return x->program < y->program ? -1 : x->program > y->program;
}

/* Where two overlap, the one that starts first keeps the common part. */
static int run_fdes(struct reader *r, struct msp_rows *rows)
{
	uint32_t done = 0;
	int err = 0;

	for (uint32_t i = 0; !err && i < r->fde_count; i++) {
		const struct msp_cfi_fde *fde = &r->fdes[i];
		uint32_t from = fde->start > done ? fde->start : done;

		if (from >= fde->end)
			continue;
		if (fde->start > done)
			err = msp_rows_add(rows, done, 0);
		if (!err)
			err = msp_rows_add_function(rows, fde->start);
		if (!err)
			err = msp_cfi_run(r->arch, &r->cies[fde->cie], fde, from, rows);
		done = fde->end;
	}
	return err ? err : msp_rows_add(rows, done, 0);
}

int msp_cfi_compile(const struct msp_image *image, const struct msp_bytes *section, bool eh_frame,
		    int64_t delta, struct msp_rows *rows)
{
	struct reader r = {.image = image,
			   .arch = msp_cfi_arch(image->arch),
			   .section = section,
			   .eh_frame = eh_frame,
			   .delta = delta,
			   .sorted = true};
	int err = 0;

	if (!r.arch || section->size > UINT32_MAX)
		return MSP_E_UNSUPPORTED;
	err = read_entries(&r);
	if (!err)
		err = resolve_pending(&r);
	if (!err && !r.sorted)
		qsort(r.fdes, r.fde_count, sizeof(*r.fdes), by_start);
	if (!err)
		err = run_fdes(&r, rows);
	free(r.cies);
	free(r.fdes);
	free(r.pending);
	return err;
}

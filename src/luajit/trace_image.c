/* SPDX-License-Identifier: MIT */
/*
 * Reading a trace. It is one block of memory (lj_trace.c, lj_jit.h):
 *
 *	header | IR: constants, instructions | snapshots | their map
 */
#include "luajit/trace_image.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/trace_reader.h"
#include "moonspy/moonspy.h"

#define MAX_SNAPS 4096
#define MAX_MAP (1u << 20)
#define MAX_CODE (64u << 10)

static int read_header(const struct msp_lj_layout *y, const struct msp_memory *mem, uint64_t at,
		       uint8_t *header)
{
	if (at & 7 || msp_read(mem, at, header, MSP_TRACE_HEADER_MAX))
		return MSP_E_GONE;
	return header[y->gc_gct & 127] == MSP_GCT_TRACE ? 0 : MSP_E_GONE;
}

/* Sizes that are in bounds, and parts that follow each other: else it is no trace. */
static int check_header(struct msp_trace_reader *r)
{
	const struct msp_lj_layout *y = r->layout;
	uint32_t nsnap = msp_hdr_u16(r->header, y->T_nsnap);
	uint32_t nmap = msp_trace_map_entries(r->header, y);
	uint64_t snap = msp_hdr_ref(r->header, y->T_snap, 1);

	r->nk = msp_hdr_u32(r->header, y->T_nk);
	r->nins = msp_hdr_u32(r->header, y->T_nins);
	if (!r->nk || r->nk > MSP_REF_BIAS || r->nins <= MSP_REF_BIAS || r->nins > 0x10000 ||
	    !nsnap || nsnap > MAX_SNAPS || nmap > MAX_MAP || y->snap_size < 8 || y->snap_size > 16)
		return MSP_E_GONE;
	r->ir_size = (size_t)(r->nins - r->nk) * MSP_IR_SIZE;
	r->snaps_size = (size_t)nsnap * (uint32_t)y->snap_size;
	r->map_size = (size_t)nmap * MSP_SNAP_ENTRY;
	r->block = msp_hdr_ref(r->header, y->T_ir, 1) + (uint64_t)r->nk * MSP_IR_SIZE;
	if (snap != r->block + r->ir_size ||
	    msp_hdr_ref(r->header, y->T_snapmap, 1) != snap + r->snaps_size)
		return MSP_E_GONE;
	return 0;
}

static size_t hashed_size(const struct msp_trace_reader *r)
{
	size_t words = MSP_REF_BIAS - r->nk;

	return (words < MSP_TRACE_IR_WORDS ? words : MSP_TRACE_IR_WORDS) * MSP_IR_SIZE;
}

static uint64_t hash_of(const struct msp_trace_reader *r, uint64_t at, const uint8_t *header,
			const uint8_t *ir)
{
	uint64_t hash = msp_trace_ident(header, r->layout, at);

	for (size_t i = 0; i < hashed_size(r); i += MSP_IR_SIZE)
		hash = msp_ident_mix(hash, msp_get64(ir + i));
	return hash;
}

/* The whole of the identity, where it does not depend on the place. */
static uint64_t hash_map(const struct msp_trace_reader *r, uint64_t hash)
{
	uint32_t entries = msp_trace_map_entries(r->header, r->layout), words = entries / 2, at;
	const uint8_t *map = r->data + r->ir_size + r->snaps_size + (entries & 1) * MSP_SNAP_ENTRY;

	for (uint32_t i = 0; i < MSP_TRACE_MAP_PIECES; i++) {
		at = msp_trace_map_piece(words, i);
		for (uint32_t n = 0; n < MSP_TRACE_PIECE && at + n < words; n++)
			hash = msp_ident_mix(hash, msp_get64(map + (size_t)(at + n) * 8));
	}
	return hash;
}

static void read_code(struct msp_trace_reader *r)
{
	uint32_t size = r->image->szmcode;
	int n = -1;

	if (!size || size > MAX_CODE)
		return;
	r->code = malloc(size);
	r->ins = malloc(size * sizeof(*r->ins));
	if (r->code && r->ins && !msp_read(r->mem, r->mcode, r->code, size))
		n = msp_trace_code_read(r->layout, r->g, r->code, size, r->mcode, r->image->mcloop,
					r->ins, size, &r->ins_all);
	r->ins_count = n > 0 ? n : 0;
}

static int read_data(struct msp_trace_reader *r)
{
	size_t size = r->ir_size + r->snaps_size + r->map_size;

	r->data = malloc(size);
	if (!r->data)
		return MSP_E_NOMEM;
	return msp_read(r->mem, r->block, r->data, size) ? MSP_E_GONE : 0;
}

/* The target runs on: what was there before must be there after all is read. */
static int still_there(const struct msp_trace_reader *r, uint64_t at)
{
	_Alignas(8) uint8_t header[MSP_TRACE_HEADER_MAX];
	uint8_t ir[MSP_TRACE_IR_WORDS * MSP_IR_SIZE];

	if (read_header(r->layout, r->mem, at, header) ||
	    msp_read(r->mem, r->block, ir, hashed_size(r)))
		return MSP_E_GONE;
	return hash_of(r, at, header, ir) == r->hash ? 0 : MSP_E_GONE;
}

/* Which code belongs to what: as the VM says, or as it can be found out. */
static void place(struct msp_trace_reader *r)
{
	bool told = msp_trace_read_table(r);

	if (!told || !r->image->by_offset)
		read_code(r);
	if (!r->image->by_offset)
		msp_trace_place_snaps(r);
	if (told)
		return;
	msp_trace_prove(r);
	msp_trace_align(r);
}

static int read_all(struct msp_trace_reader *r, uint64_t at, const struct msp_raw_frame *vm)
{
	const struct msp_lj_layout *y = r->layout;
	struct msp_trace_image *image = r->image;
	int err = read_header(y, r->mem, at, r->header);

	if (!err)
		err = check_header(r);
	if (!err)
		err = read_data(r);
	if (err)
		return err;
	image->at = at;
	r->mcode = msp_hdr_ref(r->header, y->T_mcode, 1);
	image->number = msp_hdr_u16(r->header, y->T_traceno);
	r->hash = hash_of(r, at, r->header, r->data);
	image->by_offset = y->snap_mcofs >= 0;
	image->hash = image->by_offset ? r->hash : hash_map(r, r->hash);
	image->szmcode = msp_hdr_u32(r->header, y->T_szmcode);
	image->mcloop = msp_hdr_u32(r->header, y->T_mcloop);
	image->linktype = msp_hdr_u8(r->header, y->T_linktype);
	image->snap_count = msp_hdr_u16(r->header, y->T_nsnap);
	err = msp_trace_read_snaps(r);
	if (!err && vm && vm->ident && !msp_trace_image_is(image, vm))
		err = MSP_E_GONE;
	if (!err && vm)
		place(r);
	if (!err)
		err = still_there(r, at);
	image->size = sizeof(*image) + image->snap_count * sizeof(*image->snap) +
		      r->node_room * sizeof(*image->node) + image->guesses * sizeof(*image->guess) +
		      image->proofs * sizeof(*image->proof);
	return err;
}

int msp_trace_image_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			 uint64_t g, uint64_t at, const struct msp_raw_frame *vm,
			 const struct msp_lj_build *build, uint64_t descriptor,
			 struct msp_trace_image **out)
{
	struct msp_trace_reader *r = calloc(1, sizeof(*r));
	int err = MSP_E_NOMEM;

	*out = NULL;
	if (!r)
		return err;
	r->layout = layout;
	r->mem = mem;
	r->g = g;
	r->build = build;
	r->descriptor = descriptor;
	r->set = msp_bc_set_find(layout);
	r->image = calloc(1, sizeof(*r->image));
	if (r->image)
		err = read_all(r, at, vm);
	if (err)
		msp_trace_image_free(r->image);
	else
		*out = r->image;
	for (uint32_t i = 0; i < r->proto_count; i++)
		free(r->proto[i].ins);
	free(r->data);
	free(r->code);
	free(r->ins);
	free(r);
	return err;
}

void msp_trace_image_free(struct msp_trace_image *image)
{
	if (!image)
		return;
	free(image->snap);
	free(image->node);
	free(image->guess);
	free(image->proof);
	free(image);
}

uint64_t msp_trace_find(const struct msp_lj_layout *y, const struct msp_memory *mem, uint64_t g,
			uint32_t number)
{
	uint64_t J = g + (int64_t)y->g_to_J, table = 0, at = 0;
	uint32_t size = 0;

	if (msp_read(mem, J + (int64_t)y->J_sizetrace, &size, 4) || number >= size ||
	    msp_read(mem, J + (int64_t)y->J_trace, &table, 8) ||
	    msp_read(mem, table + (uint64_t)number * (y->gc64 ? 8 : 4), &at, y->gc64 ? 8 : 4))
		return 0;
	return at;
}

uint32_t msp_trace_interval(const struct msp_trace_image *image, uint32_t offset, uint32_t *first)
{
	uint32_t lo = 0, hi = image->snap_count, mid;

	while (hi - lo > 1) {
		mid = lo + (hi - lo) / 2;
		if (image->snap[mid].code <= offset)
			lo = mid;
		else
			hi = mid;
	}
	*first = lo;
	while (*first && image->snap[*first - 1].end > offset)
		--*first;
	return lo;
}

uint64_t msp_trace_image_ident(const struct msp_trace_image *image, uint32_t offset)
{
	uint32_t first, at = msp_trace_interval(image, offset, &first);
	uint64_t hash = image->hash;

	if (image->by_offset) {
		hash = msp_ident_mix(hash, image->snap[at].pc);
		if (at + 1 < image->snap_count)
			hash = msp_ident_mix(hash, image->snap[at + 1].pc);
	}
	return hash ? hash : 1;
}

bool msp_trace_image_is(const struct msp_trace_image *image, const struct msp_raw_frame *vm)
{
	return image->number == vm->trace && vm->tofs < image->szmcode &&
	       msp_trace_image_ident(image, vm->tofs) == vm->ident;
}

/* SPDX-License-Identifier: MIT */
/*
 * A trace is one block of memory: header, IR, snapshots, their map. The
 * numbers in it refer to the trace table, to prototypes and to machine code.
 */
#include "unwind/ident.h"
#include "luajit/proof.h"

#include <inttypes.h>
#include <string.h>

#define MAX_TRACES 65536
/*
 * Snapshots end with their last slot, if it was changed: of many some do, a third in some programs.
 * Of a few all may be others.
 */
#define MIN_SNAPSHOTS 32
#define MAX_CHECKED 128
#define MAX_SNAPS 1024
/* Frames in a snapshot, at most two words each. */
#define MAX_LINKS 512
#define MAX_MCODE (1U << 24)
#define MAX_SPADJUST 4096
/* lj_ir.h: references of instructions count up from here, of constants down. */
#define REF_FIRST (MSP_REF_BIAS + 1)
#define IR_SIZE 8
#define SNAP_ENTRY_SIZE 4
/* lj_jit.h: how a trace ends. */
enum {
	LINK_NONE,
	LINK_ROOT,
	LINK_LOOP,
	LINK_TAILREC,
	LINK_UPREC,
	LINK_DOWNREC,
	LINK_STITCH = 8,
	LINK_MAX = 10
};
/* The recorder's current trace is part of the jit_State. */
#define JIT_STATE_SIZE 8192

struct trace {
	uint64_t at, ir, snap, snapmap, startpt, startpc, mcode;
	uint32_t nins, nk, nsnapmap, szmcode, mcloop;
	uint16_t nsnap, spadjust, traceno, link, root;
	uint8_t linktype;
};

struct table {
	uint64_t J, trace;
	uint32_t size;
	/* Snapshots with entries, and those where the highest slot is the last: some are. */
	unsigned int with_entries, up_to_last;
};

/* Before 2019 snapshots have 8 bytes, and what counts their map's entries has 16 bits. */
static bool read_count(struct msp_prover *p, uint64_t at, uint32_t *out)
{
	uint16_t half;

	if (p->layout->snap_size != 8)
		return msp_proof_u32(p, at, out);
	if (!msp_proof_u16(p, at, &half))
		return false;
	*out = half;
	return true;
}

static bool read_trace(struct msp_prover *p, uint64_t at, struct trace *t)
{
	const struct msp_lj_layout *l = p->layout;

#define AT(field) (at + (uint64_t)(int64_t)l->field)
	t->at = at;
	return msp_proof_u64(p, AT(T_ir), &t->ir) && msp_proof_u64(p, AT(T_snap), &t->snap) &&
	       msp_proof_u64(p, AT(T_snapmap), &t->snapmap) &&
	       msp_proof_ref(p, AT(T_startpt), &t->startpt) &&
	       msp_proof_ref(p, AT(T_startpc), &t->startpc) &&
	       msp_proof_u64(p, AT(T_mcode), &t->mcode) && msp_proof_u32(p, AT(T_nins), &t->nins) &&
	       msp_proof_u32(p, AT(T_nk), &t->nk) && read_count(p, AT(T_nsnapmap), &t->nsnapmap) &&
	       msp_proof_u32(p, AT(T_szmcode), &t->szmcode) &&
	       msp_proof_u32(p, AT(T_mcloop), &t->mcloop) &&
	       msp_proof_u16(p, AT(T_nsnap), &t->nsnap) &&
	       msp_proof_u16(p, AT(T_spadjust), &t->spadjust) &&
	       msp_proof_u16(p, AT(T_traceno), &t->traceno) &&
	       msp_proof_u16(p, AT(T_link), &t->link) && msp_proof_u16(p, AT(T_root), &t->root) &&
	       msp_proof_u8(p, AT(T_linktype), &t->linktype);
#undef AT
}

/* Trace number i of the table; false: there is none, or it is being recorded. */
static bool table_entry(struct msp_prover *p, const struct table *table, uint32_t i, uint64_t *at)
{
	return i < table->size && msp_proof_ref(p, table->trace + i * msp_proof_ref_size(p), at) &&
	       *at && (*at < table->J || *at >= table->J + JIT_STATE_SIZE);
}

/*
 * Can the number in a prototype be that of a trace that was collected while it still runs, as LuaJIT of 2020 and before
 * does? Its place in the table is empty then.
 */
static bool collected(struct msp_prover *p, const struct table *table, uint32_t i)
{
	uint64_t at;

	return i && i < table->size &&
	       msp_proof_ref(p, table->trace + i * msp_proof_ref_size(p), &at) && !at;
}

/* Numbers that refer to traces, and how the trace ends. */
static void check_links(struct msp_prover *p, struct msp_tally *tally, const struct table *table,
			const struct trace *t)
{
	bool loops = t->linktype >= LINK_LOOP && t->linktype <= LINK_DOWNREC;
	struct trace root;
	uint64_t at;

	msp_tally_add(tally, t->linktype > LINK_NONE && t->linktype <= LINK_MAX,
		      "trace %u has link type %u", t->traceno, t->linktype);
	/* What could not be recorded behind a stitch is linked to itself. */
	msp_tally_add(tally,
		      ((t->link == t->traceno) == loops || t->linktype == LINK_STITCH) &&
			      t->link < table->size,
		      "trace %u has link type %u to %u", t->traceno, t->linktype, t->link);
	if (t->linktype == LINK_LOOP)
		msp_tally_add(tally, t->mcloop && t->mcloop < t->szmcode,
			      "trace %u loops at %u of %u", t->traceno, t->mcloop, t->szmcode);
	else if (t->linktype == LINK_TAILREC) /* becomes a loop if its frame stays where it is */
		msp_tally_add(tally, t->mcloop < t->szmcode, "trace %u loops at %u of %u",
			      t->traceno, t->mcloop, t->szmcode);
	else
		msp_tally_add(tally, !t->mcloop, "trace %u has link type %u, but loops at %u",
			      t->traceno, t->linktype, t->mcloop);
	/* A root that was flushed can be collected before its side traces. */
	if (t->root && table_entry(p, table, t->root, &at))
		msp_tally_add(tally,
			      read_trace(p, at, &root) && root.root == 0 && root.traceno == t->root,
			      "trace %u has root %u, which is none", t->traceno, t->root);
	msp_tally_add(tally, t->root < table->size, "trace %u has root %u of %u", t->traceno,
		      t->root, table->size);
}

/* Does the instruction that it starts at lead to the trace? Not once it was flushed. */
static bool is_installed(struct msp_prover *p, const struct trace *t)
{
	uint16_t number;

	return msp_proof_u16(p, t->startpc + 2, &number) && number == t->traceno;
}

/* Where it started: a position in a prototype, whose own root trace is in the table. */
static void check_start(struct msp_prover *p, struct msp_tally *tally, const struct table *table,
			const struct trace *t)
{
	struct msp_proof_proto pt;
	struct trace first;
	uint64_t bc, at;

	if (!msp_tally_add(tally,
			   msp_proof_is(p, t->startpt, MSP_GCT_PROTO) &&
				   msp_proof_read_proto(p, t->startpt, &pt),
			   "trace %u starts in 0x%" PRIx64 ", no prototype", t->traceno,
			   t->startpt))
		return;
	bc = t->startpt + (uint64_t)(int64_t)p->layout->pt_size;
	/* A side trace starts where its parent left: often in another function. */
	if (t->root == 0)
		msp_tally_add(tally,
			      t->startpc >= bc && t->startpc - bc < pt.sizebc * 4ULL &&
				      t->startpc % 4 == 0,
			      "trace %u starts at 0x%" PRIx64 ", outside of 0x%" PRIx64, t->traceno,
			      t->startpc, t->startpt);
	else
		msp_tally_add(tally, msp_proof_pointer(t->startpc, 4),
			      "trace %u starts at 0x%" PRIx64, t->traceno, t->startpc);
	/* Stitched traces start in the middle; a loop's root is known to its prototype. */
	if (t->root == 0 && t->linktype == LINK_LOOP && is_installed(p, t) &&
	    !collected(p, table, pt.trace))
		msp_tally_add(tally,
			      pt.trace && table_entry(p, table, pt.trace, &at) &&
				      read_trace(p, at, &first) && first.startpt == t->startpt,
			      "0x%" PRIx64 " has a loop, but trace %u, which starts elsewhere",
			      t->startpt, pt.trace);
}

/* Prototypes without traces say 0; the others say one that starts in them. */
static void check_proto_traces(struct msp_prover *p, struct msp_tally *tally,
			       const struct table *table)
{
	unsigned int gone = 0, there = 0;

	for (unsigned int i = 0; i < p->proto_count; i++) {
		struct msp_proof_proto pt;
		struct trace t;
		uint64_t at;

		if (!msp_proof_read_proto(p, p->proto[i], &pt) || !pt.trace)
			continue;
		if (collected(p, table, pt.trace)) {
			gone++;
			continue;
		}
		there++;
		msp_tally_add(tally,
			      table_entry(p, table, pt.trace, &at) && read_trace(p, at, &t) &&
				      t.startpt == pt.at,
			      "0x%" PRIx64 " has trace %u, which starts elsewhere", pt.at,
			      pt.trace);
	}
	if (gone)
		msp_tally_add(tally, there > gone,
			      "of %u prototypes with traces %u have one that is not there",
			      there + gone, gone);
}

struct snap {
	uint32_t mapofs;
	uint16_t ref, mcofs;
	uint8_t nslots, nent;
};

static bool read_snap(struct msp_prover *p, const struct trace *t, unsigned int i, struct snap *s)
{
	const struct msp_lj_layout *l = p->layout;
	uint64_t at = t->snap + (uint64_t)i * (uint32_t)l->snap_size;

	s->mcofs = 0;
	return read_count(p, at + (uint64_t)l->snap_mapofs, &s->mapofs) &&
	       msp_proof_u16(p, at + (uint64_t)l->snap_ref, &s->ref) &&
	       (l->snap_mcofs < 0 || msp_proof_u16(p, at + (uint64_t)l->snap_mcofs, &s->mcofs)) &&
	       msp_proof_u8(p, at + (uint64_t)l->snap_nslots, &s->nslots) &&
	       msp_proof_u8(p, at + (uint64_t)l->snap_nent, &s->nent);
}

/* The entries' slots count up below nslots; behind them is the position, shifted, with the base. */
static void check_entries(struct msp_prover *p, struct msp_tally *tally, struct table *table,
			  const struct trace *t, unsigned int i, const struct snap *s)
{
	uint64_t map = t->snapmap + (uint64_t)s->mapofs * SNAP_ENTRY_SIZE, pcbase;
	uint32_t entry, slot = 0;
	bool rising = true;

	for (unsigned int k = 0; k < s->nent; k++) {
		if (!msp_proof_u32(p, map + k * SNAP_ENTRY_SIZE, &entry))
			return;
		rising = rising && (!k || entry >> 24 > slot);
		slot = entry >> 24;
	}
	table->with_entries += s->nent > 0;
	table->up_to_last += s->nent > 0 && slot + 1 == s->nslots;
	msp_tally_add(tally, rising && (!s->nent || slot < s->nslots),
		      "trace %u: snapshot %u has slot %u of %u", t->traceno, i, slot, s->nslots);
	if (!msp_proof_ref(p, map + s->nent * SNAP_ENTRY_SIZE, &pcbase))
		pcbase = 0;
	if (p->layout->gc64)
		pcbase >>= 8;
	msp_tally_add(tally, msp_proof_pointer(pcbase, 4),
		      "trace %u: snapshot %u has position 0x%" PRIx64, t->traceno, i, pcbase);
}

/* Entries of a map behind the slots: the position, with GC64 in two; else then a link a frame. */
static bool fits_map(const struct msp_prover *p, const struct trace *t, const struct snap *s,
		     bool last)
{
	uint32_t end = s->mapofs + s->nent + (p->layout->gc64 ? 2 : 1);

	if (!last)
		return end <= t->nsnapmap;
	return p->layout->gc64 ? end == t->nsnapmap
			       : end <= t->nsnapmap && t->nsnapmap - end <= MAX_LINKS;
}

static void check_snaps(struct msp_prover *p, struct msp_tally *tally, struct table *table,
			const struct trace *t)
{
	struct snap s, before = {.ref = REF_FIRST};

	for (unsigned int i = 0; i < t->nsnap && i < MAX_SNAPS; i++) {
		if (!msp_tally_add(tally, read_snap(p, t, i, &s),
				   "trace %u: snapshot %u is not readable", t->traceno, i))
			return;
		if (!msp_tally_add(tally,
				   (i ? s.mapofs > before.mapofs : s.mapofs == 0) &&
					   fits_map(p, t, &s, false),
				   "trace %u: snapshot %u has map %u+%u of %u", t->traceno, i,
				   s.mapofs, s.nent, t->nsnapmap))
			return;
		msp_tally_add(tally, s.ref >= before.ref && s.ref <= t->nins,
			      "trace %u: snapshot %u is at 0x%x of 0x%x", t->traceno, i, s.ref,
			      t->nins);
		msp_tally_add(tally, s.mcofs >= before.mcofs && s.mcofs <= t->szmcode,
			      "trace %u: snapshot %u has code at %u of %u", t->traceno, i, s.mcofs,
			      t->szmcode);
		check_entries(p, tally, table, t, i, &s);
		before = s;
	}
	if (p->layout->snap_mcofs >= 0 && t->nsnap > 2)
		msp_tally_add(tally, before.mcofs > 0, "trace %u: all snapshots have code at 0",
			      t->traceno);
	msp_tally_add(tally, t->nsnap && fits_map(p, t, &before, true),
		      "trace %u: last snapshot has map %u+%u of %u", t->traceno, before.mapofs,
		      before.nent, t->nsnapmap);
}

static void check_parts(struct msp_prover *p, struct msp_tally *tally, struct table *table,
			const struct trace *t)
{
	uint64_t ir = t->ir + (uint64_t)t->nk * IR_SIZE;
	uint64_t snap = ir + (uint64_t)(t->nins - t->nk) * IR_SIZE;

	if (!msp_tally_add(tally,
			   t->nk && t->nk <= MSP_REF_BIAS && t->nins > MSP_REF_BIAS &&
				   t->nins < 0x10000,
			   "trace %u has IR 0x%x to 0x%x", t->traceno, t->nk, t->nins))
		return;
	if (!msp_tally_add(tally, ir > t->at && ir - t->at >= 88 && ir - t->at <= 256,
			   "trace %u has IR at +%" PRId64, t->traceno, (int64_t)(ir - t->at)))
		return;
	if (!msp_tally_add(tally, t->snap == snap,
			   "trace %u has snapshots at +%" PRId64 ", not +%" PRId64, t->traceno,
			   (int64_t)(t->snap - t->at), (int64_t)(snap - t->at)))
		return;
	snap += (uint64_t)t->nsnap * (uint32_t)p->layout->snap_size;
	if (!msp_tally_add(tally, t->snapmap == snap,
			   "trace %u has its map at +%" PRId64 ", not +%" PRId64, t->traceno,
			   (int64_t)(t->snapmap - t->at), (int64_t)(snap - t->at)))
		return;
	check_snaps(p, tally, table, t);
}

/* x86-64: sub or add rsp, imm at p; how much it makes room for. */
static bool x64_stack_adjust(const uint8_t *p, uint32_t *room)
{
	int32_t imm = (int8_t)p[3];

	if (p[0] != 0x48 || (p[1] != 0x83 && p[1] != 0x81) || (p[2] != 0xec && p[2] != 0xc4))
		return false;
	if (p[1] == 0x81)
		memcpy(&imm, p + 3, 4);
	*room = (uint32_t)(p[2] == 0xec ? imm : -imm);
	return true;
}

/* x86-64: mov dword [r14 + disp32], imm32; without GC64: mov dword [disp32], imm32. */
static bool x64_store_state(const uint8_t *p, bool gc64, int32_t *disp, uint32_t *imm)
{
	static const uint8_t by_register[] = {0x41, 0xc7, 0x86}, absolute[] = {0xc7, 0x04, 0x25};

	if (memcmp(p, gc64 ? by_register : absolute, sizeof(absolute)) != 0)
		return false;
	memcpy(disp, p + 3, 4);
	memcpy(imm, p + 7, 4);
	return true;
}

/* arm64: b, br, b.cond, cbz, tbz and their opposites. */
static bool arm64_is_jump(uint32_t word)
{
	return (word & 0xfc000000) == 0x14000000 || (word & 0xfffffc1f) == 0xd61f0000 ||
	       (word & 0xff000010) == 0x54000000 || (word & 0x7c000000) == 0x34000000;
}

/* A trace ends in a jump: to another trace, to the interpreter, or back. */
static bool ends_in_jump(struct msp_prover *p, const struct trace *t)
{
	uint8_t b[6];
	uint32_t word;

	if (p->layout->arch == MSP_ARCH_ARM64)
		return t->szmcode >= 4 && msp_proof_u32(p, t->mcode + t->szmcode - 4, &word) &&
		       arm64_is_jump(word);
	if (t->szmcode < sizeof(b) ||
	    !msp_proof_read(p, t->mcode + t->szmcode - sizeof(b), b, sizeof(b)))
		return false;
	return b[1] == 0xe9 || b[4] == 0xeb || (b[4] & 0xf0) == 0x70 ||
	       (b[0] == 0x0f && (b[1] & 0xf0) == 0x80);
}

/* arm64: sub or add sp, sp, imm; how much it makes room for. */
static bool arm64_stack_adjust(uint32_t word, uint32_t *room)
{
	if ((word & 0xbfc003ff) != 0x910003ff)
		return false;
	*room = (word >> 10 & 0xfff) * (word >> 30 & 1 ? 1U : -1U);
	return true;
}

/*
 * arm64: behind the code is where its exits go (lj_asm_arm64.h): str lr, [sp]; bl handler (or the
 * same through a register); movz w0, number.
 */
#define ARM64_EXIT_WORDS 8
static bool arm64_exit_number(const uint32_t *word, uint32_t *number)
{
	for (unsigned int i = 0; i + 3 < ARM64_EXIT_WORDS; i++) {
		unsigned int at = word[i + 1] >> 26 == 0x25 ? i + 2 : i + 3;

		if (word[i] != 0xf90003fe || (word[at] & 0xffe0001f) != 0x52800000)
			continue;
		*number = word[at] >> 5 & 0xffff;
		return true;
	}
	return false;
}

static void arm64_check_mcode(struct msp_prover *p, struct msp_tally *tally, const struct trace *t)
{
	uint32_t head[4], exits[ARM64_EXIT_WORDS], room = 0, number = 0;

	if (msp_proof_read(p, t->mcode + t->szmcode, exits, sizeof(exits)))
		msp_tally_add(tally, arm64_exit_number(exits, &number) && number == t->traceno,
			      "trace %u at 0x%" PRIx64 " has exits of trace %u", t->traceno,
			      t->mcode, number);
	if (t->root || !msp_proof_read(p, t->mcode, head, sizeof(head)))
		return;
	for (unsigned int i = 0; i < 4 && !room; i++)
		arm64_stack_adjust(head[i], &room);
	msp_tally_add(tally, room == t->spadjust, "trace %u makes room for %u, says %u", t->traceno,
		      room, t->spadjust);
}

/* A root trace makes room on the stack and (x86-64) stores its number as the VM's state. */
static void check_mcode(struct msp_prover *p, struct msp_tally *tally, const struct trace *t)
{
	const struct msp_lj_layout *l = p->layout;
	uint8_t head[48];
	uint32_t room = 0, number = 0;
	int32_t disp = 0;
	bool stored = false;

	if (!msp_tally_add(tally,
			   t->szmcode && t->szmcode < MAX_MCODE &&
				   msp_proof_address(p, t->mcode, 1) && t->spadjust % 8 == 0 &&
				   t->spadjust <= MAX_SPADJUST,
			   "trace %u has %u bytes at 0x%" PRIx64 ", stack %u", t->traceno,
			   t->szmcode, t->mcode, t->spadjust))
		return;
	msp_tally_add(tally, ends_in_jump(p, t), "trace %u of %u bytes does not end in a jump",
		      t->traceno, t->szmcode);
	if (l->arch == MSP_ARCH_ARM64) {
		arm64_check_mcode(p, tally, t);
		return;
	}
	if (t->root || !msp_proof_read(p, t->mcode, head, sizeof(head)))
		return;
	for (unsigned int i = 0; i + 11 <= sizeof(head) && !stored; i++) {
		if (!room)
			x64_stack_adjust(head + i, &room);
		stored = x64_store_state(head + i, l->gc64, &disp, &number);
	}
	if (!msp_tally_add(tally, stored && number == t->traceno,
			   "trace %u at 0x%" PRIx64 " does not store its number", t->traceno,
			   t->mcode))
		return;
	disp = l->gc64 ? disp + l->dispatch_to_g : (int32_t)((uint32_t)disp - (uint32_t)p->g);
	msp_tally_add(tally, disp == l->g_vmstate, "trace %u stores its number at g + %d",
		      t->traceno, disp);
	msp_tally_add(tally, room == t->spadjust, "trace %u makes room for %u, says %u", t->traceno,
		      room, t->spadjust);
}

/*
 * lj_trace.c: right before the table's size is where the search for a free number starts, below
 * which all are taken. It comes to the end when the table is full, and only then.
 */
static bool plausible_free(struct msp_prover *p, const struct table *table)
{
	const struct msp_lj_layout *l = p->layout;
	uint64_t at = table->J + (uint64_t)(int64_t)l->J_sizetrace - 4, entry;
	uint32_t first;

	if (!msp_proof_u32(p, at, &first) || first > table->size)
		return false;
	for (uint32_t i = 1; i < table->size; i++) {
		if (!msp_proof_ref(p, table->trace + i * msp_proof_ref_size(p), &entry))
			return false;
		if (!entry)
			return i >= first;
	}
	return first + 1 >= table->size; /* one less: the number that made the table grow */
}

/* Grown by doubling from 8, up to maxtrace + 1, which is a parameter in the jit_State. */
static bool plausible_size(struct msp_prover *p, const struct table *table)
{
	uint32_t word;

	if (table->size >= 8 && (table->size & (table->size - 1)) == 0)
		return true;
	for (unsigned int off = 0; off < JIT_STATE_SIZE; off += 4) {
		if (msp_proof_u32(p, table->J + off, &word) && word == table->size - 1 &&
		    off != (unsigned int)p->layout->J_sizetrace)
			return true;
	}
	return false;
}

static bool read_table(struct msp_prover *p, struct table *table)
{
	const struct msp_lj_layout *l = p->layout;

	table->J = p->g + (uint64_t)(int64_t)l->g_to_J;
	if (!msp_proof_u64(p, table->J + (uint64_t)(int64_t)l->J_trace, &table->trace) ||
	    !msp_proof_u32(p, table->J + (uint64_t)(int64_t)l->J_sizetrace, &table->size)) {
		msp_proof_fail(p, MSP_LJ_CHECK_TRACES, "jit_State at 0x%" PRIx64 " is not readable",
			       table->J);
		return false;
	}
	/* None yet. */
	if (!table->trace && !table->size)
		return false;
	if (!table->size || table->size > MAX_TRACES || !msp_proof_pointer(table->trace, 8) ||
	    !plausible_size(p, table) || !plausible_free(p, table)) {
		msp_proof_fail(p, MSP_LJ_CHECK_TRACES, "table at 0x%" PRIx64 " has %u entries",
			       table->trace, table->size);
		return false;
	}
	return true;
}

void msp_proof_traces(struct msp_prover *p)
{
	struct msp_tally numbers = {0}, parts = {0}, code = {0};
	struct table table = {0};
	unsigned int checked = 0;

	if (!read_table(p, &table))
		return;
	for (uint32_t i = 1; i < table.size && checked < MAX_CHECKED; i++) {
		struct trace t;
		uint64_t at;

		if (!table_entry(p, &table, i, &at))
			continue;
		checked++;
		if (!msp_tally_add(&numbers,
				   msp_proof_is(p, at, MSP_GCT_TRACE) && read_trace(p, at, &t),
				   "entry %u, 0x%" PRIx64 ", is no trace", i, at) ||
		    !msp_tally_add(&numbers, t.traceno == i, "entry %u is trace %u", i, t.traceno))
			continue;
		check_links(p, &numbers, &table, &t);
		check_start(p, &numbers, &table, &t);
		check_parts(p, &parts, &table, &t);
		check_mcode(p, &code, &t);
	}
	check_proto_traces(p, &numbers, &table);
	if (table.with_entries >= MIN_SNAPSHOTS)
		msp_tally_add(&parts, table.up_to_last * 8 >= table.with_entries,
			      "%u of %u snapshots end with their last slot", table.up_to_last,
			      table.with_entries);
	msp_tally_result(p, MSP_LJ_CHECK_TRACES, &numbers);
	msp_tally_result(p, MSP_LJ_CHECK_SNAPSHOTS, &parts);
	msp_tally_result(p, MSP_LJ_CHECK_MCODE, &code);
}

/* SPDX-License-Identifier: MIT */
/*
 * The table of aborts in a jit_State, behind the table of traces and before the
 * end of the GG_State (lj_jit.h, HotPenalty):
 *
 *	64 entries: bytecode position | 16 bits penalty | 16 bits reason | with GC64 32 bits of 0
 *	the next entry to be taken, 32 bits
 *
 * Where exactly differs between builds, so it is looked for, and proved by what
 * it is: entries are used round robin, and a flush empties all but the index. So
 * the used ones are in a row that ends before the index, all others are 0, and
 * each used one has a position, and numbers in their bounds.
 */
#include "luajit/jit_refusals.h"

#include <string.h>

#include "luajit/trace_reader.h"
#include "moonspy/moonspy.h"

#define SEARCHED 8192 /* bytes from the table of traces on */
#define PIECE 512
#define PENALTY_MIN 72
#define PENALTY_MAX 60000

struct search {
	const struct msp_lj_layout *layout;
	const struct msp_memory *mem;
	const struct msp_lj_protos *protos;
	uint8_t bytes[SEARCHED];
	size_t size;
	uint32_t entry; /* size of one */
};

static struct msp_lj_abort entry_at(const struct search *s, size_t at)
{
	size_t ref = s->layout->gc64 ? 8 : 4;
	const uint8_t *p = s->bytes + at;

	return (struct msp_lj_abort){.pc = ref == 8 ? msp_get64(p) : msp_get32(p),
				     .penalty = msp_get16(p + ref),
				     .reason = msp_get16(p + ref + 2)};
}

static bool is_zero(const uint8_t *p, size_t n)
{
	while (n && !*p)
		p++, n--;
	return n == 0;
}

/* Its position need not be there any more: functions are collected. */
static bool is_used(const struct search *s, size_t at)
{
	struct msp_lj_abort a = entry_at(s, at);

	return a.pc >= 4096 && a.pc < 1ull << 47 && !(a.pc & 3) && a.penalty >= PENALTY_MIN &&
	       a.penalty <= PENALTY_MAX && msp_lj_reason_text(a.reason) &&
	       (s->entry == 8 || is_zero(s->bytes + at + 12, 4));
}

/* Is the position in a function that is there, where traces begin? */
static bool is_known(const struct search *s, uint64_t pc)
{
	uint32_t ins;
	bool loop;

	return msp_lj_protos_at(s->protos, s->layout, pc) && !msp_read(s->mem, pc, &ins, 4) &&
	       msp_lj_is_hot_place(s->layout, ins, &loop);
}

/* Is the table at that place? Then out has what is in it. */
static bool is_table(const struct search *s, size_t at, struct msp_lj_aborts *out)
{
	uint32_t next = msp_get32(s->bytes + at + (size_t)MSP_LJ_ABORTS * s->entry), known = 0, i;
	bool used;

	*out = (struct msp_lj_aborts){0};
	if (next >= MSP_LJ_ABORTS)
		return false;
	/* From the newest one back: used ones, then none. */
	for (uint32_t k = 1; k <= MSP_LJ_ABORTS; k++) {
		i = (next - k) % MSP_LJ_ABORTS;
		used = is_used(s, at + (size_t)i * s->entry);
		if (!used && !is_zero(s->bytes + at + (size_t)i * s->entry, s->entry))
			return false;
		if (used && out->count != k - 1)
			return false;
		if (!used)
			continue;
		out->abort[MSP_LJ_ABORTS - k] = entry_at(s, at + (size_t)i * s->entry);
		known += is_known(s, out->abort[MSP_LJ_ABORTS - k].pc);
		out->count++;
	}
	memmove(out->abort, out->abort + MSP_LJ_ABORTS - out->count,
		out->count * sizeof(*out->abort));
	/* Never emptied, it was filled from its beginning on. */
	out->flushed = out->count < MSP_LJ_ABORTS && out->count != next;
	out->found = known > 0;
	return out->found;
}

void msp_lj_aborts_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			uint64_t g, const struct msp_lj_protos *protos, struct msp_lj_aborts *out)
{
	struct search s = {
		.layout = layout, .mem = mem, .protos = protos, .entry = layout->gc64 ? 16 : 8};
	uint64_t from = g + (int64_t)layout->g_to_J + (int64_t)layout->J_trace;
	size_t table = (size_t)MSP_LJ_ABORTS * s.entry + 4;
	struct msp_lj_aborts other;
	bool found = false;

	*out = (struct msp_lj_aborts){0};
	while (s.size < SEARCHED && !msp_read(mem, from + s.size, s.bytes + s.size, PIECE))
		s.size += PIECE;
	for (size_t at = 0; at + table <= s.size; at += layout->gc64 ? 8 : 4) {
		if (!is_table(&s, at, found ? &other : out))
			continue;
		if (found) { /* two of them: it is not known which */
			*out = (struct msp_lj_aborts){0};
			return;
		}
		found = true;
	}
	if (!found)
		*out = (struct msp_lj_aborts){0};
}

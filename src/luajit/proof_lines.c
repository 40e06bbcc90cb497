/* SPDX-License-Identifier: MIT */
/*
 * A nested prototype was compiled while its parent was: it has the parent's
 * chunk name and lies between its lines, and the parent creates it (BC_FNEW)
 * in the line where it ends.
 */
#include "luajit/proof.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define MAX_PAIRS 64
#define MAX_LINE_BC 4096

struct pair {
	struct msp_proof_proto parent, child;
	uint32_t index; /* of the child among the parent's constants */
};

struct lines {
	struct pair pair[MAX_PAIRS];
	unsigned int count;
	unsigned int votes[256]; /* opcodes that refer to a child */
};

static bool has_lines(const struct msp_proof_proto *pt)
{
	return pt->gct == MSP_GCT_PROTO && msp_proof_proto_bounded(pt) && pt->lineinfo &&
	       pt->sizebc <= MAX_LINE_BC;
}

static void add_children(struct msp_prover *p, const struct msp_proof_proto *parent,
			 struct lines *l)
{
	for (uint32_t i = 1; i <= parent->sizekgc && i <= 256 && l->count < MAX_PAIRS; i++) {
		struct pair *pair = &l->pair[l->count];
		uint64_t obj;

		if (!msp_proof_ref(p, parent->k - i * msp_proof_ref_size(p), &obj) ||
		    !msp_proof_is(p, obj, MSP_GCT_PROTO) ||
		    !msp_proof_read_proto(p, obj, &pair->child) || !has_lines(&pair->child))
			continue;
		pair->parent = *parent;
		pair->index = i - 1;
		l->count++;
	}
}

static bool instruction(struct msp_prover *p, const struct msp_proof_proto *pt, uint32_t pos,
			uint32_t *ins)
{
	return msp_proof_u32(p, pt->at + (uint64_t)(int64_t)p->layout->pt_size + pos * 4ULL, ins);
}

/* Is that constant of the parent a prototype? */
static bool refers_to_child(struct msp_prover *p, const struct msp_proof_proto *parent,
			    uint32_t index)
{
	uint64_t obj;

	return index < parent->sizekgc &&
	       msp_proof_ref(p, parent->k - (index + 1ULL) * msp_proof_ref_size(p), &obj) &&
	       msp_proof_is(p, obj, MSP_GCT_PROTO);
}

/* Which opcode creates closures: the one that refers to children, and to nothing else. */
static void vote(struct msp_prover *p, struct lines *l)
{
	bool veto[256] = {false};
	uint32_t ins;

	for (unsigned int i = 0; i < l->count; i++) {
		const struct msp_proof_proto *parent = &l->pair[i].parent;

		for (uint32_t pos = 1; pos < parent->sizebc; pos++) {
			if (!instruction(p, parent, pos, &ins))
				break;
			if (!refers_to_child(p, parent, ins >> 16))
				veto[ins & 0xff] = true;
			else if (ins >> 16 == l->pair[i].index)
				l->votes[ins & 0xff]++;
		}
	}
	for (unsigned int op = 0; op < 256; op++) {
		if (veto[op])
			l->votes[op] = 0;
	}
}

/* Line of a position, relative to the prototype's first. */
static bool line_delta(struct msp_prover *p, const struct msp_proof_proto *pt, uint32_t pos,
		       uint32_t *out)
{
	uint8_t b;
	uint16_t h;

	if (pt->numline < 256) {
		if (!msp_proof_u8(p, pt->lineinfo + pos - 1, &b))
			return false;
		*out = b;
	} else if (pt->numline < 65536) {
		if (!msp_proof_u16(p, pt->lineinfo + (pos - 1) * 2ULL, &h))
			return false;
		*out = h;
	} else {
		return msp_proof_u32(p, pt->lineinfo + (pos - 1) * 4ULL, out);
	}
	return true;
}

/*
 * Is there such an instruction for the child in the line where the child ends? Or where it begins: so
 * for "function f()" where f is a local variable that was there before. -1: there is none at all.
 */
static int ends_where_created(struct msp_prover *p, const struct pair *pair, unsigned int op)
{
	uint32_t ins, delta, line, first = pair->child.firstline;
	bool any = false;

	for (uint32_t pos = 1; pos < pair->parent.sizebc; pos++) {
		if (!instruction(p, &pair->parent, pos, &ins) || (ins & 0xff) != op ||
		    ins >> 16 != pair->index)
			continue;
		any = true;
		if (!line_delta(p, &pair->parent, pos, &delta))
			continue;
		line = pair->parent.firstline + delta;
		if (line == first || line == first + pair->child.numline)
			return 1;
	}
	return any ? 0 : -1;
}

/*
 * In a small program several opcodes may seem to create closures, by an
 * operand that happens to fit. The right one is right about the lines most often.
 */
static unsigned int choose(struct msp_prover *p, const struct lines *l)
{
	unsigned int best = 0, votes = 0;
	int score, most = INT_MIN;

	for (unsigned int op = 0; op < 256; op++)
		votes = l->votes[op] > votes ? l->votes[op] : votes;
	for (unsigned int op = 0; op < 256; op++) {
		if (!votes || l->votes[op] * 2 <= votes)
			continue;
		score = 0;
		for (unsigned int i = 0; i < l->count; i++) {
			int created = ends_where_created(p, &l->pair[i], op);

			score += created > 0 ? 1 : created ? 0 : -1;
		}
		if (score > most) {
			most = score;
			best = op;
		}
	}
	return best;
}

static void check_pair(struct msp_prover *p, struct msp_tally *t, const struct pair *pair,
		       unsigned int op)
{
	const struct msp_proof_proto *a = &pair->parent, *b = &pair->child;

	msp_tally_add(t, a->chunkname == b->chunkname,
		      "0x%" PRIx64 " and its 0x%" PRIx64 " have different chunk names", a->at,
		      b->at);
	msp_tally_add(t,
		      a->firstline <= b->firstline && (uint64_t)b->firstline + b->numline <=
							      (uint64_t)a->firstline + a->numline,
		      "0x%" PRIx64 " has lines %u+%u, its 0x%" PRIx64 " %u+%u", a->at, a->firstline,
		      a->numline, b->at, b->firstline, b->numline);
	msp_tally_add(t, ends_where_created(p, pair, op) != 0,
		      "0x%" PRIx64 " is not created in line %u", b->at, b->firstline + b->numline);
}

/* No instruction is behind the last line. */
static void check_last(struct msp_prover *p, struct msp_tally *t, const struct msp_proof_proto *pt)
{
	uint32_t delta = 0, most = 0;

	for (uint32_t pos = 1; pos < pt->sizebc; pos++) {
		if (!line_delta(p, pt, pos, &delta))
			break;
		most = delta > most ? delta : most;
	}
	msp_tally_add(t, most <= pt->numline, "0x%" PRIx64 " has line +%u of %u", pt->at, most,
		      pt->numline);
}

void msp_proof_lines(struct msp_prover *p)
{
	struct msp_tally t = {0};
	struct lines l = {.count = 0};
	unsigned int op;

	for (unsigned int i = 0; i < p->proto_count; i++) {
		struct msp_proof_proto pt;

		if (!msp_proof_read_proto(p, p->proto[i], &pt) || !has_lines(&pt))
			continue;
		check_last(p, &t, &pt);
		add_children(p, &pt, &l);
	}
	vote(p, &l);
	op = choose(p, &l);
	for (unsigned int i = 0; i < l.count && l.votes[op]; i++)
		check_pair(p, &t, &l.pair[i], op);
	msp_tally_result(p, MSP_LJ_CHECK_LINES, &t);
}

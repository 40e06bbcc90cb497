/* SPDX-License-Identifier: MIT */
/*
 * CFI of arm64 that holds only where a function calls another (clang 14, and others with
 * -fno-asynchronous-unwind-tables): of a prologue it tells the end, of an epilogue nothing. There
 * the code itself says where the frame is: each function is followed from its first instruction along
 * all its branches. What is found is taken only if it agrees with the CFI at each call, wherever ways
 * meet, and at the end, where nothing may be left on the stack; else the function stays as it is.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "elf/arm64.h"
#include "elf/bytes.h"
#include "elf/cfi.h"
#include "moonspy/moonspy.h"

/* Instructions of a function; larger ones are left as they are. */
#define FUNCTION_MAX (1u << 16)
/* Bytes; rows of other frames are left as they are. */
#define FRAME_MAX (1 << 28)
#define LOST INT32_MIN

/* Where a frame is before an instruction. */
struct frame {
	int32_t sp, fp;		       /* how far the CFA is above sp, x29; LOST: not known */
	int16_t saved[MSP_SLOT_COUNT]; /* as in a rule */
};

/* A function that is followed. */
struct function {
	const struct msp_rows *rows;
	const uint8_t *code;
	uint32_t start, count; /* image-relative; instructions */
	struct frame *frames;  /* of each */
	uint8_t *seen;
	uint32_t *todo, todo_count; /* where ways go on */
	struct frame at_call;	    /* the last one that was met */
};

/* What is known of one image's code. */
struct scan {
	const struct msp_rows *rows;
	struct msp_rows *found;
	struct msp_bytes code; /* of a segment */
	uint32_t addr;	       /* where that is */
	struct function function;
};

static const struct msp_rule *rule_at(const struct msp_rows *rows, uint32_t addr)
{
	return &rows->rules[msp_rows_find(rows, addr)];
}

static bool same_rule_cfa(const struct msp_rule *a, const struct msp_rule *b)
{
	return a->cfa_kind == b->cfa_kind && a->cfa_reg == b->cfa_reg && a->cfa_off == b->cfa_off;
}

/* The frame that a rule tells of. */
static bool from_rule(const struct msp_rule *rule, struct frame *frame)
{
	if (rule->cfa_kind != MSP_CFA_REG || rule->flags & (MSP_RULE_THROWS | MSP_RULE_LANDS) ||
	    (rule->cfa_reg != MSP_A64_SP && rule->cfa_reg != MSP_A64_FP) ||
	    rule->cfa_off <= -FRAME_MAX || rule->cfa_off >= FRAME_MAX)
		return false;
	frame->sp = rule->cfa_reg == MSP_A64_SP ? rule->cfa_off : LOST;
	frame->fp = rule->cfa_reg == MSP_A64_FP ? rule->cfa_off : LOST;
	memcpy(frame->saved, rule->saved, sizeof(frame->saved));
	return true;
}

static bool same_cfa(const struct msp_rule *rule, const struct frame *frame)
{
	return rule->cfa_kind == MSP_CFA_REG &&
	       ((rule->cfa_reg == MSP_A64_SP && rule->cfa_off == frame->sp) ||
		(rule->cfa_reg == MSP_A64_FP && rule->cfa_off == frame->fp));
}

static bool same(const struct msp_rule *rule, const struct frame *frame)
{
	return same_cfa(rule, frame) && !memcmp(rule->saved, frame->saved, sizeof(frame->saved));
}

/* Does the rule lead to the caller as well? What has been restored may still be read where it was saved. */
static bool as_good(const struct msp_rule *rule, const struct frame *frame)
{
	if (!same_cfa(rule, frame))
		return false;
	for (int i = 0; i < MSP_SLOT_COUNT; i++) {
		int at = rule->saved[i];

		if (at != frame->saved[i] &&
		    (frame->saved[i] != MSP_SAVED_SAME || frame->sp == LOST ||
		     at >= MSP_SAVED_UNDEFINED || at < -frame->sp))
			return false;
	}
	return true;
}

/* The caller's frame, and all that the function has saved is back. */
static bool is_empty(const struct frame *frame)
{
	for (int i = 0; i < MSP_SLOT_COUNT; i++)
		if (frame->saved[i] != MSP_SAVED_SAME)
			return false;
	return frame->sp == 0;
}

/* -1: none of those that rules tell of. */
static int slot_of(uint8_t reg)
{
	if (reg == MSP_A64_LR)
		return MSP_SLOT_RA;
	return reg >= 19 && reg <= MSP_A64_FP ? reg - 18 : -1;
}

static void save_or_restore(const struct msp_a64_op *op, struct frame *frame)
{
	for (uint32_t i = 0; i < op->reg_count; i++) {
		int slot = slot_of(op->reg[i]);
		int32_t at = frame->sp == LOST ? LOST : op->imm + 8 * (int32_t)i - frame->sp;

		if (op->reg[i] == MSP_A64_FP && op->kind == MSP_A64_LOAD)
			frame->fp = LOST;
		if (slot < 0 || at < INT16_MIN || at >= 0)
			continue;
		if (op->kind == MSP_A64_STORE && frame->saved[slot] == MSP_SAVED_SAME)
			frame->saved[slot] = (int16_t)at;
		else if (op->kind == MSP_A64_LOAD && frame->saved[slot] == at)
			frame->saved[slot] = MSP_SAVED_SAME;
	}
}

/* The frame after an instruction. False: nobody knows where it is. */
static bool step(const struct msp_a64_op *op, struct frame *frame)
{
	switch (op->kind) {
	case MSP_A64_FP_SP:
		frame->fp = frame->sp == LOST ? LOST : frame->sp - op->imm;
		break;
	case MSP_A64_SP_FP:
		frame->sp = frame->fp == LOST ? LOST : frame->fp - op->imm;
		break;
	case MSP_A64_LOSES_SP:
		frame->sp = LOST;
		break;
	case MSP_A64_ADD_SP:
		if (frame->sp != LOST)
			frame->sp -= op->imm;
		break;
	case MSP_A64_STORE:
	case MSP_A64_LOAD:
		save_or_restore(op, frame);
		if (frame->sp != LOST)
			frame->sp -= op->moves;
		break;
	default:
		break;
	}
	if (frame->sp == LOST)
		return frame->fp != LOST;
	return frame->sp >= 0 && frame->sp < FRAME_MAX;
}

/* A way leads to instruction n. False: another one has led there with another frame. */
static bool meet(struct function *f, uint32_t n, const struct frame *frame)
{
	if (f->seen[n])
		return !memcmp(&f->frames[n], frame, sizeof(*frame));
	f->seen[n] = 1;
	f->frames[n] = *frame;
	f->todo[f->todo_count++] = n;
	return true;
}

/* A jump from instruction n: within the function, or out of it with its caller's frame. */
static bool jump(struct function *f, uint32_t n, const struct msp_a64_op *op,
		 const struct frame *frame)
{
	int64_t to = (int64_t)n + op->imm / 4;

	if (to < 0 || to >= f->count)
		return is_empty(frame);
	return meet(f, (uint32_t)to, frame);
}

/* Goes on from instruction n. */
static bool follow_one(struct function *f, uint32_t n)
{
	struct frame frame = f->frames[n];
	struct msp_a64_op op;

	msp_a64_decode(msp_get32(f->code + 4 * (size_t)n), &op);
	switch (op.kind) {
	case MSP_A64_RETURN:
		return is_empty(&frame);
	case MSP_A64_LEAVES:
		return true;
	case MSP_A64_JUMP:
		return jump(f, n, &op, &frame);
	case MSP_A64_BRANCH:
		if (!jump(f, n, &op, &frame))
			return false;
		break;
	case MSP_A64_CALL:
		if (!same(rule_at(f->rows, f->start + 4 * n), &frame))
			return false;
		f->at_call = frame;
		break;
	default:
		if (!step(&op, &frame))
			return false;
	}
	return n + 1 == f->count || meet(f, n + 1, &frame);
}

/* The frame where no branch leads to, as the CFI has it. That may tell of x29 only; then sp is where it is at calls. */
static bool frame_of_rule(const struct function *f, uint32_t n, struct frame *frame)
{
	const struct msp_rule *rule = rule_at(f->rows, f->start + 4 * n);

	if (!from_rule(rule, frame))
		return false;
	if (frame->sp == LOST && same(rule, &f->at_call))
		*frame = f->at_call;
	return true;
}

/* All ways from the start on; then what no branch leads to: cases of a switch, landing pads. */
static bool follow(struct function *f)
{
	struct frame frame;

	memset(f->seen, 0, f->count);
	f->todo_count = 0;
	f->at_call.sp = f->at_call.fp = LOST;
	for (uint32_t n = 0; n < f->count; n++) {
		if (f->seen[n] || !frame_of_rule(f, n, &frame))
			continue;
		meet(f, n, &frame);
		while (f->todo_count)
			if (!follow_one(f, f->todo[--f->todo_count]))
				return false;
	}
	return true;
}

static int add_row(struct scan *s, uint32_t n, const struct msp_rule *rule)
{
	const struct function *f = &s->function;
	const struct frame *frame = &f->frames[n];
	struct msp_rule better = *rule;
	int index = 0;

	if (f->seen[n] && rule->cfa_kind == MSP_CFA_REG && !as_good(rule, frame)) {
		better.cfa_reg = frame->sp == LOST ? MSP_A64_FP : MSP_A64_SP;
		better.cfa_off = frame->sp == LOST ? frame->fp : frame->sp;
		memcpy(better.saved, frame->saved, sizeof(better.saved));
		index = msp_rows_intern(s->found, &better);
		if (index < 0)
			return index;
	}
	return msp_rows_add(s->found, f->start + 4 * n, (uint32_t)index);
}

static int add_rows(struct scan *s)
{
	const struct function *f = &s->function;
	int err = 0;

	for (uint32_t n = 0; !err && n < f->count; n++)
		err = add_row(s, n, rule_at(s->rows, f->start + 4 * n));
	return err ? err : msp_rows_add(s->found, f->start + 4 * f->count, 0);
}

/* Does the instruction put the CFA elsewhere, by a rule that also holds behind it? */
static bool is_untold(const struct msp_a64_op *op, const struct msp_rule *rule)
{
	if (rule->cfa_kind != MSP_CFA_REG)
		return false;
	if (rule->cfa_reg == MSP_A64_SP)
		return op->moves || (op->kind == MSP_A64_ADD_SP && op->imm);
	return rule->cfa_reg == MSP_A64_FP && op->kind == MSP_A64_LOAD && op->reg_count &&
	       (op->reg[0] == MSP_A64_FP || op->reg[op->reg_count - 1] == MSP_A64_FP);
}

/* Does the CFI not tell of each instruction where the frame is? */
static bool has_untold(const struct function *f)
{
	struct msp_a64_op op;

	for (uint32_t n = 0; n + 1 < f->count; n++) {
		uint32_t at = f->start + 4 * n;
		const struct msp_rule *rule;

		msp_a64_decode(msp_get32(f->code + 4 * (size_t)n), &op);
		if (!op.moves && op.kind != MSP_A64_ADD_SP && op.kind != MSP_A64_LOAD)
			continue;
		rule = rule_at(f->rows, at);
		if (is_untold(&op, rule) && same_rule_cfa(rule, rule_at(f->rows, at + 4)))
			return true;
	}
	return false;
}

/* Instructions of the i-th function that are in the segment. */
static uint32_t size_of(const struct scan *s, uint32_t i)
{
	uint32_t start = s->rows->functions[i], low = 0, high = s->rows->count;
	uint64_t end = s->addr + s->code.size;

	if (i + 1 < s->rows->function_count && s->rows->functions[i + 1] < end)
		end = s->rows->functions[i + 1];
	while (low < high) { /* the first row behind its start */
		uint32_t mid = low + (high - low) / 2;

		if (s->rows->rows[mid].addr <= start)
			low = mid + 1;
		else
			high = mid;
	}
	while (low < s->rows->count && s->rows->rows[low].rule && s->rows->rows[low].addr < end)
		low++;
	if (low < s->rows->count && s->rows->rows[low].addr < end)
		end = s->rows->rows[low].addr;
	return (uint32_t)(end - start) / 4;
}

static int scan_functions(struct scan *s)
{
	struct function *f = &s->function;
	int err = 0;

	for (uint32_t i = 0; !err && i < s->rows->function_count; i++) {
		f->start = s->rows->functions[i];
		if (f->start < s->addr || f->start - s->addr >= s->code.size)
			continue;
		f->count = size_of(s, i);
		f->code = s->code.data + (f->start - s->addr);
		if (f->count <= FUNCTION_MAX && has_untold(f) && follow(f))
			err = add_rows(s);
	}
	return err;
}

static int scan_segment(struct msp_image *image, const struct msp_segment *seg, struct scan *s)
{
	int err;

	if (seg->vaddr - image->min_vaddr + seg->file_size > UINT32_MAX ||
	    msp_image_read_bytes(image, seg->offset, seg->file_size, &s->code))
		return 0;
	s->addr = (uint32_t)(seg->vaddr - image->min_vaddr);
	err = scan_functions(s);
	msp_bytes_free(&s->code);
	return err;
}

static int scan(struct msp_image *image, struct scan *s)
{
	struct function *f = &s->function;
	int err = 0;

	s->found = msp_rows_new();
	f->rows = s->rows;
	f->frames = calloc(FUNCTION_MAX, sizeof(*f->frames));
	f->seen = calloc(FUNCTION_MAX, 1);
	f->todo = calloc(FUNCTION_MAX, sizeof(*f->todo));
	if (!s->found || !f->frames || !f->seen || !f->todo)
		err = MSP_E_NOMEM;
	for (uint32_t i = 0; !err && i < image->segment_count; i++)
		if (image->segments[i].exec)
			err = scan_segment(image, &image->segments[i], s);
	free(f->frames);
	free(f->seen);
	free(f->todo);
	return err;
}

int msp_frame_rows(struct msp_image *image, struct msp_rows *rows)
{
	struct scan s = {.rows = rows};
	int err = rows->function_count ? scan(image, &s) : 0;

	if (!err && s.found && s.found->count)
		err = msp_rows_override(rows, s.found);
	msp_rows_free(s.found);
	return err;
}

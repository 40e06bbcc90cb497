/* SPDX-License-Identifier: MIT */
/* What the oracle found, in words. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"
#include "oracle_run.h"
#include "output/output.h"

#define MAX_SHOWN_FRAMES 40
#define MAX_STACKS 65536

static const char *const reason_text[] = {
#define _(id, text) text,
	MSP_ERROR_REASONS(_)
#undef _
};

static const char *const way_text[] = {
#define _(id, text) text,
	MSP_WAYS(_)
#undef _
};

int oracle_report_new(struct oracle_report *r, bool verbose)
{
	memset(r, 0, sizeof(*r));
	r->verbose = verbose;
	r->profile = msp_profile_new();
	r->seen = calloc(2 * MAX_STACKS, sizeof(*r->seen));
	return r->profile && r->seen ? 0 : MSP_E_NOMEM;
}

void oracle_report_free(struct oracle_report *r)
{
	msp_profile_free(r->profile);
	free(r->seen);
}

static void frame_text(struct oracle_process *p, const struct oracle_stack *s, uint32_t i,
		       char *buf, size_t size)
{
	const struct msp_raw_frame *raw = &s->raw[i];
	struct msp_frame frame;
	int rc = msp_symbolizer_frame(p->symbols, s->raw, s->count, i, &frame);

	if (raw->kind == MSP_RAW_VM)
		snprintf(buf, size, "[vm frame%s]", raw->flags & MSP_RAWF_JIT ? ", trace" : "");
	else if (raw->kind == MSP_RAW_ERROR)
		snprintf(buf, size, "[error: %s] at 0x%" PRIx64,
			 raw->pos < MSP_ERROR_REASON_COUNT ? reason_text[raw->pos] : "?",
			 raw->addr);
	else if (rc == 0)
		msp_frame_text(&frame, true, buf, size);
	else
		snprintf(buf, size, "(kind %u 0x%" PRIx64 ")", raw->kind, raw->addr);
}

void oracle_report_print(struct oracle_process *p, const char *title, const struct oracle_stack *s)
{
	char text[256];

	printf("  %s\n", title);
	for (uint32_t i = 0; i < s->count && i < MAX_SHOWN_FRAMES; i++) {
		frame_text(p, s, i, text, sizeof(text));
		printf("    %s\n", text);
	}
}

static void print_registers(const struct msp_registers *r)
{
	for (uint32_t i = 0; i < MSP_REG_COUNT && oracle_arch.reg[i]; i++)
		printf("%s%s %" PRIx64,
		       i % 8 ? " "
		       : i   ? "\n  "
			     : "  ",
		       oracle_arch.reg[i], r->reg[i]);
	printf("\n");
}

/* Is it the first of its kind? */
bool oracle_report_kind(struct oracle_report *r, const char *why, uint64_t at)
{
	for (uint32_t i = 0; i < r->kinds; i++) {
		if (r->kind[i].at == at && strcmp(r->kind[i].why, why) == 0) {
			r->kind[i].count++;
			return false;
		}
	}
	if (r->kinds == ORACLE_MAX_KINDS)
		return false;
	snprintf(r->kind[r->kinds].why, sizeof(r->kind[0].why), "%s", why);
	r->kind[r->kinds].at = at;
	r->kind[r->kinds++].count = 1;
	return true;
}

void oracle_report_fault(struct oracle_report *r, struct oracle_process *p, const char *why,
			 const struct oracle_insn *insn, const struct msp_registers *regs,
			 const struct oracle_stack *before, const struct oracle_stack *now)
{
	const struct msp_mapping *map = msp_space_find(p->space, regs->pc);
	const struct msp_mapping *from = msp_space_find(p->space, insn->pc);
	uint64_t at = regs->pc - (map ? map->base : 0);
	char text[96];

	r->faults++;
	if (!oracle_report_kind(r, why, at) && !r->verbose)
		return;
	oracle_code_text(p->code, insn, text, sizeof(text));
	printf("FAULT %s\n  at %s+0x%" PRIx64 ", after %s+0x%" PRIx64 ": %s\n", why,
	       map ? msp_space_mapping_name(p->space, map) : "?", at,
	       from ? msp_space_mapping_name(p->space, from) : "?",
	       insn->pc - (from ? from->base : 0), text);
	insn = oracle_code_at(p->code, oracle_memory_reader(p->memory), regs->pc);
	if (insn) {
		oracle_code_text(p->code, insn, text, sizeof(text));
		printf("  next: %s\n", text);
	}
	print_registers(regs);
	if (before)
		oracle_report_print(p, "before:", before);
	oracle_report_print(p, "now:", now);
	fflush(stdout);
}

static bool is_new(struct oracle_report *r, uint64_t hash)
{
	uint32_t at = (uint32_t)(hash % (2 * MAX_STACKS));

	hash |= 1;
	for (; r->seen[at]; at = (at + 1) % (2 * MAX_STACKS))
		if (r->seen[at] == hash)
			return false;
	if (r->seen_count == MAX_STACKS)
		return false;
	r->seen[at] = hash;
	r->seen_count++;
	return true;
}

void oracle_report_stack(struct oracle_report *r, struct oracle_process *p,
			 const struct oracle_stack *s)
{
	static uint32_t ids[MSP_MAX_FRAMES];
	struct msp_quality *q = msp_profile_quality(r->profile);
	struct msp_frame frame;
	uint32_t n = 0;

	if (!is_new(r, oracle_stack_hash(s)))
		return;
	for (uint32_t i = s->count; i-- > 0;) {
		int rc = msp_symbolizer_frame(p->symbols, s->raw, s->count, i, &frame);
		int64_t id =
			rc == 0 || rc == MSP_E_GONE ? msp_profile_frame(r->profile, &frame) : -1;

		if (id >= 0)
			ids[n++] = (uint32_t)id;
	}
	if (!n || msp_profile_add(r->profile, 1, 1, ids, n, 1) != 0)
		return;
	q->samples++;
	q->whole += s->error == MSP_ERR_NONE;
	q->truncated += s->error == MSP_ERR_TRUNCATED;
	if (s->error > MSP_ERR_TRUNCATED && s->error < MSP_ERROR_REASON_COUNT)
		msp_quality_error(q, reason_text[s->error], 1);
}

int oracle_report_write(struct oracle_report *r, const char *path)
{
	struct msp_view view = {.lines = true};
	FILE *out = fopen(path, "w");
	int rc;

	if (!out)
		return MSP_E_IO;
	msp_profile_set_name(r->profile, 1, 0, "luajit");
	rc = msp_format_write(msp_format_by_name("json"), r->profile, &view, out);
	fclose(out);
	return rc;
}

void oracle_report_marks(const struct oracle_report *r, char *buf, size_t size)
{
	size_t at = 0;

	buf[0] = 0;
	for (int i = 1; i < MSP_ERROR_REASON_COUNT && at < size; i++)
		if (r->marked[i])
			at += (size_t)snprintf(buf + at, size - at, " [%s: %" PRIu64 "]",
					       reason_text[i], r->marked[i]);
}

void oracle_report_ways(const struct oracle_report *r)
{
	for (int i = 0; i < MSP_WAY_COUNT; i++)
		if (r->ways[i])
			printf("    %8" PRIu64 " x second way: %s\n", r->ways[i], way_text[i]);
}

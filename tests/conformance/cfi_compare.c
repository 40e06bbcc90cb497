/* SPDX-License-Identifier: MIT */
/*
 * Conformance of the unwind rows with an independent unwinder, elfutils'
 * libdw. Two comparisons: what the rows say against what libdw says about
 * random addresses of files; and whole stacks of stopped processes against
 * those of libdwfl, registers included. Every difference is printed, with its
 * reason where there is one; one without a reason fails the test.
 */
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "cfi_compare.h"

const struct cpu cpu_x64 = {
	.pc = 16,
	.sp = 7,
	.ra_column = 16,
	.slots = 7,
	.slot_regs = {16, 3, 6, 12, 13, 14, 15},
	.kept = 0xf0c8, /* rbx rbp rsp r12..r15 */
};

const struct cpu cpu_arm64 = {
	.pc = 32,
	.sp = 31,
	.ra_column = 30,
	.slots = 12,
	.slot_regs = {32, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29},
	.kept = 0xbff80000, /* x19..x29 sp */
};

int compared_reg(const struct cpu *cpu, int i)
{
	if (i == 0)
		return cpu->sp;
	return i <= cpu->slots ? cpu->slot_regs[i - 1] : -1;
}

uint64_t random_number(void)
{
	static uint64_t state = 20240229;

	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return state >> 24;
}

struct msp_image *open_image(const char *path)
{
	struct msp_image_options opts = {.name = path};
	struct msp_image *image;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 || msp_image_open_fd(fd, &opts, &image) ? NULL : image;
}

const struct msp_rule *rule_at(const struct msp_unwind_table *table, uint64_t addr)
{
	uint32_t low = 0, high = table->row_count;

	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (table->rows[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return &table->rules[low ? table->rows[low - 1].rule : 0];
}

static bool get(const struct regs *regs, int reg, uint64_t *value)
{
	*value = regs->value[reg];
	return has_reg(regs, reg);
}

static enum step_result step_signal(const struct regs *in, read_word_fn read, void *ctx,
				    struct regs *out)
{
	/* gregs of struct ucontext: r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip. */
	static const int order[] = {8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16};
	uint64_t sp;

	if (!get(in, MSP_X64_RSP, &sp))
		return STEP_FAILED;
	for (int i = 0; i < 17; i++)
		if (!read(ctx, sp + 40 + 8 * (uint64_t)i, &out->value[order[i]]))
			return STEP_FAILED;
	out->known = 0x1ffff;
	return STEP_OK;
}

static bool rule_cfa(const struct msp_rule *rule, const struct regs *in, uint64_t pc,
		     read_word_fn read, void *ctx, uint64_t *base, uint64_t *cfa)
{
	if (!get(in, rule->cfa_reg, base))
		return false;
	*cfa = *base + (uint64_t)(int64_t)rule->cfa_off;
	switch (rule->cfa_kind) {
	case MSP_CFA_PLT:
		*cfa = *base + 8 + (uint64_t)((pc & 15) >= (uint64_t)rule->cfa_off) * 8;
		return true;
	case MSP_CFA_DEREF:
	case MSP_CFA_DEREF_FRAME:
		return read(ctx, *cfa, cfa);
	case MSP_CFA_DEREF_ADD8:
		if (!read(ctx, *cfa, cfa))
			return false;
		*cfa += 8;
		return true;
	default:
		return true;
	}
}

/* The return address: saved, in a register that the rule names, or still in arm64's x30. */
static void step_pc(const struct cpu *cpu, const struct msp_rule *rule, const struct regs *in,
		    uint64_t cfa, read_word_fn read, void *ctx, struct regs *out)
{
	int off = rule->saved[MSP_SLOT_RA], from = -1;
	bool known = false;

	if (rule->cfa_kind == MSP_CFA_RA_REG)
		from = off;
	else if (off == MSP_SAVED_SAME && cpu->ra_column != cpu->pc)
		from = cpu->ra_column;
	else if (off != MSP_SAVED_SAME && off != MSP_SAVED_UNDEFINED)
		known = read(ctx, cfa + (uint64_t)(int64_t)off, &out->value[cpu->pc]);
	if (from >= 0)
		known = get(in, from, &out->value[cpu->pc]);
	if (known)
		out->known |= 1ull << cpu->pc;
}

enum step_result step_by_rule(const struct cpu *cpu, const struct msp_rule *rule,
			      const struct regs *in, uint64_t pc, read_word_fn read, void *ctx,
			      struct regs *out)
{
	uint64_t base, cfa;

	*out = *in;
	switch (rule->cfa_kind) {
	case MSP_CFA_NONE:
		return STEP_NO_RULE;
	case MSP_CFA_END:
		return STEP_END;
	case MSP_CFA_UNSUPPORTED:
	case MSP_CFA_LANDING: /* and libdw does not know of it */
		return STEP_UNSUPPORTED;
	case MSP_CFA_SIGNAL:
		return cpu == &cpu_x64 ? step_signal(in, read, ctx, out) : STEP_UNSUPPORTED;
	}
	if (!rule_cfa(rule, in, pc, read, ctx, &base, &cfa))
		return STEP_FAILED;
	out->known &= cpu->kept;
	for (int i = 1; i < cpu->slots; i++) {
		int reg = cpu->slot_regs[i], off = rule->saved[i];
		uint64_t from = rule->cfa_kind == MSP_CFA_DEREF_FRAME ? base : cfa;

		if (off == MSP_SAVED_SAME)
			continue;
		out->known &= ~(1ull << reg);
		if (off != MSP_SAVED_UNDEFINED &&
		    read(ctx, from + (uint64_t)(int64_t)off, &out->value[reg]))
			out->known |= 1ull << reg;
	}
	step_pc(cpu, rule, in, cfa, read, ctx, out);
	out->value[cpu->sp] = cfa;
	out->known |= 1ull << cpu->sp;
	return has_reg(out, cpu->pc) ? STEP_OK : STEP_FAILED;
}

int main(int argc, char **argv)
{
	int bad;

	setvbuf(stdout, NULL, _IOLBF, 0);
	bad = compare_static(argc > 1 ? atoi(argv[1]) : 20000);
	bad += measure_speed();
	bad += compare_dynamic(dirname(argv[0]), argc > 2 ? atof(argv[2]) : 7.0);
	printf("unexplained differences: %d\n", bad);
	return bad != 0;
}

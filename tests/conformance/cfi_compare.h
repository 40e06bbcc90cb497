/* SPDX-License-Identifier: MIT */
/* Our unwind rows against libdw: what both halves of the comparison share. */
#ifndef CFI_COMPARE_H
#define CFI_COMPARE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "elf/elf.h"

/* By DWARF number; the pc has x86-64's number for it, and 32 on arm64. */
#define REG_COUNT 33

struct regs {
	uint64_t value[REG_COUNT];
	uint64_t known; /* a bit each */
};

/* What differs between processors. */
struct cpu {
	int pc, sp;
	int ra_column; /* where libdw has the return address */
	int slots;
	int slot_regs[MSP_SLOT_COUNT]; /* of a rule; [0] is the return address */
	uint64_t kept;		       /* registers that a function keeps for its caller */
};
extern const struct cpu cpu_x64, cpu_arm64;

static inline bool has_reg(const struct regs *regs, int reg)
{
	return regs->known >> reg & 1;
}

/* Memory as the evaluators see it. false: not readable. */
typedef bool (*read_word_fn)(void *ctx, uint64_t addr, uint64_t *value);

enum step_result {
	STEP_OK,
	STEP_NO_RULE,
	STEP_END,
	STEP_UNSUPPORTED,
	STEP_FAILED, /* a register or memory that the rule needs is not there */
};

/* The registers that both sides must agree upon: pc, sp, those in slots. The i'th, -1 behind the last. */
int compared_reg(const struct cpu *cpu, int i);

/* The rule of a table at an image-relative address. */
const struct msp_rule *rule_at(const struct msp_unwind_table *table, uint64_t addr);
/* The caller's registers by a rule, written from the comments in tables.h. */
enum step_result step_by_rule(const struct cpu *cpu, const struct msp_rule *rule,
			      const struct regs *in, uint64_t pc, read_word_fn read, void *ctx,
			      struct regs *out);

/*
 * The same as libdw has it, at a virtual address of its own: the expressions of
 * dwarf_cfi_addrframe(), evaluated. *rbx_default is set where it says that rbx
 * is undefined only because its table of the psABI's defaults names register
 * 0, rax, in rbx's place; rbx then counts as kept.
 */
struct Dwarf_CFI_s;
enum step_result step_by_libdw(const struct cpu *cpu, struct Dwarf_CFI_s *eh,
			       struct Dwarf_CFI_s *debug, uint64_t addr, const struct regs *in,
			       read_word_fn read, void *ctx, struct regs *out, bool *rbx_default);

struct msp_image *open_image(const char *path);
uint64_t random_number(void); /* the same sequence in every run */

/* These return the number of unexplained differences and print their figures. */
int compare_static(int per_file);
int measure_speed(void);
int compare_dynamic(const char *self_dir, double seconds);

#endif

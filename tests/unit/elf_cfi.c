/* SPDX-License-Identifier: MIT */
/* Programs of call frame information and the rules that must come of them. */
#include <dwarf.h>

#include "elf_help.h"

#define PROGRAM(...) ((const uint8_t[]){__VA_ARGS__}), sizeof((const uint8_t[]){__VA_ARGS__})
#define T TEXT_OFFSET

/* A file with one CIE and one FDE over [T, T + 0x100). */
struct fixture {
	struct test_elf elf;
	struct test_cfi cfi;
	struct msp_image *image;
	const struct msp_unwind_table *table;
};

static struct fixture *start(const char *augmentation)
{
	struct fixture *f = calloc(1, sizeof(*f));

	test_elf_start(&f->elf, EM_X86_64, 0);
	f->cfi.eh = true;
	cfi_cie(&f->cfi, augmentation, PROGRAM(DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1));
	return f;
}

static void finish(struct fixture *f)
{
	test_elf_section(&f->elf, ".eh_frame", SHT_PROGBITS, f->cfi.bytes, f->cfi.size);
	test_elf_finish(&f->elf);
	f->image = test_elf_open(&f->elf, NULL);
	assert_int_equal(msp_image_unwind(f->image, &f->table), 0);
}

static struct fixture *compile(const uint8_t *program, size_t size)
{
	struct fixture *f = start("zR");

	cfi_fde(&f->cfi, T, 0x100, program, size);
	finish(f);
	return f;
}

static void done(struct fixture *f)
{
	msp_image_close(f->image);
	free(f);
}

static void assert_cfa(const struct msp_rule *rule, int kind, int reg, int off)
{
	assert_int_equal(rule->cfa_kind, kind);
	assert_int_equal(rule->cfa_reg, reg);
	assert_int_equal(rule->cfa_off, off);
}

static void push_and_pop(void **state)
{
	struct fixture *f = compile(
		PROGRAM(DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16, DW_CFA_offset | 6, 2,
			DW_CFA_advance_loc | 3, DW_CFA_def_cfa_register, 6, DW_CFA_remember_state,
			DW_CFA_advance_loc1, 0x20, DW_CFA_restore | 6, DW_CFA_def_cfa, 7, 8,
			DW_CFA_advance_loc2, 1, 0, DW_CFA_restore_state));

	assert_cfa(rule_of(f->table, T), MSP_CFA_REG, 7, 8);
	assert_int_equal(rule_of(f->table, T)->saved[MSP_SLOT_RA], -8);
	assert_int_equal(rule_of(f->table, T)->saved[2], MSP_SAVED_SAME);
	assert_cfa(rule_of(f->table, T + 1), MSP_CFA_REG, 7, 16);
	assert_int_equal(rule_of(f->table, T + 3)->saved[2], -16);
	assert_cfa(rule_of(f->table, T + 4), MSP_CFA_REG, 6, 16);
	assert_cfa(rule_of(f->table, T + 0x24), MSP_CFA_REG, 7, 8);
	assert_int_equal(rule_of(f->table, T + 0x24)->saved[2], MSP_SAVED_SAME);
	assert_cfa(rule_of(f->table, T + 0x25), MSP_CFA_REG, 6, 16);
	assert_cfa(rule_of(f->table, T + 0xff), MSP_CFA_REG, 6, 16);
	assert_int_equal(rule_of(f->table, T + 0x100)->cfa_kind, MSP_CFA_NONE);
	assert_int_equal(rule_of(f->table, T - 1)->cfa_kind, MSP_CFA_NONE);
	assert_int_equal(f->table->function_count, 1);
	assert_int_equal(f->table->functions[0], T);
	done(f);
}

static void expressions(void **state)
{
	struct fixture *f = compile(PROGRAM(
		/* CFA = *(rbp - 8), rbp and r12 relative to rbp: a realigned frame */
		DW_CFA_def_cfa_expression, 3, DW_OP_breg6, 0x78, DW_OP_deref, DW_CFA_expression, 6,
		2, DW_OP_breg6, 0, DW_CFA_expression, 12, 2, DW_OP_breg6, 0x70,
		DW_CFA_advance_loc | 1,
		/* CFA = *(rsp + 16) + 8: hand-written code */
		DW_CFA_same_value, 6, DW_CFA_same_value, 12, DW_CFA_def_cfa_expression, 5,
		DW_OP_breg7, 16, DW_OP_deref, DW_OP_plus_uconst, 8, DW_CFA_advance_loc | 1,
		/* a PLT with threshold 11 */
		DW_CFA_def_cfa_expression, 11, DW_OP_breg7, 8, DW_OP_breg16, 0, DW_OP_lit15,
		DW_OP_and, DW_OP_lit11, DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus,
		DW_CFA_advance_loc | 1,
		/* anything else */
		DW_CFA_def_cfa_expression, 4, DW_OP_breg7, 16, DW_OP_deref, DW_OP_deref));

	assert_cfa(rule_of(f->table, T), MSP_CFA_DEREF_FRAME, 6, -8);
	assert_int_equal(rule_of(f->table, T)->saved[MSP_SLOT_RA], -8);
	assert_int_equal(rule_of(f->table, T)->saved[2], 0);
	assert_int_equal(rule_of(f->table, T)->saved[3], -16);
	assert_cfa(rule_of(f->table, T + 1), MSP_CFA_DEREF_ADD8, 7, 16);
	assert_cfa(rule_of(f->table, T + 2), MSP_CFA_PLT, 7, 11);
	assert_int_equal(rule_of(f->table, T + 3)->cfa_kind, MSP_CFA_UNSUPPORTED);
	done(f);
}

static void return_addresses(void **state)
{
	struct fixture *f = compile(
		PROGRAM(DW_CFA_undefined, 16, DW_CFA_advance_loc | 1, DW_CFA_register, 16, 5,
			DW_CFA_def_cfa_offset, 0, DW_CFA_advance_loc | 1, DW_CFA_val_offset, 16, 1,
			DW_CFA_advance_loc | 1, DW_CFA_same_value, 16, DW_CFA_advance_loc | 1,
			DW_CFA_restore_extended, 16, DW_CFA_def_cfa_offset, 8));

	assert_int_equal(rule_of(f->table, T)->cfa_kind, MSP_CFA_END);
	assert_cfa(rule_of(f->table, T + 1), MSP_CFA_RA_REG, 7, 0);
	assert_int_equal(rule_of(f->table, T + 1)->saved[MSP_SLOT_RA], 5);
	assert_int_equal(rule_of(f->table, T + 2)->cfa_kind, MSP_CFA_UNSUPPORTED);
	assert_int_equal(rule_of(f->table, T + 3)->cfa_kind, MSP_CFA_UNSUPPORTED);
	assert_cfa(rule_of(f->table, T + 4), MSP_CFA_REG, 7, 8);
	done(f);
}

/* What does not fit loses one register, or the frame, but is never another offset. */
static void too_far(void **state)
{
	struct fixture *f = compile(PROGRAM(
		DW_CFA_offset_extended, 3, 0x80, 0x20, /* -32768 */
		DW_CFA_advance_loc | 1, DW_CFA_offset_extended, 3, 0x81, 0x20,
		DW_CFA_advance_loc | 1, DW_CFA_offset_extended, 3, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 1, DW_CFA_advance_loc | 1, DW_CFA_offset_extended, 16, 0x81,
		0x20, DW_CFA_advance_loc | 1, DW_CFA_offset | 16, 1, DW_CFA_def_cfa_offset, 0xff,
		0xff, 0xff, 0xff, 0x0f, DW_CFA_advance_loc | 1, DW_CFA_def_cfa, 40, 8,
		DW_CFA_advance_loc | 1, DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 7, 2,
		DW_CFA_advance_loc | 1, DW_CFA_val_offset, 7, 0));

	assert_int_equal(rule_of(f->table, T)->saved[1], -32768);
	assert_int_equal(rule_of(f->table, T + 1)->saved[1], MSP_SAVED_UNDEFINED);
	assert_cfa(rule_of(f->table, T + 1), MSP_CFA_REG, 7, 8);
	assert_cfa(rule_of(f->table, T + 2), MSP_CFA_REG, 7, 8);
	for (uint32_t at = T + 3; at < T + 7; at++)
		assert_int_equal(rule_of(f->table, at)->cfa_kind, MSP_CFA_UNSUPPORTED);
	assert_cfa(rule_of(f->table, T + 7), MSP_CFA_REG, 7, 8);
	done(f);
}

/* Instructions that we do not know, or that end too early: no rule from there on, all before holds. */
static void malformed(void **state)
{
	static const struct {
		uint8_t bytes[8];
		size_t size;
	} bad[] = {{{DW_CFA_restore_state}, 1},
		   {{DW_CFA_set_loc, 1, 2, 3}, 4},
		   {{0x3f}, 1},
		   {{DW_CFA_def_cfa_expression, 0x7f}, 2},
		   {{DW_CFA_offset_extended, 0x83}, 2},
		   {{DW_CFA_GNU_window_save}, 1}};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t program[16] = {DW_CFA_advance_loc | 4};
		struct fixture *f = start("zR");

		/* To the very end of the entry: no padding that would be the operand. */
		memcpy(program + 1, bad[i].bytes, bad[i].size);
		cfi_fde(&f->cfi, T, 0x100, program, 1 + bad[i].size);
		finish(f);
		assert_cfa(rule_of(f->table, T + 3), MSP_CFA_REG, 7, 8);
		if (bad[i].bytes[0] != DW_CFA_offset_extended)
			assert_int_equal(rule_of(f->table, T + 4)->cfa_kind, MSP_CFA_UNSUPPORTED);
		done(f);
	}
}

static void signal_frames(void **state)
{
	static const uint8_t kernel[] = {
		DW_CFA_def_cfa_expression, 4, DW_OP_breg7, 0xa0, 1, DW_OP_deref};
	static const uint8_t other[] = {DW_CFA_def_cfa_expression, 3, DW_OP_breg7, 8, DW_OP_deref};
	struct fixture *f = start("zRS");

	cfi_fde(&f->cfi, T, 0x10, kernel, sizeof(kernel));
	finish(f);
	assert_int_equal(rule_of(f->table, T + 8)->cfa_kind, MSP_CFA_SIGNAL);
	done(f);
	f = start("zRS");
	cfi_fde(&f->cfi, T, 0x10, other, sizeof(other));
	finish(f);
	assert_int_equal(rule_of(f->table, T + 8)->cfa_kind, MSP_CFA_UNSUPPORTED);
	done(f);
}

/* Unordered, overlapping, doubled, empty and outside of code. */
static void many_functions(void **state)
{
	struct fixture *f = start("zR");
	static const uint8_t nop[] = {DW_CFA_def_cfa_offset, 32};

	cfi_fde(&f->cfi, T + 0x200, 0x40, nop, sizeof(nop));
	cfi_fde(&f->cfi, T + 0x100, 0x40, nop, 0);
	cfi_fde(&f->cfi, T + 0x220, 0x80, nop, 0);
	cfi_fde(&f->cfi, T + 0x200, 0x20, nop, 0);
	cfi_fde(&f->cfi, T + 0x180, 0, nop, 0);
	cfi_fde(&f->cfi, 1ull << 40, 0x40, nop, 0);
	cfi_fde(&f->cfi, T + 0x300, UINT64_MAX, nop, 0);
	finish(f);
	assert_cfa(rule_of(f->table, T + 0x100), MSP_CFA_REG, 7, 8);
	assert_int_equal(rule_of(f->table, T + 0x140)->cfa_kind, MSP_CFA_NONE);
	assert_int_equal(rule_of(f->table, T + 0x180)->cfa_kind, MSP_CFA_NONE);
	assert_cfa(rule_of(f->table, T + 0x200), MSP_CFA_REG, 7, 32);
	assert_cfa(rule_of(f->table, T + 0x23f), MSP_CFA_REG, 7, 32);
	assert_cfa(rule_of(f->table, T + 0x240), MSP_CFA_REG, 7, 8);
	assert_cfa(rule_of(f->table, T + 0x29f), MSP_CFA_REG, 7, 8);
	assert_int_equal(rule_of(f->table, T + 0x2a0)->cfa_kind, MSP_CFA_NONE);
	assert_cfa(rule_of(f->table, T + 0x300), MSP_CFA_REG, 7, 8);
	assert_cfa(rule_of(f->table, (uint32_t)f->elf.size - 1), MSP_CFA_REG, 7, 8);
	assert_int_equal(rule_of(f->table, (uint32_t)f->elf.size)->cfa_kind, MSP_CFA_NONE);
	for (uint32_t i = 1; i < f->table->row_count; i++) {
		assert_true(f->table->rows[i].addr > f->table->rows[i - 1].addr);
		assert_int_not_equal(f->table->rows[i].rule, f->table->rows[i - 1].rule);
	}
	done(f);
}

/* .debug_frame says what .eh_frame does not; its functions at address 0 were dropped. */
static void debug_frame(void **state)
{
	struct test_cfi debug = {.eh = false};
	struct fixture *f = start("zR");
	static const uint8_t program[] = {DW_CFA_def_cfa_offset, 48};

	cfi_fde(&f->cfi, T + 0x40, 0x40, program, 0);
	cfi_cie(&debug, "", PROGRAM(DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1));
	cfi_fde(&debug, 0, 0x800, program, sizeof(program));
	cfi_fde(&debug, T, 0x100, program, sizeof(program));
	test_elf_section(&f->elf, ".debug_frame", SHT_PROGBITS, debug.bytes, debug.size);
	finish(f);
	assert_int_equal(rule_of(f->table, 0x700)->cfa_kind, MSP_CFA_NONE);
	assert_cfa(rule_of(f->table, T), MSP_CFA_REG, 7, 48);
	assert_cfa(rule_of(f->table, T + 0x40), MSP_CFA_REG, 7, 8);
	assert_cfa(rule_of(f->table, T + 0x80), MSP_CFA_REG, 7, 48);
	assert_int_equal(rule_of(f->table, T + 0x100)->cfa_kind, MSP_CFA_NONE);
	assert_int_equal(f->table->function_count, 2);
	done(f);
}

static void arm64(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	test_elf_start(&f->elf, EM_AARCH64, 0);
	f->cfi.eh = f->cfi.arm64 = true;
	cfi_cie(&f->cfi, "zR", PROGRAM(DW_CFA_def_cfa, 31, 0));
	cfi_fde(&f->cfi, T, 0x40,
		PROGRAM(DW_CFA_advance_loc | 4, DW_CFA_GNU_window_save, DW_CFA_advance_loc | 4,
			DW_CFA_def_cfa_offset, 32, DW_CFA_offset | 29, 4, DW_CFA_offset | 30, 3,
			DW_CFA_advance_loc | 4, DW_CFA_def_cfa_register, 29));
	finish(f);
	assert_int_equal(msp_image_arch(f->image), MSP_ARCH_ARM64);
	assert_cfa(rule_of(f->table, T), MSP_CFA_REG, 31, 0);
	assert_int_equal(rule_of(f->table, T)->saved[MSP_SLOT_RA], MSP_SAVED_SAME);
	assert_int_equal(rule_of(f->table, T)->flags, 0);
	assert_int_equal(rule_of(f->table, T + 4)->flags, MSP_RULE_RA_SIGNED);
	assert_cfa(rule_of(f->table, T + 8), MSP_CFA_REG, 31, 32);
	assert_int_equal(rule_of(f->table, T + 8)->saved[MSP_SLOT_RA], -24);
	assert_int_equal(rule_of(f->table, T + 8)->saved[11], -32);
	assert_int_equal(rule_of(f->table, T + 8)->saved[1], MSP_SAVED_SAME);
	assert_cfa(rule_of(f->table, T + 12), MSP_CFA_REG, 29, 32);
	done(f);
}

static struct fixture *start_arm64(void)
{
	struct fixture *f = calloc(1, sizeof(*f));

	test_elf_start(&f->elf, EM_AARCH64, 0);
	f->cfi.eh = f->cfi.arm64 = true;
	cfi_cie(&f->cfi, "zR", PROGRAM(DW_CFA_def_cfa, 31, 0));
	return f;
}

/* glibc's lazy binder: what the PLT has pushed is above the CFA that is meant. */
static void arm64_binder(void **state)
{
	struct fixture *f = start_arm64();

	cfi_fde(&f->cfi, T, 0x40,
		PROGRAM(DW_CFA_advance_loc | 4, DW_CFA_offset_extended_sf, 30, 0x7f,
			DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 0xd0, 1));
	finish(f);
	assert_cfa(rule_of(f->table, T), MSP_CFA_REG, 31, 16);
	assert_int_equal(rule_of(f->table, T)->saved[MSP_SLOT_RA], MSP_SAVED_SAME);
	assert_cfa(rule_of(f->table, T + 4), MSP_CFA_REG, 31, 16);
	assert_int_equal(rule_of(f->table, T + 4)->saved[MSP_SLOT_RA], -8);
	assert_cfa(rule_of(f->table, T + 8), MSP_CFA_REG, 31, 0xd0 + 16);
	assert_int_equal(rule_of(f->table, T + 8)->saved[MSP_SLOT_RA], -8);
	done(f);
}

#define SAVED_DATA \
	DW_CFA_offset | 0, 16, DW_CFA_offset | 1, 15, DW_CFA_offset | 2, 14, DW_CFA_offset | 3, 13
#define SAVED_KEPT \
	DW_CFA_offset | 19, 11, DW_CFA_offset | 20, 10, DW_CFA_offset | 21, 9, DW_CFA_offset | 22, \
		8, DW_CFA_offset | 23, 7, DW_CFA_offset | 24, 6, DW_CFA_offset | 25, 5, \
		DW_CFA_offset | 26, 4, DW_CFA_offset | 27, 3, DW_CFA_offset | 28, 2, \
		DW_CFA_offset | 29, 1

/* A copy of x30 in x0 is where the return address is only if that is not on the stack (glibc's fork). */
static void arm64_copy(void **state)
{
	struct fixture *f = start_arm64();

	cfi_fde(&f->cfi, T, 0x40,
		PROGRAM(DW_CFA_register, 30, 0, DW_CFA_advance_loc | 4, DW_CFA_restore | 30,
			DW_CFA_def_cfa_offset, 48, DW_CFA_offset | 30, 3, DW_CFA_advance_loc | 4,
			DW_CFA_register, 30, 0));
	finish(f);
	assert_cfa(rule_of(f->table, T), MSP_CFA_RA_REG, 31, 0);
	assert_int_equal(rule_of(f->table, T)->saved[MSP_SLOT_RA], 0);
	assert_cfa(rule_of(f->table, T + 8), MSP_CFA_REG, 31, 48);
	assert_int_equal(rule_of(f->table, T + 8)->saved[MSP_SLOT_RA], -24);
	done(f);
}

/* The unwinder of libgcc: it throws until its return address is back in its register. */
static void arm64_thrower(void **state)
{
	struct fixture *f = start_arm64();

	cfi_fde(&f->cfi, T, 0x40,
		PROGRAM(DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 0x80, 1, DW_CFA_offset | 30,
			12, SAVED_DATA, DW_CFA_advance_loc | 4, SAVED_KEPT, DW_CFA_advance_loc | 4,
			DW_CFA_restore | 30, DW_CFA_def_cfa_offset, 0));
	finish(f);
	assert_int_equal(rule_of(f->table, T)->flags, 0);
	assert_int_equal(rule_of(f->table, T + 4)->flags, 0);
	assert_int_equal(rule_of(f->table, T + 8)->flags, MSP_RULE_THROWS);
	assert_int_equal(rule_of(f->table, T + 12)->flags, MSP_RULE_LANDS);
	done(f);
}

/* glibc's lazy binder since 2.41 saves the same arguments, and throws nothing. */
static void arm64_saves_arguments(void **state)
{
	struct fixture *f = start_arm64();

	cfi_fde(&f->cfi, T, 0x40,
		PROGRAM(DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 0x80, 1, DW_CFA_offset | 30,
			12, SAVED_DATA, DW_CFA_advance_loc | 4, DW_CFA_restore | 30,
			DW_CFA_def_cfa_offset, 0));
	finish(f);
	assert_int_equal(rule_of(f->table, T + 4)->flags, 0);
	assert_int_equal(rule_of(f->table, T + 8)->flags, 0);
	done(f);
}

/* Stubs that lld makes, and the trampoline of musl, in code without any CFI. */
static void stubs(void **state)
{
	static const uint8_t plt[] = {0xff, 0x35, 0, 0,	   0,	 0,    0xff, 0x25, 0,
				      0,    0,	  0, 0x0f, 0x1f, 0x40, 0,    0xff, 0x25,
				      0,    0,	  0, 0,	   0x68, 0,    0,    0,	   0,
				      0xe9, 0,	  0, 0,	   0,	 0x48, 0x89, 0xe5};
	static const uint8_t got[] = {0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0,
				      0,    0,	  0,	0x0f, 0x1f, 0x44, 0,	0};
	static const uint8_t restore[] = {0x90, 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
	struct fixture *f = calloc(1, sizeof(*f));
	uint32_t at, sec;

	test_elf_start(&f->elf, EM_X86_64, 0x400000);
	memcpy(f->elf.bytes + T + 0x800, restore, sizeof(restore));
	at = (uint32_t)test_elf_section(&f->elf, ".plt", SHT_PROGBITS, plt, sizeof(plt))->sh_offset;
	sec = (uint32_t)test_elf_section(&f->elf, ".plt.sec", SHT_PROGBITS, got, sizeof(got))
		      ->sh_offset;
	test_elf_finish(&f->elf);
	f->image = test_elf_open(&f->elf, NULL);
	assert_int_equal(msp_image_unwind(f->image, &f->table), 0);
	assert_int_equal(msp_image_min_vaddr(f->image), 0x400000);
	assert_cfa(rule_of(f->table, at), MSP_CFA_REG, 7, 16);
	assert_cfa(rule_of(f->table, at + 6), MSP_CFA_REG, 7, 24);
	assert_cfa(rule_of(f->table, at + 16), MSP_CFA_REG, 7, 8);
	assert_cfa(rule_of(f->table, at + 22), MSP_CFA_REG, 7, 8);
	assert_cfa(rule_of(f->table, at + 27), MSP_CFA_REG, 7, 16);
	assert_int_equal(rule_of(f->table, at + 32)->cfa_kind, MSP_CFA_NONE);
	assert_cfa(rule_of(f->table, sec + 4), MSP_CFA_REG, 7, 8);
	assert_int_equal(rule_of(f->table, T + 0x800)->cfa_kind, MSP_CFA_SIGNAL);
	assert_int_equal(rule_of(f->table, T + 0x809)->cfa_kind, MSP_CFA_SIGNAL);
	assert_int_equal(rule_of(f->table, T + 0x80a)->cfa_kind, MSP_CFA_NONE);
	assert_int_equal(rule_of(f->table, T + 0x7ff)->cfa_kind, MSP_CFA_NONE);
	done(f);
}

/* _init as glibc and musl have it; up to what is no instruction of theirs. */
static void init(void **state)
{
	static const uint8_t glibc[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08,
					0x48, 0x8b, 0x05, 0,	0,    0,    0,	  0x48,
					0x85, 0xc0, 0x74, 0x02, 0xff, 0xd0, 0xe8, 0,
					0,    0,    0,	  0x48, 0x83, 0xc4, 0x08, 0xc3};
	static const uint8_t musl[] = {0x50, 0xe8, 0, 0, 0, 0, 0x58, 0xc3, 0x55, 0xc3};
	static const uint32_t arm[] = {0xd503233f, 0xa9bf7bfd, 0x910003fd, 0x94000000,
				       0xa8c17bfd, 0xd50323bf, 0xd65f03c0};
	struct fixture *f = calloc(1, sizeof(*f));
	uint32_t at, fini;

	test_elf_start(&f->elf, EM_X86_64, 0);
	at = (uint32_t)test_elf_section(&f->elf, ".init", SHT_PROGBITS, glibc, sizeof(glibc))
		     ->sh_offset;
	fini = (uint32_t)test_elf_section(&f->elf, ".fini", SHT_PROGBITS, musl, sizeof(musl))
		       ->sh_offset;
	finish(f);
	assert_cfa(rule_of(f->table, at + 4), MSP_CFA_REG, 7, 8);
	assert_cfa(rule_of(f->table, at + 8), MSP_CFA_REG, 7, 16);
	assert_cfa(rule_of(f->table, at + 27), MSP_CFA_REG, 7, 16);
	assert_cfa(rule_of(f->table, at + 31), MSP_CFA_REG, 7, 8);
	assert_int_equal(rule_of(f->table, at + 31)->saved[MSP_SLOT_RA], -8);
	assert_cfa(rule_of(f->table, fini), MSP_CFA_REG, 7, 8);
	assert_cfa(rule_of(f->table, fini + 1), MSP_CFA_REG, 7, 16);
	assert_cfa(rule_of(f->table, fini + 7), MSP_CFA_REG, 7, 8);
	assert_int_equal(rule_of(f->table, fini + 8)->cfa_kind, MSP_CFA_NONE);
	done(f);

	f = calloc(1, sizeof(*f));
	test_elf_start(&f->elf, EM_AARCH64, 0);
	at = (uint32_t)test_elf_section(&f->elf, ".init", SHT_PROGBITS, arm, sizeof(arm))
		     ->sh_offset;
	finish(f);
	assert_cfa(rule_of(f->table, at + 4), MSP_CFA_REG, 31, 0);
	assert_int_equal(rule_of(f->table, at + 4)->saved[MSP_SLOT_RA], MSP_SAVED_SAME);
	assert_cfa(rule_of(f->table, at + 8), MSP_CFA_REG, 31, 16);
	assert_int_equal(rule_of(f->table, at + 12)->saved[MSP_SLOT_RA], -8);
	assert_int_equal(rule_of(f->table, at + 12)->saved[11], -16);
	assert_cfa(rule_of(f->table, at + 24), MSP_CFA_REG, 31, 0);
	done(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(push_and_pop),
					   cmocka_unit_test(expressions),
					   cmocka_unit_test(return_addresses),
					   cmocka_unit_test(too_far),
					   cmocka_unit_test(malformed),
					   cmocka_unit_test(signal_frames),
					   cmocka_unit_test(many_functions),
					   cmocka_unit_test(debug_frame),
					   cmocka_unit_test(arm64),
					   cmocka_unit_test(arm64_binder),
					   cmocka_unit_test(arm64_copy),
					   cmocka_unit_test(arm64_thrower),
					   cmocka_unit_test(arm64_saves_arguments),
					   cmocka_unit_test(stubs),
					   cmocka_unit_test(init)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Functions of arm64 whose CFI holds only at calls, as clang 14 makes them: the rows of their other instructions. */
#include <dwarf.h>

#include "elf/arm64.h"
#include "elf_help.h"

#define PROGRAM(...) ((const uint8_t[]){__VA_ARGS__}), sizeof((const uint8_t[]){__VA_ARGS__})
#define T TEXT_OFFSET
#define SAME MSP_SAVED_SAME
/* Slots of rules. */
#define X19 1
#define X20 2
#define X21 3
#define FP 11

#define PACIASP 0xd503233f
#define AUTIASP 0xd50323bf
#define BL 0x94000000
#define RET 0xd65f03c0
#define BR_X3 0xd61f0060
#define NOP 0xd503201f
#define CBZ_X4 0xb4000064    /* cbz x4, 12 bytes on */
#define ADD_SP_X4 0x8b2463ff /* add sp, sp, x4 */

static struct msp_image *open_code(const uint32_t *code, size_t size, const uint8_t *program,
				   size_t program_size, const struct msp_unwind_table **table)
{
	static struct test_elf elf;
	static struct test_cfi cfi;
	struct msp_image *image;

	test_elf_start(&elf, EM_AARCH64, 0);
	memcpy(elf.bytes + T, code, size);
	memset(&cfi, 0, sizeof(cfi));
	cfi.eh = cfi.arm64 = true;
	cfi_cie(&cfi, "zR", PROGRAM(DW_CFA_def_cfa, 31, 0));
	cfi_fde(&cfi, T, size, program, program_size);
	test_elf_section(&elf, ".eh_frame", SHT_PROGBITS, cfi.bytes, cfi.size);
	test_elf_finish(&elf);
	image = test_elf_open(&elf, NULL);
	assert_int_equal(msp_image_unwind(image, table), 0);
	return image;
}

static void assert_row(const struct msp_unwind_table *table, int n, int reg, int off, int lr,
		       int x19)
{
	const struct msp_rule *rule = rule_of(table, T + 4 * (uint32_t)n);

	assert_int_equal(rule->cfa_kind, MSP_CFA_REG);
	assert_int_equal(rule->cfa_reg, reg);
	assert_int_equal(rule->cfa_off, off);
	assert_int_equal(rule->saved[MSP_SLOT_RA], lr);
	assert_int_equal(rule->saved[X19], x19);
}

static const uint32_t early[] = {
	0xb4000180,			    /* 0 cbz x0, 12 */
	PACIASP,    0xd100c3ff,		    /* 2 sub sp, sp, #48 */
	0xa90157fe,			    /* stp x30, x21, [sp, #16] */
	0xa9024ff4,			    /* stp x20, x19, [sp, #32] */
	0xaa0003f3,			    /* 5 mov x19, x0 */
	BL,	    0xa9424ff4,		    /* 7 ldp x20, x19, [sp, #32] */
	0xa94157fe,			    /* ldp x30, x21, [sp, #16] */
	0x9100c3ff,			    /* 9 add sp, sp, #48 */
	AUTIASP,    RET,	0x2a1f03e0, /* 12 mov w0, wzr */
	RET,
};

/* Its prologue is told of at its end, its epilogue not, nor that a branch goes around both. */
static void early_exit(void **state)
{
	const struct msp_unwind_table *table;
	struct msp_image *image = open_code(
		early, sizeof(early),
		PROGRAM(DW_CFA_advance_loc | 8, DW_CFA_GNU_window_save, DW_CFA_advance_loc | 12,
			DW_CFA_def_cfa_offset, 48, DW_CFA_offset | 19, 1, DW_CFA_offset | 20, 2,
			DW_CFA_offset | 21, 3, DW_CFA_offset | 30, 4),
		&table);

	assert_row(table, 0, 31, 0, SAME, SAME);
	assert_row(table, 2, 31, 0, SAME, SAME);
	assert_row(table, 3, 31, 48, SAME, SAME);
	assert_row(table, 4, 31, 48, -32, SAME);
	for (int n = 5; n < 10; n++)
		assert_row(table, n, 31, 48, -32, -8);
	assert_int_equal(rule_of(table, T + 16)->saved[X21], -24);
	assert_int_equal(rule_of(table, T + 16)->saved[X20], SAME);
	for (int n = 10; n < 14; n++)
		assert_row(table, n, 31, 0, SAME, SAME);
	assert_int_equal(rule_of(table, T + 4 * 14)->cfa_kind, MSP_CFA_NONE);
	assert_int_equal(table->function_count, 1);
	msp_image_close(image);
}

/* With a frame pointer, by which the CFA is told, since the stack pointer moves; and with a tail call. */
static void frame_pointer(void **state)
{
	static const uint32_t code[] = {
		0xa9be7bfd,		/* 0 stp x29, x30, [sp, #-32]! */
		0xa9014ff4,		/* stp x20, x19, [sp, #16] */
		0x910003fd,		/* 2 mov x29, sp */
		0xcb2063ff,		/* sub sp, sp, x0 */
		BL,	    0x910003bf, /* 5 mov sp, x29 */
		0xa9414ff4,		/* ldp x20, x19, [sp, #16] */
		0xa8c27bfd,		/* 7 ldp x29, x30, [sp], #32 */
		BR_X3,
	};
	const struct msp_unwind_table *table;
	struct msp_image *image = open_code(code, sizeof(code),
					    PROGRAM(DW_CFA_advance_loc | 12, DW_CFA_def_cfa, 29, 32,
						    DW_CFA_offset | 19, 1, DW_CFA_offset | 20, 2,
						    DW_CFA_offset | 30, 3, DW_CFA_offset | 29, 4),
					    &table);

	assert_row(table, 0, 31, 0, SAME, SAME);
	assert_row(table, 1, 31, 32, -24, SAME);
	assert_int_equal(rule_of(table, T + 4)->saved[FP], -32);
	assert_row(table, 2, 31, 32, -24, -8);
	for (int n = 3; n < 8; n++)
		assert_row(table, n, 29, 32, -24, -8);
	assert_row(table, 8, 31, 0, SAME, SAME);
	assert_int_equal(rule_of(table, T + 32)->saved[FP], SAME);
	msp_image_close(image);
}

/* It never returns; a switch leads to its last part, whose frame is that of the calls. */
static void no_return(void **state)
{
	static const uint32_t code[] = {
		0xd100c3ff,		       /* 0 sub sp, sp, #48 */
		0xa90157fe,		       /* stp x30, x21, [sp, #16] */
		BL,	    BR_X3, 0xa94157fe, /* 4 ldp x30, x21, [sp, #16] */
		0x9100c3ff,		       /* add sp, sp, #48 */
		0x14000400,		       /* 6 b, far away */
	};
	const struct msp_unwind_table *table;
	struct msp_image *image =
		open_code(code, sizeof(code),
			  PROGRAM(DW_CFA_advance_loc | 8, DW_CFA_def_cfa_offset, 48,
				  DW_CFA_offset | 21, 3, DW_CFA_offset | 30, 4),
			  &table);

	assert_row(table, 1, 31, 48, SAME, SAME);
	for (int n = 2; n < 6; n++)
		assert_row(table, n, 31, 48, -32, SAME);
	assert_row(table, 6, 31, 0, SAME, SAME);
	msp_image_close(image);
}

/* Rows of the early exit's code with an instruction changed stay what the CFI says. */
static void assert_left_alone(int n, uint32_t word, uint8_t depth)
{
	const struct msp_unwind_table *table;
	uint32_t code[sizeof(early) / 4];
	struct msp_image *image;

	memcpy(code, early, sizeof(code));
	code[n] = word;
	image = open_code(code, sizeof(code),
			  PROGRAM(DW_CFA_advance_loc | 20, DW_CFA_def_cfa_offset, depth,
				  DW_CFA_offset | 19, 1, DW_CFA_offset | 20, 2, DW_CFA_offset | 21,
				  3, DW_CFA_offset | 30, 4),
			  &table);
	assert_int_equal(table->row_count, 3);
	assert_row(table, 4, 31, 0, SAME, SAME);
	assert_row(table, 11, 31, depth, -32, -8);
	msp_image_close(image);
}

static void doubtful(void **state)
{
	assert_left_alone(6, BL, 64);	      /* at the call the CFI says something else */
	assert_left_alone(0, 0xb40000c0, 48); /* cbz x0, 6: into the frame, without one */
	assert_left_alone(9, 0x9100a3ff, 48); /* add sp, sp, #40: something is left */
	assert_left_alone(8, 0xd503201f, 48); /* nop: a register is not restored */
	assert_left_alone(5, 0x9100001f, 48); /* mov sp, x0: nobody knows */
	assert_left_alone(10, 0xd65f0060,
			  48); /* ret x3: leaves, but what is behind it is not known to */
}

/* Whatever the code and the CFI are, there are valid rows in the end. */
static void any_code(void **state)
{
	static const uint32_t words[] = {
		0xd100c3ff, 0x9100c3ff, 0xd14007ff, 0x915fffff, 0xd10043bf, 0x910003fd, 0x910003bf,
		0xa9be7bfd, 0xa8c27bfd, 0xf81f0ffe, 0xf84107fe, 0xb4000040, 0x17fffffd, 0x14000003,
		0x5400007f, 0x94000000, 0xd65f03c0, 0xd61f0060, 0xcb2063ff, 0x00000000, 0xffffffff,
	};
	uint32_t code[64];
	uint8_t program[12];

	srand(1);
	for (int round = 0; round < 1000; round++) {
		const struct msp_unwind_table *table;
		struct msp_image *image;

		for (int i = 0; i < 64; i++)
			code[i] = words[(size_t)rand() % (sizeof(words) / sizeof(words[0]))];
		for (size_t i = 0; i < sizeof(program); i++)
			program[i] = (uint8_t)rand();
		program[0] = DW_CFA_def_cfa_offset;
		image = open_code(code, sizeof(code) - (size_t)rand() % 6, program, sizeof(program),
				  &table);
		for (uint32_t i = 0; i < table->row_count; i++) {
			assert_true(table->rows[i].rule < table->rule_count);
			assert_true(!i || table->rows[i].addr > table->rows[i - 1].addr);
		}
		msp_image_close(image);
	}
}

/* The CFI of libgcc's unwinder: all saved, then at the epilogue's end all back. Rows of the code behind the end. */
static struct msp_image *open_thrower(const uint32_t *end, size_t size,
				      const struct msp_unwind_table **table)
{
	uint32_t code[16] = {0xd10203ff, NOP, NOP, 0x910203ff}; /* sub, add sp, sp, #128 */

	memcpy(code + 4, end, size);
	return open_code(
		code, 16 + size,
		PROGRAM(DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 0x80, 1, DW_CFA_offset | 30,
			15, DW_CFA_offset | 0, 14, DW_CFA_offset | 1, 13, DW_CFA_offset | 2, 12,
			DW_CFA_offset | 3, 11, DW_CFA_offset | 19, 1, DW_CFA_offset | 20, 2,
			DW_CFA_offset | 21, 3, DW_CFA_offset | 22, 4, DW_CFA_offset | 23, 5,
			DW_CFA_offset | 24, 6, DW_CFA_offset | 25, 7, DW_CFA_offset | 26, 8,
			DW_CFA_offset | 27, 9, DW_CFA_offset | 28, 10, DW_CFA_offset | 29, 16,
			DW_CFA_advance_loc | 12, DW_CFA_restore | 30, DW_CFA_def_cfa_offset, 0),
		table);
}

static void assert_landing(const struct msp_unwind_table *table, int n, int kind, int reg, int off,
			   int ra)
{
	const struct msp_rule *rule = rule_of(table, T + 16 + 4 * (uint32_t)n);

	assert_int_equal(rule->cfa_kind, kind);
	assert_int_equal(rule->flags, MSP_RULE_LANDS);
	if (kind == MSP_CFA_UNSUPPORTED)
		return;
	assert_int_equal(rule->cfa_reg, reg);
	assert_int_equal(rule->cfa_off, off);
	assert_int_equal(rule->saved[MSP_SLOT_RA], ra);
	assert_int_equal(rule->saved[X19], SAME);
}

/* gcc's __builtin_eh_return until gcc 13: add sp, sp, x4; ret. */
static void lands_by_return(void **state)
{
	static const uint32_t plain[] = {ADD_SP_X4, RET}, late[] = {AUTIASP, ADD_SP_X4, RET};
	const struct msp_unwind_table *table;
	struct msp_image *image = open_thrower(plain, sizeof(plain), &table);

	assert_int_equal(rule_of(table, T + 12)->flags, MSP_RULE_THROWS);
	assert_landing(table, 0, MSP_CFA_LANDING, 4, 4, 30);
	assert_landing(table, 1, MSP_CFA_RA_REG, 31, 0, 30);
	assert_int_equal(rule_of(table, T + 24)->cfa_kind, MSP_CFA_NONE);
	msp_image_close(image);
	image = open_thrower(late, sizeof(late), &table);
	assert_landing(table, 0, MSP_CFA_LANDING, 4, 4, 30);
	assert_landing(table, 1, MSP_CFA_LANDING, 4, 4, 30);
	assert_landing(table, 2, MSP_CFA_RA_REG, 31, 0, 30);
	msp_image_close(image);
}

/* Since then: cbz x4, out; add sp, sp, x5; br x6; out: ret. */
static void lands_by_branch(void **state)
{
	static const uint32_t branch[] = {CBZ_X4, ADD_SP_X4 | 1 << 16, BR_X3, AUTIASP, RET};
	static const uint32_t odd[] = {ADD_SP_X4, BR_X3, RET}, none[] = {AUTIASP, RET, ADD_SP_X4};
	const struct msp_unwind_table *table;
	struct msp_image *image = open_thrower(branch, sizeof(branch), &table);

	assert_landing(table, 0, MSP_CFA_LANDING, 5, 4, 3);
	assert_landing(table, 1, MSP_CFA_LANDING, 5, 4, 3);
	assert_landing(table, 2, MSP_CFA_RA_REG, 31, 0, 3);
	assert_landing(table, 3, MSP_CFA_REG, 31, 0, SAME);
	assert_landing(table, 4, MSP_CFA_REG, 31, 0, SAME);
	msp_image_close(image);
	/* What nobody has seen is marked; without an addition there is nothing to mend. */
	image = open_thrower(odd, sizeof(odd), &table);
	assert_landing(table, 0, MSP_CFA_UNSUPPORTED, 0, 0, 0);
	assert_landing(table, 1, MSP_CFA_UNSUPPORTED, 0, 0, 0);
	assert_landing(table, 2, MSP_CFA_REG, 31, 0, SAME);
	msp_image_close(image);
	image = open_thrower(none, sizeof(none), &table);
	assert_landing(table, 0, MSP_CFA_REG, 31, 0, SAME);
	assert_landing(table, 1, MSP_CFA_REG, 31, 0, SAME);
	msp_image_close(image);
}

static void assert_op(uint32_t word, enum msp_a64_kind kind, int32_t imm, int32_t moves,
		      uint32_t regs)
{
	struct msp_a64_op op;

	msp_a64_decode(word, &op);
	assert_int_equal(op.kind, kind);
	assert_int_equal(op.imm, imm);
	assert_int_equal(op.moves, moves);
	assert_int_equal(op.reg_count, regs);
}

static void decoder(void **state)
{
	assert_op(0xd14007ff, MSP_A64_ADD_SP, -4096, 0, 0); /* sub sp, sp, #1, lsl #12 */
	assert_op(0xd10043bf, MSP_A64_SP_FP, -16, 0, 0);    /* sub sp, x29, #16 */
	assert_op(0xf81f0ffe, MSP_A64_STORE, -16, -16, 1);  /* str x30, [sp, #-16]! */
	assert_op(0xf84107fe, MSP_A64_LOAD, 0, 16, 1);	    /* ldr x30, [sp], #16 */
	assert_op(0xf80083fe, MSP_A64_STORE, 8, 0, 1);	    /* stur x30, [sp, #8] */
	assert_op(0xfc1f0fe8, MSP_A64_STORE, -16, -16, 0);  /* str d8, [sp, #-16]! */
	assert_op(0x6cc127e8, MSP_A64_LOAD, 0, 16, 0);	    /* ldp d8, d9, [sp], #16 */
	assert_op(0xf8201fe0, MSP_A64_LOSES_SP, 0, 0, 0);   /* ldraa x0, [sp, #8]! */
	assert_op(0x4cdf73e0, MSP_A64_LOSES_SP, 0, 0, 0);   /* ld1 {v0.16b}, [sp], #16 */
	assert_op(0x9181001f, MSP_A64_LOSES_SP, 0, 0, 0);   /* addg sp, x0, #16, #0 */
	assert_op(0x9100001f, MSP_A64_LOSES_SP, 0, 0, 0);   /* mov sp, x0 */
	assert_op(0x927cec1f, MSP_A64_LOSES_SP, 0, 0, 0);   /* and sp, x0, #-16 */
	assert_op(0x58ffff00, MSP_A64_PLAIN, 0, 0, 0);	    /* ldr x0, from beside the code */
	assert_op(0xc8dfffe0, MSP_A64_PLAIN, 0, 0, 0);	    /* ldar x0, [sp] */
	assert_op(0xf8616be0, MSP_A64_PLAIN, 0, 0, 0);	    /* ldr x0, [sp, x1] */
	assert_op(0xd4000001, MSP_A64_PLAIN, 0, 0, 0);	    /* svc #0 */
	assert_op(0xd65f0bff, MSP_A64_RETURN, 0, 0, 0);	    /* retaa */
	assert_op(0xd61f081f, MSP_A64_LEAVES, 0, 0, 0);	    /* braaz x0 */
	assert_op(0xd4200020, MSP_A64_LEAVES, 0, 0, 0);	    /* brk #1 */
	assert_op(0xd73f081f, MSP_A64_CALL, 0, 0, 0);	    /* blraa x0, sp */
	assert_op(0x371ffe00, MSP_A64_BRANCH, -64, 0, 0);   /* tbnz w0, #3 */
	assert_op(0x17ffffd5, MSP_A64_JUMP, -172, 0, 0);    /* b */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(early_exit),	   cmocka_unit_test(frame_pointer),
		cmocka_unit_test(no_return),	   cmocka_unit_test(doubtful),
		cmocka_unit_test(any_code),	   cmocka_unit_test(decoder),
		cmocka_unit_test(lands_by_return), cmocka_unit_test(lands_by_branch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

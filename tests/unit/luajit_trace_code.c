/* SPDX-License-Identifier: MIT */
/* What instructions of traces are for, on arm64: as LuaJIT makes them (lj_asm_arm64.h). */
#include "luajit_help.h"

#include "luajit/trace_code.h"

#define G 0x5500001000ull
#define CODE 0x5500100000ull
#define CUR_L 0x170
#define STRING 0x5502d82878ull
#define MAX 64

static struct msp_trace_ins ins[MAX];

/* Decodes words; the loop begins at the one with that index. */
static void decode(const uint32_t *word, size_t count, uint32_t loop)
{
	struct msp_lj_layout y = {
		.arch = MSP_ARCH_ARM64, .gc64 = 1, .fr2 = 1, .g_cur_L = CUR_L, .reg_is_g = 1};
	bool all;

	assert_true(count <= MAX);
	assert_int_equal(msp_trace_code_read(&y, G, (const uint8_t *)word, count * 4, CODE,
					     loop * 4, ins, MAX, &all),
			 count);
	assert_true(all);
}
#define DECODE(loop, ...) \
	do { \
		static const uint32_t words[] = {__VA_ARGS__}; \
		decode(words, sizeof(words) / sizeof(words[0]), loop); \
	} while (0)

/* A constant is loaded where the trace begins, another one is a distance from it. */
static void test_keys(void **state)
{
	(void)state;
	DECODE(0, 0xd2850f03, /* mov x3, #0x2878 */
	       0xf2a05b03,    /* movk x3, #0x2d8, lsl #16 */
	       0xf2d00aa3,    /* movk x3, #0x8055, lsl #32 */
	       0xf2ffffa3,    /* movk x3, #0xfffd, lsl #48: a string with its tag */
	       0x910b6065,    /* add x5, x3, #728: another one */
	       0xb940379b,    /* ldr w27, [x28, #52] */
	       0x7100077f,    /* cmp w27, #1 */
	       0x540000c1,    /* b.ne */
	       0xf940079b,    /* ldr x27, [x28, #8] */
	       0xeb03037f,    /* cmp x27, x3 */
	       0xf940079e,    /* ldr x30, [x28, #8] */
	       0xeb1e00bf,    /* cmp x5, x30 */
	       0xf94003fb,    /* ldr x27, [sp]: no key */
	       0xeb03037f);   /* cmp x27, x3 */
	assert_int_equal(ins[4].does, MSP_DOES_COPY);
	assert_int_equal(ins[6].does, MSP_DOES_COMPARE | MSP_DOES_KEY);
	assert_int_equal(ins[6].key, 0);
	assert_int_equal(ins[7].does, MSP_DOES_BRANCH | MSP_DOES_KEY);
	assert_int_equal(ins[9].does, MSP_DOES_COMPARE | MSP_DOES_KEY);
	assert_int_equal(ins[9].key, STRING);
	assert_int_equal(ins[11].key, STRING + 728);
	assert_int_equal(ins[13].does, MSP_DOES_COMPARE);
}

/* A C type's number may lie where a table has the size of its hash, and a loop may end with it. */
static void test_no_key(void **state)
{
	(void)state;
	DECODE(0, 0xb940379b, /* ldr w27, [x28, #52] */
	       0x7100077f,    /* cmp w27, #1 */
	       0x540000cc,    /* b.gt */
	       0x7100077f,    /* cmp w27, #1 */
	       0xd503201f,    /* nop */
	       0x540000c1);   /* b.ne */
	for (int i = 0; i < 6; i++)
		assert_int_equal(ins[i].does & MSP_DOES_KEY, 0);
	assert_int_equal(ins[1].does, MSP_DOES_COMPARE);
	assert_int_equal(ins[2].does, MSP_DOES_BRANCH);
}

/* What was a constant before the loop is one in it, but not a number, which a variable may begin with. */
static void test_loop(void **state)
{
	(void)state;
	DECODE(5, 0xd2850f03, 0xf2a05b03, 0xf2d00aa3, 0xf2ffffa3, /* x3: a string */
	       0xd2800020,					  /* mov x0, #1 */
	       0xf940079b,					  /* ldr x27, [x28, #8] */
	       0xeb03037f,					  /* cmp x27, x3 */
	       0x91000400);					  /* add x0, x0, #1 */
	assert_int_equal(ins[6].key, STRING);
	assert_int_equal(ins[7].does, MSP_DOES_ADD);
}

/* Two loads of the VM's state in one, and the collector's step over which is jumped. */
static void test_check(void **state)
{
	(void)state;
	DECODE(0, 0xa94206de, /* ldp x30, x1, [x22, #32] */
	       0xeb0103df,    /* cmp x30, x1 */
	       0x540000c9,    /* b.ls */
	       0x52800021,    /* mov w1, #1 */
	       0xaa1603e0,    /* mov x0, x22 */
	       0x94000000,    /* bl */
	       0xaa1e03de,    /* orr x30, x30, x30 */
	       0xb5000040,    /* cbnz x0 */
	       0xeb0103df);   /* cmp x30, x1 */
	for (int i = 1; i < 8; i++)
		assert_int_equal(ins[i].does, MSP_DOES_CHECK);
	assert_int_equal(ins[8].does, MSP_DOES_COMPARE);
}

/* The Lua state, as the first argument, moved there or read again; then a call has destroyed it. */
static void test_calls(void **state)
{
	(void)state;
	DECODE(0, 0xf940bad7, /* ldr x23, [x22, #0x170] */
	       0xaa1703e0,    /* mov x0, x23 */
	       0x94000000,    /* bl */
	       0x94000000,    /* bl */
	       0xf9400348,    /* ldr x8, [x26] */
	       0xd63f0100,    /* blr x8: a function that was loaded */
	       0xd2850f09,    /* mov x9, #0x2878 */
	       0xd63f0120,    /* blr x9: that constant */
	       0xd63f0120);   /* blr x9: which the call has destroyed */
	assert_int_equal(ins[2].does, MSP_DOES_CALL | MSP_DOES_STATE);
	assert_int_equal(ins[3].does, MSP_DOES_CALL);
	assert_int_equal(ins[5].does, MSP_DOES_CALL | MSP_DOES_FOREIGN);
	assert_int_equal(ins[7].does, MSP_DOES_CALL);
	assert_int_equal(ins[8].does, 0);
}

static void test_values(void **state)
{
	(void)state;
	DECODE(0, 0xf9400a7c, /* ldr x28, [x19, #16] */
	       0x936ffF9b,    /* asr x27, x28, #47 */
	       0xb100337f,    /* cmn x27, #12 */
	       0x9240bb9c,    /* and x28, x28, #0x7fffffffffff */
	       0x9e67036f,    /* fmov d15, x27 */
	       0x1f4308af,    /* fmadd d15, d5, d3, d2 */
	       0x1f43a8af,    /* fmsub d15, d5, d3, d10 */
	       0xf87c5b8f,    /* ldr x15, [x28, w28, uxtw #3] */
	       0x6b00019f,    /* cmp w12, w0 */
	       0x54000049,    /* b.ls */
	       0x1e632040,    /* fcmp d2, d3 */
	       0x54000049,    /* b.ls */
	       0xaa1e03f3,    /* mov x19, x30 */
	       0xf9400a7c);   /* ldr x28, [x19, #16] */
	assert_int_equal(ins[0].does, MSP_DOES_SLOT);
	assert_int_equal(ins[0].slot, 2);
	for (int i = 1; i < 5; i++)
		assert_int_equal(ins[i].does, MSP_DOES_TYPE);
	assert_int_equal(ins[5].does, MSP_DOES_ADD | MSP_DOES_FLOAT);
	assert_int_equal(ins[6].does, MSP_DOES_SUB | MSP_DOES_FLOAT);
	assert_int_equal(ins[7].does, MSP_DOES_LOAD | MSP_DOES_INDEX);
	assert_int_equal(ins[8].does, MSP_DOES_COMPARE | MSP_DOES_BOUND);
	assert_int_equal(ins[9].does, MSP_DOES_BRANCH | MSP_DOES_BOUND);
	assert_int_equal(ins[9].jump, CODE + 9 * 4 + 8);
	assert_int_equal(ins[11].does, MSP_DOES_BRANCH);
	assert_int_equal(ins[11].tells, MSP_TELLS_ORDER);
	assert_int_equal(ins[9].tells, 0);
	assert_int_equal(ins[13].does, MSP_DOES_LOAD);
}

/* What is one thing: a guard, a value and its type, a product that is checked, a chain of nodes. */
static void test_joined(void **state)
{
	static const bool joined[] = {0, 0, 1, 1, 1, 1, /* a value that is loaded */
				      0, 1, 0,		/* a sum; then one that is not checked */
				      0, 1, 1, 1, 1,	/* a product */
				      0, 1, 1, 1, 1, 1, /* nodes */
				      0, 1, 0, 0};

	(void)state;
	DECODE(0, 0xd10043ff, /* sub sp, sp, #16 */
	       0xf87c5b8f,    /* ldr x15, [x28, w28, uxtw #3] */
	       0x936ffdfb,    /* asr x27, x15, #47 */
	       0xb100337f,    /* cmn x27, #12 */
	       0x540000c1,    /* b.ne */
	       0x9240b9ef,    /* and x15, x15, #0x7fffffffffff */
	       0x2b030041,    /* adds w1, w2, w3 */
	       0x540000c6,    /* b.vs */
	       0x2b030041,    /* adds w1, w2, w3 */
	       0x9b227c23,    /* smull x3, w1, w2 */
	       0x9360fc7e,    /* asr x30, x3, #32 */
	       0x6b837fdf,    /* cmp w30, w3, asr #31 */
	       0x2a0303e3,    /* mov w3, w3 */
	       0x540000c1,    /* b.ne */
	       0xf940077e,    /* ldr x30, [x27, #8] */
	       0xeb1e011f,    /* cmp x8, x30 */
	       0x54000080,    /* b.eq */
	       0xf9400b7b,    /* ldr x27, [x27, #16] */
	       0xf100037f,    /* cmp x27, #0 */
	       0x54ffff61,    /* b.ne, to the first of these */
	       0x1e632040,    /* fcmp d2, d3 */
	       0x540000c8,    /* b.hi */
	       0x540000c8,    /* b.hi */
	       0x2a0303e3);   /* mov w3, w3 */
	for (size_t i = 0; i < sizeof(joined); i++)
		assert_int_equal(ins[i].joined, joined[i] ? MSP_JOINED : MSP_JOINED_NOT);
	assert_true(ins[6].tells & ins[9].tells & MSP_TELLS_OVERFLOW);
	assert_false((ins[8].tells | ins[7].tells) & MSP_TELLS_OVERFLOW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),   cmocka_unit_test(test_loop),
		cmocka_unit_test(test_check),  cmocka_unit_test(test_calls),
		cmocka_unit_test(test_values), cmocka_unit_test(test_joined),
		cmocka_unit_test(test_no_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

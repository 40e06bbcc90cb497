/* SPDX-License-Identifier: MIT */
/* arm64 instructions as analysis sees them, and addresses that code makes in steps. */
#include "elf_help.h"

#include "luajit/build.h"

#define T TEXT_OFFSET

static struct {
	struct test_elf elf;
	struct msp_lj_build build;
} t;

static void open_code(const uint32_t *word, size_t count)
{
	memset(&t, 0, sizeof(t));
	test_elf_start(&t.elf, EM_AARCH64, 0);
	memcpy(t.elf.bytes + T, word, count * sizeof(*word));
	test_elf_finish(&t.elf);
	t.build.image = test_elf_open(&t.elf, NULL);
	assert_int_equal(msp_code_open(t.build.image, &t.build.code), 0);
}

static void close_code(void)
{
	msp_code_close(t.build.code);
	msp_image_close(t.build.image);
}

static struct msp_insn decode(unsigned int i)
{
	struct msp_insn insn;

	assert_int_equal(msp_code_decode(t.build.code, T + i * 4, &insn), 0);
	assert_int_equal(insn.size, 4);
	return insn;
}

static void instructions(void **state)
{
	static const uint32_t code[] = {
		0x8b300ec9, /* add x9, x22, w16, uxtb #3 */
		0xb84046b0, /* ldr w16, [x21], #4 */
		0xa9be4ff4, /* stp x20, x19, [sp, #-32]! */
		0xa94272f3, /* ldp x19, x28, [x23, #32] */
		0x927ef43f, /* and sp, x1, #-4 */
		0xb10015ff, /* cmn x15, #5 */
		0xb4000040, /* cbz x0, +8 */
		0xd65f0fff, /* retab */
		0xd63f081f, /* blraaz x0 */
		0xd71f0909, /* braa x8, x9 */
		0xf8200ed5, /* ldraa: not decoded, and not taken for a branch */
		0x12800020, /* mov w0, #-2 */
		0xd340b820, /* ubfx x0, x1, #0, #47 */
		0xd3438800, /* ubfx x0, x0, #3, #32 */
		0x9ba86808, /* umaddl x8, w0, w8, x26 */
		0x9b080368, /* madd x8, x27, x8, x0 */
	};
	struct msp_insn i;

	(void)state;
	open_code(code, sizeof(code) / sizeof(code[0]));
	i = decode(0);
	assert_true(i.op == MSP_OP_ADD && i.operand_count == 3 && i.operand[2].reg == 16 &&
		    i.operand[2].narrow == 1 && i.operand[2].shift == 3 && i.writes == 1 << 9);
	i = decode(1);
	assert_true(i.op == MSP_OP_MOV && i.operand[1].base == 21 && i.operand[1].value == 0 &&
		    i.operand[1].step == 4 && i.writes == (1 << 16 | 1 << 21));
	i = decode(2);
	assert_true(i.op == MSP_OP_MOV && i.operand[0].base == 31 && i.operand[0].value == -32 &&
		    i.operand[0].step == -32 && i.operand[1].reg == 20 && i.second == 19 &&
		    i.writes == 1U << 31);
	i = decode(3);
	assert_true(i.operand[1].value == 32 && i.operand[0].reg == 19 && i.second == 28 &&
		    i.writes == (1 << 19 | 1 << 28));
	i = decode(4);
	assert_true(i.op == MSP_OP_AND && i.operand[0].reg == 31 && i.operand[2].value == -4);
	i = decode(5);
	assert_true(i.op == MSP_OP_CMP && i.operand[1].value == -5 && !i.writes);
	i = decode(6);
	assert_true(i.op == MSP_OP_JCC && i.has_target && i.target == T + 32);
	assert_int_equal(decode(7).op, MSP_OP_RET);
	i = decode(8);
	assert_true(i.op == MSP_OP_CALL && !i.has_target && i.operand[0].reg == 0);
	i = decode(9);
	assert_true(i.op == MSP_OP_JMP && !i.has_target && i.operand[0].reg == 8);
	assert_int_not_equal(msp_code_decode(t.build.code, T + 40, &i), 0);
	assert_int_equal(decode(11).operand[1].value, 0xfffffffe);
	i = decode(12);
	assert_true(i.op == MSP_OP_AND && i.operand[2].value == (int64_t)(~0ull >> 17));
	i = decode(13);
	assert_true(i.op == MSP_OP_SHR && i.operand[2].value == 3);
	assert_int_equal(i.addend, MSP_REG_NONE);
	i = decode(14);
	assert_true(i.op == MSP_OP_MUL && i.operand_count == 3 && i.operand[0].reg == 8 &&
		    i.operand[1].reg == 0 && i.operand[2].reg == 8 && i.addend == 26 &&
		    i.writes == 1 << 8);
	assert_int_equal(decode(15).addend, 0);
	close_code();
}

static void addresses(void **state)
{
	static const uint32_t code[] = {
		0xb0000074, /* adrp x20, page + 0xd000 */
		0x91140294, /* add x20, x20, #0x500 */
		0xd1040282, /* sub x2, x20, #0x100 */
		0xaa1403e1, /* mov x1, x20 */
		0x97fffd76, /* bl */
		0x91002042, /* add x2, x2, #8: of what the call left there */
		0xf9400a94, /* ldr x20, [x20, #16] */
		0x91000683, /* add x3, x20, #1 */
		0x10000043, /* adr x3, +8 */
		0x94000000, /* bl */
	};
	uint64_t value, page = T + 0xd000;

	(void)state;
	open_code(code, sizeof(code) / sizeof(code[0]));
	assert_true(msp_lj_arm64_value(&t.build, T + 16, 2, &value));
	assert_int_equal(value, page + 0x400);
	assert_true(msp_lj_arm64_argument(&t.build, T + 4, 1, &value));
	assert_int_equal(value, page + 0x500);
	assert_true(msp_lj_arm64_taken(&t.build, T + 8, code[2], &value));
	assert_int_equal(value, page + 0x400);
	assert_false(msp_lj_arm64_value(&t.build, T + 24, 2, &value));
	assert_false(msp_lj_arm64_value(&t.build, T + 32, 3, &value));
	assert_true(msp_lj_arm64_argument(&t.build, T + 32, 3, &value));
	assert_int_equal(value, T + 40);
	assert_false(msp_lj_arm64_argument(&t.build, T + 20, 4, &value));
	close_code();
}

/* Words of tables in a segment of code are no instructions, whatever they look like. */
#define BLOCK (T + 0x800)
static void references(void **state)
{
	static const uint32_t text[] = {0x10004020 /* adr x0, BLOCK + 4 */,
					0x94000201 /* bl BLOCK + 8 */};
	static const uint32_t table = 0x10000000; /* adr x0, to itself and a distance */
	struct msp_insn insn[4] = {{.addr = BLOCK, .size = 4},
				   {.addr = BLOCK + 4, .size = 4},
				   {.addr = BLOCK + 8, .size = 4},
				   {.addr = BLOCK + 12, .size = 4}};
	uint32_t words[2];
	uint64_t at;

	(void)state;
	memset(&t, 0, sizeof(t));
	test_elf_start(&t.elf, EM_AARCH64, 0);
	memcpy(t.elf.bytes + T, text, sizeof(text));
	t.elf.sections[1].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
	at = test_elf_section(&t.elf, ".rodata", SHT_PROGBITS, NULL, sizeof(words))->sh_offset;
	/* adr to BLOCK + 12, b to BLOCK */
	words[0] = table | ((uint32_t)((int64_t)(BLOCK + 12 - at) >> 2) & 0x7ffff) << 5;
	words[1] = 0x14000000 | ((uint32_t)((int64_t)(BLOCK - at - 4) >> 2) & 0x3ffffff);
	memcpy(t.elf.bytes + at, words, sizeof(words));
	test_elf_finish(&t.elf);
	t.build.image = test_elf_open(&t.elf, NULL);
	assert_int_equal(msp_lj_read_segments(&t.build), 0);
	t.build.insn = insn;
	t.build.insn_count = 4;
	t.build.block_start = BLOCK;
	t.build.block_end = BLOCK + 16;
	msp_lj_find_refs(&t.build);
	assert_int_equal(t.build.ref_count, 2);
	assert_true(t.build.ref[0].target == BLOCK + 4 &&
		    t.build.ref[0].kind == MSP_LJ_REF_ADDRESS);
	assert_true(t.build.ref[1].target == BLOCK + 8 && t.build.ref[1].kind == MSP_LJ_REF_CALL);
	msp_image_close(t.build.image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(instructions),
					   cmocka_unit_test(addresses),
					   cmocka_unit_test(references)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

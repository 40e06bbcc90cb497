/* SPDX-License-Identifier: MIT */
/* Calls of an address without code: every form of an operand, held against what it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "moonspy/moonspy.h"
#include "target/walker.h"

#define CODE 0x400000ull /* where the calls return to */
#define STACK 0x7000ull
#define TABLE 0x10000ull /* a word at TABLE + n holds TARGET + n */
#define TARGET 0x10ull

/* DWARF numbers */
enum { RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R11 = 11, R12, R13, R14 };

static uint8_t code[16]; /* what ends at CODE */

static int read_memory(void *ctx, uint64_t addr, void *buf, size_t size)
{
	uint64_t word;

	(void)ctx;
	if (addr >= CODE - sizeof(code) && addr + size <= CODE) {
		memcpy(buf, code + (addr - (CODE - sizeof(code))), size);
		return 0;
	}
	if (size != 8)
		return MSP_E_FAULT;
	if (addr == STACK)
		word = CODE;
	else if (addr >= TABLE && addr < TABLE + 4096)
		word = TARGET + (addr - TABLE);
	else
		return MSP_E_FAULT;
	memcpy(buf, &word, 8);
	return 0;
}

static const struct msp_memory memory = {read_memory, NULL};

static const struct {
	const char *what;
	uint8_t size, bytes[8];
	uint64_t target;
} calls[] = {
	{"call rax", 2, {0xff, 0xd0}, TARGET},
	{"call r11", 3, {0x41, 0xff, 0xd3}, TARGET + 1},
	{"call [rbx]", 2, {0xff, 0x13}, TARGET},
	{"call [rbx + 8]", 3, {0xff, 0x53, 0x08}, TARGET + 8},
	{"call [rbp - 8]", 3, {0xff, 0x55, 0xf8}, TARGET + 8},
	{"call [rbx + 0x120]", 6, {0xff, 0x93, 0x20, 1, 0, 0}, TARGET + 0x120},
	{"call [rbx + rcx * 8]", 3, {0xff, 0x14, 0xcb}, TARGET + 16},
	{"call [rbx + r14 * 4 + 4]", 5, {0x42, 0xff, 0x54, 0xb3, 0x04}, TARGET + 16},
	{"call [r12 + 8]", 5, {0x41, 0xff, 0x54, 0x24, 0x08}, TARGET + 0x28},
	{"call [r13]", 4, {0x41, 0xff, 0x55, 0x00}, TARGET + 0x30},
	{"call [rsp + disp32]", 7, {0xff, 0x94, 0x24, 0xf8, 0x8f, 0, 0}, TARGET},
	{"call [rip + disp32]", 6, {0xff, 0x15, 0x10, 0x00, 0xc1, 0xff}, TARGET + 0x10},
	{"call [disp32]", 7, {0xff, 0x14, 0x25, 0x18, 0x00, 0x01, 0x00}, TARGET + 0x18},
	{"call rel32", 5, {0xe8, 0x10, 0x00, 0xc0, 0xff}, TARGET},
};

static struct msp_registers registers(uint64_t pc)
{
	struct msp_registers regs = {.pc = pc};

	regs.reg[RAX] = TARGET;
	regs.reg[R11] = TARGET + 1;
	regs.reg[RBX] = TABLE;
	regs.reg[RBP] = TABLE + 16;
	regs.reg[RCX] = 2;
	regs.reg[R14] = 3;
	regs.reg[R12] = TABLE + 0x20;
	regs.reg[R13] = TABLE + 0x30;
	regs.reg[RSP] = STACK;
	return regs;
}

static void set_code(const uint8_t *bytes, size_t size)
{
	memset(code, 0x90, sizeof(code));
	memcpy(code + sizeof(code) - size, bytes, size);
}

static void test_forms(void **state)
{
	uint64_t ret;

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct msp_registers regs = registers(calls[i].target);

		set_code(calls[i].bytes, calls[i].size);
		ret = 0;
		if (!msp_call_to_nowhere(&memory, &regs, &ret) || ret != CODE)
			fail_msg("%s", calls[i].what);
		regs.pc = calls[i].target + 0x2000;
		if (msp_call_to_nowhere(&memory, &regs, &ret))
			fail_msg("%s: called something else", calls[i].what);
	}
}

/* A jump, a push, a return: nobody called from there. */
static void test_no_call(void **state)
{
	static const uint8_t others[][3] = {
		{0xff, 0xe0, 0x90}, {0x90, 0xff, 0xe0}, {0x90, 0xff, 0x33}, {0xc3, 0xc3, 0xc3}};
	struct msp_registers regs = registers(TARGET);
	uint64_t ret;

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		set_code(others[i], sizeof(others[i]));
		assert_false(msp_call_to_nowhere(&memory, &regs, &ret));
	}
	regs.reg[RSP] = 0; /* no stack */
	set_code(calls[0].bytes, calls[0].size);
	assert_false(msp_call_to_nowhere(&memory, &regs, &ret));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_no_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* The walker on arm64, with memory and tables made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "unwind/walk.h"

#define MSP_INLINE inline
typedef uint32_t __attribute__((aligned(1), may_alias)) msp_word_anywhere;
#define MSP_SUB(name) static int __attribute__((unused)) name(struct msp_walk *w)
#define MSP_CALL(w, name) name(w)
#define MSP_SUB_N(name) static int __attribute__((unused)) name(struct msp_walk *w, uint64_t n)
#define MSP_CALL_N(w, name, n) name(w, n)

/* One piece of memory, one image with one rule, one layout. */
#define STACK 0x7f0000000000ull
#define TEXT 0x550000000000ull
#define TEXT_SIZE 0x10000
static struct {
	uint64_t start;
	uint8_t bytes[8192];
	size_t size;
	struct msp_rule rule;
	struct msp_lj_layout layout;
} t;

static int host_read(struct msp_walk *w, void *dst, size_t size, uint64_t addr)
{
	(void)w;
	if (addr < t.start || addr - t.start > t.size || size > t.size - (addr - t.start))
		return -1;
	memcpy(dst, t.bytes + (addr - t.start), size);
	return 0;
}

static const struct msp_lj_layout *host_layout(struct msp_walk *w, uint32_t index)
{
	(void)w;
	return index ? &t.layout : NULL;
}

static const struct msp_lj_layout *host_vm(struct msp_walk *w, uint32_t i)
{
	(void)w;
	(void)i;
	return NULL;
}

MSP_SUB(find_mapping)
{
	w->map = (struct msp_mapping){
		.start = TEXT, .end = TEXT + TEXT_SIZE, .base = TEXT, .image = 1};
	return w->look - TEXT >= TEXT_SIZE;
}

MSP_SUB(find_rule)
{
	w->rule = t.rule;
	return MSP_ERR_NONE;
}

#include "unwind/walker.h"

static struct msp_walk w;

static void put(uint64_t addr, uint64_t value)
{
	memcpy(t.bytes + (addr - t.start), &value, sizeof(value));
}

static void put32(uint64_t addr, uint32_t value)
{
	memcpy(t.bytes + (addr - t.start), &value, sizeof(value));
}

static int start(void **state)
{
	(void)state;
	memset(&t, 0, sizeof(t));
	memset(&w, 0, sizeof(w));
	t.start = STACK;
	t.size = sizeof(t.bytes);
	w.arch = MSP_ARCH_ARM64;
	for (int i = 0; i < 32; i++)
		w.reg[i] = 0x1000 + (uint64_t)i;
	w.reg[31] = STACK + 64;
	w.known = 0xffffffff;
	w.pc = TEXT + 0x100;
	w.exact = 1;
	walk_begin(&w);
	t.rule = (struct msp_rule){.cfa_kind = MSP_CFA_REG, .cfa_reg = 31};
	for (int i = 0; i < MSP_SLOT_COUNT; i++)
		t.rule.saved[i] = MSP_SAVED_SAME;
	return 0;
}

static void signed_return_address(void **state)
{
	(void)state;
	t.rule.cfa_off = 48;
	t.rule.flags = MSP_RULE_RA_SIGNED;
	t.rule.saved[MSP_SLOT_RA] = -40;
	t.rule.saved[11] = -48; /* x29 */
	t.rule.saved[1] = -32;	/* x19 */
	put(STACK + 64, STACK + 200);
	put(STACK + 72, 0x00b7000000000000ull | (TEXT + 0x204));
	put(STACK + 80, 0x1919);
	assert_int_equal(walk_step(&w), MSP_STEP_MORE);
	assert_int_equal(w.pc, TEXT + 0x204);
	assert_int_equal(w.reg[31], STACK + 112);
	assert_int_equal(w.reg[29], STACK + 200);
	assert_int_equal(w.reg[19], 0x1919);
	assert_int_equal(w.reg[20], 0x1014);
	assert_true(reg_known(&w, 20) && !reg_known(&w, 30) && !reg_known(&w, 9));
	assert_false(w.exact);
}

static void leaf(void **state)
{
	(void)state;
	w.reg[30] = 0x0042000000000000ull | (TEXT + 0x300);
	assert_int_equal(walk_step(&w), MSP_STEP_MORE);
	assert_int_equal(w.pc, TEXT + 0x300);
	assert_int_equal(w.reg[31], STACK + 64);
	/* Only the innermost function has it there: the next is none that could be left like that. */
	assert_int_equal(walk_step(&w), MSP_STEP_DONE);
	assert_int_equal(w.error, MSP_ERR_LOST_REGISTER);
}

/* Where a fiber starts there is no unwind data: a zero frame pointer says that nothing called it (AAPCS64, 6.4.6). */
static void fiber_root(void **state)
{
	(void)state;
	t.rule.cfa_kind = MSP_CFA_NONE;
	w.exact = 0;
	w.known = MSP_ARM64_PRESERVED & ~(1u << 30);
	w.reg[29] = 0;
	assert_int_equal(walk_step(&w), MSP_STEP_DONE);
	assert_int_equal(w.error, MSP_ERR_NONE);
	/* Anything else has to check out. */
	start(NULL);
	t.rule.cfa_kind = MSP_CFA_NONE;
	w.exact = 0;
	w.known = MSP_ARM64_PRESERVED & ~(1u << 30);
	w.reg[29] = STACK + 8;
	assert_int_equal(walk_step(&w), MSP_STEP_DONE);
	assert_int_equal(w.error, MSP_ERR_NO_RULE);
	start(NULL);
	t.rule.cfa_kind = MSP_CFA_NONE;
	w.exact = 0;
	w.reg[29] = STACK + 128;
	put(STACK + 128, STACK + 256);
	put(STACK + 136, TEXT + 0x404);
	assert_int_equal(walk_step(&w), MSP_STEP_MORE);
	assert_int_equal(w.pc, TEXT + 0x404);
	assert_int_equal(w.ways, 1u << MSP_WAY_FRAME_POINTER);
}

static uint32_t exits_from(uint64_t pc)
{
	w.look = pc;
	return (uint32_t)MSP_CALL(&w, lua_number_from_code);
}

#define STR_LR 0xf90003feu
#define BL 0x97ffff00u
static void trace_exits(void **state)
{
	uint64_t end = STACK + sizeof(t.bytes);

	(void)state;
	w.layout = 1;
	/* The trace before it, then one whose exits are near, over the end of a piece. */
	put32(STACK + 0x40, STR_LR);
	put32(STACK + 0x44, BL);
	put32(STACK + 0x48, 0x52800000 | 6 << 5);
	put32(STACK + 0x57c, STR_LR);
	put32(STACK + 0x580, BL);
	put32(STACK + 0x584, 0x52800000 | 7 << 5);
	assert_int_equal(exits_from(STACK + 0x10), 6);
	assert_int_equal(exits_from(STACK + 0x44), 7);
	assert_int_equal(exits_from(STACK + 0x57c), 7);
	/* One that reaches the handler through a register, and ends where the mapping does. */
	put32(end - 24, STR_LR);
	put32(end - 20, 0xf9400ade);
	put32(end - 16, 0xd63f03c0);
	put32(end - 12, 0x52800000 | 65535 << 5);
	assert_int_equal(exits_from(end - 100), 65535);
	assert_int_equal(exits_from(end - 20), 0);
	/* None near enough; nothing but the store. */
	assert_int_equal(exits_from(STACK + 0x600), 0);
	put32(STACK + 0x700, STR_LR);
	put32(STACK + 0x704, BL);
	assert_int_equal(exits_from(STACK + 0x600), 0);
	/* Far behind it, but a guard leads there: the one that leads over the collector's step does not. */
	put32(STACK + 0x1800, STR_LR);
	put32(STACK + 0x1804, BL);
	put32(STACK + 0x1808, 0x52800000 | 8 << 5);
	put32(STACK + 0x1814, 0x94000000 | (-5 & 0x3ffffff));	      /* its third exit */
	put32(STACK + 0x610, 0x54000000 | 4 << 5);		      /* b.eq */
	put32(STACK + 0x61c, 0x54000009 | (0x1814 - 0x61c) / 4 << 5); /* b.ls */
	assert_int_equal(exits_from(STACK + 0x600), 8);
	assert_int_equal(exits_from(STACK + 0x620), 0);
	put32(STACK + 0x628, 0xb4000000 | (0x1814 - 0x628) / 4 << 5); /* cbz */
	assert_int_equal(exits_from(STACK + 0x620), 8);
	put32(STACK + 0x628, 0x37180000 | (0x1814 - 0x628) / 4 << 5); /* tbnz */
	assert_int_equal(exits_from(STACK + 0x620), 8);
	/* Only to what is an exit. */
	put32(STACK + 0x1814, 0x14000000 | (-5 & 0x3ffffff));
	assert_int_equal(exits_from(STACK + 0x620), 0);
}

static int calls(int arch, uint64_t before)
{
	w.arch = (uint32_t)arch;
	w.exact = 0;
	w.pc = STACK + 0x108;
	put(STACK + 0x100, before);
	return MSP_CALL(&w, lua_trace_calls);
}

/* What is returned to outside of all files is compiled code only if there is a call before it. */
static void returned_to(void **state)
{
	(void)state;
	assert_true(calls(MSP_ARCH_ARM64, (uint64_t)BL << 32));
	assert_true(calls(MSP_ARCH_ARM64, 0xd63f0100ull << 32)); /* blr x8 */
	assert_false(calls(MSP_ARCH_ARM64, BL));
	assert_false(calls(MSP_ARCH_ARM64, 0xd61f0100ull << 32)); /* br x8 */
	assert_false(calls(MSP_ARCH_ARM64, STACK + 0x200));
	assert_true(calls(MSP_ARCH_X86_64, 0x12345678e8909090));  /* call near */
	assert_true(calls(MSP_ARCH_X86_64, 0xd0ffbeadde909090));  /* call rax */
	assert_true(calls(MSP_ARCH_X86_64, 0x1234567815ff9090));  /* call [rip + x] */
	assert_false(calls(MSP_ARCH_X86_64, 0xe0ffbeadde909090)); /* jmp rax */
	assert_false(calls(MSP_ARCH_X86_64, 0x345678e890909090)); /* a call that ends elsewhere */
	assert_false(calls(MSP_ARCH_X86_64, STACK + 0x200));
	/* It need not be readable where a call would have been; what is about to run has called nothing. */
	w.pc = STACK + 4;
	assert_false(MSP_CALL(&w, lua_trace_calls));
	w.exact = 1;
	assert_true(MSP_CALL(&w, lua_trace_calls));
	calls(MSP_ARCH_ARM64, (uint64_t)BL << 32);
	put(STACK + 0x101, (uint64_t)BL << 32);
	w.pc = STACK + 0x109;
	assert_false(MSP_CALL(&w, lua_trace_calls));
}

/* A callback's own code: a slot's, then the page's first instructions. */
static void callback(void **state)
{
	static const struct {
		uint64_t at;
		uint32_t word;
	} code[] = {
		{0x200, 0x5800008b}, {0x204, 0x580000aa}, {0x208, 0xd61f0160}, {0x20c, 0xd503201f},
		{0x220, 0x52800009}, {0x224, 0x17fffff7}, {0x228, 0xd503245f}, {0x22c, 0x52800029},
		{0x230, 0x17fffff4}, {0x240, 0x52800009}, {0x244, 0x14000010},
	};
	static const uint64_t inside[] = {0x200, 0x204, 0x208, 0x220, 0x224, 0x228, 0x22c, 0x230};
	static const uint64_t outside[] = {0x20c, 0x240, 0x244, 0x300};

	(void)state;
	for (size_t i = 0; i < sizeof(code) / sizeof(code[0]); i++)
		put32(STACK + code[i].at, code[i].word);
	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++) {
		w.pc = STACK + inside[i];
		assert_int_equal(MSP_CALL(&w, native_callback_stub), 0);
		assert_int_equal(w.rule.cfa_off, 0);
		assert_int_equal(w.rule.saved[MSP_SLOT_RA], MSP_SAVED_SAME);
	}
	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
		w.pc = STACK + outside[i];
		assert_int_equal(MSP_CALL(&w, native_callback_stub), 1);
	}
}

/* An error lands in the VM block at TEXT + 0x2000; the unwinder's frame is 480 words long. */
static void landing(void **state)
{
	uint64_t frame = STACK + 256, cframe = STACK + 6000 / 16 * 16;

	(void)state;
	t.layout.vm_start = 0x2000;
	t.layout.vm_end = 0x3000;
	w.image_layout = 1;
	w.map.base = TEXT;
	w.thrown_sp = frame;
	w.reg[31] = frame + 480 * 8;
	/* Frame pointer and return address of the frame itself, and at its far end the landing. */
	w.thrown_ra = frame + 8;
	put(frame, cframe + 192);
	put(frame + 8, TEXT + 0x2104);
	put(frame + 470 * 8, cframe);
	put(frame + 471 * 8, TEXT + 0x2200);
	assert_int_equal(MSP_CALL(&w, lua_find_landing), MSP_ERR_NONE);
	assert_int_equal(w.found, 1);
	assert_int_equal(w.cand_base, cframe);
	assert_int_equal(w.cand_pc, TEXT + 0x2200);
}

/* Over its return address it writes that of the frame where it lands, which may be 0: it is no thread's first function. */
static void no_root_that_throws(void **state)
{
	(void)state;
	t.rule.cfa_off = 48;
	t.rule.saved[MSP_SLOT_RA] = -40;
	put(STACK + 72, 0);
	assert_int_equal(walk_step(&w), MSP_STEP_DONE);
	assert_int_equal(w.error, MSP_ERR_NONE);
	start(state);
	t.rule.cfa_off = 48;
	t.rule.saved[MSP_SLOT_RA] = -40;
	t.rule.flags = MSP_RULE_THROWS;
	assert_int_equal(walk_step(&w), MSP_STEP_DONE);
	assert_int_equal(w.error, MSP_ERR_LUA_THROWN);
}

/* libgcc's last instructions: where it lands is in registers, or it returns. */
static void lands_by_registers(void **state)
{
	const struct msp_rule lands = {
		.cfa_kind = MSP_CFA_LANDING, .cfa_reg = 5, .cfa_off = 4, .flags = MSP_RULE_LANDS};

	for (int taken = 0; taken < 2; taken++) {
		start(state);
		memcpy(&t.rule, &lands, offsetof(struct msp_rule, saved));
		t.rule.saved[MSP_SLOT_RA] = 6;
		w.reg[4] = (uint64_t)taken;
		w.reg[5] = 0x340;
		w.reg[6] = TEXT + 0x2200;
		w.reg[30] = TEXT + 0x2300;
		assert_int_equal(walk_step(&w), MSP_STEP_MORE);
		assert_int_equal(w.pc, taken ? TEXT + 0x2200 : TEXT + 0x2300);
		assert_int_equal(w.reg[31], STACK + 64 + (taken ? 0x340 : 0));
		assert_int_equal(w.reg[19], 0x1013);
		assert_int_equal(w.thrown, MSP_RULE_LANDS);
	}
	/* Behind another frame nobody knows. */
	start(state);
	memcpy(&t.rule, &lands, offsetof(struct msp_rule, saved));
	t.rule.saved[MSP_SLOT_RA] = 6;
	w.known = MSP_ARM64_PRESERVED;
	assert_int_equal(walk_step(&w), MSP_STEP_DONE);
	assert_int_equal(w.error, MSP_ERR_LOST_REGISTER);
}

static void places_of_base(void **state)
{
	struct msp_lj_layout *y = &t.layout;

	(void)state;
	y->gc64 = 1;
	y->reg_base = 19;
	w.l_base = 0x4000;
	w.rule.leaf = MSP_LEAF_BASE_REG;
	assert_int_equal(lua_rule_base(&w, y), w.reg[19]);
	w.rule.leaf = MSP_LEAF_BASE_COPY_1;
	assert_int_equal(lua_rule_base(&w, y), w.reg[17]);
	w.rule.leaf = MSP_LEAF_BASE_COPY_2;
	assert_int_equal(lua_rule_base(&w, y), w.reg[2] + 16);
	w.known &= ~(1u << 2);
	assert_int_equal(lua_rule_base(&w, y), 0x4000);
	w.reg_pc = 0x5008 | MSP_FT_VARG;
	w.rule.leaf = MSP_LEAF_LINK_SUB;
	assert_int_equal(lua_leaf_link(&w, 0), 0x5008);
}

/* An FFI callback is being left: BASE is below its C frame already, and PC still the distance, with its type. */
static void callback_is_left(void **state)
{
	struct msp_lj_layout *y = &t.layout;
	const uint64_t base = STACK + 256;

	(void)state;
	y->gc64 = y->fr2 = 1;
	w.rule.leaf = MSP_LEAF_KNOWN | MSP_LEAF_NEXT;
	w.reg_pc = 0x48 | MSP_FT_CONT;
	put(base + 0x48 - 32, MSP_CONT_FFI_CALLBACK);
	put(base + 0x48 - 24, 0);
	assert_int_equal(lua_leaf_complete(&w, y, base), 0);
	assert_int_equal(w.lua_base, 0);
	assert_int_equal(w.cand_base, base);
	/* Another continuation is of the frame at BASE. */
	put(base + 0x48 - 32, TEXT + 0x100);
	put(base + 0x48 - 24, 0x5678);
	assert_int_equal(lua_leaf_complete(&w, y, base), 0);
	assert_int_equal(w.lua_base, base);
	assert_int_equal(w.lua_pc, 0x5678);
}

/* The coroutine's frames have been walked to the last: what is further out on the C stack is not its. */
static void walked_to_the_last(void **state)
{
	(void)state;
	w.layout = 1;
	w.l = w.walked_l = STACK + 64;
	w.l_cframe = STACK + 4096;
	w.l_stack = STACK + 1024;
	w.l_end = STACK + 2048;
	w.exact = 0;
	assert_int_equal(lua_find_base(&w, STACK + 4096), MSP_ERR_LUA_THROWN);
	/* A trace, as it seems, whose exit had an error: LuaJIT until 2020 goes on in the C frame that this has left. */
	w.exact = 1;
	w.jit_base = STACK + 1056;
	assert_int_equal(lua_find_base(&w, STACK + 4096), MSP_ERR_LUA_CFRAME);
	/* But a trace whose GC step has run a finalizer has frames below that one. */
	w.suspended_count = 1;
	w.suspended[0].l = w.l;
	w.suspended[0].base = STACK + 1056;
	assert_int_not_equal(lua_find_base(&w, STACK + 4096), MSP_ERR_LUA_CFRAME);
	assert_int_equal(w.lua_base, STACK + 1056);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(signed_return_address, start),
		cmocka_unit_test_setup(leaf, start),
		cmocka_unit_test_setup(fiber_root, start),
		cmocka_unit_test_setup(trace_exits, start),
		cmocka_unit_test_setup(returned_to, start),
		cmocka_unit_test_setup(callback, start),
		cmocka_unit_test_setup(landing, start),
		cmocka_unit_test_setup(no_root_that_throws, start),
		cmocka_unit_test_setup(lands_by_registers, start),
		cmocka_unit_test_setup(places_of_base, start),
		cmocka_unit_test_setup(callback_is_left, start),
		cmocka_unit_test_setup(walked_to_the_last, start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * A Lua stack that is being moved, or unwound, made by hand: a LuaJIT that waits in a system
 * call, whose memory is read with a copy of its stack elsewhere and words written over the old
 * one, or with another L->base.
 */
#include "walker_moved.h"

static int some_register(void)
{
	int reg = t.size ? free_register(0) : -1;

	if (reg < 0)
		skip();
	return reg;
}

/* It is all there, though it was moved. */
static void assert_followed(const struct msp_stack *stack)
{
	assert_true(is_same(stack));
	assert_true(stack->ways & 1u << MSP_WAY_MOVED);
}

/* L->stack is the new one, L->base is not yet; of the old one so many bytes are written over. */
static void begin_move(uint64_t over)
{
	t.copied = true;
	t.over_from = 0;
	t.over_to = over;
	t.at = COPY;
}

static void end_move(void)
{
	t.copied = t.unmapped = false;
	t.at = t.start;
}

/* Words from..to of the old stack, which has been given back, are written over. */
static void check_given_back(int reg, uint64_t from, uint64_t to)
{
	struct msp_registers regs = t.regs;
	struct msp_stack stack;

	regs.reg[reg] = COPY;
	t.over_from = 8 * from;
	t.over_to = 8 * to;
	walk(&regs, &stack);
	if (!is_same(&stack))
		print_error("words %u to %u: %zu frames of %zu, reason %d\n", (unsigned)from,
			    (unsigned)to, stack.count, t.count, stack.error);
	assert_followed(&stack);
}

static void test_given_back(void **state)
{
	int reg;

	(void)state;
	reg = some_register();
	t.copied = true;
	/* Its own lists are all that an allocator writes there: six words, in any order. */
	for (uint64_t from = 0; from < 6; from++)
		for (uint64_t to = from + 1; to <= 6; to++)
			if (from == 0 || (from <= 2 && to >= 3))
				check_given_back(reg, from, to);
	t.copied = false;
}

/* And where it was nothing is mapped any more: the new one begins with the coroutine and nil. */
static void test_taken_back(void **state)
{
	struct msp_registers regs = t.regs;
	struct msp_stack stack;

	(void)state;
	regs.reg[some_register()] = COPY;
	t.copied = t.unmapped = true;
	t.over_from = t.over_to = 0;
	walk(&regs, &stack);
	assert_followed(&stack);
	for (size_t at = 0; at < 16; at += 8) {
		t.copy[at] ^= 1;
		walk(&regs, &stack);
		t.copy[at] ^= 1;
		assert_int_equal(stack.error, MSP_ERR_LUA_MOVING);
	}
	t.copied = t.unmapped = false;
}

/*
 * mremap() has taken the old stack away, L->stack is the new one, L->base is not yet: the code that moves
 * it has the old one in a register that it keeps, the distance in one that it need not.
 */
static void test_unmapped(void **state)
{
	struct msp_registers regs = t.regs;
	struct msp_stack stack;
	int reg;

	(void)state;
	reg = some_register();
	regs.reg[reg] = t.start;
	begin_move(0);
	t.unmapped = true;
	walk(&regs, &stack);
	assert_int_equal(stack.error, MSP_ERR_LUA_MOVING); /* nothing tells the distance */
	for (int other = MSP_X64_RDX; other <= MSP_X64_RCX; other++) {
		regs.reg[other] = COPY - t.start;
		walk(&regs, &stack);
		regs.reg[other] = t.regs.reg[other];
		assert_followed(&stack);
	}
	end_move();
}

/*
 * L->stack is the new one, L->base is not yet, of which a preserved register tells; the new one is nowhere but where
 * realloc() has returned it (gcc for arm64 does that).
 */
static void test_returned(void **state)
{
	struct msp_registers regs = t.regs;
	struct msp_stack stack;
	int reg;

	(void)state;
	reg = some_register();
	regs.reg[reg] = t.start;
	begin_move(48);
	walk(&regs, &stack);
	assert_int_equal(stack.error, MSP_ERR_LUA_MOVING); /* nothing says that it is the old one */
	regs.reg[MSP_X64_RAX] = COPY;
	walk(&regs, &stack);
	assert_followed(&stack);
	t.unmapped = true;
	walk(&regs, &stack);
	assert_int_equal(stack.error, MSP_ERR_LUA_MOVING); /* nothing bears it out */
	end_move();
}

/* Where a handler returns to: `mov $15, %rax; syscall`. */
static uint64_t find_trampoline(void)
{
	static const uint8_t code[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
	static uint8_t text[4 << 20];
	struct msp_maps maps;
	uint64_t found = 0;

	assert_int_equal(msp_process_maps(t.process, &maps), 0);
	for (size_t i = 0; i < maps.count && !found; i++) {
		const struct msp_map *map = &maps.map[i];
		size_t size = map->end - map->start;
		const uint8_t *at;

		if (!strstr(map->name, "libc") || size > sizeof(text) ||
		    msp_read(&t.memory, map->start, text, size))
			continue;
		at = memmem(text, size, code, sizeof(code));
		if (at)
			found = map->start + (uint64_t)(at - text);
	}
	msp_maps_free(&maps);
	return found;
}

/* The kernel's frame of a signal (uc_mcontext from byte 40) that has interrupted regs; returns the handler's return. */
static struct msp_registers interrupt(const struct msp_registers *regs)
{
	static const int order[] = {8,		 9,	      10,	   11,
				    12,		 13,	      14,	   15,
				    MSP_X64_RDI, MSP_X64_RSI, MSP_X64_RBP, MSP_X64_RBX,
				    MSP_X64_RDX, MSP_X64_RAX, MSP_X64_RCX, MSP_X64_RSP};
	struct msp_registers in = {.pc = find_trampoline()};

	for (size_t i = 0; i < 16; i++)
		t.frame[5 + i] = regs->reg[order[i]];
	t.frame[5 + 16] = regs->pc;
	in.reg[MSP_X64_RSP] = SIGNAL_FRAME;
	return in;
}

/* The same when a signal's handler runs: what it has interrupted has all its registers in the signal's frame. */
static void test_signal(void **state)
{
	struct msp_registers regs = t.regs, handler;
	struct msp_stack stack;
	int reg;

	(void)state;
	reg = some_register();
	regs.reg[reg] = t.start;
	regs.reg[MSP_X64_RAX] = COPY;
	handler = interrupt(&regs);
	assert_true(handler.pc);
	t.copied = t.signalled = true;
	t.over_from = 0;
	t.over_to = 48;
	t.at = COPY;
	walk(&handler, &stack);
	t.copied = t.signalled = false;
	t.at = t.start;
	assert_int_equal(stack.error, MSP_ERR_NONE);
	assert_true(stack.ways & 1u << MSP_WAY_MOVED);
	/* The trampoline, and what was there: but that it was not at an instruction. */
	assert_int_equal(stack.count, t.count + 1);
	assert_int_equal(stack.frames[1].addr, t.frames[0].addr);
	assert_memory_equal(stack.frames + 2, t.frames + 1, (t.count - 1) * sizeof(*t.frames));
}

/* L->stack is the new one, and a preserved register has nothing but the distance (gcc for arm64 does that). */
static void test_distance(void **state)
{
	struct msp_registers regs = t.regs;
	struct msp_stack stack;
	int reg;

	(void)state;
	reg = some_register();
	begin_move(48);
	for (int off = -16; off <= 16; off += 16) {
		regs.reg[reg] = COPY - t.start + (uint64_t)off;
		walk(&regs, &stack);
		if (off)
			assert_int_equal(stack.error, MSP_ERR_LUA_MOVING);
		else
			assert_followed(&stack);
	}
	regs.reg[reg] = COPY - t.start;
	t.unmapped = true;
	walk(&regs, &stack);
	assert_int_equal(stack.error, MSP_ERR_LUA_MOVING); /* nothing bears it out */
	end_move();
}

/* No register tells where the new one is: the stack ends with the reason. */
static void test_unknown(void **state)
{
	struct msp_stack stack;

	(void)state;
	if (!t.size)
		skip();
	t.copied = true;
	t.over_from = 0;
	t.over_to = 48;
	walk(&t.regs, &stack);
	assert_int_equal(stack.error, MSP_ERR_LUA_MOVING);
	t.copied = false;
}

/* Between two instructions of err_unwind(): L->base is that of the next C frame, L->cframe is not. */
static void test_unwound(void **state)
{
	struct msp_registers regs = t.regs;
	struct msp_stack stack;
	size_t at = 0;
	int l = free_register(0), cframe = free_register(1);

	(void)state;
	if (!t.size || cframe < 0)
		skip();
	regs.syscall = false; /* at an instruction */
	regs.reg[MSP_X64_RAX] = t.left;
	regs.reg[l] = t.l;
	regs.reg[cframe] = t.cframe;
	t.unwound = true;
	walk(&regs, &stack);
	t.unwound = false;
	assert_int_equal(stack.error, MSP_ERR_NONE);
	assert_true(stack.ways & 1u << MSP_WAY_UNWOUND);
	/* What was there is there but for the Lua frames on the innermost C frame. */
	for (size_t i = 0, vms = 0; i < t.count; i++) {
		vms += t.frames[i].kind == MSP_RAW_VM;
		if (vms == 1 && is_lua(&t.frames[i]))
			continue;
		assert_true(at < stack.count);
		assert_true(!at || !memcmp(&stack.frames[at], &t.frames[i], sizeof(t.frames[i])));
		at++;
	}
	assert_int_equal(at, stack.count);

	/* In registers that no function preserves they prove nothing: any call has L in one. */
	regs.reg[l] = t.regs.reg[l];
	regs.reg[cframe] = t.regs.reg[cframe];
	regs.reg[MSP_X64_RDI] = t.l;
	regs.reg[MSP_X64_RSI] = t.cframe;
	t.unwound = true;
	walk(&regs, &stack);
	t.unwound = false;
	assert_false(stack.ways & 1u << MSP_WAY_UNWOUND);
}

static int stop_lua(void **state)
{
	(void)state;
	msp_walker_free(t.walker);
	msp_space_free(t.space);
	msp_process_close(t.process);
	msp_images_free(t.images);
	if (t.pid > 0) {
		kill(t.pid, SIGKILL);
		waitpid(t.pid, NULL, 0);
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),	   cmocka_unit_test(test_given_back),
		cmocka_unit_test(test_taken_back), cmocka_unit_test(test_unmapped),
		cmocka_unit_test(test_returned),   cmocka_unit_test(test_signal),
		cmocka_unit_test(test_distance),   cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_unwound),
	};

	return cmocka_run_group_tests(tests, NULL, stop_lua);
}

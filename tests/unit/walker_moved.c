/* SPDX-License-Identifier: MIT */
/*
 * A Lua stack that is being moved, or unwound, made by hand: a LuaJIT that waits in a system
 * call, whose memory is read with a copy of its stack elsewhere and words written over the old
 * one, or with another L->base.
 */
#include "target_help.h"

#include "luajit/luajit.h"
#include "target/snapshot.h"
#include "unwind/tables.h"

#define SCRIPT \
	"local function inner() return (io.read()) end " \
	"local function outer() local _, x = pcall(inner); return x end " \
	"io.write('ready\\n') io.flush() local x = outer()"

#define COPY 0x10000ull /* nothing is ever mapped there */
#define MAX_STACK (1 << 20)

static struct {
	pid_t pid;
	int in, out;
	struct msp_images *images;
	struct msp_process *process;
	struct msp_space *space;
	struct msp_walker *walker;
	struct msp_registers regs;
	struct msp_memory memory;
	/* The stack: what was there, and what is read now. */
	uint64_t l, start, size, field; /* field: where lua_State has its address */
	uint8_t copy[MAX_STACK];
	bool copied, unmapped, unwound;
	uint64_t base_field, new_base, cframe,
		left;		     /* left: where the link of the frame is that was left */
	uint64_t over_from, over_to; /* written over, as offsets in the old stack */
	uint64_t at;		     /* what the field says */
	/* The stack as it is. */
	struct msp_raw_frame frames[MSP_MAX_FRAMES];
	size_t count;
} t;

static void take_byte(uint64_t addr, uint8_t *byte)
{
	if (addr - t.field < 8)
		*byte = (uint8_t)(t.at >> 8 * (addr - t.field));
	else if (addr - t.start >= t.over_from && addr - t.start < t.over_to)
		*byte = 0x5a;
}

static int read_memory(void *ctx, uint64_t addr, void *buf, size_t size)
{
	const struct msp_memory *real = msp_process_host(t.process)->memory;

	(void)ctx;
	if (t.copied && addr - COPY < t.size) {
		if (size > t.size - (addr - COPY))
			return MSP_E_FAULT;
		memcpy(buf, t.copy + (addr - COPY), size);
		return 0;
	}
	if (t.unmapped && addr - t.start < t.size)
		return MSP_E_FAULT;
	if (msp_read(real, addr, buf, size))
		return MSP_E_FAULT;
	for (size_t i = 0; t.copied && i < size; i++)
		take_byte(addr + i, (uint8_t *)buf + i);
	for (size_t i = 0; t.unwound && i < size; i++)
		if (addr + i - t.base_field < 8)
			((uint8_t *)buf)[i] =
				(uint8_t)(t.new_base >> 8 * (addr + i - t.base_field));
	return 0;
}

static void walk(const struct msp_registers *regs, struct msp_stack *out)
{
	msp_walker_walk(t.walker, &t.memory, regs, out);
}

static bool is_lua(const struct msp_raw_frame *frame)
{
	return frame->kind == MSP_RAW_LUA || frame->kind == MSP_RAW_FAST ||
	       frame->kind == MSP_RAW_CFUNC;
}

/* The outermost frame on the innermost C frame: where its link is, and leads. */
static void find_outermost(const struct msp_stack *stack, const struct msp_lj_layout *y)
{
	uint64_t base = 0, link = 0;

	for (size_t i = 0, vms = 0; i < stack->count && vms < 2; i++) {
		vms += stack->frames[i].kind == MSP_RAW_VM;
		if (vms < 2 && is_lua(&stack->frames[i]))
			base = stack->places[i].base;
	}
	assert_int_equal(msp_read(&t.memory, base - 8, &link, 8), 0);
	if ((link & 7) == 3) { /* FRAME_VARG of lj_frame.h: its lower half has the link */
		base -= link & ~7ull;
		assert_int_equal(msp_read(&t.memory, base - 8, &link, 8), 0);
	}
	assert_int_equal(link & 3, 1); /* FRAME_C */
	t.left = base - 8;
	t.new_base = base - (link & ~7ull);
	t.base_field = t.l + (uint64_t)y->L_base;
	assert_int_equal(msp_read(&t.memory, t.l + (uint64_t)y->L_cframe, &t.cframe, 8), 0);
	t.cframe &= ~3ull;
}

static void find_stack(const struct msp_stack *stack)
{
	const struct msp_lj_layout *y = NULL;
	uint32_t slots = 0;

	for (size_t i = 0; i < stack->count && !y; i++) {
		if (stack->frames[i].kind != MSP_RAW_LUA)
			continue;
		t.l = stack->places[i].l;
		y = msp_lj_build_layout(
			msp_images_by_layout(t.images, stack->frames[i].image)->build);
	}
	assert_non_null(y);
	if (!y->gc64)
		skip();
	t.field = t.l + (uint64_t)y->L_stack;
	assert_int_equal(msp_read(&t.memory, t.field, &t.start, 8), 0);
	assert_int_equal(msp_read(&t.memory, t.l + (uint64_t)y->L_stacksize, &slots, 4), 0);
	t.size = 8ull * slots;
	t.at = t.start;
	assert_in_range(t.size, 1, MAX_STACK);
	assert_int_equal(msp_read(&t.memory, t.start, t.copy, t.size), 0);
	find_outermost(stack, y);
}

static void start_lua(void)
{
	int in[2], out[2];
	char ready[6];

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	t.pid = fork();
	if (t.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		execlp("luajit", "luajit", "-e", SCRIPT, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	t.in = in[1];
	t.out = out[0];
	if (read(t.out, ready, sizeof(ready)) != sizeof(ready))
		skip();
}

static void test_whole(void **state)
{
	struct msp_stack stack;

	(void)state;
	start_lua();
	assert_int_equal(msp_images_new(&(struct msp_images_options){0}, &t.images), 0);
	assert_int_equal(msp_process_open(t.pid, &t.process), 0);
	assert_int_equal(msp_space_new(t.images, t.process, &t.space), 0);
	assert_true(msp_space_refresh(t.space) >= 0);
	assert_int_equal(msp_walker_new(t.space, &t.walker), 0);
	wait_for(msp_process_thread_state(t.process, t.pid) == 'S');
	assert_int_equal(msp_thread_stop(t.process, t.pid), 0);
	assert_int_equal(msp_thread_registers(t.process, t.pid, &t.regs), 0);
	t.memory = (struct msp_memory){.read = read_memory};
	walk(&t.regs, &stack);
	assert_int_equal(stack.error, MSP_ERR_NONE);
	t.count = stack.count;
	memcpy(t.frames, stack.frames, stack.count * sizeof(*stack.frames));
	find_stack(&stack);
}

static bool is_same(const struct msp_stack *stack)
{
	return stack->count == t.count &&
	       !memcmp(stack->frames, t.frames, t.count * sizeof(*t.frames));
}

/* The n-th register that the innermost functions keep for their callers, and that one of these saves. */
static int free_register(int n)
{
	static const int preserved[] = {MSP_X64_RBX,	 MSP_X64_RBP,	  MSP_X64_R12,
					MSP_X64_R12 + 1, MSP_X64_R12 + 2, MSP_X64_R12 + 3};

	for (size_t i = 0; i < sizeof(preserved) / sizeof(preserved[0]); i++) {
		struct msp_registers regs = t.regs;
		struct msp_stack stack;

		regs.reg[preserved[i]] = 8;
		walk(&regs, &stack);
		if (is_same(&stack) && n-- == 0)
			return preserved[i];
	}
	return -1;
}

static int some_register(void)
{
	int reg = t.size ? free_register(0) : -1;

	if (reg < 0)
		skip();
	return reg;
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
	assert_true(is_same(&stack));
	assert_true(stack.ways & 1u << MSP_WAY_MOVED);
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
	t.copied = t.unmapped = true;
	t.over_from = t.over_to = 0;
	t.at = COPY;
	walk(&regs, &stack);
	assert_int_equal(stack.error, MSP_ERR_LUA_MOVING); /* nothing tells the distance */
	for (int other = MSP_X64_RDX; other <= MSP_X64_RCX; other++) {
		regs.reg[other] = COPY - t.start;
		walk(&regs, &stack);
		regs.reg[other] = t.regs.reg[other];
		assert_true(is_same(&stack));
		assert_true(stack.ways & 1u << MSP_WAY_MOVED);
	}
	t.copied = t.unmapped = false;
	t.at = t.start;
}

/* L->stack is the new one, and a preserved register has nothing but the distance (gcc for arm64 does that). */
static void test_distance(void **state)
{
	struct msp_registers regs = t.regs;
	struct msp_stack stack;
	int reg;

	(void)state;
	reg = some_register();
	t.copied = true;
	t.over_from = 0;
	t.over_to = 48;
	t.at = COPY;
	for (int off = -16; off <= 16; off += 16) {
		regs.reg[reg] = COPY - t.start + (uint64_t)off;
		walk(&regs, &stack);
		if (off)
			assert_int_equal(stack.error, MSP_ERR_LUA_MOVING);
		else
			assert_true(is_same(&stack) && stack.ways & 1u << MSP_WAY_MOVED);
	}
	regs.reg[reg] = COPY - t.start;
	t.unmapped = true;
	walk(&regs, &stack);
	assert_int_equal(stack.error, MSP_ERR_LUA_MOVING); /* nothing bears it out */
	t.copied = t.unmapped = false;
	t.at = t.start;
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
		cmocka_unit_test(test_whole),	 cmocka_unit_test(test_given_back),
		cmocka_unit_test(test_unmapped), cmocka_unit_test(test_distance),
		cmocka_unit_test(test_unknown),	 cmocka_unit_test(test_unwound),
	};

	return cmocka_run_group_tests(tests, NULL, stop_lua);
}

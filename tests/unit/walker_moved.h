/* SPDX-License-Identifier: MIT */
/*
 * For walker_moved.c: a LuaJIT that waits in a system call, and its memory, of which some is read otherwise than it is.
 */
#ifndef WALKER_MOVED_H
#define WALKER_MOVED_H

#include "target_help.h"

#include "luajit/luajit.h"
#include "target/snapshot.h"
#include "unwind/tables.h"

#define SCRIPT \
	"local function inner() return (io.read()) end " \
	"local function outer() local _, x = pcall(inner); return x end " \
	"io.write('ready\\n') io.flush() local x = outer()"

#define COPY 0x10000ull		/* nothing is ever mapped there */
#define SIGNAL_FRAME 0x20000ull /* nor here */
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
	uint64_t frame[32];	     /* a signal's frame, read at SIGNAL_FRAME if it is signalled */
	bool signalled;
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
	if (t.signalled && addr - SIGNAL_FRAME < sizeof(t.frame)) {
		if (size > sizeof(t.frame) - (addr - SIGNAL_FRAME))
			return MSP_E_FAULT;
		memcpy(buf, (const char *)t.frame + (addr - SIGNAL_FRAME), size);
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

#endif

/* SPDX-License-Identifier: MIT */
/* Unwinding in signal handlers: right on a known stack, harmless on any registers whatever. */
#include "help.h"

#include <sys/mman.h>
#include <ucontext.h>

static struct msp_target *target;
static struct msp_self *self;
static struct msp_backtrace *backtrace;
static struct msp_raw_frame frames[MSP_MAX_FRAMES];
static struct msp_self_result result;
static struct msp_registers registers;
static ucontext_t interrupted;
static int count, few_count;
static struct msp_raw_frame few[3];
static struct msp_self_result few_result;
static struct msp_raw_frame more[MSP_MAX_FRAMES];
static bool bar;
static char *barred; /* a page of the stack that is not readable for one more walk */
static struct msp_self_result barred_result;

static void on_signal(int number, siginfo_t *info, void *context)
{
	interrupted = *(ucontext_t *)context;
	errno = 42;
	count = msp_self_unwind(self, context, frames, MSP_MAX_FRAMES, &result);
	if (errno != 42)
		_exit(1);
	few_count = msp_self_unwind(self, context, few, 3, &few_result);
	few_count += msp_self_unwind(self, context, few, 0, NULL);
	if (barred) {
		mprotect(barred, 4096, PROT_NONE);
		msp_self_unwind(self, context, more, MSP_MAX_FRAMES, &barred_result);
		mprotect(barred, 4096, PROT_READ | PROT_WRITE);
	}
	msp_registers_from_ucontext(context, &registers);
}

/* raise() is declared as if it ran nothing of ours, a pointer is not. */
static int (*volatile raise_it)(int) = raise;

__attribute__((noinline)) static void inner_call(void)
{
	raise_it(SIGUSR1);
	__asm__ volatile("");
}

__attribute__((noinline)) static void outer_call(void)
{
	inner_call();
	__asm__ volatile("");
}

static void sees_the_stack(void **state)
{
	int inner, outer;

	outer_call();
	assert_true(count > 4);
	assert_int_equal(result.reason, MSP_ERR_NONE);
	assert_int_equal(result.has_vm, 0);
	assert_true(result.reads > 0 && result.reads < 100);
	assert_int_equal(few_result.reads, 1); /* all that the one before had read */
	assert_int_equal(registers.pc, frames[0].addr);
	assert_int_equal(msp_backtrace_set(backtrace, frames, (size_t)count), count);
	assert_true(msp_backtrace_name(backtrace) > 4);
	inner = frame_called(backtrace, "inner_call");
	outer = frame_called(backtrace, "outer_call");
	assert_true(inner > 0 && outer == inner + 1);
	assert_true(frame_called(backtrace, "main") > outer);
}

/* Less room than there are frames: those of the leaf, and a mark. */
static void little_room(void **state)
{
	outer_call();
	assert_true(count > 4);
	assert_int_equal(few_count, 3);
	assert_int_equal(few[0].addr, frames[0].addr);
	assert_int_equal(few[2].kind, MSP_RAW_ERROR);
	assert_int_equal(few_result.reason, MSP_ERR_TRUNCATED);
}

__attribute__((noinline)) static void far_call(void)
{
	char room[5 * 4096];

	__asm__ volatile("" : : "r"(room) : "memory");
	if (bar)
		barred = (char *)((uintptr_t)__builtin_frame_address(0) & ~4095ull);
	outer_call();
	barred = NULL;
	__asm__ volatile("" : : "r"(room) : "memory");
}

/* What could be read for one stack and cannot for the next. */
static void page_gone(void **state)
{
	bar = true;
	far_call();
	bar = false;
	assert_true(count > 5);
	assert_int_equal(result.reason, MSP_ERR_NONE);
	assert_int_not_equal(barred_result.reason, MSP_ERR_NONE);
	assert_int_not_equal(barred_result.reason, MSP_ERR_TRUNCATED);
}

static uint64_t seed = 1;

static uint64_t any(void)
{
	static const uint64_t odd[] = {0,     1,	  8,	      4096,
				       ~0ull, 1ull << 47, 1ull << 63, 0x7ffffffff000};

	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	switch (seed >> 61) {
	case 0:
		return odd[(seed >> 32) % 8];
	case 1:
		return (uintptr_t)frames + (seed >> 40) % sizeof(frames);
	case 2:
		return (uintptr_t)&seed + (seed >> 33) % (1 << 16);
	case 3:
		return (uintptr_t)on_signal + (seed >> 33) % 4096;
	default:
		return seed >> (seed >> 58);
	}
}

/* The registers of a moment, some of them replaced by anything: each stack ends, whole or marked. */
static void any_registers(void **state)
{
	outer_call();
	for (int i = 0; i < 200000; i++) {
		ucontext_t context = interrupted;

		for (int k = (int)(any() % 6); k >= 0; k--) {
#if defined(__x86_64__)
			context.uc_mcontext.gregs[any() % 17] = (greg_t)any();
#else
			context.uc_mcontext.regs[any() % 31] = any();
			context.uc_mcontext.pc = any();
#endif
		}
		count = msp_self_unwind(self, &context, frames, MSP_MAX_FRAMES, &result);
		assert_true(count > 0 && count <= MSP_MAX_FRAMES);
		assert_true(result.reads <= 384);
		if (result.reason != MSP_ERR_NONE)
			assert_int_equal(frames[count - 1].kind, MSP_RAW_ERROR);
	}
}

/* A child that was forked has its own, also from slots that were taken when it was. */
static void in_a_child(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		outer_call();
		_exit(count > 4 && result.reason == MSP_ERR_NONE ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void refreshes(void **state)
{
	struct msp_self_options options = {.size = sizeof(options), .slots = 1, .reads = 1};
	struct msp_self *small, *other = self;

	for (int i = 0; i < 20; i++)
		assert_true(msp_self_refresh(self) >= 0);
	assert_int_equal(msp_self_new(target, &options, &small), 0);
	self = small;
	far_call();
	self = other;
	assert_int_equal(result.reason, MSP_ERR_TRUNCATED);
	assert_int_equal(result.reads, 1);
	msp_self_free(small);
	msp_self_free(NULL);
}

static void one_round(bool share)
{
	struct msp_target_options options = {.size = sizeof(options),
					     .share = share ? target : NULL};
	struct msp_self *first = self;
	struct msp_target *other;

	assert_int_equal(msp_target_new(&options, &other), 0);
	assert_int_equal(msp_target_open_self(other), 0);
	assert_int_equal(msp_self_new(other, NULL, &self), 0);
	count = 0;
	outer_call();
	assert_true(count > 4);
	assert_int_equal(result.reason, MSP_ERR_NONE);
	assert_int_equal(msp_self_refresh(self), 0);
	msp_self_free(self);
	msp_target_free(other);
	self = first;
}

/* Opened, unwound and closed again and again (ROUNDS: how often): after the first quarter nothing grows. */
static void leaks_nothing(void **state)
{
	const char *wanted = getenv("ROUNDS");
	int rounds = wanted ? atoi(wanted) : 64;
	struct in_use before = {0};

	for (int i = 0; i < rounds; i++) {
		one_round(i % 32 != 31);
		if (i == rounds / 4)
			before = now_in_use();
	}
	check_in_use(&before);
}

static int start(void **state)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	struct msp_target *other;

	sigaction(SIGUSR1, &action, NULL);
	assert_int_equal(msp_target_new(NULL, &other), 0);
	assert_int_equal(msp_self_new(other, NULL, &self), MSP_E_INVALID);
	msp_target_free(other);
	assert_int_equal(msp_target_new(NULL, &target), 0);
	assert_int_equal(msp_target_open_self(target), 0);
	assert_int_equal(msp_self_new(target, NULL, &self), 0);
	assert_int_equal(msp_backtrace_new(target, &backtrace), 0);
	return 0;
}

static int end(void **state)
{
	msp_backtrace_free(backtrace);
	msp_self_free(self);
	msp_target_free(target);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sees_the_stack), cmocka_unit_test(little_room),
		cmocka_unit_test(page_gone),	  cmocka_unit_test(any_registers),
		cmocka_unit_test(in_a_child),	  cmocka_unit_test(refreshes),
		cmocka_unit_test(leaks_nothing),
	};

	return cmocka_run_group_tests(tests, start, end);
}

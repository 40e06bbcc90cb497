/* SPDX-License-Identifier: MIT */
/*
 * What a library must stand: many threads with a target each; readers that fail, lie and change their
 * answers; targets opened and closed without end (ROUNDS: how often).
 */
#include "reader.h"

#include <pthread.h>

#define THREADS 32

static struct program program[THREADS];

/* Registers of a program that stands still. */
static struct msp_registers registers_of(struct msp_target *target)
{
	struct msp_registers registers;
	struct msp_dump *dump;

	if (msp_dump_take(target, NULL, &dump) < 0)
		fail_msg("%s", msp_target_error(target));
	registers = msp_dump_thread(dump, 0)->registers;
	msp_dump_free(dump);
	return registers;
}

/* ---- Threads ---- */

static void *unwind_one(void *arg)
{
	const struct program *mine = arg;
	struct msp_target_options options = {.size = sizeof(options), .threads = 1};
	struct msp_backtrace *backtrace = NULL;
	struct msp_target *target = NULL;
	struct msp_dump *dump;
	intptr_t good = 0;

	if (msp_target_new(&options, &target) || msp_target_open_pid(target, mine->pid) ||
	    msp_backtrace_new(target, &backtrace) || msp_dump_take(target, NULL, &dump))
		goto out;
	for (int i = 0; i < 20; i++)
		good += msp_backtrace_unwind(backtrace, &msp_dump_thread(dump, 0)->registers) > 5 &&
			!msp_backtrace_reason(backtrace) && msp_backtrace_name(backtrace) > 5 &&
			frame_called(backtrace, "inner") >= 0;
	msp_dump_free(dump);
out:
	msp_backtrace_free(backtrace);
	msp_target_free(target);
	return (void *)good;
}

static void threads_unwind(void **state)
{
	pthread_t thread[THREADS];
	void *good;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, unwind_one, &program[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &good);
		assert_int_equal((intptr_t)good, 20);
	}
}

/* ---- Readers ---- */

static void reads_like_the_process(void **state)
{
	struct msp_target *target = open_target(program[0].pid), *reading;
	struct msp_registers registers = registers_of(target);
	struct msp_backtrace *backtrace;
	struct msp_reader reader;
	struct msp_dump *dump;
	struct ours ours;

	our_open(&ours, program[0].pid);
	reader = our_reader(&ours);
	assert_int_equal(msp_target_new(NULL, &reading), 0);
	assert_int_equal(msp_target_open_reader(reading, &reader), 0);
	assert_int_equal(msp_target_info(reading)->vms, 1);
	assert_true(msp_target_vm(reading, 0)->proved);
	assert_int_equal(msp_backtrace_new(reading, &backtrace), 0);
	assert_true(msp_backtrace_unwind(backtrace, &registers) > 0);
	check_stack(backtrace);
	assert_int_equal(msp_dump_take(reading, NULL, &dump), MSP_E_UNSUPPORTED);
	msp_backtrace_free(backtrace);
	msp_target_free(reading);
	reader.read = NULL;
	assert_int_equal(msp_target_new(NULL, &reading), 0);
	assert_int_equal(msp_target_open_reader(reading, &reader), MSP_E_INVALID);
	msp_target_free(reading);
	msp_target_free(target);
	close(ours.mem);
}

/* What a reader that only fails makes of a stack: a beginning of it and a mark, or the whole. */
static void check_honest(struct msp_backtrace *backtrace, struct msp_backtrace *truth)
{
	size_t count, all;
	const struct msp_raw_frame *raw = msp_backtrace_raw(backtrace, &count);
	const struct msp_raw_frame *real = msp_backtrace_raw(truth, &all);

	if (msp_backtrace_reason(backtrace))
		assert_int_equal(raw[--count].kind, MSP_RAW_ERROR);
	else
		assert_int_equal(count, all);
	assert_true(count <= all);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(raw[i].kind, real[i].kind);
		assert_int_equal(raw[i].addr, real[i].addr);
		if (raw[i].kind != MSP_RAW_VM || raw[i].ident) /* 0: the trace is not known */
			assert_int_equal(raw[i].ident, real[i].ident);
	}
}

/* Whatever it says: an answer comes; if it says nothing wrong, a right one. */
static void survives(struct msp_target *keep, const struct msp_registers *registers,
		     struct msp_backtrace *truth, struct lies lies)
{
	struct msp_target_options options = {.size = sizeof(options), .share = keep};
	struct msp_backtrace *backtrace;
	struct msp_target *target;
	struct msp_reader reader;
	struct msp_jit *jit;
	struct ours ours;

	our_open(&ours, program[1].pid);
	reader = our_reader(&ours);
	assert_int_equal(msp_target_new(&options, &target), 0);
	ours.lies = lies;
	if (msp_target_open_reader(target, &reader) == 0) {
		assert_int_equal(msp_backtrace_new(target, &backtrace), 0);
		for (int i = 0; i < 8; i++) {
			assert_true(msp_backtrace_unwind(backtrace, registers) > 0);
			if (!lies.lie && !lies.change)
				check_honest(backtrace, truth);
			assert_true(msp_backtrace_name(backtrace) >= 0);
			if (i % 4 == 3)
				msp_target_refresh(target);
		}
		if (msp_jit_read(target, 0, &jit) == 0) {
			for (size_t i = 0; msp_jit_trace(jit, i); i++)
				;
			for (size_t i = 0; msp_jit_refusal(jit, i); i++)
				;
			msp_jit_free(jit);
		}
		for (size_t i = 0; msp_target_vm(target, i); i++)
			for (size_t n = 0; msp_target_check(target, i, n); n++)
				;
		msp_backtrace_free(backtrace);
	} else {
		assert_true(*msp_target_error(target));
	}
	msp_target_free(target);
	close(ours.mem);
}

static void survives_lies(void **state)
{
	static const struct lies kinds[] = {
		{.fail = 1},	{.fail = 64},	 {.fail = 1024},
		{.lie = 1},	{.lie = 64},	 {.lie = 1024},
		{.change = 16}, {.change = 512}, {.fail = 16, .lie = 16, .change = 64}};
	struct msp_target *keep = open_target(program[1].pid);
	struct msp_registers registers = registers_of(keep);
	struct msp_backtrace *truth;

	assert_int_equal(msp_backtrace_new(keep, &truth), 0);
	assert_true(msp_backtrace_unwind(truth, &registers) > 0);
	check_stack(truth);
	for (uint32_t round = 0; round < 3; round++)
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			struct lies lies = kinds[k];

			lies.seed = 1000 * round + (uint32_t)k;
			survives(keep, &registers, truth, lies);
		}
	msp_backtrace_free(truth);
	msp_target_free(keep);
}

/* ---- Rounds ---- */

static long resident_kb(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0;

	if (file && fscanf(file, "%*d %ld", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void one_round(struct msp_target *keep, const struct msp_registers *registers, uint32_t i)
{
	struct msp_target_options options = {.size = sizeof(options), .share = keep};
	struct msp_backtrace *backtrace;
	struct msp_target *target;

	if (i % 256 == 255) /* all of it anew */
		options.share = NULL;
	assert_int_equal(msp_target_new(&options, &target), 0);
	assert_int_equal(msp_target_open_pid(target, program[2].pid), 0);
	assert_int_equal(msp_backtrace_new(target, &backtrace), 0);
	assert_true(msp_backtrace_unwind(backtrace, registers) > 5);
	assert_null(msp_backtrace_reason(backtrace));
	if (i % 8 == 0)
		assert_true(msp_backtrace_name(backtrace) > 5);
	msp_backtrace_free(backtrace);
	msp_target_free(target);
}

/* After the first quarter nothing grows. */
static void leaks_nothing(void **state)
{
	const char *wanted = getenv("ROUNDS");
	uint32_t rounds = wanted ? (uint32_t)atol(wanted) : 1024;
	struct msp_target *keep = open_target(program[2].pid);
	struct msp_registers registers = registers_of(keep);
	struct in_use before = {0};
	long resident = 0;

	for (uint32_t i = 0; i < rounds; i++) {
		one_round(keep, &registers, i);
		if (i == rounds / 4) {
			before = now_in_use();
			resident = resident_kb();
		}
	}
	print_message("%u rounds: %ld KB resident, %ld KB after a quarter of them\n", rounds,
		      resident_kb(), resident);
	check_in_use(&before);
#if !defined(__SANITIZE_ADDRESS__) /* which keeps what was freed */
	assert_true(resident_kb() - resident < 2048 + resident / 20);
#endif
	msp_target_free(keep);
}

static int start(void **state)
{
	for (int i = 0; i < THREADS; i++) {
		start_program(&program[i], i % 2 ? "-jon" : "-joff");
		usleep(20000); /* into inner() */
		kill(program[i].pid, SIGSTOP);
		waitpid(program[i].pid, NULL, WUNTRACED);
	}
	return 0;
}

static int end(void **state)
{
	for (int i = 0; i < THREADS; i++)
		stop_program(&program[i]);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_unwind),
		cmocka_unit_test(reads_like_the_process),
		cmocka_unit_test(survives_lies),
		cmocka_unit_test(leaks_nothing),
	};

	return cmocka_run_group_tests(tests, start, end);
}

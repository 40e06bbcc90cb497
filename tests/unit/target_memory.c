/* SPDX-License-Identifier: MIT */
/* Reading memory, and never that of another process. */
#include "target_help.h"

#include <linux/sched.h>
#include <pwd.h>
#include <sys/syscall.h>

#include "target/cache.h"
#include "target/host.h"

#define PAGE 4096

static char *area; /* five pages, alike in child and test: rw, none, rw, unmapped, rw */

static void make_area(void)
{
	area = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(area, MAP_FAILED);
	for (int i = 0; i < 5 * PAGE; i++)
		area[i] = i * 7;
	assert_int_equal(mprotect(area + PAGE, PAGE, PROT_NONE), 0);
}

/* The hole is made in the child only: here the next mapping would fill it. */
static void with_hole(struct shared *shared)
{
	if (munmap(area + 3 * PAGE, PAGE))
		_exit(1);
	sleep_forever(shared);
}

static void check_reads(const struct msp_memory *mem)
{
	uint64_t base = (uintptr_t)area;
	char buf[2 * PAGE];

	assert_int_equal(msp_read(mem, base, buf, PAGE), 0);
	assert_memory_equal(buf, area, PAGE);
	assert_int_equal(msp_read(mem, base + 100, buf, 1), 0);
	assert_int_equal(buf[0], (char)700);
	assert_int_equal(msp_read(mem, base + 2 * PAGE, buf, PAGE), 0);
	assert_memory_equal(buf, area + 2 * PAGE, PAGE);
	/* All or nothing. */
	assert_int_equal(msp_read(mem, base + 3 * PAGE - 8, buf, 16), MSP_E_FAULT);
	assert_int_equal(msp_read(mem, base + 3 * PAGE, buf, 1), MSP_E_FAULT);
	assert_int_equal(msp_read(mem, base + 4 * PAGE - 1, buf, 2), MSP_E_FAULT);
	assert_int_equal(msp_read(mem, 0, buf, 8), MSP_E_FAULT);
	assert_int_equal(msp_read(mem, UINT64_MAX - 3, buf, 8), MSP_E_FAULT);
	assert_int_equal(msp_read(mem, UINT64_MAX - 8, buf, 8), MSP_E_FAULT);
	assert_int_equal(msp_read(mem, 1ull << 63, buf, 8), MSP_E_FAULT);
	assert_int_equal(msp_read(mem, 0x7ffffffff000, buf, PAGE), MSP_E_FAULT);
	assert_int_equal(msp_read(mem, base, buf, 0), 0);
}

static void test_read(void **state)
{
	struct msp_memory_cache *cache;
	const struct msp_memory *mem;
	struct child child;

	make_area();
	spawn(&child, with_hole);
	mem = msp_process_memory(child.process);
	check_reads(mem);
	assert_int_equal(msp_memory_cache_new(mem, &cache), 0);
	check_reads(msp_memory_cache_memory(cache));
	check_reads(msp_memory_cache_memory(cache));
	msp_memory_cache_free(cache);
	finish(&child);
}

static void count_up(struct shared *shared)
{
	volatile long *counter = (volatile long *)area;

	shared->ready = 1;
	for (;;)
		++*counter;
}

static void test_cache_keeps(void **state)
{
	struct msp_memory_cache *cache;
	const struct msp_memory *mem;
	struct child child;
	long first, second;

	make_area();
	spawn(&child, count_up);
	assert_int_equal(msp_memory_cache_new(msp_process_memory(child.process), &cache), 0);
	mem = msp_memory_cache_memory(cache);
	assert_int_equal(msp_read(mem, (uintptr_t)area, &first, sizeof(first)), 0);
	nap();
	assert_int_equal(msp_read(mem, (uintptr_t)area, &second, sizeof(second)), 0);
	assert_int_equal(first, second);
	for (int i = 0; i < 200 && first == second;
	     i++) { /* the child may not have run on a busy machine */
		nap();
		msp_memory_cache_clear(cache);
		assert_int_equal(msp_read(mem, (uintptr_t)area, &second, sizeof(second)), 0);
	}
	assert_int_not_equal(first, second);
	msp_memory_cache_free(cache);
	finish(&child);
}

static pid_t fork_as(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};

	return syscall(SYS_clone3, &args, sizeof(args));
}

/* The pid is used again by another process: nothing of it may be taken for ours. */
static void test_pid_reuse(void **state)
{
	struct msp_process *process;
	struct msp_maps maps;
	struct child child;
	pid_t pid, other, *tids;
	char byte;

	make_area();
	spawn(&child, sleep_forever);
	process = child.process;
	pid = child.pid;
	assert_int_equal(msp_read(msp_process_memory(process), (uintptr_t)area, &byte, 1), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	other = fork_as(pid);
	if (other == 0)
		for (;;)
			pause();
	if (other < 0) {
		child.pid = -1;
		finish(&child);
		skip();
	}
	assert_int_equal(other, pid);
	assert_false(msp_process_alive(process));
	assert_int_equal(msp_read(msp_process_memory(process), (uintptr_t)area, &byte, 1),
			 MSP_E_GONE);
	assert_int_equal(msp_process_maps(process, &maps), MSP_E_GONE);
	assert_int_equal(msp_process_threads(process, &tids), MSP_E_GONE);
	assert_int_equal(msp_process_stop(process), MSP_E_GONE);
	assert_int_equal(msp_thread_stop(process, pid), MSP_E_GONE);
	assert_int_equal(msp_process_thread_state(process, pid), MSP_E_GONE);
	finish(&child);
}

static void execs(struct shared *shared)
{
	shared->ready = 1;
	while (!shared->stop)
		nap();
	execl("/bin/sleep", "sleep", "60", NULL);
}

static void count_pages(void *arg, uint64_t start, uint64_t end)
{
	*(uint64_t *)arg += end - start;
}

static void test_exec(void **state)
{
	const struct msp_host *host;
	uint64_t pages = 0;
	const struct msp_memory *mem;
	struct msp_maps maps;
	struct child child;
	char magic[4];

	make_area();
	spawn(&child, execs);
	mem = msp_process_memory(child.process);
	assert_int_equal(msp_read(mem, (uintptr_t)area, magic, 1), 0);
	child.shared->stop = 1;
	wait_for(!strcmp(msp_process_comm(child.process), "sleep"));
	assert_true(msp_process_alive(child.process));
	assert_int_equal(msp_process_maps(child.process, &maps), 0);
	assert_int_equal(msp_read(mem, maps.map[0].start, magic, 4), 0);
	assert_memory_equal(magic, "\177ELF", 4);
	/* And which of its pages are there: those of the new program. */
	host = msp_process_host(child.process);
	host->present(host->ctx, maps.map[0].start, maps.map[0].end, count_pages, &pages);
	assert_true(pages > 0);
	msp_maps_free(&maps);
	finish(&child);
}

/* ---- As a plain user ---- */

static int become_nobody(void)
{
	struct passwd *user = getpwnam("nobody");

	return user && setgid(user->pw_gid) == 0 && setuid(user->pw_uid) == 0 ? 0 : -1;
}

static int open_as_nobody(void *arg)
{
	struct msp_process *process;

	if (become_nobody() < 0)
		return 9;
	return msp_process_open(*(pid_t *)arg, &process) == MSP_E_PERMISSION ? 0 : 1;
}

/* One's own process needs no rights. */
static int own_as_nobody(void *arg)
{
	struct msp_process *process;
	struct msp_registers regs;
	struct msp_maps maps;
	char magic[4];
	int r = 1, fd;
	pid_t pid;

	if (become_nobody() < 0)
		return 9;
	pid = fork();
	if (pid == 0) {
		execl("/bin/sleep", "sleep", "60", NULL);
		_exit(1);
	}
	for (int i = 0; i < 300; i++) {
		nap();
		if (msp_process_open(pid, &process) < 0)
			continue;
		if (!strcmp(msp_process_comm(process), "sleep"))
			break;
		msp_process_close(process);
		process = NULL;
	}
	if (process && msp_process_maps(process, &maps) == 0 &&
	    msp_read(msp_process_memory(process), maps.map[0].start, magic, 4) == 0 &&
	    !memcmp(magic, "\177ELF", 4) && msp_process_stop(process) == 1 &&
	    msp_thread_registers(process, pid, &regs) == 0) {
		fd = msp_process_open_map(process, &maps.map[0]);
		r = fd < 0 ? 2 : 0;
		msp_maps_free(&maps);
	}
	msp_process_close(process);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return r;
}

static void test_plain_user(void **state)
{
	struct child child;

	if (geteuid() != 0)
		skip();
	spawn(&child, sleep_forever);
	assert_int_equal(in_child(open_as_nobody, &child.pid), 0);
	assert_int_equal(in_child(own_as_nobody, NULL), 0);
	finish(&child);
}

static void test_open_errors(void **state)
{
	struct msp_process *process;
	struct child child;
	pid_t zombie;

	assert_int_equal(msp_process_open(0, &process), MSP_E_INVALID);
	assert_int_equal(msp_process_open(-1, &process), MSP_E_INVALID);
	assert_int_equal(msp_process_open(0x7ffffff0, &process), MSP_E_GONE);
	zombie = fork();
	if (zombie == 0)
		_exit(0);
	waitid(P_PID, zombie, &(siginfo_t){0}, WEXITED | WNOWAIT);
	assert_int_equal(msp_process_open(zombie, &process), MSP_E_GONE);
	waitpid(zombie, NULL, 0);
	msp_process_close(NULL);
	spawn(&child, sleep_forever);
	assert_int_equal(msp_process_pid(child.process), child.pid);
	assert_true(msp_process_start_time(child.process) > 0);
	finish(&child);
}

static void test_read_cost(void **state)
{
	const struct msp_memory *mem;
	struct child child;
	uint64_t start, word;

	make_area();
	spawn(&child, sleep_forever);
	mem = msp_process_memory(child.process);
	start = now_us();
	for (int i = 0; i < 10000; i++)
		assert_int_equal(msp_read(mem, (uintptr_t)area + 8 * (i % 512), &word, 8), 0);
	print_message("8 bytes: %.2f us\n", (now_us() - start) / 10000.0);
	finish(&child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),	   cmocka_unit_test(test_cache_keeps),
		cmocka_unit_test(test_pid_reuse),  cmocka_unit_test(test_exec),
		cmocka_unit_test(test_plain_user), cmocka_unit_test(test_open_errors),
		cmocka_unit_test(test_read_cost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

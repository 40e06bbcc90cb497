/* SPDX-License-Identifier: MIT */
/* Stopping threads of real processes: nothing may be lost, and nobody may notice. */
#include "target_help.h"

#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#define THREADS 500

static void *sleeper(void *arg)
{
	struct shared *shared = arg;

	__atomic_add_fetch(&shared->count, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
	return NULL;
}

static void many_threads(struct shared *shared)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread, &attr, sleeper, shared))
			shared->errors++;
	while (shared->count < THREADS)
		nap();
	sleep_forever(shared);
}

static int count_state(struct msp_process *process, int state)
{
	pid_t *tids;
	int n = msp_process_threads(process, &tids), hits = 0;

	for (int i = 0; i < n; i++)
		hits += msp_process_thread_state(process, tids[i]) == state;
	free(tids);
	return hits;
}

static bool in_code(const struct msp_maps *maps, uint64_t pc)
{
	for (size_t i = 0; i < maps->count; i++)
		if (pc >= maps->map[i].start && pc < maps->map[i].end)
			return maps->map[i].prot & PROT_EXEC;
	return false;
}

/* Has the next threads' numbers begin anew at the bottom, where this may be done. */
static void near_last_number(void)
{
	FILE *last = fopen("/proc/sys/kernel/pid_max", "r");
	int max = 0;

	if (last && fscanf(last, "%d", &max) != 1)
		max = 0;
	if (last)
		fclose(last);
	last = max > THREADS ? fopen("/proc/sys/kernel/ns_last_pid", "w") : NULL;
	if (!last)
		return;
	fprintf(last, "%d", max - THREADS / 2);
	fclose(last);
}

static bool has(const pid_t *tids, int count, pid_t tid)
{
	for (int i = 0; i < count; i++)
		if (tids[i] == tid)
			return true;
	return false;
}

static void test_many_threads(void **state)
{
	struct msp_registers regs;
	struct msp_maps maps;
	struct child child;
	uint64_t start, took;
	pid_t *tids;
	int n;

	near_last_number();
	spawn(&child, many_threads);
	assert_int_equal(child.shared->errors, 0);
	assert_int_equal(msp_process_maps(child.process, &maps), 0);
	n = msp_process_threads(child.process, &tids);
	assert_int_equal(n, THREADS + 1);
	/* The leader's number is not the least where they have begun anew. */
	assert_true(has(tids, n, child.pid));
	for (int i = 1; i < n; i++)
		assert_true(tids[i - 1] < tids[i]);
	start = now_us();
	assert_int_equal(msp_process_stop(child.process), THREADS + 1);
	for (int i = 0; i < n; i++) {
		assert_int_equal(msp_thread_registers(child.process, tids[i], &regs), 0);
		assert_true(in_code(&maps, regs.pc));
		assert_int_not_equal(regs.reg[7], 0);
	}
	assert_int_equal(count_state(child.process, 't'), THREADS + 1);
	msp_process_resume(child.process);
	took = now_us() - start;
	print_message("%d threads stopped for %llu us\n", n, (unsigned long long)took);
	wait_for(count_state(child.process, 'S') == THREADS + 1);
	assert_int_equal(msp_process_tracer(child.process), 0);
	assert_int_equal(msp_thread_registers(child.process, child.pid, &regs), MSP_E_GONE);
	free(tids);
	msp_maps_free(&maps);
	finish(&child);
}

static void *short_life(void *arg)
{
	struct shared *shared = arg;

	__atomic_add_fetch(&shared->count, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *breeder(void *arg)
{
	struct shared *shared = arg;
	pthread_t thread;

	for (;;) {
		if (pthread_create(&thread, NULL, short_life, shared))
			shared->errors++;
		else
			pthread_join(thread, NULL);
	}
	return NULL;
}

static void thread_storm(struct shared *shared)
{
	pthread_t thread;

	for (int i = 0; i < 8; i++)
		pthread_create(&thread, NULL, breeder, shared);
	sleep_forever(shared);
}

static void test_thread_storm(void **state)
{
	struct child child;
	long before;
	pid_t *tids;
	int stopped, n;

	spawn(&child, thread_storm);
	for (int i = 0; i < 100; i++) {
		stopped = msp_process_stop(child.process);
		assert_true(stopped >= 9);
		n = msp_process_threads(child.process, &tids);
		free(tids);
		/* All that are there stand still, but for those that are just dying. */
		assert_true(count_state(child.process, 't') == stopped);
		assert_true(n - stopped <= 8);
		before = child.shared->count;
		assert_true(child.shared->count == before);
		msp_process_resume(child.process);
	}
	before = child.shared->count;
	wait_for(child.shared->count > before + 10);
	assert_int_equal(child.shared->errors, 0);
	finish(&child);
}

static void spin(struct shared *shared)
{
	shared->ready = 1;
	for (;;)
		shared->count++;
}

static void test_stays_stopped(void **state)
{
	struct msp_registers regs;
	struct child child;
	int status;
	long before;

	spawn(&child, spin);
	kill(child.pid, SIGSTOP);
	assert_int_equal(waitpid(child.pid, &status, WUNTRACED), child.pid);
	assert_true(WIFSTOPPED(status));
	for (int i = 0; i < 20; i++) {
		assert_int_equal(msp_process_stop(child.process), 1);
		assert_int_equal(msp_thread_registers(child.process, child.pid, &regs), 0);
		msp_process_resume(child.process);
		wait_for(msp_process_thread_state(child.process, child.pid) == 'T');
	}
	before = child.shared->count;
	for (int i = 0; i < 10; i++)
		nap();
	assert_true(child.shared->count == before);
	kill(child.pid, SIGCONT);
	wait_for(child.shared->count > before);
	/* Continued while we hold it: it runs as soon as we let go. */
	kill(child.pid, SIGSTOP);
	waitpid(child.pid, &status, WUNTRACED);
	assert_int_equal(msp_process_stop(child.process), 1);
	kill(child.pid, SIGCONT);
	msp_process_resume(child.process);
	before = child.shared->count;
	wait_for(child.shared->count > before);
	/* Stopped while we hold it. */
	assert_int_equal(msp_process_stop(child.process), 1);
	kill(child.pid, SIGSTOP);
	msp_process_resume(child.process);
	wait_for(msp_process_thread_state(child.process, child.pid) == 'T');
	finish(&child);
}

static void *spinner(void *arg)
{
	spin(arg);
	return NULL;
}

/* Stays on the first, or the last, of the CPUs that we may use; how many these are. */
static int stay_on(bool last)
{
	cpu_set_t may, one;
	int cpu = -1;

	CPU_ZERO(&one);
	assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &may) && (last || cpu < 0))
			cpu = i;
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	return CPU_COUNT(&may);
}

static void spin_both(struct shared *shared)
{
	pthread_t thread;

	stay_on(true);
	if (pthread_create(&thread, NULL, spinner, shared))
		shared->errors++;
	spin(shared);
}

static bool has_run(struct msp_process *process, pid_t tid)
{
	struct msp_thread_times times;

	return !msp_process_thread_times(process, tid, &times) && times.runs;
}

/* Of two threads on one CPU no more than one has it; none, if it is ours too. */
static void test_look(void **state)
{
	struct msp_thread_look a, b, again;
	bool met[2] = {false, false};
	struct child child;
	cpu_set_t before;
	pid_t *tids;
	int cpus;

	spawn(&child, spin_both);
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	cpus = stay_on(false);
	wait_for(count_state(child.process, 'R') == 2);
	assert_int_equal(msp_process_threads(child.process, &tids), 2);
	wait_for(has_run(child.process, tids[0]) && has_run(child.process, tids[1]));
	for (int looks = 0; looks < 200 || (cpus > 1 && (!met[0] || !met[1])); looks++) {
		assert_true(looks < 20000);
		assert_int_equal(msp_process_thread_look(child.process, tids[0], &a), 0);
		assert_int_equal(msp_process_thread_look(child.process, tids[1], &b), 0);
		assert_int_equal(msp_process_thread_look(child.process, tids[0], &again), 0);
		assert_int_equal(a.state, 'R');
		assert_int_not_equal(a.times.runs, 0);
		if (a.on_cpu && again.on_cpu && a.times.runs == again.times.runs) {
			assert_false(b.on_cpu);
			assert_int_not_equal(b.cpu, -1);
			met[0] = true;
		}
		met[1] |= b.on_cpu;
		nap();
	}
	assert_true(cpus > 1 || (!met[0] && !met[1]));
	sched_setaffinity(0, sizeof(before), &before);
	free(tids);
	finish(&child);
}

static void blocked_read(struct shared *shared)
{
	char byte = 0;
	ssize_t n;

	shared->ready = 1;
	n = read(shared->in[0], &byte, 1);
	shared->value[0] = n;
	shared->value[1] = byte;
	shared->value[2] = n < 0 ? errno : 0;
	shared->count = 1;
	pause();
}

static void test_blocked_read(void **state)
{
	struct child child;

	spawn(&child, blocked_read);
	wait_for(msp_process_thread_state(child.process, child.pid) == 'S');
	for (int i = 0; i < 20; i++) {
		assert_int_equal(msp_process_stop(child.process), 1);
		msp_process_resume(child.process);
	}
	assert_int_equal(child.shared->count, 0);
	assert_int_equal(write(child.shared->in[1], "x", 1), 1);
	wait_for(child.shared->count == 1);
	assert_int_equal(child.shared->value[0], 1);
	assert_int_equal(child.shared->value[1], 'x');
	finish(&child);
}

/* volatile: to the compiler nothing reads it before an endless loop */
static struct shared *volatile handler_shared;

static void on_signal(int sig, siginfo_t *info, void *context)
{
	handler_shared->value[handler_shared->count++ % 64] = info->si_value.sival_int;
}

static void count_signals(struct shared *shared)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};

	handler_shared = shared;
	sigaction(SIGRTMIN, &action, NULL);
	shared->ready = 1;
	for (;;)
		shared->stop++;
}

static void test_signals_once(void **state)
{
	union sigval value = {0};
	struct child child;

	spawn(&child, count_signals);
	assert_int_equal(msp_process_stop(child.process), 1);
	for (int i = 0; i < 20; i++) {
		value.sival_int = i;
		assert_int_equal(sigqueue(child.pid, SIGRTMIN, value), 0);
	}
	for (int i = 0; i < 5; i++)
		nap();
	assert_int_equal(child.shared->count, 0);
	msp_process_resume(child.process);
	wait_for(child.shared->count == 20);
	for (int i = 0; i < 20; i++)
		assert_int_equal(child.shared->value[i], i);
	/* In any moment of a stop: each arrives, once, with its value. */
	child.shared->count = 0;
	for (int i = 0; i < 2000; i++) {
		value.sival_int = i;
		assert_int_equal(sigqueue(child.pid, SIGRTMIN, value), 0);
		assert_int_equal(msp_thread_stop(child.process, child.pid), 0);
		assert_int_equal(msp_thread_resume(child.process, child.pid), 0);
	}
	wait_for(child.shared->count == 2000);
	for (int i = 0; i < 64; i++)
		assert_int_equal(child.shared->value[(2000 - 64 + i) % 64], 2000 - 64 + i);
	finish(&child);
}

static void exits_soon(struct shared *shared)
{
	shared->ready = 1;
	nap();
	while (!shared->stop)
		;
	_exit(7);
}

static void test_dies_stopped(void **state)
{
	struct msp_registers regs;
	struct child child;
	int status;

	spawn(&child, spin);
	assert_int_equal(msp_process_stop(child.process), 1);
	kill(child.pid, SIGKILL);
	wait_for(!msp_process_alive(child.process));
	assert_int_equal(msp_thread_registers(child.process, child.pid, &regs), MSP_E_GONE);
	msp_process_resume(child.process);
	assert_int_equal(msp_process_stop(child.process), MSP_E_GONE);
	/* Its end still is for its parent to see. */
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(msp_process_stop(child.process), MSP_E_GONE);
	child.pid = -1;
	finish(&child);
}

static void test_dies_while_stopping(void **state)
{
	struct child child;
	int status, r;

	for (int round = 0; round < 30; round++) {
		spawn(&child, exits_soon);
		child.shared->stop = 1;
		do {
			r = msp_process_stop(child.process);
			if (r > 0)
				msp_process_resume(child.process);
		} while (r > 0);
		assert_int_equal(r, MSP_E_GONE);
		assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		child.pid = -1;
		finish(&child);
	}
}

static void vforks(struct shared *shared)
{
	shared->ready = 1;
	if (vfork() == 0) {
		while (!shared->stop)
			;
		_exit(0);
	}
	for (;;)
		shared->count++;
}

static void test_uninterruptible(void **state)
{
	struct child child;
	uint64_t start;

	spawn(&child, vforks);
	wait_for(msp_process_thread_state(child.process, child.pid) == 'D');
	start = now_us();
	assert_int_equal(msp_process_stop(child.process), MSP_E_BUSY);
	assert_true(now_us() - start < 1000000);
	assert_int_equal(msp_thread_stop(child.process, child.pid), MSP_E_BUSY);
	child.shared->stop = 1;
	wait_for(msp_process_thread_state(child.process, child.pid) == 't');
	/* It stopped late; the next call finds it so, and it can go on. */
	assert_int_equal(msp_process_stop(child.process), 1);
	msp_process_resume(child.process);
	wait_for(child.shared->count > 0);
	finish(&child);
}

static void test_traced_by_other(void **state)
{
	struct child child;
	int pipes[2];
	pid_t tracer;
	char byte;

	assert_int_equal(pipe(pipes), 0);
	spawn(&child, sleep_forever);
	tracer = fork();
	if (tracer == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		byte = ptrace(PTRACE_SEIZE, child.pid, 0, 0) == 0;
		if (write(pipes[1], &byte, 1) == 1)
			pause();
		_exit(0);
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	assert_int_equal(byte, 1);
	assert_int_equal(msp_process_tracer(child.process), tracer);
	assert_int_equal(msp_process_stop(child.process), MSP_E_PERMISSION);
	assert_int_equal(msp_thread_stop(child.process, child.pid), MSP_E_PERMISSION);
	kill(tracer, SIGKILL);
	waitpid(tracer, NULL, 0);
	assert_int_equal(msp_process_stop(child.process), 1);
	close(pipes[0]);
	close(pipes[1]);
	finish(&child);
}

static void *outlives(void *arg)
{
	struct shared *shared = arg;

	nap();
	shared->ready = 1;
	for (;;)
		shared->count++;
	return NULL;
}

static void leader_exits(struct shared *shared)
{
	pthread_t thread;

	pthread_create(&thread, NULL, outlives, shared);
	syscall(SYS_exit, 0);
}

static void test_dead_leader(void **state)
{
	struct child child;
	struct msp_maps maps;
	const struct msp_memory *mem;
	uint32_t word = 0;
	int seen = 0;

	spawn(&child, leader_exits);
	mem = msp_process_memory(child.process);
	wait_for(msp_process_thread_state(child.process, child.pid) == 'Z');
	assert_true(msp_process_alive(child.process));
	assert_int_equal(msp_process_stop(child.process), 1);
	msp_process_resume(child.process);
	/* The leader's own maps and mem are empty then. */
	assert_int_equal(msp_process_maps(child.process, &maps), 0);
	for (size_t i = 0; i < maps.count; i++) {
		if (maps.map[i].name[0] != '/' || maps.map[i].offset || maps.map[i].shared)
			continue;
		assert_int_equal(msp_read(mem, maps.map[i].start, &word, 4), 0);
		assert_memory_equal(&word, "\177ELF", 4);
		seen++;
	}
	assert_true(seen > 1);
	msp_maps_free(&maps);
	finish(&child);
}

/* The one who stops is killed: the target goes on. */
static void test_tracer_killed(void **state)
{
	struct msp_process *process;
	struct child child;
	int pipes[2];
	pid_t spy;
	char byte = 0;
	long before;

	assert_int_equal(pipe(pipes), 0);
	spawn(&child, spin);
	spy = fork();
	if (spy == 0) {
		if (msp_process_open(child.pid, &process) == 0 && msp_process_stop(process) == 1)
			byte = 1;
		if (write(pipes[1], &byte, 1) == 1)
			pause();
		_exit(0);
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	assert_int_equal(byte, 1);
	before = child.shared->count;
	nap();
	assert_true(child.shared->count == before);
	kill(spy, SIGKILL);
	waitpid(spy, NULL, 0);
	wait_for(child.shared->count > before);
	close(pipes[0]);
	close(pipes[1]);
	finish(&child);
}

static void test_stop_cost(void **state)
{
	struct msp_registers regs;
	struct child child;
	uint64_t start, worst = 0, sum = 0, took;

	spawn(&child, spin);
	for (int i = 0; i < 500; i++) {
		start = now_us();
		assert_int_equal(msp_thread_stop(child.process, child.pid), 0);
		assert_int_equal(msp_thread_registers(child.process, child.pid, &regs), 0);
		assert_int_equal(msp_thread_resume(child.process, child.pid), 0);
		took = now_us() - start;
		sum += took;
		worst = took > worst ? took : worst;
	}
	print_message("stop, registers, resume: mean %llu us, worst %llu us\n",
		      (unsigned long long)sum / 500, (unsigned long long)worst);
	finish(&child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_thread_storm),
		cmocka_unit_test(test_stays_stopped),
		cmocka_unit_test(test_blocked_read),
		cmocka_unit_test(test_signals_once),
		cmocka_unit_test(test_dies_stopped),
		cmocka_unit_test(test_dies_while_stopping),
		cmocka_unit_test(test_uninterruptible),
		cmocka_unit_test(test_traced_by_other),
		cmocka_unit_test(test_dead_leader),
		cmocka_unit_test(test_tracer_killed),
		cmocka_unit_test(test_stop_cost),
		cmocka_unit_test(test_look),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Starting a process, letting it run, stepping one of its threads, or a child that it forks. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "oracle.h"

/* A step that takes two of these is in a system call that waits. */
#define TICK_MS 50

#define OPTIONS (PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK)

static void exec_child(char *const argv[], const char *preload)
{
	int null = open("/dev/null", O_WRONLY);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (null >= 0) {
		dup2(null, 1);
		dup2(null, 2);
	}
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	raise(SIGSTOP);
	execvp(argv[0], argv);
	_exit(127);
}

static int our_cpu;

static void set_cpus(pid_t tid, bool all)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; all && i < CPU_SETSIZE; i++)
		CPU_SET(i, &set);
	CPU_SET(our_cpu, &set);
	sched_setaffinity(tid, sizeof(set), &set);
}

/* Both on one processor: a step is then a switch, not a wake-up. */
static void stay_together(pid_t tid)
{
	our_cpu = sched_getcpu();
	set_cpus(0, false);
	set_cpus(tid, false);
}

/* ---- Waiting ---- */

static void on_tick(int number)
{
	(void)number;
}

/* Interrupts waitpid() now and then. */
static void start_ticks(void)
{
	struct sigaction action = {.sa_handler = on_tick};
	struct itimerval every = {{0, TICK_MS * 1000}, {0, TICK_MS * 1000}};

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

static bool open_target(struct oracle_process *p)
{
	int rc = msp_process_open(p->pid, &p->process);

	if (rc == 0)
		rc = msp_space_new(p->images, p->process, &p->space);
	if (rc == 0)
		rc = msp_symbolizer_new(p->images, p->space, NULL, &p->symbols);
	if (rc == 0)
		rc = msp_walker_new(p->space, &p->walker);
	if (rc == 0)
		rc = msp_space_refresh(p->space);
	return rc >= 0;
}

static void close_target(struct oracle_process *p)
{
	msp_walker_free(p->walker);
	msp_symbolizer_free(p->symbols);
	msp_space_free(p->space);
	msp_process_close(p->process);
	p->walker = NULL;
	p->symbols = NULL;
	p->space = NULL;
	p->process = NULL;
}

static bool get_registers(struct oracle_process *p)
{
	struct iovec io = {&p->set, sizeof(p->set)};

	p->ended |= ptrace(PTRACE_GETREGSET, p->tid, (void *)NT_PRSTATUS, &io) != 0 ||
		    msp_registers_from_regset(oracle_arch.arch, &p->set, io.iov_len, &p->regs) != 0;
	p->regs.syscall = false; /* at an instruction */
	return !p->ended;
}

static bool become(struct oracle_process *p, pid_t pid)
{
	close_target(p);
	p->pid = p->tid = pid;
	p->other = true;
	oracle_memory_of(p->memory, pid);
	p->ended = !open_target(p);
	return !p->ended && get_registers(p);
}

/* It has forked, and waits: its child is stepped from here. */
static bool follow_child(struct oracle_process *p)
{
	unsigned long child = 0;
	int status;

	if (ptrace(PTRACE_GETEVENTMSG, p->tid, 0, &child) != 0 || !child ||
	    waitpid((pid_t)child, &status, __WALL) != (pid_t)child || !WIFSTOPPED(status))
		return false;
	p->parent = p->pid;
	return become(p, (pid_t)child);
}

/* The stepped thread has ended. */
static void on_end(struct oracle_process *p)
{
	pid_t parent = p->parent;

	p->ended = true;
	if (p->tid != p->pid) {
		p->ended = !oracle_process_next_thread(p);
	} else if (parent) {
		p->parent = 0;
		become(p, parent);
	}
}

static bool is_fork(int status)
{
	return status >> 8 == (SIGTRAP | PTRACE_EVENT_FORK << 8);
}

static bool is_interrupt(int status)
{
	return status >> 16 == PTRACE_EVENT_STOP;
}

static bool is_exec(int status)
{
	return status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8);
}

static bool is_step(int status)
{
	return WSTOPSIG(status) == SIGTRAP && status >> 16 == 0;
}

/* The next stop; a thread that does not stop for long is interrupted. False: there is none. */
static bool next_stop(struct oracle_process *p, int *status)
{
	unsigned int ticks = 0;
	pid_t got;

	while ((got = waitpid(p->tid, status, __WALL)) < 0 && errno == EINTR) {
		if (++ticks != 2)
			continue;
		p->blocked = true;
		ptrace(PTRACE_INTERRUPT, p->tid, 0, 0);
	}
	return got == p->tid && WIFSTOPPED(*status);
}

/* Waits for a stop; signals that are not ours go to the process. */
static bool wait_stop(struct oracle_process *p, int request, bool (*ours)(int status))
{
	int status, number;

	p->blocked = p->signalled = false;
	for (;;) {
		if (!next_stop(p, &status)) {
			on_end(p);
			return false;
		}
		if (is_fork(status))
			return follow_child(p);
		if (ours(status))
			return true;
		if (p->blocked && is_interrupt(status)) {
			get_registers(p);
			return false;
		}
		/* The trap of a step that was interrupted comes late. */
		number = status >> 16 || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		p->signalled |= number != 0;
		if (number) /* its frame will be written */
			oracle_memory_flush(p->memory);
		if (ptrace(request, p->tid, 0, number) != 0)
			return false;
	}
}

/* ---- Running, stepping ---- */

static void sleep_ms(unsigned int ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000l};

	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}

static bool has_had(struct oracle_process *p, unsigned int ms)
{
	struct msp_thread_times times;

	return msp_process_thread_times(p->process, p->tid, &times) ||
	       times.used_ns >= ms * 1000000ull;
}

/* One that becomes another program, as chroot does, stands still at that. */
static void pass_exec(struct oracle_process *p)
{
	siginfo_t info = {0};

	if (waitid(P_PID, p->tid, &info, WSTOPPED | WNOHANG | WNOWAIT | __WALL) || !info.si_pid ||
	    info.si_status != (SIGTRAP | PTRACE_EVENT_EXEC << 8))
		return;
	waitid(P_PID, p->tid, &info, WSTOPPED | WNOHANG | __WALL);
	ptrace(PTRACE_CONT, p->tid, 0, 0);
}

/* Runs for that long; up: until it has had that much CPU time, if it is not at rest for 20 times as long. */
static bool run(struct oracle_process *p, unsigned int ms, bool up)
{
	oracle_memory_flush(p->memory);
	if (ptrace(PTRACE_CONT, p->tid, 0, 0) != 0)
		return false;
	sleep_ms(ms);
	for (int i = 1; up && i < 20 && !has_had(p, ms); i++) {
		pass_exec(p);
		sleep_ms(ms);
	}
	if (ptrace(PTRACE_INTERRUPT, p->tid, 0, 0) != 0 || !wait_stop(p, PTRACE_CONT, is_interrupt))
		return false;
	return get_registers(p);
}

bool oracle_process_run(struct oracle_process *p, unsigned int ms)
{
	return run(p, ms, false);
}

bool oracle_process_step(struct oracle_process *p)
{
	if (ptrace(PTRACE_SINGLESTEP, p->tid, 0, 0) != 0 ||
	    !wait_stop(p, PTRACE_SINGLESTEP, is_step))
		return false;
	return get_registers(p);
}

void oracle_process_signal(struct oracle_process *p, int number)
{
	syscall(SYS_tgkill, p->pid, p->tid, number);
}

/* The thread after the stepped one, 0: there is no other. */
static pid_t thread_after(struct oracle_process *p)
{
	pid_t *tids = NULL, next = 0, first = 0;
	int count = msp_process_threads(p->process, &tids);

	for (int i = count - 1; i >= 0; i--) {
		if (tids[i] > p->tid)
			next = tids[i];
		if (tids[i] != p->tid)
			first = tids[i];
	}
	free(tids);
	return next ? next : first;
}

bool oracle_process_alone(struct oracle_process *p)
{
	return !thread_after(p);
}

/* Threads that are not stepped run untraced, on any processor. */
static bool trace_thread(struct oracle_process *p, pid_t tid)
{
	if (ptrace(PTRACE_SEIZE, tid, 0, OPTIONS) != 0)
		return false;
	set_cpus(tid, false);
	p->tid = tid;
	if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) != 0 || !wait_stop(p, PTRACE_CONT, is_interrupt))
		return false;
	return get_registers(p);
}

bool oracle_process_next_thread(struct oracle_process *p)
{
	pid_t next = p->process ? thread_after(p) : 0;

	if (!next)
		return !p->ended;
	set_cpus(p->tid, true);
	ptrace(PTRACE_DETACH, p->tid, 0, 0);
	oracle_memory_flush(p->memory);
	for (int i = 0; next && i < 8; i++) {
		if (trace_thread(p, next))
			return true;
		p->tid = next; /* it has ended meanwhile */
		next = thread_after(p);
	}
	return false;
}

void oracle_process_refresh(struct oracle_process *p)
{
	struct msp_host_vm vm[MSP_MAX_HOST_VMS];

	msp_space_refresh(p->space);
	if (!msp_space_host_vms(p->space, vm))
		msp_space_find_host_vms(p->space);
}

int oracle_process_start(struct msp_images *images, char *const argv[], const char *preload,
			 unsigned int ms, struct oracle_process *p)
{
	int status;

	memset(p, 0, sizeof(*p));
	p->images = images;
	p->pid = p->tid = fork();
	if (p->pid < 0)
		return MSP_E_NOMEM;
	if (p->pid == 0)
		exec_child(argv, preload);
	waitpid(p->pid, &status, WUNTRACED);
	p->memory = oracle_memory_new(p->pid);
	p->code = oracle_code_new();
	if (!p->memory || !p->code || ptrace(PTRACE_SEIZE, p->pid, 0, OPTIONS) != 0)
		return MSP_E_PERMISSION;
	stay_together(p->pid);
	start_ticks();
	kill(p->pid, SIGCONT);
	if (!wait_stop(p, PTRACE_CONT, is_exec))
		return MSP_E_GONE;
	if (!open_target(p))
		return MSP_E_NOMEM;
	return run(p, ms, true) ? 0 : MSP_E_GONE;
}

/* Its other threads may be traced too: until they are waited for, it does not end. */
static void end_process(pid_t pid)
{
	pid_t got;

	kill(pid, SIGKILL);
	while ((got = waitpid(-1, NULL, __WALL)) != pid && (got > 0 || errno == EINTR))
		;
}

void oracle_process_end(struct oracle_process *p)
{
	if (p->pid > 0 && !p->ended)
		end_process(p->pid);
	if (p->parent > 0)
		end_process(p->parent);
	close_target(p);
	oracle_memory_free(p->memory);
	oracle_code_free(p->code);
	memset(p, 0, sizeof(*p));
}

/* SPDX-License-Identifier: MIT */
/* Starting a process, letting it run, stepping it. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "oracle.h"

/* How long the program may take until it has loaded its libraries and entered its script. */
#define START_MS 60

static void exec_child(char *const argv[])
{
	int null = open("/dev/null", O_WRONLY);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (null >= 0) {
		dup2(null, 1);
		dup2(null, 2);
	}
	raise(SIGSTOP);
	execvp(argv[0], argv);
	_exit(127);
}

/* Both on one processor: a step is then a switch, not a wake-up. */
static void stay_together(pid_t pid)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned int)sched_getcpu(), &set);
	sched_setaffinity(0, sizeof(set), &set);
	sched_setaffinity(pid, sizeof(set), &set);
}

/* Waits for a stop; signals that are not ours go to the process. */
static bool wait_stop(struct oracle_process *p, int request, bool (*ours)(int status))
{
	int status;

	for (;;) {
		if (waitpid(p->pid, &status, __WALL) != p->pid || !WIFSTOPPED(status)) {
			p->ended = true;
			return false;
		}
		if (ours(status))
			return true;
		if (ptrace(request, p->pid, 0, status >> 16 ? 0 : WSTOPSIG(status)) != 0)
			return false;
	}
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

static bool get_registers(struct oracle_process *p)
{
	if (ptrace(PTRACE_GETREGS, p->pid, 0, &p->regs) == 0)
		return true;
	p->ended = true;
	return false;
}

bool oracle_process_run(struct oracle_process *p, unsigned int ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000l};

	oracle_memory_flush(p->memory);
	if (ptrace(PTRACE_CONT, p->pid, 0, 0) != 0)
		return false;
	nanosleep(&time, NULL);
	if (ptrace(PTRACE_INTERRUPT, p->pid, 0, 0) != 0 || !wait_stop(p, PTRACE_CONT, is_interrupt))
		return false;
	return get_registers(p);
}

bool oracle_process_step(struct oracle_process *p)
{
	if (ptrace(PTRACE_SINGLESTEP, p->pid, 0, 0) != 0 ||
	    !wait_stop(p, PTRACE_SINGLESTEP, is_step))
		return false;
	return get_registers(p);
}

void oracle_process_refresh(struct oracle_process *p)
{
	struct msp_host_vm vm[MSP_MAX_HOST_VMS];

	msp_space_refresh(p->space);
	if (!msp_space_host_vms(p->space, vm))
		msp_space_find_host_vms(p->space);
}

void oracle_process_registers(const struct oracle_process *p, struct msp_registers *out)
{
	const struct user_regs_struct *r = &p->regs;
	const uint64_t by_number[] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi,
				      r->rbp, r->rsp, r->r8,  r->r9,  r->r10, r->r11,
				      r->r12, r->r13, r->r14, r->r15};

	memset(out, 0, sizeof(*out));
	memcpy(out->reg, by_number, sizeof(by_number));
	out->pc = r->rip;
}

static int open_target(struct oracle_process *p)
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
	return rc < 0 ? rc : 0;
}

int oracle_process_start(struct msp_images *images, char *const argv[], struct oracle_process *p)
{
	int status;

	memset(p, 0, sizeof(*p));
	p->images = images;
	p->pid = fork();
	if (p->pid < 0)
		return MSP_E_NOMEM;
	if (p->pid == 0)
		exec_child(argv);
	waitpid(p->pid, &status, WUNTRACED);
	p->memory = oracle_memory_new(p->pid);
	p->code = oracle_code_new();
	if (!p->memory || !p->code ||
	    ptrace(PTRACE_SEIZE, p->pid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC) != 0)
		return MSP_E_PERMISSION;
	stay_together(p->pid);
	kill(p->pid, SIGCONT);
	if (!wait_stop(p, PTRACE_CONT, is_exec) || !oracle_process_run(p, START_MS))
		return MSP_E_GONE;
	return open_target(p);
}

void oracle_process_end(struct oracle_process *p)
{
	if (p->pid > 0 && !p->ended) {
		kill(p->pid, SIGKILL);
		waitpid(p->pid, NULL, __WALL);
	}
	msp_walker_free(p->walker);
	msp_symbolizer_free(p->symbols);
	msp_space_free(p->space);
	msp_process_close(p->process);
	oracle_memory_free(p->memory);
	oracle_code_free(p->code);
	memset(p, 0, sizeof(*p));
}

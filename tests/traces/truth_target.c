/* SPDX-License-Identifier: MIT */
#include "truth_target.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "qemu_guest.h"

/* The emulator stops where a block of instructions begins, which a trace has few of. */
#define MAX_STEPS 24

static struct {
	struct qemu_guest guest;
	struct msp_process *process;
	pid_t pid;
	bool emulated, stopped;
} t;

static bool start_here(char *argv[])
{
	int ready[2];
	bool runs;
	char c;

	if (pipe2(ready, O_CLOEXEC))
		return false;
	t.pid = fork();
	if (t.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(argv[0], argv);
		_exit(127);
	}
	close(ready[1]);
	runs = t.pid > 0 && read(ready[0], &c, 1) >= 0; /* ends when it runs the program */
	close(ready[0]);
	return runs && !msp_process_open(t.pid, &t.process);
}

bool truth_target_start(char *argv[])
{
	const char *emulator = getenv("EMULATOR"), *root = getenv("ROOT");

	t.emulated = emulator && root;
	if (t.emulated)
		return !qemu_guest_start(&t.guest, emulator, root, argv);
	return start_here(argv);
}

int truth_target_space(struct msp_images *images, struct msp_space **out)
{
	if (t.emulated)
		return msp_space_new_host(images, &t.guest.host, out);
	return msp_space_new(images, t.process, out);
}

static bool run_guest(void)
{
	if (!qemu_guest_run(&t.guest, 1 + (unsigned int)rand() % 4))
		return false;
	for (int n = rand() % MAX_STEPS; n > 0; n--)
		if (!qemu_guest_step(&t.guest))
			return false;
	return true;
}

bool truth_target_run(void)
{
	struct timespec ts = {.tv_nsec = 200000 + rand() % 700000};

	if (t.emulated)
		return run_guest();
	if (t.stopped)
		msp_thread_resume(t.process, t.pid);
	nanosleep(&ts, NULL);
	t.stopped = !msp_thread_stop(t.process, t.pid);
	return t.stopped;
}

bool truth_target_registers(struct msp_registers *out)
{
	if (t.emulated)
		return qemu_guest_registers(&t.guest, out);
	return !msp_thread_registers(t.process, t.pid, out);
}

void truth_target_end(void)
{
	if (t.emulated)
		qemu_guest_end(&t.guest);
	if (t.pid > 0) {
		kill(t.pid, SIGKILL);
		waitpid(t.pid, NULL, 0);
	}
	msp_process_close(t.process);
}

/* SPDX-License-Identifier: MIT */
/* The other program: it asks its own helpers in a signal handler, and waits there until it is told to go on. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "moments.h"

enum { FD_SHARED = 60, FD_UP, FD_DOWN };

static struct kit kit;
static struct ljvm_memory own;
static struct shared *shared;
static timer_t timer;

/* gcore interrupts what waits. */
static bool receive(int fd)
{
	ssize_t got;
	char byte;

	do
		got = read(fd, &byte, 1);
	while (got < 0 && errno == EINTR);
	return got == 1;
}

static void on_signal(int number, siginfo_t *info, void *context)
{
	int saved = errno;

	(void)number;
	(void)info;
	memset(&shared->moment, 0, sizeof(shared->moment));
	registers_of(context, &shared->moment.registers);
	moment_ask(&kit, &own, &shared->moment);
	if (write(FD_UP, "", 1) != 1 || !receive(FD_DOWN))
		_exit(0);
	moment_soon(timer);
	errno = saved;
}

void other_run_if_child(const char *library, const char *script)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
	void *L;

	if (!getenv("MOONSPY_KIT_OTHER"))
		return;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, FD_SHARED, 0);
	if (shared == MAP_FAILED)
		kit_die("nothing is shared");
	kit_open(&kit, library);
	kit_reader(&kit, &own);
	shared->descriptor = (uint64_t)(uintptr_t)kit.head;
	L = kit.newstate();
	kit.openlibs(L);
	sigaction(SIGUSR1, &action, NULL);
	moment_timer(&timer);
	moment_soon(timer);
	for (;;)
		kit_run(&kit, L, script, 200);
}

static int read_other(void *pid, uint64_t address, void *buffer, size_t size)
{
	struct iovec local = {buffer, size}, remote = {(void *)(uintptr_t)address, size};

	return process_vm_readv((pid_t)(intptr_t)pid, &local, 1, &remote, 1, 0) == (ssize_t)size
		       ? 0
		       : -1;
}

void other_start(struct other *other, char **argv, struct ljvm_memory *memory)
{
	int file = memfd_create("moments", 0), up[2], down[2];

	if (file < 0 || ftruncate(file, sizeof(*shared)) != 0 || pipe2(up, O_CLOEXEC) != 0 ||
	    pipe2(down, O_CLOEXEC) != 0)
		kit_die("no pipes");
	other->shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	other->pid = fork();
	if (other->shared == MAP_FAILED || other->pid < 0)
		kit_die("nothing is shared, or no other process");
	if (other->pid == 0) {
		dup2(file, FD_SHARED);
		dup2(up[1], FD_UP);
		dup2(down[0], FD_DOWN);
		setenv("MOONSPY_KIT_OTHER", "1", 1);
		setenv("LUAJIT_TRACE_TABLES", "1", 1);
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	close(file);
	close(up[1]);
	close(down[0]);
	other->up = up[0];
	other->down = down[1];
	*memory = (struct ljvm_memory){read_other, (void *)(intptr_t)other->pid, 0};
	other_wait(other);
	memory->descriptor = other->shared->descriptor;
	other_go_on(other);
}

void other_wait(struct other *other)
{
	if (!receive(other->up))
		kit_die("the other program has ended");
}

void other_go_on(struct other *other)
{
	if (write(other->down, "", 1) != 1)
		kit_die("the other program has ended");
}

/* It ends at its next moment, told or not. */
void other_end(struct other *other)
{
	int status;

	close(other->down);
	if (waitpid(other->pid, &status, 0) != other->pid || status != 0)
		kit_die("the other program: status %d", status);
	munmap(other->shared, sizeof(*other->shared));
	close(other->up);
}

/* ---- A core file ---- */

bool core_open(struct core *core, pid_t pid)
{
	char path[64] = "/tmp/moonspy-kit-core.XXXXXX", command[200];
	int fd = mkstemp(path), status;
	bool got;

	if (fd < 0)
		kit_die("no file for a core file");
	snprintf(command, sizeof(command), "gcore -o %s %d >/dev/null 2>&1 </dev/null", path,
		 (int)pid);
	status = system(command);
	close(fd);
	unlink(path);
	snprintf(command, sizeof(command), "%s.%d", path, (int)pid);
	got = status == 0 && core_map(core, command);
	unlink(command);
	return got;
}

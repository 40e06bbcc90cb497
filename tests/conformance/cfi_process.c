/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cfi_compare.h"
#include "cfi_process.h"

#define STEPS_MAX 16

static pid_t spawn(const char *const *argv)
{
	pid_t pid = fork();
	int null;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	execv(argv[0], (char *const *)argv);
	_exit(127);
}

bool start_command(const char *const *argv, struct running *run)
{
	memset(run, 0, sizeof(*run));
	if (access(argv[0], X_OK))
		return false;
	run->pid = spawn(argv);
	usleep(400000);
	return run->pid > 0;
}

static void put_file(const char *dir, const char *name, const char *text, int times)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "w");
	while (file && times--)
		fputs(text, file);
	if (file)
		fclose(file);
}

/* Asks for a compressed page again and again, until it is killed. */
static pid_t start_client(const char *dir)
{
	static const char request[] = "GET /page.txt HTTP/1.1\r\nHost: a\r\n"
				      "Accept-Encoding: gzip\r\nConnection: close\r\n\r\n";
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	pid_t pid = fork();
	char buffer[65536];

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", dir);
	for (;;) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);

		if (connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
		    write(fd, request, sizeof(request) - 1) < 0)
			usleep(10000);
		while (read(fd, buffer, sizeof(buffer)) > 0)
			;
		close(fd);
	}
}

/* The only child of a process, 0 if there is none. */
static pid_t child_of(pid_t pid)
{
	char path[64];
	int child = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%d", &child) != 1)
		child = 0;
	if (file)
		fclose(file);
	return child;
}

bool start_nginx(struct running *run)
{
	static const char config[] = "daemon off; master_process on; worker_processes 1; pid "
				     "nginx.pid; error_log off.log;\n"
				     "events { worker_connections 64; }\n"
				     "http { access_log off.log; gzip on; gzip_types text/plain; "
				     "default_type text/plain;\n"
				     "server { listen unix:socket; root .; location / { ssi on; "
				     "sub_filter moon sun; } } }\n";
	const char *argv[] = {"/usr/sbin/nginx", "-p", run->dir, "-c", "nginx.conf", NULL};
	char text[sizeof(config) + 256], *at;

	memset(run, 0, sizeof(*run));
	strcpy(run->dir, "/tmp/cfi-compare-XXXXXX");
	if (access(argv[0], X_OK) || !mkdtemp(run->dir)) {
		run->dir[0] = '\0';
		return false;
	}
	chmod(run->dir, 0755);
	strcpy(text, config);
	at = strstr(text, "unix:socket; root .;");
	sprintf(at, "unix:%s/socket; root %s; location / { ssi on; } } }\n", run->dir, run->dir);
	put_file(run->dir, "nginx.conf", text, 1);
	put_file(run->dir, "page.txt",
		 "a line about the moon and <!--# echo var=\"date_local\" -->\n", 400);
	run->parent = spawn(argv);
	usleep(400000);
	run->pid = child_of(run->parent);
	run->client = start_client(run->dir);
	return run->pid > 0;
}

static void remove_dir(const char *dir)
{
	static const char *const names[] = {"nginx.conf", "page.txt", "socket", "nginx.pid",
					    "off.log"};
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

void stop_running(struct running *run)
{
	pid_t pids[] = {run->client, run->pid, run->parent};

	for (size_t i = 0; i < 3; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
	for (size_t i = 0; i < 3; i++)
		if (pids[i] > 0)
			while (waitpid(pids[i], NULL, __WALL) < 0 && errno == EINTR)
				;
	if (run->dir[0])
		remove_dir(run->dir);
}

bool seize(pid_t pid)
{
	return !ptrace(PTRACE_SEIZE, pid, 0, 0);
}

/* The signal that the next resumption must deliver; there is one tracee at a time. */
static int pending_signal;

/* Waits for a stop. 0: it came, 1: it did not in time, -1: the process is gone. */
static int wait_stop(pid_t pid, int usecs)
{
	int status;

	for (int waited = 0;; waited += 20) {
		pid_t got = waitpid(pid, &status, __WALL | WNOHANG);

		if (got < 0 || (got == pid && !WIFSTOPPED(status)))
			return -1;
		if (got == pid)
			break;
		if (waited >= usecs)
			return 1;
		if (waited > 40)
			usleep(20);
	}
	pending_signal = status >> 16 || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
	return 0;
}

bool go_on(pid_t pid)
{
	bool ok = !ptrace(PTRACE_CONT, pid, 0, pending_signal);

	pending_signal = 0;
	return ok;
}

bool stop_somewhere(pid_t pid)
{
	usleep((useconds_t)(random_number() % 1500));
	return !ptrace(PTRACE_INTERRUPT, pid, 0, 0) && !wait_stop(pid, 1000000);
}

bool step_on(pid_t pid)
{
	int steps = 1 + (int)(random_number() % STEPS_MAX), result;

	while (steps--) {
		if (ptrace(PTRACE_SINGLESTEP, pid, 0, pending_signal))
			return false;
		pending_signal = 0;
		result = wait_stop(pid, 2000);
		if (result < 0)
			return false;
		if (result == 0)
			continue;
		/* It waits in a system call: that is a place as good as any. */
		return !ptrace(PTRACE_INTERRUPT, pid, 0, 0) && !wait_stop(pid, 1000000);
	}
	return true;
}

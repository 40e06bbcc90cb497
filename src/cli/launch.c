/* SPDX-License-Identifier: MIT */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/messages.h"
#include "cli/sudo.h"

static volatile sig_atomic_t signals_seen, signal_last, signal_child;
static bool ignores_pipe;	   /* since cli_signals_install() */
static struct rlimit files_before; /* rlim_cur 0: not raised */

void cli_files_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= limit.rlim_max)
		return;
	files_before = limit;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		files_before.rlim_cur = 0;
}

/* The child's life before exec. Only _exit from here: stdio buffers are the parent's. */
static void __attribute__((noreturn)) child(int go, int result, char **command)
{
	struct cli_caller caller;
	ssize_t n;
	char byte;
	int error;

	do
		n = read(go, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(127); /* moonspy is gone, or gave up */
	if (ignores_pipe)   /* exec keeps what is ignored */
		signal(SIGPIPE, SIG_DFL);
	if (files_before.rlim_cur)
		setrlimit(RLIMIT_NOFILE, &files_before);
	if (cli_sudo_caller(&caller) && cli_sudo_drop(&caller))
		goto fail;
	execvp(command[0], command);
fail:
	error = errno;
	if (write(result, &error, sizeof(error)) < 0)
		_exit(126);
	_exit(127);
}

int cli_launch_start(struct cli_launch *launch, char **command)
{
	int go[2] = {-1, -1}, result[2] = {-1, -1};

	memset(launch, 0, sizeof(*launch));
	launch->go = launch->result = -1;
	signals_seen = 0; /* what counts is what comes while it runs */
	if (pipe2(go, O_CLOEXEC) || pipe2(result, O_CLOEXEC))
		goto fail;
	launch->pid = fork();
	if (launch->pid < 0)
		goto fail;
	if (launch->pid == 0) {
		close(go[1]);
		close(result[0]);
		child(go[0], result[1], command);
	}
	close(go[0]);
	close(result[1]);
	launch->go = go[1];
	launch->result = result[0];
	return 0;
fail:
	cli_error(cli_fmt("cannot start %s", command[0]), strerror(errno), "ulimit -a");
	for (int i = 0; i < 2; i++) {
		if (go[i] >= 0)
			close(go[i]);
		if (result[i] >= 0)
			close(result[i]);
	}
	launch->pid = 0;
	return CLI_FAILED;
}

static void close_pipes(struct cli_launch *launch)
{
	if (launch->go >= 0)
		close(launch->go);
	if (launch->result >= 0)
		close(launch->result);
	launch->go = launch->result = -1;
}

int cli_launch_go(struct cli_launch *launch, char **command)
{
	int error = 0;
	ssize_t n;

	/* The child may be dead: the write then fails, and the read says so too. */
	while (write(launch->go, "", 1) < 0 && errno == EINTR)
		;
	do
		n = read(launch->result, &error, sizeof(error));
	while (n < 0 && errno == EINTR);
	close_pipes(launch);
	if (n != sizeof(error))
		return 0; /* closed by exec */
	cli_launch_wait(launch);
	cli_error(cli_fmt("cannot start %s", command[0]), strerror(error),
		  error == ENOENT	    ? "check the name, or give the path"
		  : strchr(command[0], '/') ? cli_fmt("ls -l %s", command[0])
					    : cli_fmt("ls -l $(command -v %s)", command[0]));
	return error == ENOENT ? 127 : 126;
}

static bool reap(struct cli_launch *launch)
{
	int status;
	pid_t pid;

	if (launch->reaped)
		return true;
	do
		pid = waitpid(launch->pid, &status, WNOHANG);
	while (pid < 0 && errno == EINTR);
	if (pid == 0)
		return false;
	launch->reaped = true;
	signal_child = 0; /* its number may be another's soon */
	if (pid < 0)
		launch->status = CLI_FAILED;
	else
		launch->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	return true;
}

bool cli_launch_ended(struct cli_launch *launch)
{
	return reap(launch);
}

int cli_launch_wait(struct cli_launch *launch)
{
	const struct timespec step = {.tv_nsec = 10000000};

	/* Not a blocking waitpid(): a signal just before it would be missed. */
	while (!reap(launch)) {
		if (signals_seen > 1)
			return 128 + signal_last;
		nanosleep(&step, NULL);
	}
	return launch->status;
}

void cli_launch_abandon(struct cli_launch *launch)
{
	bool waiting = launch->go >= 0;

	close_pipes(launch);
	if (waiting && launch->pid > 0)
		cli_launch_wait(launch);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
	int saved = errno;

	signals_seen = signals_seen + 1;
	signal_last = number;
	/* From the keyboard the kernel sends to the whole group; the child has it already. */
	if (signal_child > 0 && info->si_code <= 0)
		kill(signal_child, number);
	errno = saved;
}

int cli_signals_install(pid_t child_pid)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
	/* No SA_RESTART: a wait for samples ends when a signal comes. */
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	struct sigaction ignore = {.sa_handler = SIG_IGN}, old;

	signal_child = child_pid;
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (sigaction(numbers[i], NULL, &old))
			return -1;
		/* nohup, and shells that start jobs in the background, mean it */
		if (old.sa_handler == SIG_IGN && numbers[i] != SIGTERM)
			continue;
		if (sigaction(numbers[i], &action, NULL))
			return -1;
	}
	if (sigaction(SIGPIPE, &ignore, &old))
		return -1;
	ignores_pipe = ignores_pipe || old.sa_handler != SIG_IGN;
	return 0;
}

unsigned cli_signals_seen(int *signal)
{
	if (signal)
		*signal = signal_last;
	return signals_seen;
}

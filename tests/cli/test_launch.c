/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/launch.h"

static char folder[] = "/tmp/moonspy-launch-XXXXXX";

static int enter_folder(void **state)
{
	return mkdtemp(folder) && !chdir(folder) ? 0 : -1;
}

static int leave_folder(void **state)
{
	char line[64];

	snprintf(line, sizeof(line), "rm -rf %s", folder);
	return system(line) || chdir("/");
}

/* Starts "sh -c script" and gives its exit status. */
static int status_of(const char *script)
{
	char *command[] = {"sh", "-c", (char *)script, NULL};
	struct cli_launch launch;

	assert_int_equal(cli_launch_start(&launch, command), 0);
	assert_false(cli_launch_ended(&launch));
	assert_int_equal(cli_launch_go(&launch, command), 0);
	return cli_launch_wait(&launch);
}

static void statuses(void **state)
{
	assert_int_equal(status_of("exit 0"), 0);
	assert_int_equal(status_of("exit 42"), 42);
	assert_int_equal(status_of("kill -9 $$"), 128 + SIGKILL);
}

static int go_fails(const char *name)
{
	char *command[] = {(char *)name, NULL};
	struct cli_launch launch;

	assert_int_equal(cli_launch_start(&launch, command), 0);
	return cli_launch_go(&launch, command);
}

static void not_started(void **state)
{
	FILE *file = fopen("data", "w");

	assert_non_null(file);
	fclose(file);
	assert_int_equal(go_fails("./missing"), 127);
	assert_int_equal(go_fails("no-such-command-anywhere"), 127);
	assert_int_equal(go_fails("./data"), 126);
}

/* Nothing runs before go; nothing runs at all if it never comes. */
static void waits(void **state)
{
	char *command[] = {"sh", "-c", ": >ran", NULL};
	struct cli_launch launch;

	assert_int_equal(cli_launch_start(&launch, command), 0);
	usleep(50000);
	assert_int_not_equal(access("ran", F_OK), 0);
	cli_launch_abandon(&launch);
	assert_true(launch.reaped);
	assert_int_not_equal(access("ran", F_OK), 0);
}

static void signals_pass(void **state)
{
	char *command[] = {"sh", "-c", "trap 'exit 7' TERM; : >ready; while :; do sleep 0.05; done",
			   NULL};
	struct cli_launch launch;
	struct sigaction hup, term;
	int last = 0;

	/* Under nohup, say, they are ignored, and stay it. */
	sigaction(SIGHUP, &(struct sigaction){.sa_handler = SIG_DFL}, &hup);
	sigaction(SIGTERM, &(struct sigaction){.sa_handler = SIG_DFL}, &term);
	assert_int_equal(cli_launch_start(&launch, command), 0);
	assert_int_equal(cli_signals_install(launch.pid), 0);
	assert_int_equal(cli_signals_seen(NULL), 0);
	assert_int_equal(cli_launch_go(&launch, command), 0);
	while (access("ready", F_OK))
		usleep(10000);
	kill(getpid(), SIGTERM);
	assert_int_equal(cli_signals_seen(&last), 1);
	assert_int_equal(last, SIGTERM);
	assert_int_equal(cli_launch_wait(&launch), 7);
	/* It is gone: a signal that comes now goes to nobody. */
	kill(getpid(), SIGHUP);
	assert_int_equal(cli_signals_seen(&last), 2);
	cli_launch_abandon(&launch);
	sigaction(SIGHUP, &hup, NULL);
	sigaction(SIGTERM, &term, NULL);
}

/* The line of /proc/self/status as this program was started: in the background of a shell, some are ignored. */
static char ignored_before[64];

static void read_ignored(void)
{
	char line[64];
	FILE *in = fopen("/proc/self/status", "r");

	while (in && fgets(line, sizeof(line), in))
		if (!strncmp(line, "SigIgn:", 7)) {
			line[strcspn(line, "\n")] = 0;
			strcpy(ignored_before, line);
		}
	if (in)
		fclose(in);
}

/* The command must not find signals ignored that were not before. */
static void signals_as_before(void **state)
{
	char script[128];

	snprintf(script, sizeof(script), "grep -qx '%s' /proc/self/status", ignored_before);
	assert_int_equal(status_of(script), 0);
	assert_int_equal(status_of("kill -PIPE $$"), 128 + SIGPIPE);
}

static void runs_as_the_caller(void **state)
{
	if (geteuid() != 0) {
		print_message("only root can become another user\n");
		skip();
	}
	setenv("SUDO_UID", "65534", 1);
	setenv("SUDO_GID", "65534", 1);
	assert_int_equal(status_of("test $(id -u):$(id -g) = 65534:65534"), 0);
	assert_int_equal(status_of("test \"$(id -G)\" = 65534"), 0);
	assert_int_equal(status_of("test -z \"$SUDO_UID$SUDO_GID\" && test $USER = nobody"), 0);
	unsetenv("SUDO_UID");
	unsetenv("SUDO_GID");
	assert_int_equal(status_of("test $(id -u) = 0"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(statuses),
		cmocka_unit_test(not_started),
		cmocka_unit_test(waits),
		cmocka_unit_test(signals_pass),
		cmocka_unit_test(signals_as_before),
		cmocka_unit_test(runs_as_the_caller),
	};

	read_ignored();
	return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}

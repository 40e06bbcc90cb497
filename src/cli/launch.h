/* SPDX-License-Identifier: MIT */
/* Starting the COMMAND after "--", and the signals while it runs. */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * A child that exists, with its pid, but waits before exec until the recorder
 * is ready. It never outlives a moonspy that died before letting it go.
 */
struct cli_launch {
	pid_t pid;
	int go;     /* a byte here lets it exec */
	int result; /* errno of a failed exec comes from here; end of file: it runs */
	bool reaped;
	int status; /* as the shell shows it, once reaped */
};

/*
 * Forks the child. Under sudo it becomes the calling user before exec. Its
 * streams are ours. Prints errors; 0 or the exit code.
 */
int cli_launch_start(struct cli_launch *launch, char **command);
/* Lets it exec. 0, or 127 (no such command) or 126 (cannot be run) after printing why. */
int cli_launch_go(struct cli_launch *launch, char **command);
/* Has it ended? Reaps it, without waiting. */
bool cli_launch_ended(struct cli_launch *launch);
/*
 * Waits for its end; its exit status, 128 + signal if one killed it. A second
 * signal to moonspy ends the wait: 128 + that signal, and the command is left alone.
 */
int cli_launch_wait(struct cli_launch *launch);
/* Before go: it will not run. After: leaves it alone. Closes what is open. */
void cli_launch_abandon(struct cli_launch *launch);

/* As many files open as are allowed: each thread that is sampled takes two. Commands are started as before. */
void cli_files_raise(void);

/*
 * From now on INT, TERM, QUIT and HUP do not end moonspy but count as a wish to
 * stop. With a child, they are passed on to it, unless the terminal has sent
 * them to it already. SIGPIPE is ignored: writes fail instead.
 */
int cli_signals_install(pid_t child);
/* How many of these signals have come; the last of them in *signal unless NULL. */
unsigned cli_signals_seen(int *signal);

#endif

/* SPDX-License-Identifier: MIT */
/* The processes that the comparison stops. */
#ifndef CFI_PROCESS_H
#define CFI_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

struct workload {
	const char *name;
	const char *const *argv; /* NULL: nginx, which takes more than a command */
	double seconds;		 /* a share of the time there is */
};

struct running {
	pid_t pid;    /* to be stopped */
	pid_t parent; /* to be killed with it: nginx's master, or 0 */
	pid_t client; /* sends it requests, or 0 */
	char dir[64]; /* its files, "" if none */
};

bool start_command(const char *const *argv, struct running *run);
/* One worker that serves a client of ours by a socket in a directory of its own. */
bool start_nginx(struct running *run);
void stop_running(struct running *run);

/* ptrace: a stop at a random moment, some instructions further, and on again. false: it is gone. */
bool seize(pid_t pid);
bool stop_somewhere(pid_t pid);
bool step_on(pid_t pid);
bool go_on(pid_t pid);

#endif

/* SPDX-License-Identifier: MIT */
/* Output files: never half-written, never written over by accident, owned by who asked. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/*
 * A file that appears under its name only when it is complete. It is opened
 * before the work begins, so that what can not be written is known at once.
 */
struct cli_output {
	FILE *file;      /* write here */
	char *path;      /* as the user wrote it; "-" for standard output */
	char *temporary; /* named temporary file, where the file system has no unnamed ones */
	bool force;
	bool announce; /* its name is not the user's choice: say it */
	bool direct; /* standard output, a pipe, a device: written as it comes */
};

/*
 * Opens path; "-" is standard output. An existing file is refused without
 * force. Prints what is wrong; returns 0 or the exit code, with nothing left open.
 */
int cli_output_open(struct cli_output *out, const char *path, bool force);
/* Ends the file and gives it its name. 0, or -1 with errno: then abandon it. */
int cli_output_finish(struct cli_output *out);
/* Drops what was written. Also after finish, where it only frees. */
void cli_output_abandon(struct cli_output *out);

/* NAME-PID-TIME.ENDING in buf, without characters that hurt in file names; pid 0 is left out. */
const char *cli_output_name(char *buf, size_t size, const char *name, pid_t pid,
	const char *ending);

#endif

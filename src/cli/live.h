/* SPDX-License-Identifier: MIT */
/* A process or core that a verb looks into, with everything loaded that is known of it. */
#ifndef CLI_LIVE_H
#define CLI_LIVE_H

#include "moonspy/moonspy.h"

struct cli_live {
	pid_t pid;
	bool core; /* it is a core file */
	struct msp_target *target;
};

/*
 * A target that is not opened: others share its tables of files, with the user's cache of them.
 * Prints what is wrong; 0 or the exit code.
 */
int cli_registry_open(struct msp_target **out);

/* Opens, loads images, finds and proves VMs. Prints what is wrong; 0 or the exit code. */
int cli_live_open(const char *verb, pid_t pid, struct msp_target *registry, struct cli_live *out);
void cli_live_close(struct cli_live *live);

/* The same from a core file; exe and sysroot as in msp_target_options. */
int cli_live_open_core(const char *path, const char *exe, const char *sysroot,
	struct msp_target *registry, struct cli_live *out);

/* Of a core: names what is missing; how much that is. */
size_t cli_live_note_gaps(const struct cli_live *live);

/* The exit code for an error of the open target after saying it. */
int cli_live_error(const char *verb, const struct cli_live *live, int error);
/* The same of a process that is not open. */
int cli_process_error(const char *verb, pid_t pid, int error);

/* "LuaJIT 2.1.0-beta3 (luajit, x86-64, GC64)" into buf; returns it. build NULL: its file is mapped no more. */
const char *cli_build_text(const struct msp_build *build, char *buf, size_t size);
/* "layout proved by code analysis and live memory", or which check failed, of the i-th VM. */
const char *cli_proof_text(const struct cli_live *live, size_t i, char *buf, size_t size);
const char *cli_machine_name(int machine);
/* The path's last part. */
const char *cli_base_name(const char *path);

/* Text of a target on a line: control characters, invalid UTF-8 and backslashes are escaped. */
void cli_put_text(const char *text);

#endif

/* SPDX-License-Identifier: MIT */
/* A process that a verb looks into, with everything loaded that is known of it. */
#ifndef CLI_LIVE_H
#define CLI_LIVE_H

#include "symbols/symbols.h"
#include "target/core.h"
#include "target/snapshot.h"
#include "target/space.h"

struct cli_live {
	pid_t pid;
	struct msp_images *images; /* not its own: shared by all that are looked into */
	struct msp_process *process; /* NULL: it is a core file */
	struct msp_core *core;
	struct msp_space *space;
	struct msp_symbolizer *symbols;
};

/* The registry, with the user's table cache. Prints what is wrong; 0 or the exit code. */
int cli_images_open(struct msp_images **out);

/* Opens, loads images, finds and proves VMs. Prints what is wrong; 0 or the exit code. */
int cli_live_open(const char *verb, pid_t pid, struct msp_images *images, struct cli_live *out);
void cli_live_close(struct cli_live *live);

/*
 * The same from a core file. core is what messages call it; a compressed one is
 * decompressed first.
 */
int cli_live_open_core(const char *path, const struct msp_core_options *options,
	struct msp_images *images, struct cli_live *out);

/* Of a core: names what is missing; how much that is. */
size_t cli_live_note_gaps(const struct cli_live *live);

/* The process's own name, and its command line ("" for none). */
const char *cli_live_name(struct cli_live *live);
const char *cli_live_command(struct cli_live *live);

/* The exit code for an error of src/target after saying it. */
int cli_live_error(const char *verb, const struct cli_live *live, int error);

/* "LuaJIT 2.1.0-beta3 (luajit, x86-64, GC64)" into buf; returns it. */
const char *cli_build_text(const struct msp_image_entry *entry, char *buf, size_t size);
/* "layout proved by code analysis and live memory", or which check failed. */
const char *cli_proof_text(const struct msp_lj_proof *proof, char *buf, size_t size);
const char *cli_arch_name(int arch);
/* Name of a check of the proof ("mainthref"), and what it checks. */
const char *cli_check_name(enum msp_lj_check check);
const char *cli_check_text(enum msp_lj_check check);
/* The path's last part. */
const char *cli_base_name(const char *path);

/* Text of a target on a line: control characters, invalid UTF-8 and backslashes are escaped. */
void cli_put_text(const char *text);

#endif

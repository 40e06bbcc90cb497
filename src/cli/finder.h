/* SPDX-License-Identifier: MIT */
/* Is there a LuaJIT in a process? Looks into files only, stops nothing. */
#ifndef CLI_FINDER_H
#define CLI_FINDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target/target.h"

/* A file that was looked into; most processes share most of theirs. */
struct cli_file {
	uint32_t dev_major, dev_minor;
	uint64_t inode;
	bool luajit;
	bool complete; /* all of its layout was found */
	bool gc64;     /* known if complete */
	char version[64], name[64];
};

/* All zero to begin with. */
struct cli_finder {
	struct cli_file *files;
	size_t count;
};

/* The first file of the process that has a LuaJIT in it; NULL if none. Good until the next call. */
const struct cli_file *cli_finder_look(struct cli_finder *finder, struct msp_process *process);
void cli_finder_free(struct cli_finder *finder);

#endif

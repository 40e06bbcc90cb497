/* SPDX-License-Identifier: MIT */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "cli/table.h"

/* The verbs, one line each. */
void cli_help(FILE *out);
/* One screen about a verb: examples first, then its options with their defaults. */
void cli_help_verb(FILE *out, enum cli_verb verb);
/* "-p, --pid PID[,PID...]" in buf. */
const char *cli_option_text(const struct cli_option *option, char *buf, size_t size);

#endif

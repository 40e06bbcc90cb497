/* SPDX-License-Identifier: MIT */
#ifndef CLI_MAN_H
#define CLI_MAN_H

#include <stdio.h>

#include "cli/table.h"

/* moonspy(1) and moonspy-VERB(1), as roff. */
void cli_man(FILE *out);
void cli_man_verb(FILE *out, enum cli_verb verb);

#endif

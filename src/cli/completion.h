/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include <stdio.h>

/* Completion scripts for each shell: verbs, options, known values, pids and files. */
void cli_complete_bash(FILE *out);
void cli_complete_zsh(FILE *out);
void cli_complete_fish(FILE *out);

#endif

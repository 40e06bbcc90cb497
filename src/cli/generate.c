/* SPDX-License-Identifier: MIT */
/*
 * Writes man pages and completions from the option table. Runs at build time
 * on the building machine.
 *
 *	generate man | man VERB | bash | zsh | fish
 */
#include <stdio.h>
#include <string.h>

#include "cli/completion.h"
#include "cli/man.h"
#include "cli/table.h"

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "man") && argc == 2) {
		cli_man(stdout);
	} else if (!strcmp(what, "man") && cli_verb_by_name(argv[2]) != CLI_VERB_COUNT) {
		cli_man_verb(stdout, cli_verb_by_name(argv[2]));
	} else if (!strcmp(what, "bash")) {
		cli_complete_bash(stdout);
	} else if (!strcmp(what, "zsh")) {
		cli_complete_zsh(stdout);
	} else if (!strcmp(what, "fish")) {
		cli_complete_fish(stdout);
	} else {
		fputs("usage: generate man [VERB] | bash | zsh | fish\n", stderr);
		return 2;
	}
	return fflush(stdout) || ferror(stdout);
}

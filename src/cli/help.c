/* SPDX-License-Identifier: MIT */
#include "cli/help.h"

#include <string.h>

void cli_help(FILE *out)
{
	fputs("moonspy shows where a LuaJIT program spends its time, without stopping it.\n\n"
	      "Usage: moonspy VERB [OPTIONS]\n\n",
	      out);
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++)
		fprintf(out, "  %-9s %s\n", cli_verbs[verb].name, cli_verbs[verb].summary);
	fputs("\nmoonspy help VERB tells more about one of them.\n"
	      "moonspy --version prints the version.\n",
	      out);
}

const char *cli_option_text(const struct cli_option *option, char *buf, size_t size)
{
	char letter[8] = "    ";

	if (option->letter)
		snprintf(letter, sizeof(letter), "-%c, ", option->letter);
	snprintf(buf, size, "%s--%s%s%s", letter, option->name, option->arg ? " " : "",
		 option->arg ? option->arg : "");
	return buf;
}

void cli_help_verb(FILE *out, enum cli_verb verb)
{
	const struct cli_verb_info *info = &cli_verbs[verb];
	enum cli_group group = CLI_GROUP_COUNT;
	char text[64];

	fprintf(out, "moonspy %s: %s\n\n", info->name, info->summary);
	for (const struct cli_example *example = info->examples; example->command; example++)
		fprintf(out, "  %-46s %s\n", example->command, example->comment);
	fprintf(out, "\nUsage: moonspy %s %s\n", info->name, info->synopsis);
	if (info->takes == CLI_TAKES_COMMAND)
		fprintf(out, "TARGET: -p, -N, -a, or -- COMMAND ARGS..., which is started\n");
	for (size_t i = 0; i < cli_option_count; i++) {
		const struct cli_option *option = &cli_options[i];

		if (!(option->verbs & 1u << verb))
			continue;
		if (option->group != group)
			fputc('\n', out);
		group = option->group;
		fprintf(out, "  %-27s %s", cli_option_text(option, text, sizeof(text)),
			option->help);
		if (option->def)
			fprintf(out, " [%s]", option->def);
		fputc('\n', out);
	}
}

/* SPDX-License-Identifier: MIT */
#include "cli/completion.h"

#include <string.h>

#include "cli/table.h"

/* Walks the options of one verb. */
static const struct cli_option *next_option(int verb, size_t *i)
{
	while (*i < cli_option_count) {
		const struct cli_option *option = &cli_options[(*i)++];

		if (option->verbs & 1u << verb)
			return option;
	}
	return NULL;
}

/* "a|b|c" with another separator. */
static void put_values(FILE *out, const char *values, char separator)
{
	for (; *values; values++)
		fputc(*values == '|' ? separator : *values, out);
}

static void put_verbs(FILE *out)
{
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++)
		fprintf(out, "%s ", cli_verbs[verb].name);
	fputs("help", out);
}

/* In the case of "verb,option": what may follow that option. */
static void bash_values(FILE *out, int verb)
{
	const struct cli_option *option;

	for (size_t i = 0; (option = next_option(verb, &i));) {
		if (!option->arg)
			continue;
		fprintf(out, "\t%s,--%s", cli_verbs[verb].name, option->name);
		if (option->letter)
			fprintf(out, " | %s,-%c", cli_verbs[verb].name, option->letter);
		fputs(")\n\t\t", out);
		if (option->values) {
			fputs("words=\"", out);
			put_values(out, option->values, ' ');
			fputs("\"", out);
		} else if (option->kind == CLI_PIDS) {
			fputs("words=$(cd /proc && echo [1-9]*)", out);
		} else if (!strcmp(option->arg, "FILE")) {
			fputs("compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); "
			      "return",
			      out);
		} else {
			fputs("return", out);
		}
		fputs(" ;;\n", out);
	}
}

static void bash_options(FILE *out, int verb)
{
	const struct cli_option *option;

	fprintf(out, "\t%s,*)\n\t\twords=\"", cli_verbs[verb].name);
	for (size_t i = 0; (option = next_option(verb, &i));)
		fprintf(out, "--%s ", option->name);
	fputs("\" ;;\n", out);
}

void cli_complete_bash(FILE *out)
{
	fputs("# bash completion for moonspy; generated from the table of options.\n\n"
	      "_moonspy()\n{\n"
	      "\tlocal word=$2 before=$3 verb=${COMP_WORDS[1]} words=\n\n"
	      "\tif [ \"$COMP_CWORD\" = 1 ] || [ \"$COMP_CWORD,$verb\" = 2,help ]; then\n"
	      "\t\tCOMPREPLY=($(compgen -W \"",
	      out);
	put_verbs(out);
	fputs("\" -- \"$word\"))\n\t\treturn\n\tfi\n"
	      "\tcase $verb,$before in\n",
	      out);
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++)
		bash_values(out, verb);
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++)
		bash_options(out, verb);
	fputs("\tesac\n"
	      "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
	      "\tif [ ${#COMPREPLY[@]} = 0 ]; then\n"
	      "\t\tcompopt -o filenames\n"
	      "\t\tCOMPREPLY=($(compgen -f -- \"$word\"))\n"
	      "\tfi\n}\n\ncomplete -F _moonspy moonspy\n",
	      out);
}

/* In single quotes, with what _arguments takes for itself escaped. */
static void zsh_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (strchr("[]:\\", *text))
			fputc('\\', out);
		if (*text == '\'')
			fputs("'\\'", out);
		fputc(*text, out);
	}
}

static void zsh_argument(FILE *out, const struct cli_option *option)
{
	if (!option->arg)
		return;
	fputc(':', out);
	zsh_text(out, option->arg);
	fputc(':', out);
	if (option->values) {
		fputc('(', out);
		put_values(out, option->values, ' ');
		fputc(')', out);
	} else if (option->kind == CLI_PIDS) {
		fputs("_pids", out);
	} else if (!strcmp(option->arg, "FILE")) {
		fputs("_files", out);
	}
}

static void zsh_option(FILE *out, const struct cli_option *option)
{
	char spelled[2][40] = {"", ""};

	snprintf(spelled[0], sizeof(spelled[0]), "--%s", option->name);
	if (option->letter)
		snprintf(spelled[1], sizeof(spelled[1]), "-%c", option->letter);
	for (int i = 0; i < 2 && *spelled[i]; i++) {
		fprintf(out, " \\\n\t\t\t'%s%s%s[", option->kind == CLI_COUNTER ? "*" : "",
			spelled[i],
			!option->arg ? ""
			: i	     ? "+"
				     : "=");
		zsh_text(out, option->help);
		fputc(']', out);
		zsh_argument(out, option);
		fputc('\'', out);
	}
}

void cli_complete_zsh(FILE *out)
{
	fputs("#compdef moonspy\n# zsh completion for moonspy; generated from the table of "
	      "options.\n\n_moonspy()\n{\n\tlocal -a verbs\n\tverbs=(\n",
	      out);
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++) {
		fprintf(out, "\t\t'%s:", cli_verbs[verb].name);
		zsh_text(out, cli_verbs[verb].summary);
		fputs("'\n", out);
	}
	fputs("\t\t'help:tell about a verb'\n\t)\n"
	      "\tif (( CURRENT == 2 )) || [[ $words[2] == help ]]; then\n"
	      "\t\t_describe verb verbs\n\t\treturn\n\tfi\n"
	      "\tshift words\n\t(( CURRENT-- ))\n"
	      "\tcase $words[1] in\n",
	      out);
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++) {
		const struct cli_option *option;

		fprintf(out, "\t%s)\n\t\t_arguments -s", cli_verbs[verb].name);
		for (size_t i = 0; (option = next_option(verb, &i));)
			zsh_option(out, option);
		if (cli_verbs[verb].takes == CLI_TAKES_COMMAND)
			fputs(" \\\n\t\t\t'*::command:_normal'", out);
		else if (cli_verbs[verb].takes != CLI_TAKES_NOTHING)
			fputs(" \\\n\t\t\t'*:file:_files'", out);
		fputs("\n\t\t;;\n", out);
	}
	fputs("\tesac\n}\n\n_moonspy \"$@\"\n", out);
}

static void fish_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\'' || *text == '\\')
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void fish_option(FILE *out, int verb, const struct cli_option *option)
{
	fprintf(out, "complete -c moonspy -n '__fish_seen_subcommand_from %s' -l %s",
		cli_verbs[verb].name, option->name);
	if (option->letter)
		fprintf(out, " -s %c", option->letter);
	if (option->values) {
		fputs(" -x -a '", out);
		put_values(out, option->values, ' ');
		fputc('\'', out);
	} else if (option->kind == CLI_PIDS) {
		fputs(" -x -a '(__fish_complete_pids)'", out);
	} else if (option->arg) {
		fputs(strcmp(option->arg, "FILE") ? " -x" : " -r -F", out);
	}
	fputs(" -d '", out);
	fish_text(out, option->help);
	fputs("'\n", out);
}

void cli_complete_fish(FILE *out)
{
	fputs("# fish completion for moonspy; generated from the table of options.\n\n", out);
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++) {
		const struct cli_option *option;

		fprintf(out, "complete -c moonspy -f -n __fish_use_subcommand -a %s -d '",
			cli_verbs[verb].name);
		fish_text(out, cli_verbs[verb].summary);
		fputs("'\n", out);
		if (cli_verbs[verb].takes != CLI_TAKES_NOTHING &&
		    cli_verbs[verb].takes != CLI_TAKES_COMMAND)
			fprintf(out, "complete -c moonspy -F -n '__fish_seen_subcommand_from %s'\n",
				cli_verbs[verb].name);
		for (size_t i = 0; (option = next_option(verb, &i));)
			fish_option(out, verb, option);
	}
}

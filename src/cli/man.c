/* SPDX-License-Identifier: MIT */
#include "cli/man.h"

#include <ctype.h>

/* Text in which nothing is a request, an escape or a dash that breaks. */
static void put(FILE *out, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", out);
	for (; *text; text++) {
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else
			fputc(*text, out);
	}
}

static void put_upper(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc(toupper((unsigned char)*text), out);
}

static void header(FILE *out, const char *verb)
{
	fputs(".\\\" Generated from the table of options.\n.TH MOONSPY", out);
	if (verb) {
		fputc('-', out);
		put_upper(out, verb);
	}
	fprintf(out, " 1 \"\" \"moonspy %s\" \"User Commands\"\n", MOONSPY_VERSION);
}

struct entry {
	const char *name, *text;
};

static const struct entry environment[] = {
	{"MOONSPY_CACHE_DIR", "where tables are kept; empty: nowhere"},
	{"XDG_CACHE_HOME, HOME", "where they are kept without it, but for root"},
	{"TMPDIR", "where a profile goes that cannot be written where it should be, and where "
		   "compressed core files are unpacked"},
	{"PATH, LD_LIBRARY_PATH", "where a COMMAND and its libraries are found"},
	{"MOONSPY_VM_EVENTS",
	 "0: the companion, libmoonspy-vm.so, does not listen to a VM's traces"},
	{"SUDO_UID, SUDO_GID", "the user that a COMMAND runs as, under sudo"},
	{NULL, NULL},
};

static const struct entry files[] = {
	{"/var/cache/moonspy, ~/.cache/moonspy",
	 "unwind tables, and what was found of a LuaJIT, by build id: root's, and other users'. "
	 "They can be removed at any time"},
	{"/usr/lib/debug/.build-id", "debug files, from which functions without symbols have their "
				     "names"},
	{"NAME-PID-TIME.html", "the profile that record writes without -o"},
	{NULL, NULL},
};

static void section(FILE *out, const char *title, const struct entry *entry)
{
	fprintf(out, ".SH %s\n", title);
	for (; entry->name; entry++) {
		fputs(".TP\n.B ", out);
		put(out, entry->name);
		fputc('\n', out);
		put(out, entry->text);
		fputs(".\n", out);
	}
}

static void exit_codes(FILE *out)
{
	fputs(".SH EXIT STATUS\n", out);
	for (size_t i = 0; i < cli_exit_count; i++) {
		fprintf(out, ".TP\n.B %zu\n", i);
		put(out, cli_exit_texts[i]);
		fputc('\n', out);
	}
}

void cli_man(FILE *out)
{
	header(out, NULL);
	fputs(".SH NAME\nmoonspy \\- profiler for LuaJIT processes\n"
	      ".SH SYNOPSIS\n.B moonspy\n.I VERB\n.RI [ OPTIONS ]\n.br\n"
	      ".B moonspy help\n.RI [ VERB ]\n.br\n.B moonspy \\-\\-version\n"
	      ".SH DESCRIPTION\n"
	      "moonspy shows where a running LuaJIT program spends its time, without stopping\n"
	      "or changing it. Stacks are whole: kernel, C, Lua and compiled Lua in one line\n"
	      "of callers, with function, file and line. One that is not says so, and is counted.\n"
	      ".SH VERBS\n",
	      out);
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++) {
		fprintf(out, ".TP\n.BR moonspy\\-%s (1)\n", cli_verbs[verb].name);
		put(out, cli_verbs[verb].summary);
		fputc('\n', out);
	}
	exit_codes(out);
	fputs(".PP\nWhere record started a COMMAND, its exit status is that of the COMMAND; if\n"
	      "that is 0 and nothing was collected, 3.\n",
	      out);
	section(out, "ENVIRONMENT", environment);
	section(out, "FILES", files);
	fputs(".SH SEE ALSO\n", out);
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++)
		fprintf(out, ".BR moonspy\\-%s (1)%s\n", cli_verbs[verb].name,
			verb + 1 < CLI_VERB_COUNT ? "," : "");
}

static void examples(FILE *out, const struct cli_verb_info *info)
{
	fputs(".SH EXAMPLES\n", out);
	for (const struct cli_example *example = info->examples; example->command; example++) {
		fputs(".TP\n.B ", out);
		put(out, example->command);
		fputc('\n', out);
		put(out, example->comment);
		fputc('\n', out);
	}
}

static void option(FILE *out, const struct cli_option *entry)
{
	fputs(".TP\n\\fB", out);
	if (entry->letter)
		fprintf(out, "\\-%c\\fR, \\fB", entry->letter);
	fputs("\\-\\-", out);
	put(out, entry->name);
	fputs("\\fR", out);
	if (entry->arg) {
		fputs(" \\fI", out);
		put(out, entry->arg);
		fputs("\\fR", out);
	}
	fputc('\n', out);
	put(out, entry->help);
	if (entry->def) {
		fputs(" [", out);
		put(out, entry->def);
		fputc(']', out);
	}
	fputc('\n', out);
}

void cli_man_verb(FILE *out, enum cli_verb verb)
{
	const struct cli_verb_info *info = &cli_verbs[verb];

	header(out, info->name);
	fprintf(out, ".SH NAME\nmoonspy\\-%s \\- ", info->name);
	put(out, info->summary);
	fprintf(out, "\n.SH SYNOPSIS\n.B moonspy %s\n", info->name);
	put(out, info->synopsis);
	fputs("\n.SH DESCRIPTION\n", out);
	put(out, info->text);
	fputc('\n', out);
	if (info->takes == CLI_TAKES_COMMAND)
		fputs(".PP\nTARGET is one of \\fB\\-p\\fR, \\fB\\-N\\fR, \\fB\\-a\\fR, or\n"
		      "\\fB\\-\\-\\fR \\fICOMMAND ARGS\\fR..., which is started; under sudo it "
		      "runs\n"
		      "as the user who called.\n",
		      out);
	examples(out, info);
	fputs(".SH OPTIONS\n", out);
	for (size_t i = 0; i < cli_option_count; i++)
		if (cli_options[i].verbs & 1u << verb)
			option(out, &cli_options[i]);
	exit_codes(out);
	fputs(".SH SEE ALSO\n.BR moonspy (1)\n.br\nIts page has the environment and the files.\n",
	      out);
}

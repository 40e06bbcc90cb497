/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/table.h"

typedef int (*command_fn)(const struct msp_options *options);

static const command_fn commands[CLI_VERB_COUNT] = {
	[CLI_VERB_RECORD] = cmd_record, [CLI_VERB_DUMP] = cmd_dump,
	[CLI_VERB_CORE] = cmd_core,	[CLI_VERB_REPORT] = cmd_report,
	[CLI_VERB_TRACES] = cmd_traces, [CLI_VERB_INSPECT] = cmd_inspect,
	[CLI_VERB_LIST] = cmd_list,	[CLI_VERB_DOCTOR] = cmd_doctor,
};

static int unknown_verb(const char *name)
{
	const char *verbs = "help";

	for (int verb = 0; verb < CLI_VERB_COUNT; verb++)
		verbs = cli_fmt("%s, %s", verbs, cli_verbs[verb].name);
	cli_error(cli_fmt("there is no verb '%s'", name), cli_fmt("there are %s", verbs),
		  "moonspy help");
	return CLI_USAGE;
}

static int help(int argc, char **argv)
{
	enum cli_verb verb;

	if (argc == 0) {
		cli_help(stdout);
		return CLI_OK;
	}
	verb = cli_verb_by_name(argv[0]);
	if (verb == CLI_VERB_COUNT)
		return unknown_verb(argv[0]);
	cli_help_verb(stdout, verb);
	return CLI_OK;
}

static int run(enum cli_verb verb, int argc, char **argv)
{
	struct msp_options options;
	int rc = cli_options_parse(verb, argc, argv, &options);

	if (!rc && options.help) {
		cli_help_verb(stdout, verb);
	} else if (!rc) {
		cli_set_verbosity(options.quiet ? -1 : (int)options.verbose);
		rc = commands[verb](&options);
	}
	cli_options_free(&options);
	return rc;
}

/* Data that did not reach standard output is a failure, even if all else went well. */
static int flush_stdout(int rc)
{
	int failed = ferror(stdout);

	errno = 0;
	if (!fflush(stdout) && !failed)
		return rc;
	cli_error("cannot write to standard output",
		  errno ? strerror(errno) : "a part of it could not be written",
		  "check where it goes: its reader may be gone, its disk full");
	return rc ? rc : CLI_FAILED;
}

/*
 * A file that is opened must not become a standard stream that was closed: what
 * is said would go into it. Opened the wrong way round, they fail as before.
 */
static void keep_streams_free(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
			return; /* no /dev: nothing can be done about it */
}

/*
 * Tables of megabytes are made anew from time to time, for hours: each gets
 * memory of its own, which goes back. The C library would raise the size from
 * which it does that, and what was kept small would fill the holes.
 */
static void keep_memory_tidy(void)
{
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;
	enum cli_verb verb;

	keep_streams_free();
	keep_memory_tidy();
	if (!word) {
		cli_help(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
		puts("moonspy " MOONSPY_VERSION);
		return flush_stdout(CLI_OK);
	}
	if (!strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h"))
		return flush_stdout(help(argc - 2, argv + 2));
	verb = cli_verb_by_name(word);
	if (verb == CLI_VERB_COUNT)
		return unknown_verb(word);
	return flush_stdout(run(verb, argc - 2, argv + 2));
}

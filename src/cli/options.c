/* SPDX-License-Identifier: MIT */
/*
 * The parser. Not getopt_long(): its messages can not say what would be right,
 * and each verb has its own set of options.
 */
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/messages.h"
#include "cli/table.h"

#define MAX_PID 4194304 /* PID_MAX_LIMIT of the kernel */
#define MAX_RATE 100000
#define MAX_TRACE 65535
#define DEFAULT_RATE 99

static const char *help_command(enum cli_verb verb)
{
	return cli_fmt("moonspy help %s", cli_verbs[verb].name);
}

static int bad_value(const struct cli_option *option, const char *value, const char *why,
		     const char *right)
{
	cli_error(cli_fmt("--%s does not take '%s'", option->name, value),
		  *value ? why : "it is empty", right);
	return CLI_USAGE;
}

static int set_pids(const struct cli_option *option, struct msp_options *options, const char *value)
{
	const char *right = "pids with commas between them: -p 4711,4712";
	char *copy = strdup(value), *rest = copy, *word;
	int rc = 0;

	if (!copy || !*value)
		rc = bad_value(option, value, NULL, right);
	while (!rc && (word = strsep(&rest, ","))) {
		uint64_t pid;
		size_t i = 0;
		pid_t *grown;

		if (!cli_parse_number(word, 1, MAX_PID, &pid)) {
			rc = bad_value(option, value,
				       cli_fmt("'%s' is no number from 1 to %d", word, MAX_PID),
				       right);
			break;
		}
		while (i < options->pid_count && options->pids[i] != (pid_t)pid)
			i++;
		if (i < options->pid_count)
			continue; /* given twice */
		grown = reallocarray(options->pids, i + 1, sizeof(*grown));
		if (!grown) {
			rc = CLI_FAILED;
			break;
		}
		options->pids = grown;
		options->pids[options->pid_count++] = (pid_t)pid;
	}
	free(copy);
	return rc;
}

/* Place of value in "a|b|c", -1 if it is not there. */
static int place_in_list(const char *list, const char *value)
{
	size_t length = strlen(value);

	for (int place = 0;; place++) {
		size_t n = strcspn(list, "|");

		if (n == length && !memcmp(list, value, n))
			return place;
		if (!list[n])
			return -1;
		list += n + 1;
	}
}

static int not_in_list(const struct cli_option *option, const char *value)
{
	return bad_value(option, value,
			 strchr(option->values, '|') ? "it is none of those that there are"
						     : "there is only one",
			 cli_fmt("--%s=%s", option->name, option->values));
}

static int set_choice(const struct cli_option *option, struct msp_options *options,
		      const char *value)
{
	int place = place_in_list(option->values, value);

	if (place < 0)
		return not_in_list(option, value);
	/* The enums start at 0 and have no negative members: unsigned int for gcc and clang. */
	*(unsigned *)((char *)options + option->member) = place + option->zero_is_default;
	return 0;
}

static int set_string(const struct cli_option *option, struct msp_options *options,
		      const char *value)
{
	if (!*value)
		return bad_value(option, value, NULL,
				 cli_fmt("--%s %s", option->name, option->arg));
	if (option->values && place_in_list(option->values, value) < 0)
		return not_in_list(option, value);
	*(const char **)((char *)options + option->member) = value;
	return 0;
}

static int set_option(const struct cli_option *option, struct msp_options *options,
		      const char *value)
{
	void *member = (char *)options + option->member;
	uint64_t number;

	switch (option->kind) {
	case CLI_FLAG:
		*(bool *)member = true;
		return 0;
	case CLI_COUNTER:
		++*(unsigned *)member;
		return 0;
	case CLI_STRING:
		return set_string(option, options, value);
	case CLI_CHOICE:
		return set_choice(option, options, value);
	case CLI_TRACE:
		if (!cli_parse_number(value, 1, MAX_TRACE, &number))
			return bad_value(option, value,
					 cli_fmt("it is no number from 1 to %d", MAX_TRACE),
					 "the number of a trace, as moonspy traces lists it");
		*(uint32_t *)member = number;
		return 0;
	case CLI_PIDS:
		return set_pids(option, options, value);
	case CLI_DURATION:
		if (!cli_parse_duration(value, member))
			return bad_value(option, value,
					 "it is no number of ms, s, m or h from 1 ms to 10 years",
					 "a time from 1ms on: 30s, 2m, 500ms, 1h");
		return 0;
	case CLI_RATE:
		if (!cli_parse_number(value, 1, MAX_RATE, &number))
			return bad_value(option, value,
					 cli_fmt("it is no whole number from 1 to %d", MAX_RATE),
					 "a whole number from 1 to 100000, such as 99");
		*(unsigned *)member = number;
		return 0;
	}
	return CLI_FAILED;
}

/* Where the parser is in the arguments. */
struct parser {
	struct msp_options *options;
	char **argv;
	int argc, next;
};

/* The verbs that have an option; "" if none has. */
static const char *verbs_with(const char *text)
{
	static char list[128];
	size_t n = 0;

	list[0] = 0;
	for (int verb = 0; verb < CLI_VERB_COUNT; verb++)
		if (text[1] == '-' ? cli_option_by_name(verb, text + 2, strlen(text + 2))
				   : cli_option_by_letter(verb, text[1]))
			n += snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "",
				      cli_verbs[verb].name);
	return list;
}

static int unknown_option(const struct parser *p, const char *text)
{
	const char *verbs = verbs_with(text);

	cli_error(cli_fmt("%s has no option %s", cli_verbs[p->options->verb].name, text),
		  *verbs ? cli_fmt("only these have it: %s", verbs) : "no verb has it",
		  help_command(p->options->verb));
	return CLI_USAGE;
}

/* The value of an option: what is stuck to it, else the next argument. */
static int take_value(struct parser *p, const struct cli_option *option, const char *stuck)
{
	const char *value = stuck;

	if (option->arg && !value) {
		if (p->next == p->argc || !strcmp(p->argv[p->next], "--")) {
			cli_error(cli_fmt("--%s needs a value", option->name),
				  p->next == p->argc ? "it is the last word" : "-- follows it",
				  cli_fmt("--%s %s", option->name, option->arg));
			return CLI_USAGE;
		}
		value = p->argv[p->next++];
	}
	return set_option(option, p->options, value);
}

static int parse_long(struct parser *p, const char *text)
{
	const char *name = text + 2;
	size_t length = strcspn(name, "=");
	const struct cli_option *option = cli_option_by_name(p->options->verb, name, length);

	if (!option)
		return unknown_option(p, cli_fmt("--%.*s", (int)length, name));
	if (name[length] && !option->arg) {
		cli_error(cli_fmt("--%s takes no value", option->name),
			  cli_fmt("it was given '%s'", name + length + 1),
			  cli_fmt("--%s", option->name));
		return CLI_USAGE;
	}
	return take_value(p, option, name[length] ? name + length + 1 : NULL);
}

/* -jv, -p4711, -vp 4711 */
static int parse_short(struct parser *p, const char *text)
{
	for (const char *letter = text + 1; *letter; letter++) {
		const struct cli_option *option = cli_option_by_letter(p->options->verb, *letter);
		int rc;

		if (!option)
			return unknown_option(p, cli_fmt("-%c", *letter));
		rc = take_value(p, option, option->arg && letter[1] ? letter + 1 : NULL);
		if (rc || option->arg)
			return rc;
	}
	return 0;
}

/* A pid where none is taken; a file may be called like one. */
static bool is_bare_pid(const struct parser *p, const char *text)
{
	enum cli_takes takes = cli_verbs[p->options->verb].takes;
	uint64_t pid;

	return cli_option_by_letter(p->options->verb, 'p') &&
	       cli_parse_number(text, 1, MAX_PID, &pid) &&
	       (takes == CLI_TAKES_NOTHING || takes == CLI_TAKES_COMMAND ||
		(takes == CLI_TAKES_FILE && access(text, F_OK)));
}

static int positional(struct parser *p, char *text)
{
	const struct cli_verb_info *verb = &cli_verbs[p->options->verb];
	struct msp_options *options = p->options;

	if (is_bare_pid(p, text)) {
		cli_error(cli_fmt("%s does not take '%s'", verb->name, text),
			  "a process is named by -p",
			  cli_fmt("moonspy %s -p %s", verb->name, text));
		return CLI_USAGE;
	}
	if (verb->takes != CLI_TAKES_NOTHING && verb->takes != CLI_TAKES_COMMAND) {
		options->files[options->file_count++] = text;
		return 0;
	}
	cli_error(cli_fmt("%s does not take '%s'", verb->name, text),
		  verb->takes == CLI_TAKES_COMMAND
			  ? "a command stands behind --"
			  : "it is no option, and the verb takes nothing else",
		  verb->takes == CLI_TAKES_COMMAND ? cli_fmt("moonspy %s -- %s", verb->name, text)
						   : help_command(options->verb));
	return CLI_USAGE;
}

/* What follows "--": the command, or files whose names may begin with a dash. */
static int after_dashes(struct parser *p)
{
	struct msp_options *options = p->options;
	int rc = 0;

	if (cli_verbs[options->verb].takes != CLI_TAKES_COMMAND) {
		while (!rc && p->next < p->argc)
			rc = positional(p, p->argv[p->next++]);
		return rc;
	}
	if (p->next == p->argc) {
		cli_error("no command behind --", "it is the last word",
			  cli_fmt("moonspy %s -- luajit app.lua", cli_verbs[options->verb].name));
		return CLI_USAGE;
	}
	options->command = p->argv + p->next;
	p->next = p->argc;
	return 0;
}

static int two_options(const char *a, const char *b, const char *why, const char *todo)
{
	cli_error(cli_fmt("%s and %s contradict each other", a, b), why, todo);
	return CLI_USAGE;
}

static int check_target(const struct msp_options *options)
{
	const struct cli_verb_info *verb = &cli_verbs[options->verb];
	const char *given[4];
	size_t n = 0;

	if (options->pid_count)
		given[n++] = "--pid";
	if (options->name)
		given[n++] = "--name";
	if (options->all)
		given[n++] = "--all";
	if (options->command)
		given[n++] = "-- COMMAND";
	if (n > 1)
		return two_options(given[0], given[1], "a recording has one kind of target",
				   cli_fmt("leave out %s", given[1]));
	if (n == 0 && verb->needs_target) {
		cli_error(cli_fmt("%s needs a target", verb->name),
			  cli_fmt("none of -p, -N, -a%s was given",
				  verb->takes == CLI_TAKES_COMMAND ? ", -- COMMAND" : ""),
			  cli_fmt("moonspy %s -p PID", verb->name));
		return CLI_USAGE;
	}
	return 0;
}

static int check_files(const struct msp_options *options)
{
	const struct cli_verb_info *verb = &cli_verbs[options->verb];

	if (verb->takes == CLI_TAKES_FILES && options->file_count == 0) {
		cli_error(cli_fmt("%s needs a file", verb->name), "none was given",
			  verb->examples[0].command);
		return CLI_USAGE;
	}
	if (verb->takes == CLI_TAKES_FILE && options->file_count + options->pid_count != 1) {
		cli_error(cli_fmt("%s needs one process or one file", verb->name),
			  cli_fmt("%zu were given", options->file_count + options->pid_count),
			  verb->examples[0].command);
		return CLI_USAGE;
	}
	if (verb->takes == CLI_TAKES_CORE && options->file_count != 1) {
		cli_error(cli_fmt("%s needs one core file", verb->name),
			  cli_fmt("%zu were given", options->file_count),
			  verb->examples[0].command);
		return CLI_USAGE;
	}
	if (options->verb == CLI_VERB_DOCTOR && options->pid_count > 1) {
		cli_error("doctor looks at one process",
			  cli_fmt("%zu were given", options->pid_count), "moonspy doctor -p PID");
		return CLI_USAGE;
	}
	return 0;
}

static int check(const struct msp_options *options)
{
	int rc = check_target(options);

	if (!rc)
		rc = check_files(options);
	if (rc)
		return rc;
	if (options->view.lua_only && options->view.native_only)
		return two_options("--lua", "--native", "together they leave no frame",
				   "leave out both: Lua and native frames are shown");
	if (options->quiet && options->verbose)
		return two_options("--quiet", "--verbose", "one is to say less, the other more",
				   "leave out one");
	if (options->pid_count && (options->exe || options->sysroot))
		return two_options("--pid", options->exe ? "--exe" : "--sysroot",
				   "that is for core files",
				   cli_fmt("leave out %s", options->exe ? "--exe" : "--sysroot"));
	if (options->all && options->subprocesses)
		return two_options("--all", "--subprocesses", "the whole machine has all of them",
				   "leave out --subprocesses");
	if (options->all && options->engine == CLI_ENGINE_PTRACE)
		return two_options("--all", "--engine=ptrace",
				   "it would stop every process in turn",
				   "--engine=bpf, or -p PID");
	return 0;
}

int cli_options_parse(enum cli_verb verb, int argc, char **argv, struct msp_options *options)
{
	struct parser p = {.options = options, .argv = argv, .argc = argc};
	int rc = 0;

	memset(options, 0, sizeof(*options));
	options->verb = verb;
	options->rate = DEFAULT_RATE;
	options->files = calloc(argc + 1, sizeof(*options->files));
	if (!options->files)
		return CLI_FAILED;
	while (!rc && p.next < argc) {
		char *text = argv[p.next++];

		if (!strcmp(text, "--"))
			rc = after_dashes(&p);
		else if (!strncmp(text, "--", 2))
			rc = parse_long(&p, text);
		else if (text[0] == '-' && text[1])
			rc = parse_short(&p, text);
		else
			rc = positional(&p, text);
		if (!rc && options->help)
			return 0;
	}
	return rc ? rc : check(options);
}

void cli_options_free(struct msp_options *options)
{
	free(options->pids);
	free(options->files);
	options->pids = NULL;
	options->files = NULL;
}

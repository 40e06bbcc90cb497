/* SPDX-License-Identifier: MIT */
/*
 * The table of verbs and the table of options. The parser, the help, the man
 * pages and the completions are all made from these two.
 */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stddef.h>

#include "cli/options.h"

#define CLI_BIT(verb) (1u << CLI_VERB_##verb)

/* What an option's value is, and so which type its member has. */
enum cli_kind {
	CLI_FLAG,     /* bool */
	CLI_COUNTER,  /* unsigned, counts how often it is given */
	CLI_STRING,   /* const char * */
	CLI_CHOICE,   /* int: place in values, from 1 on if zero_is_default */
	CLI_DURATION, /* uint64_t, nanoseconds */
	CLI_RATE,     /* unsigned */
	CLI_TRACE,    /* uint32_t, number of a trace */
	CLI_PIDS,     /* pids and pid_count */
};

enum cli_group { CLI_TARGET, CLI_SAMPLING, CLI_SHOWN, CLI_WRITTEN, CLI_TALK, CLI_GROUP_COUNT };

struct cli_option {
	enum cli_group group;
	char letter;         /* 0: none */
	const char *name;    /* long name */
	const char *arg;     /* name of the argument; NULL: takes none */
	const char *values;  /* CLI_CHOICE, or a string with known values: "bpf|ptrace" */
	const char *def;     /* default, in words; NULL: off */
	enum cli_kind kind;
	bool zero_is_default; /* CLI_CHOICE: 0 stays for "not given" */
	size_t member;       /* offset in struct msp_options */
	unsigned verbs;      /* CLI_BIT of each verb that has it */
	const char *help;
};

enum cli_takes {
	CLI_TAKES_NOTHING,
	CLI_TAKES_COMMAND, /* -- COMMAND as a target */
	CLI_TAKES_FILES,
	CLI_TAKES_FILE,    /* one, instead of -p */
	CLI_TAKES_CORE,    /* one */
};

struct cli_example {
	const char *command, *comment;
};

struct cli_verb_info {
	const char *name;
	const char *synopsis; /* what follows the verb */
	const char *summary;  /* one line, no full stop */
	const char *text;     /* a paragraph for the man page */
	bool needs_target;
	enum cli_takes takes;
	struct cli_example examples[6];
};

extern const struct cli_verb_info cli_verbs[CLI_VERB_COUNT];
extern const struct cli_option cli_options[];
extern const size_t cli_option_count;

/* Exit codes, in words; number is the index. */
extern const char *const cli_exit_texts[];
extern const size_t cli_exit_count;

/* The option of this verb with that letter or long name; NULL: none. */
const struct cli_option *cli_option_by_letter(enum cli_verb verb, char letter);
const struct cli_option *cli_option_by_name(enum cli_verb verb, const char *name, size_t length);
/* CLI_VERB_COUNT if there is none of that name. */
enum cli_verb cli_verb_by_name(const char *name);

#endif

/* SPDX-License-Identifier: MIT */
/* Talk, all of it on standard error; standard output is data. */
#ifndef CLI_MESSAGES_H
#define CLI_MESSAGES_H

#include <stdbool.h>

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_NOTHING = 3,    /* nothing collected, and no file written */
	CLI_PARTIAL = 4,    /* dump, core: some stacks are broken */
	CLI_PERMISSION = 5, /* not permitted */
	CLI_NO_LUAJIT = 6,  /* no LuaJIT there, or one that could not be proved */
};

/* Negative: -q, 0: as usual, positive: -v, -vv. Set once, from the options. */
void cli_set_verbosity(int verbosity);

/*
 * An error in three parts: what failed, why (the value that was measured) and
 * what to do about it (one command). why and todo may be NULL. what is the key
 * of its entry in docs/troubleshooting.md.
 */
void cli_error(const char *what, const char *why, const char *todo);

/* Text for an argument of cli_error(); good until the 8th call after this one. */
const char *cli_fmt(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line, not with -q. No newline in format. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* One line, with -v only. */
void cli_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Will cli_progress() show anything? Only on a terminal, and not with -q. */
bool cli_progress_wanted(void);
/* Replaces the progress line; any other message clears it first. */
void cli_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_progress_clear(void);

/* "2,970": thousands apart. buf of CLI_COUNT_SIZE; returns it. */
#define CLI_COUNT_SIZE 32
const char *cli_count(unsigned long long n, char buf[CLI_COUNT_SIZE]);

#endif

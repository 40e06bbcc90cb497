/* SPDX-License-Identifier: MIT */
/* What the user asked for: one struct that every verb gets. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "profile/profile.h"

/* id, name */
#define CLI_VERBS(_) \
	_(RECORD, "record") \
	_(DUMP, "dump") \
	_(CORE, "core") \
	_(REPORT, "report") \
	_(TRACES, "traces") \
	_(INSPECT, "inspect") \
	_(LIST, "list") \
	_(DOCTOR, "doctor")

enum cli_verb {
#define _(id, name) CLI_VERB_##id,
	CLI_VERBS(_)
#undef _
	CLI_VERB_COUNT
};

/* In the order of the option table's value lists. */
enum cli_event { CLI_EVENT_CPU };
enum cli_engine { CLI_ENGINE_AUTO, CLI_ENGINE_BPF, CLI_ENGINE_PTRACE };

/*
 * All zero = default, except rate, which the parser sets. Strings point into
 * argv. The parser has already refused what contradicts itself: at most one of
 * pids, name, all and command is set, and one of them is where a verb needs it.
 */
struct msp_options {
	enum cli_verb verb;

	pid_t *pids; /* -p, each once, in the order given */
	size_t pid_count;
	const char *name;  /* -N */
	bool all;          /* -a */
	char **command;    /* after --, NULL-terminated; NULL: none */
	bool subprocesses; /* -s */

	char **files; /* FILE arguments, NULL-terminated */
	size_t file_count;

	const char *output;   /* -o; NULL: a name is made; "-": standard output */
	const char *format;   /* -f, a name msp_format_by_name() knows; NULL: from output */
	uint64_t duration_ns; /* -d; 0: until stopped */
	unsigned rate;        /* -r, Hz */
	enum cli_event event;
	enum cli_engine engine;

	struct msp_view view; /* --lines --lua --native --no-kernel --vm-frames --certain -t */

	const char *exe, *sysroot; /* --exe, --sysroot */

	uint32_t annotate;   /* --annotate; 0: none */
	const char *samples; /* --samples: a profile */

	bool coroutines; /* -c */
	unsigned locals; /* -l, -ll */

	bool json;       /* -j */
	bool stats, probes, force, quiet;
	unsigned verbose;
	bool help; /* -h: nothing else was checked */
};

/*
 * Parses what follows the verb, argv[0..argc). Returns 0, or the exit code
 * after printing what is wrong. *options is to be freed in either case.
 */
int cli_options_parse(enum cli_verb verb, int argc, char **argv, struct msp_options *options);
void cli_options_free(struct msp_options *options);

/* ---- Values, for tests and for verbs with arguments of their own ---- */

/* "30s", "500ms", "1.5m", "1h", "10" (seconds). False: not a duration, or not above 0. */
bool cli_parse_duration(const char *text, uint64_t *ns);
/* A whole number from min to max, nothing else around it. */
bool cli_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);

#endif

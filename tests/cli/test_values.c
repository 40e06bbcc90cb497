/* SPDX-License-Identifier: MIT */
/* What the parser makes of good arguments; cases of the shell tests have the bad ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/messages.h"
#include "cli/options.h"
#include "cli/output.h"

static uint64_t duration(const char *text)
{
	uint64_t ns;

	assert_true(cli_parse_duration(text, &ns));
	return ns;
}

static void durations(void **state)
{
	assert_int_equal(duration("30s"), 30000000000);
	assert_int_equal(duration("5"), 5000000000);
	assert_int_equal(duration("500ms"), 500000000);
	assert_int_equal(duration("1.5s"), 1500000000);
	assert_int_equal(duration("2m"), 120000000000);
	assert_int_equal(duration("1h"), 3600000000000);
	assert_int_equal(duration("0.1"), 100000000);
}

/* Parses a line of words; the caller frees the options. */
static struct msp_options parse(enum cli_verb verb, const char *line)
{
	static char copy[256];
	static char *argv[32];
	struct msp_options options;
	int argc = 0;

	strncpy(copy, line, sizeof(copy) - 1);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	assert_int_equal(cli_options_parse(verb, argc, argv, &options), 0);
	return options;
}

static void spelling(void **state)
{
	static const char *const lines[] = {
		"-tp 7,8 -r 49 -o x.msp",
		"-t -p7,8 -r49 -ox.msp",
		"--threads --pid=7,8,7 --rate=49 --output=x.msp",
		"--output x.msp --rate 49 -p 7 -p 8 --threads",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct msp_options options = parse(CLI_VERB_RECORD, lines[i]);

		assert_int_equal(options.pid_count, 2);
		assert_int_equal(options.pids[0], 7);
		assert_int_equal(options.pids[1], 8);
		assert_int_equal(options.rate, 49);
		assert_string_equal(options.output, "x.msp");
		assert_true(options.view.threads);
		cli_options_free(&options);
	}
}

static void defaults(void **state)
{
	struct msp_options options = parse(CLI_VERB_RECORD, "-a");

	assert_int_equal(options.rate, 99);
	assert_int_equal(options.duration_ns, 0);
	assert_int_equal(options.event, CLI_EVENT_CPU);
	assert_int_equal(options.engine, CLI_ENGINE_AUTO);
	assert_null(options.output);
	cli_options_free(&options);
}

static void command(void **state)
{
	struct msp_options options =
		parse(CLI_VERB_RECORD, "--engine=ptrace -e cpu -d 2s -- lua -o x -- y");

	assert_int_equal(options.engine, CLI_ENGINE_PTRACE);
	assert_string_equal(options.command[0], "lua");
	assert_string_equal(options.command[3], "--");
	assert_string_equal(options.command[4], "y");
	assert_null(options.command[5]);
	assert_null(options.output);
	cli_options_free(&options);
}

static void counters_and_files(void **state)
{
	struct msp_options options = parse(CLI_VERB_DUMP, "-jvv -p 1");

	assert_true(options.json);
	assert_int_equal(options.verbose, 2);
	cli_options_free(&options);

	options = parse(CLI_VERB_REPORT, "a.msp --lua - -f msp -- -b.msp");
	assert_int_equal(options.file_count, 3);
	assert_string_equal(options.files[1], "-");
	assert_string_equal(options.files[2], "-b.msp");
	assert_true(options.view.lua_only);
	cli_options_free(&options);
}

static void texts(void **state)
{
	char buf[CLI_COUNT_SIZE], name[256];

	assert_string_equal(cli_count(0, buf), "0");
	assert_string_equal(cli_count(999, buf), "999");
	assert_string_equal(cli_count(1000, buf), "1,000");
	assert_string_equal(cli_count(12345678, buf), "12,345,678");

	cli_output_name(name, sizeof(name), "../a b\n", 42, ".html");
	assert_memory_equal(name, "_.-a-b--42-2", 12);
	cli_output_name(name, sizeof(name), "", 0, ".html");
	assert_memory_equal(name, "profile-2", 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(durations), cmocka_unit_test(spelling),
		cmocka_unit_test(defaults),  cmocka_unit_test(command),
		cmocka_unit_test(texts),     cmocka_unit_test(counters_and_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
#include "cli/messages.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int verbosity;
static bool progress_shown;

void cli_set_verbosity(int value)
{
	verbosity = value;
}

void cli_error(const char *what, const char *why, const char *todo)
{
	cli_progress_clear();
	fprintf(stderr, "moonspy: %s\n", what);
	if (why)
		fprintf(stderr, "    why: %s\n", why);
	if (todo)
		fprintf(stderr, "    try: %s\n", todo);
}

const char *cli_fmt(const char *format, ...)
{
	static char ring[8][1024];
	static unsigned next;
	char *buf = ring[next++ % 8];
	va_list args;

	va_start(args, format);
	vsnprintf(buf, sizeof(ring[0]), format, args);
	va_end(args);
	return buf;
}

static void say(const char *format, va_list args)
{
	cli_progress_clear();
	fputs("moonspy: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

void cli_note(const char *format, ...)
{
	va_list args;

	if (verbosity < 0)
		return;
	va_start(args, format);
	say(format, args);
	va_end(args);
}

void cli_detail(const char *format, ...)
{
	va_list args;

	if (verbosity < 1)
		return;
	va_start(args, format);
	say(format, args);
	va_end(args);
}

bool cli_progress_wanted(void)
{
	return verbosity >= 0 && isatty(STDERR_FILENO);
}

void cli_progress(const char *format, ...)
{
	va_list args;

	if (!cli_progress_wanted())
		return;
	fputc('\r', stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("\033[K", stderr); /* erase what the last, longer line left */
	fflush(stderr);
	progress_shown = true;
}

void cli_progress_clear(void)
{
	if (!progress_shown)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	progress_shown = false;
}

const char *cli_count(unsigned long long n, char buf[CLI_COUNT_SIZE])
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%llu", n);
	char *to = buf;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
	return buf;
}

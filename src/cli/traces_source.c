/* SPDX-License-Identifier: MIT */
/* A trace's lines with their source, which is read from where the target would. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/messages.h"
#include "cli/traces.h"

#define MAX_SOURCE (16 << 20)
#define MAX_WIDTH 200

/* All of a file, with a NUL behind it; NULL: it cannot be read. */
static char *read_all(int fd)
{
	struct stat st;
	char *text = NULL;
	ssize_t n, size = 0;

	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= MAX_SOURCE)
		text = malloc((size_t)st.st_size + 1);
	if (text) {
		while (size < st.st_size &&
		       (n = read(fd, text + size, (size_t)(st.st_size - size))) > 0)
			size += n;
		text[size] = 0;
	}
	return text;
}

/* A chunk's source, malloc'ed. Its name is @ and a path, = and anything, or the source itself. */
static char *source_of(const struct traces *t, const char *chunk)
{
	const char *sysroot = t->options->sysroot;
	char path[4096];
	char *text;
	int fd;

	if (*chunk != '@')
		return *chunk == '=' ? NULL : strdup(chunk);
	if (!t->live->core)
		snprintf(path, sizeof(path), "/proc/%d/%s/%s", (int)t->live->pid,
			 chunk[1] == '/' ? "root" : "cwd", chunk + 1);
	else if (chunk[1] == '/')
		snprintf(path, sizeof(path), "%s%s", sysroot ? sysroot : "", chunk + 1);
	else
		return NULL; /* a core does not tell its working directory */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	text = read_all(fd);
	if (fd >= 0)
		close(fd);
	return text;
}

/* A line of text, counted from 1; its size. NULL: there are not as many. */
static const char *line_at(const char *text, uint32_t line, size_t *size)
{
	while (text && --line) {
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	*size = text ? strcspn(text, "\r\n") : 0;
	return text;
}

static void put_source(const char *text, size_t size)
{
	char line[MAX_WIDTH + 1];

	if (size > MAX_WIDTH)
		size = MAX_WIDTH;
	for (size_t i = 0; i < size; i++)
		line[i] = text[i] == '\t' ? ' ' : text[i];
	line[size] = 0;
	cli_put_text(line);
}

static void put_line(const struct traces *t, const struct traces_trace *trace,
		     const struct traces_line *line, const char *source)
{
	const char *text;
	size_t size;

	printf("    ");
	if (t->sampled && line->samples)
		printf("%5.1f %%", trace->samples ? 100.0 * line->samples / trace->samples : 0);
	else if (t->sampled)
		printf("%7s", "");
	printf("  %6u  ", line->at.place.line);
	text = line_at(source, line->at.place.line, &size);
	if (text)
		put_source(text, size);
	putchar('\n');
}

static bool same_function(const struct msp_frame *a, const struct msp_frame *b)
{
	return a->defined == b->defined && !strcmp(a->file, b->file) && !strcmp(a->name, b->name);
}

void traces_source(const struct traces *t, const struct traces_trace *trace)
{
	const struct msp_jit_line *last = NULL;
	char *source = NULL;

	for (size_t i = 0; i < trace->lines; i++) {
		const struct msp_jit_line *at = &trace->line[i].at;

		if (!last || strcmp(last->chunk, at->chunk)) {
			free(source);
			source = source_of(t, at->chunk);
		}
		if (!last || !same_function(&last->place, &at->place)) {
			printf("  ");
			cli_put_text(at->place.name);
			printf(" (");
			cli_put_text(at->place.file);
			printf(":%u)%s\n", at->place.defined,
			       source ? "" : ", whose source is not there");
		}
		last = at;
		put_line(t, trace, &trace->line[i], source);
	}
	free(source);
}

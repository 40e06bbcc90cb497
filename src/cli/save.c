/* SPDX-License-Identifier: MIT */
#include "cli/save.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/messages.h"
#include "moonspy/moonspy.h"

/* "folded, json, msp", or the endings. */
static const char *known_formats(bool endings)
{
	static char list[256];
	const struct msp_format *format;
	size_t n = 0;

	for (size_t i = 0; (format = msp_format_at(i)) && n < sizeof(list); i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "",
				      endings ? format->endings[0] : format->name);
	return list;
}

/* "x.json" can be any kind of JSON. */
static bool is_json(const struct msp_format *format)
{
	size_t length = strlen(format->endings[0]);

	return length >= 5 && !strcmp(format->endings[0] + length - 5, ".json");
}

/* "-f folded -o x.json": one of them is not meant. */
static bool disagree(const struct msp_format *format, const struct msp_format *by_file)
{
	return by_file && format != by_file && !(is_json(format) && is_json(by_file));
}

const struct msp_format *cli_save_format(const char *name, const char *path)
{
	const struct msp_format *by_file = path ? msp_format_by_file(path) : NULL;
	const struct msp_format *format;

	if (!name && by_file)
		return by_file;
	if (!name && path && strcmp(path, "-") && strncmp(path, "/dev/", 5)) {
		cli_error(cli_fmt("the ending of %s is no format's", path),
			  cli_fmt("known endings: %s", known_formats(true)),
			  "another ending, or -f html");
		return NULL;
	}
	format = msp_format_by_name(name ? name : path ? "folded" : "html");
	if (!format) {
		cli_error(cli_fmt("there is no format %s", name ? name : "html"),
			  "it is none of those that there are",
			  cli_fmt("-f with one of: %s", known_formats(false)));
		return NULL;
	}
	if (disagree(format, by_file)) {
		cli_error(cli_fmt("-f %s and -o %s contradict each other", format->name, path),
			  cli_fmt("that ending is %s", by_file->name), "leave out -f");
		return NULL;
	}
	return format;
}

/* Writes and ends the file. 0, or -1 with errno. */
static int write_once(struct cli_output *out, const struct msp_format *format,
		      const struct msp_profile *profile, const struct msp_view *view)
{
	int error;

	errno = 0;
	error = msp_format_write(format, profile, view, out->file);
	if (error) {
		errno = error == MSP_E_NOMEM ? ENOMEM : errno ? errno : EIO;
		return -1;
	}
	return cli_output_finish(out);
}

/* A profile may have taken an hour: it is kept in another place before it is lost. */
static void write_elsewhere(const char *path, const struct msp_format *format,
			    const struct msp_profile *profile, const struct msp_view *view)
{
	const char *places[] = {getenv("TMPDIR"), "/var/tmp", "/dev/shm"};
	const char *slash = strrchr(path, '/');
	const char *name = strcmp(path, "-") ? slash ? slash + 1 : path : "profile";

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct cli_output out;
		char stamped[128];
		const char *other;
		int failed;

		if (!places[i])
			continue;
		cli_output_name(stamped, sizeof(stamped), name, 0, format->endings[0]);
		other = cli_fmt("%s/%s", places[i], stamped);
		if (cli_output_open(&out, other, false))
			continue;
		failed = write_once(&out, format, profile, view);
		cli_output_abandon(&out);
		if (!failed) {
			cli_note("the profile is in %s instead", other);
			return;
		}
	}
}

static const char *what_to_do(const char *path, int error)
{
	if (error == ENOSPC || error == EDQUOT)
		return "make room, or write to another file system: -o FILE";
	if (!strcmp(path, "-"))
		return "write to a file: -o FILE";
	return "check that its directory is there and yours to write in, or -o FILE";
}

int cli_save(struct cli_output *out, const struct msp_format *format,
	     const struct msp_profile *profile, const struct msp_view *view)
{
	int error, rc = CLI_OK;

	if (write_once(out, format, profile, view)) {
		error = errno;
		rc = CLI_FAILED;
		cli_error(cli_fmt("cannot write %s",
				  strcmp(out->path, "-") ? out->path : "to standard output"),
			  strerror(error), what_to_do(out->path, error));
		if (error != EPIPE)
			write_elsewhere(out->path, format, profile, view);
	} else if (strcmp(out->path, "-")) {
		(out->announce ? cli_note : cli_detail)("wrote %s", out->path);
	}
	cli_output_abandon(out);
	return rc;
}

/* SPDX-License-Identifier: MIT */
/* Profiles in, one profile out: merged, filtered, in any format. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/quality.h"
#include "cli/save.h"
#include "moonspy/moonspy.h"
#include "output/output.h"
#include "profile/profile.h"

/* *partial: the file is damaged, and *out holds what was read before that. */
static int read_file(const char *path, struct msp_profile **out, bool *partial)
{
	char reason[256] = "";
	FILE *in = strcmp(path, "-") ? fopen(path, "re") : stdin;
	int error;

	if (!in) {
		cli_error(cli_fmt("cannot read %s", path), strerror(errno),
			  cli_fmt("ls -l %s", path));
		return CLI_FAILED;
	}
	error = msp_read_profile(in, out, reason, sizeof(reason));
	if (in != stdin)
		fclose(in);
	if (!error) {
		if (*reason)
			cli_note("%s: %s: the samples before that are read", path, reason);
		return 0;
	}
	if (*out) {
		*partial = true;
		cli_error(cli_fmt("cannot read all of %s", path), reason,
			  "what was read before that is in the output");
		return 0;
	}
	cli_error(cli_fmt("cannot read %s", path), *reason ? reason : msp_strerror(error),
		  error == MSP_E_FORMAT ? "record with -o FILE.msp" : "ulimit -a");
	return CLI_FAILED;
}

static int read_files(const struct msp_options *options, struct msp_profile **out, bool *partial)
{
	int rc = read_file(options->files[0], out, partial);

	for (size_t i = 1; !rc && i < options->file_count; i++) {
		struct msp_profile *next = NULL;
		int error;

		rc = read_file(options->files[i], &next, partial);
		if (rc)
			return rc;
		error = msp_profile_merge(*out, next);
		msp_profile_free(next);
		if (error) {
			cli_error(cli_fmt("cannot add %s", options->files[i]), msp_strerror(error),
				  "add fewer at a time");
			return CLI_FAILED;
		}
	}
	return rc;
}

/* What choose() carries along. */
struct choice {
	const struct msp_options *options;
	const struct msp_profile *from;
	struct msp_profile *to;
	uint64_t count;
};

static bool wanted(const struct msp_options *options, int32_t pid)
{
	for (size_t i = 0; i < options->pid_count; i++)
		if (options->pids[i] == pid)
			return true;
	return false;
}

static int copy_name(struct choice *choice, int32_t pid, int32_t tid)
{
	const char *name = msp_profile_name(choice->from, pid, tid);

	return name ? msp_profile_set_name(choice->to, pid, tid, name) : 0;
}

static int choose(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
		  uint64_t count)
{
	struct choice *choice = ctx;
	uint32_t *copied;
	int error = 0;

	if (!wanted(choice->options, pid))
		return 0;
	copied = calloc(n ? n : 1, sizeof(*copied));
	if (!copied)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < n && !error; i++) {
		int64_t id =
			msp_profile_frame(choice->to, msp_profile_frame_at(choice->from, ids[i]));

		copied[i] = (uint32_t)id;
		error = id < 0 ? (int)id : 0;
	}
	if (!error)
		error = msp_profile_add(choice->to, pid, tid, copied, n, count);
	if (!error)
		error = copy_name(choice, pid, 0);
	if (!error && tid)
		error = copy_name(choice, pid, tid);
	choice->count += count;
	free(copied);
	return error;
}

/* -p: only those processes. The quality stays that of the whole recording. */
static int filter_pids(const struct msp_options *options, struct msp_profile **profile)
{
	struct choice choice = {.options = options, .from = *profile};
	int error = MSP_E_NOMEM;

	if (!options->pid_count)
		return 0;
	choice.to = msp_profile_new();
	if (choice.to) {
		*msp_profile_quality(choice.to) = *msp_profile_quality_of(*profile);
		error = msp_profile_each(*profile, choose, &choice);
		error = error ? error : msp_profile_copy_meta(*profile, choice.to);
	}
	msp_profile_free(*profile);
	*profile = choice.to;
	if (error) {
		cli_error("cannot filter the profile", msp_strerror(error), "ulimit -a");
		return CLI_FAILED;
	}
	if (!choice.count) {
		cli_error("no samples of these processes", "none has one of the pids of -p",
			  "leave out -p");
		return CLI_NOTHING;
	}
	return 0;
}

/* run.msp, sysprof.bin become run.html, sysprof.html, in the current directory. */
static void default_name(char *buf, size_t size, const char *file, const char *ending)
{
	const char *slash = strrchr(file, '/');
	const char *base = slash ? slash + 1 : file;
	size_t length = strlen(base);

	if (length > 4 &&
	    (!strcmp(base + length - 4, ".msp") || !strcmp(base + length - 4, ".bin")))
		length -= 4;
	if (!strcmp(file, "-"))
		snprintf(buf, size, "profile%s", ending);
	else
		snprintf(buf, size, "%.*s%s", (int)length, base, ending);
}

static int convert(const struct msp_options *options, const struct msp_format *format,
		   struct cli_output *out)
{
	struct msp_profile *profile = NULL;
	bool partial = false;
	int rc = read_files(options, &profile, &partial);

	if (!rc)
		rc = filter_pids(options, &profile);
	if (!rc)
		rc = cli_save(out, format, profile, &options->view);
	else
		cli_output_abandon(out);
	if (!rc && options->stats)
		cli_profile_stats(profile);
	msp_profile_free(profile);
	return !rc && partial ? CLI_PARTIAL : rc;
}

int cmd_report(const struct msp_options *options)
{
	const struct msp_format *format = cli_save_format(options->format, options->output);
	const char *path = options->output;
	struct cli_output out;
	char made[PATH_MAX];
	int rc;

	if (!format)
		return CLI_USAGE;
	signal(SIGPIPE, SIG_IGN); /* a reader that has had enough is an error of the write */
	if (!path) {
		default_name(made, sizeof(made), options->files[0], format->endings[0]);
		path = made;
	}
	rc = cli_output_open(&out, path, options->force);
	if (rc)
		return rc;
	out.announce = !options->output;
	return convert(options, format, &out);
}

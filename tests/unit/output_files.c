/* SPDX-License-Identifier: MIT */
/*
 * output_files PROFILE FORMAT FILE: writes a made-up profile (server, hostile, large). FORMAT may be
 * "FORMAT:threads", "FORMAT:lines", "FORMAT:via-msp" (written as msp, read, then written).
 */
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"
#include "output/output.h"
#include "output_synthetic.h"

static int through_msp(struct msp_profile **profile)
{
	FILE *file = tmpfile();
	struct msp_profile *back;
	char error[200];
	int err = file ? msp_format_by_name("msp")->write(*profile, file) : MSP_E_IO;

	if (!err) {
		rewind(file);
		err = msp_read_msp(file, &back, error, sizeof(error));
		if (err)
			fprintf(stderr, "output_files: %s\n", error);
	}
	if (file)
		fclose(file);
	if (!err) {
		msp_profile_free(*profile);
		*profile = back;
	}
	return err;
}

int main(int argc, char **argv)
{
	struct msp_view view = {0};
	const struct msp_format *format;
	struct msp_profile *profile;
	FILE *out;
	char *how;
	int err = 0;

	if (argc != 4)
		return 2;
	how = strchr(argv[2], ':');
	if (how)
		*how++ = 0;
	view.threads = how && strstr(how, "threads");
	view.lines = how && strstr(how, "lines");
	format = msp_format_by_name(argv[2]);
	profile = synthetic_by_name(argv[1]);
	if (!format || !profile || !(out = fopen(argv[3], "w")))
		return 2;
	if (how && strstr(how, "via-msp"))
		err = through_msp(&profile);
	if (!err)
		err = msp_format_write(format, profile, &view, out);
	if (fclose(out))
		err = MSP_E_IO;
	msp_profile_free(profile);
	if (err)
		fprintf(stderr, "output_files: %s\n", msp_strerror(err));
	return err ? 1 : 0;
}

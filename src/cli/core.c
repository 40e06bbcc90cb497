/* SPDX-License-Identifier: MIT */
/* The same as dump, of a core file. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/dump.h"
#include "cli/messages.h"
#include "moonspy/moonspy.h"

static int show(const struct msp_options *options, struct cli_live *live)
{
	struct dump_writer writer = {.options = options};
	struct msp_snapshot_options wanted = dump_wanted(options);
	struct msp_snapshot snapshot;
	size_t vms;
	int r, rc;

	r = msp_snapshot_of_core(live->space, live->core, &wanted, &snapshot);
	if (r < 0) {
		cli_error(cli_fmt("cannot read %s", options->files[0]), msp_strerror(r),
			  cli_fmt("file %s", options->files[0]));
		return CLI_FAILED;
	}
	dump_begin(&writer, false);
	rc = dump_snapshot(&writer, live, &snapshot);
	msp_snapshot_free(&snapshot);
	if (dump_end(&writer))
		rc = CLI_FAILED;
	msp_space_vms(live->space, &vms);
	if (!vms)
		cli_note("no LuaJIT in this core: its native stacks are shown");
	if (cli_live_note_gaps(live) && rc == CLI_OK)
		rc = CLI_PARTIAL;
	return rc;
}

int cmd_core(const struct msp_options *options)
{
	struct msp_core_options core = {.exe = options->exe, .sysroot = options->sysroot};
	struct msp_images *images;
	struct cli_live live;
	int rc = cli_images_open(&images);

	if (rc)
		return rc;
	rc = cli_live_open_core(options->files[0], &core, images, &live);
	if (rc == 0) {
		rc = show(options, &live);
		cli_live_close(&live);
	}
	msp_images_free(images);
	return rc;
}

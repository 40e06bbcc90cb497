/* SPDX-License-Identifier: MIT */
/* The same as dump, of a core file. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/dump.h"
#include "cli/messages.h"

static int show(const struct msp_options *options, struct cli_live *live)
{
	struct dump_writer writer = {.options = options};
	int rc;

	dump_begin(&writer, false);
	rc = dump_target(&writer, live);
	if (rc < 0) {
		cli_error(cli_fmt("cannot read %s", options->files[0]), msp_strerror(rc),
			  cli_fmt("file %s", options->files[0]));
		return CLI_FAILED;
	}
	if (dump_end(&writer))
		rc = CLI_FAILED;
	if (!msp_target_info(live->target)->vms)
		cli_note("no LuaJIT in this core: its native stacks are shown");
	if (cli_live_note_gaps(live) && rc == CLI_OK)
		rc = CLI_PARTIAL;
	return rc;
}

int cmd_core(const struct msp_options *options)
{
	struct msp_target *registry;
	struct cli_live live;
	int rc = cli_registry_open(&registry);

	if (rc)
		return rc;
	rc = cli_live_open_core(options->files[0], options->exe, options->sysroot, registry, &live);
	if (rc == 0) {
		rc = show(options, &live);
		cli_live_close(&live);
	}
	msp_target_free(registry);
	return rc;
}

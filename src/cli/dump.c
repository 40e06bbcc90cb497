/* SPDX-License-Identifier: MIT */
#include "cli/commands.h"
#include "cli/messages.h"

int cmd_dump(const struct msp_options *options)
{
	cli_error("dump is not there yet", NULL, NULL);
	return CLI_FAILED;
}

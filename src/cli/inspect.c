/* SPDX-License-Identifier: MIT */
#include "cli/commands.h"
#include "cli/messages.h"

int cmd_inspect(const struct msp_options *options)
{
	cli_error("inspect is not there yet", NULL, NULL);
	return CLI_FAILED;
}

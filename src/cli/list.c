/* SPDX-License-Identifier: MIT */
#include "cli/commands.h"
#include "cli/messages.h"

int cmd_list(const struct msp_options *options)
{
	cli_error("list is not there yet", NULL, NULL);
	return CLI_FAILED;
}

/* SPDX-License-Identifier: MIT */
#include "cli/commands.h"
#include "cli/messages.h"

int cmd_report(const struct msp_options *options)
{
	cli_error("report is not there yet", NULL, NULL);
	return CLI_FAILED;
}

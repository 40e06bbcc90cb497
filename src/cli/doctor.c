/* SPDX-License-Identifier: MIT */
#include "cli/commands.h"
#include "cli/messages.h"

int cmd_doctor(const struct msp_options *options)
{
	cli_error("doctor is not there yet", NULL, NULL);
	return CLI_FAILED;
}

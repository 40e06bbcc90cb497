/* SPDX-License-Identifier: MIT */
/* One function a verb. Each prints its own errors and returns the exit code. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/options.h"

int cmd_record(const struct msp_options *options);
int cmd_dump(const struct msp_options *options);
int cmd_core(const struct msp_options *options);
int cmd_report(const struct msp_options *options);
int cmd_traces(const struct msp_options *options);
int cmd_inspect(const struct msp_options *options);
int cmd_list(const struct msp_options *options);
int cmd_doctor(const struct msp_options *options);

#endif

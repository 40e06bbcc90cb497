/* SPDX-License-Identifier: MIT */
/* The writers in the table of formats; a new format adds its line here and in output.c. */
#ifndef MSP_OUTPUT_FORMATS_H
#define MSP_OUTPUT_FORMATS_H

#include "output/output.h"

int msp_write_folded(const struct msp_profile *profile, FILE *out);
int msp_write_html(const struct msp_profile *profile, FILE *out);
int msp_write_json(const struct msp_profile *profile, FILE *out);
int msp_write_msp(const struct msp_profile *profile, FILE *out);
int msp_write_pprof(const struct msp_profile *profile, FILE *out);
int msp_write_speedscope(const struct msp_profile *profile, FILE *out);

#endif

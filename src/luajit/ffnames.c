/* SPDX-License-Identifier: MIT */
#include "luajit/build.h"

void msp_lj_find_ff_names(struct msp_lj_build *build)
{
	(void)build;
}

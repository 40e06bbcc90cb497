/* SPDX-License-Identifier: MIT */
#include "moonspy/moonspy.h"

const char *msp_version(void)
{
	return MOONSPY_VERSION;
}

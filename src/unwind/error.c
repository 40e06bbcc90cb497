/* SPDX-License-Identifier: MIT */
#include "moonspy/moonspy.h"

const char *msp_strerror(int error)
{
	switch (error) {
	case 0:
		return "success";
#define _(id, n, text) \
	case MSP_E_##id: \
		return text;
		MSP_ERRORS(_)
#undef _
	default:
		return "unknown error";
	}
}

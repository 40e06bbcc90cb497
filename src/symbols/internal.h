/* SPDX-License-Identifier: MIT */
#ifndef MSP_SYMBOLS_INTERNAL_H
#define MSP_SYMBOLS_INTERNAL_H

#include "symbols/symbols.h"

struct msp_symbolizer {
	struct msp_images *images;
	struct msp_space *space; /* NULL: gone */
	const struct msp_kernel_symbols *kernel;
	const struct msp_image *image; /* of the last frame */
	bool provisional;	       /* the last frame's name may become better */
	char text[128];
};

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A profile as formats need it that know neither processes nor more of a frame than its text:
 * frames of equal text (and kind, where asked) are one, and where there is more than one process,
 * or threads are kept apart, they are frames at the root: "process 4711 (nginx)", "thread 4711".
 */
#ifndef MSP_OUTPUT_FLAT_H
#define MSP_OUTPUT_FLAT_H

#include "profile/profile.h"
#include "profile/tree.h"

/* object of a frame that stands for a process or thread; its kind is MSP_FRAME_STATE */
#define MSP_FLAT_GROUP "[group]"
#define MSP_FLAT_NO_FRAMES "[error: no frames]"

struct msp_flat {
	struct msp_profile *profile; /* name of each frame is its text; one pid and tid, both 0 */
	struct msp_tree tree;	     /* of profile; its counts are sorted by node */
};

int msp_flat_make(const struct msp_profile *profile, bool kinds, struct msp_flat *out);
void msp_flat_free(struct msp_flat *flat);

#endif

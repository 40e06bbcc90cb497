/* SPDX-License-Identifier: MIT */
#include "luajit/luajit.h"

struct msp_lj_names *msp_lj_names_new(const struct msp_lj_build *build,
				      const struct msp_memory *mem, uint64_t g)
{
	const struct msp_lj_layout *layout = msp_lj_build_layout(build);

	return layout ? msp_lj_names_new_layout(layout, mem, g) : NULL;
}

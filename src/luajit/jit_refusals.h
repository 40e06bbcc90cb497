/* SPDX-License-Identifier: MIT */
/* What is not compiled. Internal to src/luajit/. */
#ifndef MSP_LUAJIT_JIT_REFUSALS_H
#define MSP_LUAJIT_JIT_REFUSALS_H

#include "luajit/jit.h"
#include "luajit/jit_protos.h"

/* An abort that the compiler remembers: jit_State.penalty (lj_jit.h). */
struct msp_lj_abort {
	uint64_t pc;
	uint16_t penalty, reason;
};
#define MSP_LJ_ABORTS 64

struct msp_lj_aborts {
	struct msp_lj_abort abort[MSP_LJ_ABORTS]; /* the oldest first */
	uint32_t count;
	bool found;   /* the table was: it is only seen when it is not empty */
	bool flushed; /* it was emptied since the VM began */
};

/* jit_aborts.c: looks for the table in the jit_State, and proves it. */
void msp_lj_aborts_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			uint64_t g, const struct msp_lj_protos *protos, struct msp_lj_aborts *out);

/* jit_refusals.c: fills in refusals. MSP_E_NOMEM. */
int msp_lj_refusals_read(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			 const struct msp_lj_protos *protos, const struct msp_lj_aborts *aborts,
			 struct msp_lj_jit *out);

/* Is it where a trace may begin: a loop or a function's header (and which)? */
bool msp_lj_is_hot_place(const struct msp_lj_layout *layout, uint32_t ins, bool *loop);

#endif

/* SPDX-License-Identifier: MIT */
/* All prototypes of a VM. Internal to src/luajit/. */
#ifndef MSP_LUAJIT_JIT_PROTOS_H
#define MSP_LUAJIT_JIT_PROTOS_H

#include "luajit/build.h"

struct msp_lj_proto_ref {
	uint64_t addr, ident;
	uint32_t sizebc;
	uint8_t flags;
};

struct msp_lj_protos {
	struct msp_lj_proto_ref *proto; /* by address, each once */
	size_t count, room;
	bool complete;
};

/*
 * Walks the list of all objects. A target that runs on may change the list
 * under the walk: then it is begun again, a few times. MSP_E_NOMEM.
 */
int msp_lj_protos_read(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g,
		       struct msp_lj_protos *out);
void msp_lj_protos_free(struct msp_lj_protos *protos);

/* The one that a bytecode position lies in; NULL: none. */
const struct msp_lj_proto_ref *msp_lj_protos_at(const struct msp_lj_protos *protos,
						const struct msp_lj_layout *layout, uint64_t pc);

#endif

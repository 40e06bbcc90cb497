/* SPDX-License-Identifier: MIT */
/* Inside of an address space, shared by space.c and vms.c. */
#ifndef MSP_TARGET_SPACE_INTERNAL_H
#define MSP_TARGET_SPACE_INTERNAL_H

#include "target/space.h"

struct msp_space {
	struct msp_images *images;
	const struct msp_host *host;
	struct msp_process *process; /* NULL: the host is none */
	struct msp_maps maps;
	struct msp_mapping *mapping;
	uint32_t *map_index; /* of each mapping: its line in maps */
	size_t count;
	uint32_t *held;      /* images, each once: those mapped, and all with a LuaJIT that ever were */
	size_t held_count;
	uint64_t generation; /* counts refreshes */
	struct msp_vm *vm; /* room for MSP_MAX_VMS, so that none ever moves */
	size_t vms;
};

#define MSP_MAX_VMS 1024

void msp_space_forget_vms(struct msp_space *space);

#endif

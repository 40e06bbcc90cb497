/* SPDX-License-Identifier: MIT */
/* A core file as a reader of the descriptor's helpers sees it. */
#ifndef KIT_CORE_H
#define KIT_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core {
	unsigned char *bytes;
	size_t size;
};

bool core_map(struct core *core, const char *path);
/* An ljvm_read_fn; context is a struct core. */
int core_read(void *context, uint64_t address, void *buffer, size_t size);
void core_close(struct core *core);

#endif

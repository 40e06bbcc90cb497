/* SPDX-License-Identifier: MIT */
/*
 * What an address space is read from: a live process, or a core file. Everything
 * above (mappings with their images, VMs, the walker) is the same for both.
 */
#ifndef MSP_TARGET_HOST_H
#define MSP_TARGET_HOST_H

#include "target/target.h"

struct msp_host {
	void *ctx;
	int arch;     /* enum msp_arch of its registers */
	const struct msp_memory *memory;
	const char *root; /* where the files are that it calls by path, as we can open it */

	int (*maps)(void *ctx, struct msp_maps *out);
	/*
	 * The file behind a mapping, an fd. *partial: not the file itself, but the parts
	 * of it that the host has in memory, at their places. MSP_E_NOT_FOUND, MSP_E_PERMISSION.
	 */
	int (*open_map)(void *ctx, const struct msp_map *map, bool *partial);
	/*
	 * Calls each() for the parts of [start, end) that have content, ascending: reading
	 * others would make a process bigger, and is in vain.
	 */
	void (*present)(void *ctx, uint64_t start, uint64_t end,
			void (*each)(void *arg, uint64_t start, uint64_t end), void *arg);
};

#endif

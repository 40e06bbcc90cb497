/* SPDX-License-Identifier: MIT */
/* The tables that a LuaJIT fills its libraries from (lj_lib.h: LIBINIT_*). */
#ifndef MSP_LUAJIT_LIBINIT_H
#define MSP_LUAJIT_LIBINIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MSP_LIBINIT_MAX 128
#define MSP_LIBINIT_NAME 64

struct msp_libinit {
	uint64_t addr;
	unsigned int ffid;	/* of the first function */
	unsigned int ffasm;	/* functions with code in the VM block before it */
	unsigned int count;	/* functions that have a number */
	unsigned int asm_count; /* those of them with code in the VM block, as far as it shows */
	unsigned int nameless;
	struct {
		char name[MSP_LIBINIT_NAME]; /* "": it is registered without a name */
	} func[MSP_LIBINIT_MAX];
};

/*
 * Reads a table. false: this is none; it counts its named entries in its
 * header, so that hardly anything else passes for one.
 */
bool msp_libinit_parse(const uint8_t *bytes, size_t size, struct msp_libinit *out);

#endif

/* SPDX-License-Identifier: MIT */
/* A build in the terms of the VM descriptor (moonspy/vm_descriptor.h), as far as it was found out. */
#ifndef MSP_LUAJIT_DESCRIPTOR_H
#define MSP_LUAJIT_DESCRIPTOR_H

#include "moonspy/vm_descriptor.h"

struct msp_lj_build;

/* Room for the texts that a descriptor's names point to. */
struct msp_lj_descriptor_text {
	char version[64], ff[12288], trace_errors[4096], bc[1024];
};

/* All constants; -1: not known, or the build has no such thing. */
void msp_lj_descriptor_constants(const struct msp_lj_build *build, struct ljvm_constants *out);
/* The members of out that are names, 0 where they are not known; they live as long as text does. The others are left alone. */
void msp_lj_descriptor_names(const struct msp_lj_build *build, struct msp_lj_descriptor_text *text,
			     struct ljvm_addresses *out);

#endif

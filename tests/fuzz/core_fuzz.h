/* SPDX-License-Identifier: MIT */
/* The core fuzzer: core files that lie, and VMs that lie. */
#ifndef MSP_CORE_FUZZ_H
#define MSP_CORE_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "symbols/symbols.h"
#include "target/core.h"
#include "target/snapshot.h"

/* The same for the same input, and without a pattern in what the fuzzer tries. */
uint32_t fuzz_hash(const uint8_t *data, size_t size);
struct msp_images *fuzz_images(bool luajit);
/* Asks all that can be asked of a space. */
void fuzz_space(struct msp_space *space, struct msp_images *images, const struct msp_core *core);
/* Names the first frames of a stack, and checks what came of it. */
void fuzz_name_stack(struct msp_symbolizer *symbols, const struct msp_raw_frame *frames,
	const struct msp_variables *variables, size_t count);

/* core_lies.c: with a core of a LuaJIT, words of which are lies. */
void fuzz_lies_begin(const char *path);
void fuzz_lies(const uint8_t *data, size_t size);

#endif

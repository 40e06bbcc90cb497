/* SPDX-License-Identifier: MIT */
#ifndef MSP_ELF_SYMBOLS_H
#define MSP_ELF_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

struct msp_image;
struct msp_symbols;

/* Whether .dynsym defines a name; *any tells whether there is a .dynsym. */
bool msp_symbols_export(struct msp_image *image, const char *name, bool *any);

void msp_symbols_free(struct msp_symbols *symbols);
/* About how much memory they take. NULL: none. */
uint64_t msp_symbols_memory(const struct msp_symbols *symbols);

/* Demangled C++ and Rust names, bounded in time and size; NULL if it is not a mangled name. */
char *msp_demangle(const char *name);

#endif

/* SPDX-License-Identifier: MIT */
#ifndef MSP_ELF_SYMBOLS_H
#define MSP_ELF_SYMBOLS_H

struct msp_symbols;

void msp_symbols_free(struct msp_symbols *symbols);

/* Demangled C++ and Rust names, bounded in time and size; NULL if it is not a mangled name. */
char *msp_demangle(const char *name);

#endif

/* SPDX-License-Identifier: MIT */
#ifndef MSP_ELF_SYMBOLS_H
#define MSP_ELF_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

struct msp_image;
struct msp_symbol;
struct msp_symbols;

/* Whether .dynsym defines a name; *any tells whether there is a .dynsym. */
bool msp_symbols_export(struct msp_image *image, const char *name, bool *any);

/* As msp_image_symbol(), but no PLT stub. */
int msp_symbols_at(struct msp_image *image, uint64_t addr, struct msp_symbol *out);
/* Name of the symbol in .dynsym with that number, defined or not; without a version. NULL: there is none. */
const char *msp_symbols_dynamic(struct msp_image *image, uint64_t number);

/* The PLT stub around an image-relative address: "name@plt", owned by the image. */
int msp_plt_symbol(struct msp_image *image, uint64_t addr, struct msp_symbol *out);
void msp_plt_free(struct msp_image *image);

void msp_symbols_free(struct msp_symbols *symbols);
/* About how much memory they take. NULL: none. */
uint64_t msp_symbols_memory(const struct msp_symbols *symbols);

/* Demangled C++ and Rust names, bounded in time and size; NULL if it is not a mangled name. */
char *msp_demangle(const char *name);

#endif

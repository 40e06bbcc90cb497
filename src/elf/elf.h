/* SPDX-License-Identifier: MIT */
/* ELF images: build ids, symbols, unwind rows. User space only; every byte of a file is hostile. */
#ifndef MSP_ELF_H
#define MSP_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/memory.h"
#include "unwind/tables.h"

struct msp_image;

/* What tells two files apart. From the file itself: copies in containers share their tables. */
#define MSP_IMAGE_KEY_SIZE 64
struct msp_image_key {
	/* "b-<hex build id>", else "f-<dev>-<inode>-<mtime>-<size>" */
	char text[MSP_IMAGE_KEY_SIZE];
};

struct msp_image_options {
	const char *root; /* the target's root, for its debug files; NULL = "/" */
	/*
	 * Where compiled tables are kept; NULL = no cache on disk. Made if only the
	 * last part is missing; not used unless it is ours and nobody else's to write.
	 */
	const char *cache_dir;
	const char *name; /* path as the target calls it, for messages and object names */
};

/*
 * An image is used by one thread at a time; different images by any number.
 *
 * Opens an image. Takes over fd (closes it in any case). Cheap: reads headers
 * and notes only. *out must be freed with msp_image_close().
 * MSP_E_FORMAT: not an ELF file that this machine could run.
 */
int msp_image_open_fd(int fd, const struct msp_image_options *opts, struct msp_image **out);
/* The same from bytes in memory (vdso); copies them. */
int msp_image_open_memory(const void *bytes, size_t size, const struct msp_image_options *opts,
			  struct msp_image **out);
void msp_image_close(struct msp_image *image);

int msp_image_key_fd(int fd, struct msp_image_key *key);
/* Opens a file for reading below a root, which links in its path cannot lead out of; -1: no. */
int msp_open_in_root(const char *root, const char *path);
const struct msp_image_key *msp_image_key(const struct msp_image *image);
const char *msp_image_name(const struct msp_image *image);
/*
 * False: what the memory has at the image-relative address 0 = base is another
 * image, or none, by its build id. An image without one is taken to be there.
 */
bool msp_image_is_mapped(const struct msp_image *image, const struct msp_memory *mem, uint64_t base);
const char *msp_image_build_id(const struct msp_image *image); /* hex, "" if none */
int msp_image_arch(const struct msp_image *image); /* enum msp_arch, or MSP_E_UNSUPPORTED */
uint64_t
msp_image_min_vaddr(const struct msp_image *image); /* lowest PT_LOAD vaddr, page-aligned down */

/* File offset -> image-relative address (vaddr - min_vaddr), code first; false if not mapped. */
bool msp_image_offset_to_addr(const struct msp_image *image, uint64_t offset, uint64_t *addr);

/* Is a part of [offset, offset + size) of the file in an executable segment? */
bool msp_image_offset_executable(const struct msp_image *image, uint64_t offset, uint64_t size);

/* Is an image-relative address in a section of code? Segments of code have tables, too. True without sections. */
bool msp_image_is_code(struct msp_image *image, uint64_t addr);

/* Bytes at an image-relative address; how many are there is in *avail. NULL if not in the file. */
const void *msp_image_bytes(const struct msp_image *image, uint64_t addr, size_t *avail);
/* Frees what these calls have read of the file: all bytes they returned are no more. */
void msp_image_drop_bytes(struct msp_image *image);
/* About how much memory the image takes. */
uint64_t msp_image_memory(const struct msp_image *image);

/*
 * Unwind rows: compiled at the first call, or read from the cache. Owned by
 * the image. rules[0] is MSP_CFA_NONE. An image without any is no error:
 * row_count 0.
 */
struct msp_unwind_table {
	const struct msp_row *rows;
	uint32_t row_count;
	const struct msp_rule *rules;
	uint32_t rule_count;
	const uint32_t *functions; /* where functions that have an FDE start, ascending */
	uint32_t function_count;
	bool from_cache;
};
int msp_image_unwind(struct msp_image *image, const struct msp_unwind_table **out);
/* The last row at or before an image-relative address; NULL: there is none. */
const struct msp_row *msp_unwind_row(const struct msp_unwind_table *table, uint64_t addr);

/*
 * Replaces the rows in [start, end) by others (the interpreter block, analysed
 * by src/luajit); rows and rules are copied, rule numbers are indices of the
 * given rules. msp_image_unwind() shows the result from then on. The disk
 * cache keeps the table without it.
 */
int msp_image_overlay(struct msp_image *image, uint32_t start, uint32_t end,
		      const struct msp_row *rows, uint32_t row_count, const struct msp_rule *rules,
		      uint32_t rule_count);

/*
 * A number of the caller's that is kept with the table on disk, for what else takes long to find out
 * about a file. 0: none, or the table was not read from there.
 */
uint32_t msp_image_note(const struct msp_image *image);
void msp_image_set_note(struct msp_image *image, uint32_t note);

/*
 * Bytes of the caller's that are kept in the cache beside the image's table, under a kind: MSP_CACHE_*.
 * stamp: what they depend on besides the file. Read: NULL if there are none, else to be freed;
 * damaged ones are none. Written: nothing happens if it fails.
 */
#define MSP_CACHE_LUAJIT "luajit"
void *msp_image_cache_read(struct msp_image *image, const char *kind, uint32_t stamp, size_t *size);
void msp_image_cache_write(struct msp_image *image, const char *kind, uint32_t stamp,
			   const void *bytes, size_t size);

/* The function around an image-relative address. name is demangled, owned by the image. */
struct msp_symbol {
	const char *name;
	uint64_t addr, size;
};
int msp_image_symbol(struct msp_image *image, uint64_t addr, struct msp_symbol *out);
/* Address of a symbol by its raw name, defined in .symtab, .dynsym or the debug file. */
int msp_image_find_symbol(struct msp_image *image, const char *name, struct msp_symbol *out);

/* ---- Probes (USDT): nops at which a debugger can listen ---- */

#define MSP_PROBE_PROVIDER "luajit" /* of moonspy/vm_descriptor.h */
#define MSP_PROBE_NAME 24 /* bytes: those with longer names are left out */
#define MSP_PROBE_ARGS 6
#define MSP_PROBE_NO_REG 0xff /* there is no such argument, or it is no register of 8 bytes */
#define MSP_PROBES_MAX 256    /* of a provider; further ones are left out */

struct msp_probe {
	char name[MSP_PROBE_NAME];
	uint64_t offset;	     /* in the file */
	uint8_t arg[MSP_PROBE_ARGS]; /* registers, as in unwind rows */
};

/*
 * The probes of a provider, a place each; one name can have several. Only those that lie on a nop, and have no
 * semaphore. A file without section headers has none. Returns how many; *out must be freed. MSP_E_NOMEM.
 */
int msp_image_probes(struct msp_image *image, const char *provider, struct msp_probe **out);
/* Whether a file that is open to be read has a nop of the image's architecture there. */
bool msp_image_nop_at(const struct msp_image *image, int fd, uint64_t offset);

/* ---- What a file asks the dynamic loader for ---- */

struct msp_dynamic {
	char *interpreter; /* PT_INTERP; NULL: none */
	char *search;      /* DT_RUNPATH, else DT_RPATH, as it stands there; NULL: none */
	char **needed;     /* DT_NEEDED, in their order */
	size_t needed_count;
};

/* MSP_E_NOT_FOUND: a static file. The content must be freed, also after an error. */
int msp_image_dynamic(const struct msp_image *image, struct msp_dynamic *out);
void msp_dynamic_free(struct msp_dynamic *dynamic);

#endif

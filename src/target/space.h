/* SPDX-License-Identifier: MIT */
/*
 * Address spaces: which image is mapped where in a process, and what the
 * walker has to know of it. Images are shared by all processes that map the
 * same file. Both the kernel host and the live host are fed from here.
 */
#ifndef MSP_TARGET_SPACE_H
#define MSP_TARGET_SPACE_H

#include "elf/elf.h"
#include "luajit/luajit.h"
#include "luajit/traces.h"
#include "luajit/values.h"
#include "target/host.h"
#include "target/target.h"

/* ---- Images: one registry a run. Not thread-safe. ---- */

struct msp_images;

/* Layout indices count up from 1, like the walker's. */
#define MSP_LAYOUT_NONE 0

/*
 * An image in the registry; its address never changes. It lives until msp_images_trim() frees it,
 * which it does not while a space has it mapped, nor soon after; then its index may become another's.
 */
struct msp_image_entry {
	uint32_t index;           /* from 1 */
	struct msp_image *image;
	const struct msp_unwind_table *table; /* VM rows laid over; NULL: none could be made */
	struct msp_lj_build *build;           /* NULL: no LuaJIT in it */
	int build_error;                      /* of msp_lj_build_find(); NOT_PROVED: incomplete */
	uint32_t layout;                      /* index of build's layout, or MSP_LAYOUT_NONE */
};

struct msp_images_options {
	const char *cache_dir; /* of compiled unwind tables; NULL = none */
	unsigned int threads;  /* that load images; 0 = as many as there are CPUs, at most 8 */
	bool no_luajit;        /* natively only: looks for no LuaJIT */
};

int msp_images_new(const struct msp_images_options *opts, struct msp_images **out);
void msp_images_free(struct msp_images *images);

/* By index; NULL if there is none. Indices are 1..msp_images_count(); some may be free. */
const struct msp_image_entry *msp_images_get(const struct msp_images *images, uint32_t index);
uint32_t msp_images_count(const struct msp_images *images);
/* The image whose build has that layout index; NULL if there is none. */
const struct msp_image_entry *
msp_images_by_layout(const struct msp_images *images, uint32_t layout);
/* How many with a LuaJIT in them there have been. */
uint32_t msp_images_builds(const struct msp_images *images);

/*
 * Frees images that no space has had mapped for two seconds, those not used for the longest time
 * first, until the rest of them is few and small; or all such. gone hears of each before it is
 * freed. Returns how many.
 */
typedef void (*msp_image_fn)(void *ctx, const struct msp_image_entry *entry);
uint32_t msp_images_trim(struct msp_images *images, bool all, msp_image_fn gone, void *ctx);

/* Adds a file that no process need map; closes fd. MSP_E_FORMAT: not for such a machine. */
int msp_images_add_file(struct msp_images *images, int fd, const char *name,
	const struct msp_image_entry **out);
/*
 * Adds what a command will map when it is run: its file as execvp() finds it, or
 * the interpreter that a script names, the dynamic loader, the libraries needed.
 * What is not found is left out. each, if not NULL, hears of every image. MSP_E_NOT_FOUND: there is
 * no such command.
 */
int msp_images_add_program(struct msp_images *images, const char *command, msp_image_fn each,
	void *ctx);

/* ---- The address space of one process. ---- */

struct msp_space;

/* Does not own process, which must live longer. Empty until the first refresh. */
int msp_space_new(struct msp_images *images, struct msp_process *process, struct msp_space **out);
/* The same of any host, such as a core file. */
int msp_space_new_host(struct msp_images *images, const struct msp_host *host,
	struct msp_space **out);
void msp_space_free(struct msp_space *space);

/*
 * Reads the mappings and loads images that are new. Returns 1 if anything
 * executable changed since the last call, else 0. A file that cannot be opened
 * or is no ELF file leaves its mapping without an image: MSP_MAP_UNREAD instead of MSP_MAP_FILE.
 */
int msp_space_refresh(struct msp_space *space);

/*
 * The executable mappings, sorted, not overlapping; valid until the next
 * refresh. Files and vdso: flags has MSP_MAP_FILE, image is the entry's index,
 * pc - base is the image-relative address. Anonymous executable memory, such
 * as JIT code: image 0.
 */
const struct msp_mapping *msp_space_mappings(const struct msp_space *space, size_t *count);
/* The one around pc; NULL if there is none. */
const struct msp_mapping *msp_space_find(const struct msp_space *space, uint64_t pc);
/* The same in any such list; async-signal-safe. */
const struct msp_mapping *msp_mapping_find(const struct msp_mapping *mapping, size_t count, uint64_t pc);
/* Its name as in /proc/PID/maps, "" for anonymous memory; valid until the next refresh. */
const char *
msp_space_mapping_name(const struct msp_space *space, const struct msp_mapping *mapping);
/*
 * Addresses of the image-relative address 0: one, but a file can be mapped several times (dlmopen).
 * Returns how many; 0: the image is not mapped.
 */
#define MSP_MAX_BASES 8
size_t msp_space_image_bases(const struct msp_space *space, uint32_t image, uint64_t base[MSP_MAX_BASES]);

/* All mappings of the last refresh. */
const struct msp_maps *msp_space_maps(const struct msp_space *space);
struct msp_images *msp_space_images(const struct msp_space *space);
const struct msp_host *msp_space_host(const struct msp_space *space);
/* NULL if the host is no process. */
struct msp_process *msp_space_process(const struct msp_space *space);

/* ---- The VMs in it. ---- */

struct msp_vm {
	uint64_t g;          /* address of the global_State */
	uint32_t image;      /* whose build it runs */
	uint32_t layout;     /* MSP_LAYOUT_NONE if the build is incomplete */
	uint64_t image_base;
	struct msp_lj_proof proof; /* .heap: names and objects may be read */
	bool listed;         /* the build's own list of live VMs has it (moonspy/vm_descriptor.h) */
	bool gone;           /* was proved once and is no more, or never was one */
	uint64_t tried_ns;   /* when it was proved, or failed */
	struct msp_lj_values *values; /* made at the first msp_space_vm_values() */
	struct msp_lj_names *names; /* made at the first msp_space_vm_names() */
	uint64_t names_generation;  /* of the mappings that names knows */
	struct msp_lj_traces *traces; /* made at the first msp_space_vm_traces() */
};

/*
 * Looks for global states of the builds in this space, and proves each: in the list that a build with
 * the VM descriptor keeps; through writable anonymous memory if there is none, or what is in it is not
 * all right. Reads only pages that are there, so it never makes the target bigger. Earlier ones are
 * proved again, keep their names and their addresses, and stay in the list when they are gone. Returns
 * the list's length.
 */
int msp_space_find_vms(struct msp_space *space);
const struct msp_vm *msp_space_vms(const struct msp_space *space, size_t *count);
/* The VM of a global state the walker met, proved and added if it is new; NULL if it is none. */
const struct msp_vm *msp_space_vm_at(struct msp_space *space, uint32_t layout, uint64_t g);
/* One that was proved; NULL: that address is none, or nobody has looked. */
const struct msp_vm *msp_space_vm_known(const struct msp_space *space, uint64_t g);
/* As by msp_space_vm_at(), of which only the address is told: of whichever build. */
const struct msp_vm *msp_space_vm_told(struct msp_space *space, uint64_t g);
/* It says that it is closed. If it is not, the next one who meets it finds that out. */
void msp_space_vm_closed(struct msp_space *space, uint64_t g);
/*
 * What the walker is told of the LuaJITs in it: each build, by where it is
 * mapped; of one without GC64, whose compiled code has no register that tells
 * its VM, each VM known and proved. Returns how many.
 */
struct msp_host_vm {
	uint32_t layout;
	uint64_t base;
	uint64_t g; /* 0: of a build */
};
size_t msp_space_host_vms(const struct msp_space *space, struct msp_host_vm out[MSP_MAX_HOST_VMS]);
/* Finds the VMs that are to be told, if there is such a build. */
int msp_space_find_host_vms(struct msp_space *space);

struct msp_lj_names *msp_space_vm_names(struct msp_space *space, const struct msp_vm *vm);
/* Reads its values; NULL: out of memory. */
struct msp_lj_values *msp_space_vm_values(struct msp_space *space, const struct msp_vm *vm);
struct msp_lj_traces *msp_space_vm_traces(struct msp_space *space, const struct msp_vm *vm);

#endif

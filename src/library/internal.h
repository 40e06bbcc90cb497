/* SPDX-License-Identifier: MIT */
/* Behind the handles of moonspy/moonspy.h; for the files of this folder. */
#ifndef MSP_LIBRARY_INTERNAL_H
#define MSP_LIBRARY_INTERNAL_H

#include "moonspy/moonspy.h"
#include "symbols/symbols.h"
#include "target/core.h"
#include "target/snapshot.h"
#include "target/space.h"

/* What targets have in common that share. */
struct lib_registry {
	struct msp_images *images;
	struct msp_kernel_symbols *kernel; /* NULL: kernel frames get no names */
	unsigned int users;
};

struct lib_reader;

struct msp_target {
	struct lib_registry *registry;
	char *exe, *sysroot;
	struct msp_process *process; /* one of these three, once it is open */
	struct msp_core *core;
	struct lib_reader *reader;
	bool self;
	bool few_vms; /* only those that the walker must be told of are looked for: all takes long */
	struct msp_space *space; /* NULL: not open */
	struct msp_symbolizer *symbols;
	struct msp_walker *walker; /* made at the first unwinding */
	uint32_t *file;		   /* images of msp_target_add_file() */
	size_t files;
	char error[512];

	/* What was handed out last. */
	struct msp_target_info info;
	struct msp_build build;
	struct msp_vm_info vm;
	struct msp_evidence evidence;
	struct msp_check check;
	char check_name[32];
	struct msp_gap gap;
	char probe[MSP_PROBE_NAME];
};

/* Keeps the words, returns the code. */
int lib_error(struct msp_target *target, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Is a sized struct of the caller's one that this library knows? Copies what there is of it; zeroes the rest. */
bool lib_take(void *to, size_t to_size, const void *from);

/* target.c: the VMs, all or few. */
int lib_find_vms(struct msp_target *target);
/* Of a target that could not be opened: what is native can be named. */
int lib_prepare_names(struct msp_target *target);

/* reader.c */
int lib_reader_new(const struct msp_reader *from, struct lib_reader **out);
void lib_reader_free(struct lib_reader *reader);
const struct msp_host *lib_reader_host(const struct lib_reader *reader);

/* describe.c: the VM with that number; NULL: there is none. */
const struct msp_vm *lib_vm(const struct msp_target *target, size_t i);
size_t lib_count_vms(const struct msp_target *target);
size_t lib_count_builds(const struct msp_target *target);

/* ---- Backtraces ---- */

struct lib_chunk;

struct msp_backtrace {
	struct msp_target *target;
	const struct msp_raw_frame *raw; /* own, or a dump's */
	size_t raws;
	uint32_t reason; /* enum msp_error_reason */
	struct msp_raw_frame *own;
	size_t own_room;
	const struct msp_variables *variables; /* of each raw frame; NULL: not asked for */

	struct msp_raw_frame *full; /* with what is inlined */
	uint32_t *from;		    /* of each of them: its place in raw, or MSP_NOT_ON_STACK */
	struct msp_frame *frame;    /* those with names; */
	uint32_t *place;	    /* of each of them: its place in full */
	size_t full_room, frames;
	struct lib_chunk *text;	    /* their strings */
	struct msp_frame function;  /* of msp_backtrace_function() */
};

/* A dump's: raw frames and variables are not its own. */
int lib_backtrace_of(struct msp_target *target, const struct msp_raw_frame *raw, size_t count,
		     int reason, const struct msp_variables *variables,
		     struct msp_backtrace **out);

#endif

/* SPDX-License-Identifier: MIT */
/* Inside of a core file, shared by core*.c. */
#ifndef MSP_TARGET_CORE_INTERNAL_H
#define MSP_TARGET_CORE_INTERNAL_H

#include "elf/elf.h"
#include "target/core.h"

/* More of any of them is refused, or left out: no real process comes near. */
#define MSP_CORE_SEGMENTS_MAX (1u << 20)
#define MSP_CORE_THREADS_MAX (1u << 17)
#define MSP_CORE_FILE_NOTE_MAX (64u << 20)

/* A PT_LOAD. [start, filled) is in the core, [filled, end) is not. */
struct core_segment {
	uint64_t start, filled, end;
	uint64_t offset; /* of start, in the core */
	uint8_t prot;    /* PROT_* */
};

/* A line of NT_FILE. */
struct core_line {
	uint64_t start, end, offset;
	uint32_t file;
};

/* A mapped file. */
struct core_file {
	const char *name; /* without " (deleted)"; in file_note, or static */
	bool deleted, exe;
	bool looked; /* for it: fd and why are known */
	bool unchecked; /* found by its path; the core has no build id to compare with */
	struct msp_image *head; /* its first bytes, as the core has them; NULL: it has not, or no ELF */
	int fd;      /* -1: not found */
	char why[MSP_CORE_WHY_SIZE]; /* not found: why */
};

struct msp_core {
	int fd;
	uint64_t size;
	int arch;
	char *exe, *sysroot;

	struct core_segment *segment; /* ascending, not overlapping */
	size_t segments, last_segment; /* the one that was read last */
	uint64_t missing; /* bytes that the core should have, and is too short for */

	struct core_line *line; /* ascending by start */
	size_t lines;
	struct core_file *file;
	size_t files;
	char *file_note; /* the names are in it */
	bool file_note_seen;
	bool notes_cut; /* not all notes could be read */

	struct msp_core_thread *thread;
	size_t threads, thread_room;
	struct msp_core_signal signal;
	bool siginfo_seen, prpsinfo_seen;
	pid_t pid;
	char comm[17], command[81];
	/* Of the auxiliary vector; 0: not there. */
	uint64_t vdso, entry, stack, phdr, phnum, execfn;

	struct msp_core_gap *gap;
	size_t gaps;

	struct msp_memory memory;
	struct msp_host host;
};

/* Exactly size bytes of the core file at an offset. */
int core_read_file(const struct msp_core *core, uint64_t offset, void *buf, size_t size);
int core_pread(int fd, uint64_t offset, void *buf, size_t size);

/* core_inflate.c: a file without a name; or an error. */
int core_temporary(void);
/* Is it compressed? Then *fd is closed and becomes the decompressed file. */
int core_inflate(int *fd, char why[MSP_CORE_WHY_SIZE]);

/* core_elf.c: headers, segments, and the notes. */
int core_read_headers(struct msp_core *core, char why[MSP_CORE_WHY_SIZE]);
/* core_notes.c: a PT_NOTE segment. */
int core_read_notes(struct msp_core *core, uint64_t offset, uint64_t size);
void core_sort_lines(struct msp_core *core);
/* core_modules.c: files and their lines of a core that has no list of them. */
int core_find_modules(struct msp_core *core);

/* core_memory.c */
const struct core_segment *core_segment_at(struct msp_core *core, uint64_t addr);
const struct core_line *core_line_at(const struct msp_core *core, uint64_t addr);
int core_read(void *ctx, uint64_t addr, void *buf, size_t size);
void core_present(void *ctx, uint64_t start, uint64_t end,
	void (*each)(void *arg, uint64_t start, uint64_t end), void *arg);

/* core_maps.c: the mappings, made of segments and NT_FILE. */
int core_maps(void *ctx, struct msp_maps *out);

/* core_files.c: which file is it, where is it, and what the core itself has of it. */
int core_open_map(void *ctx, const struct msp_map *map, bool *partial);
int core_describe_files(struct msp_core *core);
void core_free_files(struct msp_core *core);
/* Its build id in hexadecimal as the core has it; "" unknown. */
const char *core_build_id(const struct core_file *file);
/* Is [offset, offset + size) of a file executable, by the program headers that the core has of it? */
bool core_file_executable(const struct core_file *file, uint64_t offset, uint64_t size);
/* core_partial.c */
int core_partial_file(struct msp_core *core, uint32_t file);

#endif

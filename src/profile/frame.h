/* SPDX-License-Identifier: MIT */
/* A frame with its names, as profiles, dumps and outputs hold it. */
#ifndef MSP_PROFILE_FRAME_H
#define MSP_PROFILE_FRAME_H

#include <stdbool.h>
#include <stdint.h>

/* kind, JSON name */
#define MSP_FRAME_KINDS(_) \
	_(LUA, "lua") \
	_(JIT, "jit") \
	_(INLINED, "inlined") \
	_(FAST, "fast") \
	_(CFUNCTION, "cfunction") \
	_(NATIVE, "native") \
	_(KERNEL, "kernel") \
	_(STATE, "state") \
	_(ERROR, "error")

enum msp_frame_kind {
#define _(id, name) MSP_FRAME_##id,
	MSP_FRAME_KINDS(_)
#undef _
	MSP_FRAME_KIND_COUNT
};

/*
 * Strings are NUL-terminated and may hold any other byte: outputs escape them.
 * NULL or 0 = not there. The strings belong to whoever made the frame; a
 * profile copies what it keeps.
 */
struct msp_frame {
	enum msp_frame_kind kind;
	bool certain;       /* false: an estimate inside a trace */
	bool vm;            /* NATIVE: interpreter block, shown only with --vm-frames */
	const char *name;   /* function, without decoration: "handler", "string.gsub", "main chunk", "[gc]";
			       ERROR: "[truncated]" or "[error: reason]"; NATIVE without symbol: NULL */
	const char *file;   /* Lua: chunk name, shortened as interface.md says */
	uint32_t defined;   /* Lua: line where the function is defined, 0 = main chunk */
	uint32_t line;      /* Lua: current line, 0 = unknown */
	const char *object; /* native: base name of the file, "[vdso]", "[kernel]" */
	uint64_t address;   /* native: address in the object (its virtual address); kernel: pc */
	uint32_t trace;     /* JIT, INLINED: number of the trace, 0 = unknown */
};

#endif

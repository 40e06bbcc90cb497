/* SPDX-License-Identifier: MIT */
/* The stream of Tarantool's sysprof, and what moonspy adds to it, as docs/sysprof.md has them. */
#ifndef MSP_OUTPUT_SYSPROF_FORMAT_H
#define MSP_OUTPUT_SYSPROF_FORMAT_H

#define SYSPROF_SYMBOLS_MAGIC "ljs"
#define SYSPROF_SYMBOLS_VERSION 3
#define SYSPROF_EVENTS_MAGIC "ljp"
#define SYSPROF_EVENTS_VERSION 2
#define SYSPROF_MEMORY_MAGIC "ljm" /* what stands there in a memory profile */
#define SYSPROF_RESERVED 3	   /* bytes behind a version */
#define SYSPROF_END 0x80	   /* bit of a last entry, frame or event */

/* Entries of the table of symbols. */
enum sysprof_symbol { SYSPROF_LFUNC, SYSPROF_CFUNC, SYSPROF_TRACE };

/* States of the VM: number in the stream, name in reports, name in profiles */
#define SYSPROF_STATES(_) \
	_(INTERP, NULL) \
	_(LFUNC, NULL) \
	_(FFUNC, NULL) \
	_(CFUNC, NULL) \
	_(GC, "[gc]") \
	_(EXIT, "[trace exit]") \
	_(RECORD, "[jit compiler]") \
	_(OPT, "[jit compiler]") \
	_(ASM, "[jit compiler]") \
	_(TRACE, NULL)

/* Events: a sample taken in a state, or a symbol. */
enum sysprof_event {
#define _(id, text) SYSPROF_IN_##id,
	SYSPROF_STATES(_)
#undef _
	SYSPROF_NEW_LFUNC, /* version 1: SYSPROF_NEW_CFUNC has this number, and is the only one */
	SYSPROF_NEW_CFUNC,
	SYSPROF_NEW_TRACE,
};
#define SYSPROF_STATE_COUNT (SYSPROF_IN_TRACE + 1)

/* Frames of a Lua stack. */
enum sysprof_frame { SYSPROF_FRAME_LFUNC = 1, SYSPROF_FRAME_CFUNC, SYSPROF_FRAME_FFUNC };

/*
 * What moonspy adds: C symbols at an address where no code can be, whose name is a record. Readers
 * that do not know them keep the last one as a symbol that no address has.
 */
#define SYSPROF_RECORD_ADDRESS (1ull << 62)
#define SYSPROF_RECORD_MAGIC "msp"

enum sysprof_record {
	SYSPROF_RECORD_META = 'i',   /* key, value */
	SYSPROF_RECORD_NAME = 'n',   /* pid, tid, name */
	SYSPROF_RECORD_OBJECT = 'o', /* object, build id, path */
	SYSPROF_RECORD_FRAME = 'f',  /* kind, flags, name, file, defined, line, object, address, trace */
	SYSPROF_RECORD_SAMPLE = 's', /* pid, tid, frames, as many numbers of frames, root first */
	SYSPROF_RECORD_END = 'e',    /* lost, milliseconds, interval in microseconds */
};

#endif

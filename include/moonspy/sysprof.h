/* SPDX-License-Identifier: MIT */
/*
 * The in-process profiler in C, with the names, types and return codes of Tarantool's lmisclib.h: for
 * programs that embed any LuaJIT that moonspy can prove. docs/inprocess.md is its guide; in Lua it is
 * require "moonspy.sysprof".
 *
 * A session belongs to a VM; it samples the thread that started it, by the CPU time of that thread.
 * Several VMs may be profiled at once. Functions that take a lua_State are called by the thread that
 * runs that VM, and not in signal handlers. The functions of one session are not called at once.
 */
#ifndef MOONSPY_SYSPROF_H
#define MOONSPY_SYSPROF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MSP_SYSPROF_API __attribute__((visibility("default")))

struct lua_State;

/*
 * Takes len bytes of *data; returns how many were written, fewer: errno says why, and sampling ends.
 * *data may be set to another buffer of the same size; NULL ends sampling. Tarantool calls it in a
 * signal handler. Here it is called by a thread of moonspy's own, in which all signals are blocked.
 */
typedef size_t (*luam_Sysprof_writer)(const void **data, size_t len, void *ctx);
/*
 * At the end of a session, and when one cannot be started: frees what the options named. Called by
 * the thread that starts or stops, or closes the VM, or ends the program. 0: all is well.
 */
typedef int (*luam_Sysprof_on_stop)(void *ctx, uint8_t *buf);
/*
 * Calls frame_writer for each frame of the host's stack, innermost first, until it returns NULL.
 * Called in the signal handler. NULL is moonspy's own walker, which alone gives whole stacks.
 */
typedef void (*luam_Sysprof_backtracer)(void *(*frame_writer)(int frame_no, void *addr));

#define LUAM_SYSPROF_DEFAULT 0   /* counters only */
#define LUAM_SYSPROF_LEAF 1      /* and the innermost frames */
#define LUAM_SYSPROF_CALLGRAPH 2 /* and whole stacks */

/* Samples in each state of the VM. */
struct luam_Sysprof_Counters {
	uint64_t vmst_interp; /* no VM is on the stack */
	uint64_t vmst_lfunc;  /* a Lua function, interpreted, and what the VM does for it */
	uint64_t vmst_ffunc;  /* a fast function */
	uint64_t vmst_cfunc;  /* a C function that Lua called */
	uint64_t vmst_gc;
	uint64_t vmst_exit;
	uint64_t vmst_record;
	uint64_t vmst_opt;
	uint64_t vmst_asm;
	uint64_t vmst_trace;  /* compiled code, and what it calls */
	uint64_t samples;
};

struct luam_Sysprof_Options {
	uint8_t mode;      /* LUAM_SYSPROF_* */
	uint64_t interval; /* milliseconds of CPU time */
	uint8_t *buf;      /* for the writer; of len bytes */
	size_t len;
	void *ctx;         /* for the writer and on_stop */
};

#define PROFILE_SUCCESS 0
#define PROFILE_ERRUSE 1 /* wrong options, no writer; no LuaJIT there that could be proved */
#define PROFILE_ERRRUN 2 /* the VM is being profiled already; to stop: it is not */
#define PROFILE_ERRMEM 3
#define PROFILE_ERRIO 4  /* errno says why */

/* For sessions that start later. PROFILE_ERRUSE: NULL, or a session runs. */
MSP_SYSPROF_API int luaM_sysprof_set_writer(luam_Sysprof_writer writer);
MSP_SYSPROF_API int luaM_sysprof_set_on_stop(luam_Sysprof_on_stop on_stop);
MSP_SYSPROF_API int luaM_sysprof_set_backtracer(luam_Sysprof_backtracer backtracer);
/* Modes other than LUAM_SYSPROF_DEFAULT need a writer, an on_stop and a buffer. */
MSP_SYSPROF_API int luaM_sysprof_start(struct lua_State *L, const struct luam_Sysprof_Options *options);
MSP_SYSPROF_API int luaM_sysprof_stop(struct lua_State *L);
/* Of the session that was started last, which may still run. */
MSP_SYSPROF_API int luaM_sysprof_report(struct luam_Sysprof_Counters *counters);

#ifdef __cplusplus
}
#endif

#endif

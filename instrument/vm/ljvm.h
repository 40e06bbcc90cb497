/* SPDX-License-Identifier: MIT */
/*
 * Hooks of the VM descriptor (ljvm_descriptor.h), for LuaJIT's own files. Included at the end of lj_obj.h, so by the
 * host's tools too: there must be nothing but macros and declarations. Parts can be left out of the build:
 *
 *	LJVM_NO_PROBES    no probes
 *	LJVM_NO_LIVE      no list of live VMs, and no tables of traces
 *	LJVM_NO_TABLES    no tables of traces
 *	LJVM_NO_HELPERS   no helper functions
 *	LJVM_NO_NOTE      no ELF note that tells where the descriptor is
 */
#ifndef LJVM_H
#define LJVM_H

#include "ljvm_descriptor.h"

#if !defined(__GNUC__)
/* Atomic accesses and assembler are written for gcc and clang. */
#define LJVM_NO_PROBES
#define LJVM_NO_LIVE
#endif
#if !defined(__ELF__)
#define LJVM_NO_NOTE
#endif
#if !defined(__ELF__) || !(defined(__x86_64__) || defined(__aarch64__))
#undef LJVM_NO_PROBES
#define LJVM_NO_PROBES
#endif
#if defined(LJVM_NO_LIVE) || !LJ_HASJIT
#undef LJVM_NO_TABLES
#define LJVM_NO_TABLES
#endif

#include "ljvm_probes.h"

/* ---- Live VMs ---- */

#ifndef LJVM_NO_LIVE
LJ_FUNC void ljvm_created(global_State *g, lua_State *L);
LJ_FUNC void ljvm_closed(global_State *g);
LJ_FUNC LJ_NOINLINE void ljvm_gc_changed(global_State *g, int phase);
LJ_FUNC LJ_NOINLINE void ljvm_seen(global_State *g);

#define LJVM_CREATED(g, L) ljvm_created(g, L)
#define LJVM_CLOSED(g) ljvm_closed(g)
/* Before the collector's phase changes. */
#define LJVM_GC_TO(g, phase) ljvm_gc_changed(g, phase)
#define LJVM_SEEN(g) ljvm_seen(g)
#else
#define LJVM_CREATED(g, L) LJVM_PROBE2("vm_created", g, L)
#define LJVM_CLOSED(g) LJVM_PROBE2("vm_closed", g, gcrefp((g)->mainthref, void))
#define LJVM_GC_TO(g, phase) ((void)0)
#define LJVM_SEEN(g) ((void)0)
#endif

#define LJVM_HEARTBEAT(g, L) LJVM_PROBE2("heartbeat", g, L)

/* ---- The compiler ---- */

#define LJVM_TRACE_START(J) \
	do { \
		LJVM_SEEN(J2G(J)); \
		LJVM_PROBE5("trace_start", J2G(J), (J)->cur.traceno, (J)->pc, (J)->parent, (J)->exitno); \
	} while (0)
#define LJVM_TRACE_STOP(J, T) \
	do { \
		LJVM_TABLE_DONE(J, T); \
		LJVM_PROBE6("trace_stop", J2G(J), (T)->traceno, (T)->mcode, (T)->szmcode, (T)->spadjust, \
			    mref((T)->startpc, void)); \
	} while (0)
#define LJVM_TRACE_ABORT(J, reason) \
	do { \
		if ((J)->cur.traceno) \
			LJVM_PROBE5("trace_abort", J2G(J), (J)->cur.traceno, reason, \
				    mref((J)->cur.startpc, void), (J)->pc); \
	} while (0)
#define LJVM_TRACE_FLUSH(J, number) LJVM_PROBE2("trace_flush", J2G(J), number)
#define LJVM_TRACE_FLUSH_ALL(J) \
	do { \
		LJVM_TABLE_FLUSH(J); \
		LJVM_PROBE2("trace_flush", J2G(J), 0); \
	} while (0)
#define LJVM_TRACE_EXIT(J) LJVM_PROBE3("trace_exit", J2G(J), (J)->parent, (J)->exitno)
#define LJVM_ERROR(g, L, status) LJVM_PROBE3("error_thrown", g, L, status)

/* ---- Tables of traces ---- */

#ifndef LJVM_NO_TABLES
struct jit_State;
struct GCtrace;
LJ_DATA struct ljvm_live ljvm_live;
LJ_FUNC LJ_NOINLINE void ljvm_table_begin(struct jit_State *J);
LJ_FUNC LJ_NOINLINE void ljvm_table_at(struct jit_State *J);
LJ_FUNC LJ_NOINLINE void ljvm_table_returned(struct jit_State *J, GCproto *pt, const BCIns *pc);
LJ_FUNC LJ_NOINLINE void ljvm_table_emit(struct jit_State *J, uint32_t ref);
LJ_FUNC LJ_NOINLINE void ljvm_table_like(struct jit_State *J, uint32_t ref);
LJ_FUNC LJ_NOINLINE void ljvm_table_assemble(struct jit_State *J, void *start);
LJ_FUNC LJ_NOINLINE void ljvm_table_code(struct jit_State *J, uint32_t ref, void *start);
LJ_FUNC LJ_NOINLINE void ljvm_table_done(struct jit_State *J, struct GCtrace *T);
LJ_FUNC LJ_NOINLINE void ljvm_table_flush(struct jit_State *J);
#define LJVM_IF_TABLES(call) \
	do { \
		if (LJ_UNLIKELY(__atomic_load_n(&ljvm_live.tables_on, __ATOMIC_RELAXED))) \
			call; \
	} while (0)
#define LJVM_TABLE_DONE(J, T) ljvm_table_done(J, T)
#define LJVM_TABLE_FLUSH(J) ljvm_table_flush(J)
#else
#define LJVM_IF_TABLES(call) ((void)0)
#define LJVM_TABLE_DONE(J, T) ((void)0)
#define LJVM_TABLE_FLUSH(J) ((void)0)
#endif
#define LJVM_TABLE_BEGIN(J) LJVM_IF_TABLES(ljvm_table_begin(J))
#define LJVM_TABLE_AT(J) LJVM_IF_TABLES(ljvm_table_at(J))
#define LJVM_TABLE_RETURNED(J, pt, pc) LJVM_IF_TABLES(ljvm_table_returned(J, pt, pc))
#define LJVM_TABLE_EMIT(J, ref) LJVM_IF_TABLES(ljvm_table_emit(J, ref))
#define LJVM_TABLE_LIKE(J, ref) LJVM_IF_TABLES(ljvm_table_like(J, ref))
#define LJVM_TABLE_ASSEMBLE(J, start) LJVM_IF_TABLES(ljvm_table_assemble(J, start))
#define LJVM_TABLE_CODE(J, ref, start) LJVM_IF_TABLES(ljvm_table_code(J, (uint32_t)(ref), start))

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Helper functions for tools. They touch no memory but through the reader, and their own; all that is read is checked
 * before it is used. Structures are read whole into a copy, so that members are found as the compiler has them.
 */
#ifdef LJVM_NO_HELPERS
#define LJVM_HELPERS {0}
#else
#if defined(__linux__)
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#endif

struct ljvm_whole;
extern const struct ljvm_whole ljvm_descriptor;
#if defined(__ELF__) || defined(__MACH__)
LJ_ASMF char lj_vm_asm_end[];
#else
#define lj_vm_asm_end lj_vm_asm_begin
#endif

/* Of another process with the same build: how far its copy of this object is from ours. */
static uint64_t ljvm_slide(const struct ljvm_memory *m)
{
	return m->descriptor ? m->descriptor - (uint64_t)(uintptr_t)&ljvm_descriptor : 0;
}

static int ljvm_get(const struct ljvm_memory *m, uint64_t addr, void *out, size_t size)
{
	return addr && m->read && m->read(m->context, addr, out, size) == 0 ? 0 : LJVM_E_READ;
}

/* A reference to an object, or a pointer, as LuaJIT keeps it. */
static int ljvm_get_ref(const struct ljvm_memory *m, uint64_t addr, uint64_t *out)
{
	GCRef ref;

	if (ljvm_get(m, addr, &ref, sizeof(ref)) < 0)
		return LJVM_E_READ;
	*out = (uint64_t)(uintptr_t)gcrefp(ref, void);
	return 0;
}

static int ljvm_get_pointer(const struct ljvm_memory *m, uint64_t addr, uint64_t *out)
{
	void *p;

	if (ljvm_get(m, addr, &p, sizeof(p)) < 0)
		return LJVM_E_READ;
	*out = (uint64_t)(uintptr_t)p;
	return 0;
}

static int ljvm_read_self(void *context, uint64_t addr, void *out, size_t size)
{
#if defined(__linux__) && defined(SYS_process_vm_readv)
	struct iovec local = {out, size}, remote = {(void *)(uintptr_t)addr, size};
	int saved = errno;
	long got = syscall(SYS_process_vm_readv, getpid(), &local, 1L, &remote, 1L, 0L);

	errno = saved;
	UNUSED(context);
	return got == (long)size ? 0 : -1;
#else
	UNUSED(context);
	UNUSED(addr);
	UNUSED(out);
	UNUSED(size);
	return -1;
#endif
}

/* ---- VMs ---- */

#ifndef LJVM_NO_LIVE
/* A slot as it was at one moment. */
static int ljvm_read_slot(const struct ljvm_memory *m, uint64_t addr, struct ljvm_slot *out)
{
	struct ljvm_slot again;

	if (ljvm_get(m, addr, out, sizeof(*out)) < 0 || ljvm_get(m, addr, &again, sizeof(again)) < 0)
		return LJVM_E_READ;
	if (again.serial != out->serial || again.g != out->g)
		out->g = 0;
	return 0;
}

#define LJVM_MOST_SLOTS 65536

/* A walk over the slots: where it is, and how many it has seen. */
struct ljvm_walk {
	uint64_t at;
	uint32_t i, seen;
};

static void ljvm_walk_begin(const struct ljvm_memory *m, struct ljvm_walk *walk)
{
	walk->at = (uint64_t)(uintptr_t)&ljvm_slots + ljvm_slide(m);
	walk->i = walk->seen = 0;
}

/* The next slot that has a VM. */
static int ljvm_walk_next(const struct ljvm_memory *m, struct ljvm_walk *walk, struct ljvm_slot *out)
{
	int rc;

	for (; walk->at; walk->i = 0) {
		while (walk->i < LJVM_SLOTS) {
			rc = ljvm_read_slot(m, walk->at + offsetof(struct ljvm_slots, slot) + walk->i++ * sizeof(*out), out);
			if (rc < 0)
				return rc;
			if (out->g)
				return 0;
		}
		if ((walk->seen += LJVM_SLOTS) >= LJVM_MOST_SLOTS)
			return LJVM_E_BROKEN;
		if (ljvm_get(m, walk->at + offsetof(struct ljvm_slots, next), &walk->at, sizeof(walk->at)) < 0)
			return LJVM_E_READ;
	}
	return LJVM_E_NONE;
}

/* The n-th live VM, or, if g is not 0, that one. */
static int ljvm_find_slot(const struct ljvm_memory *m, uint32_t n, uint64_t g, struct ljvm_slot *out)
{
	struct ljvm_walk walk;
	int rc;

	ljvm_walk_begin(m, &walk);
	do
		rc = ljvm_walk_next(m, &walk, out);
	while (rc == 0 && (g ? out->g != g : n-- != 0));
	return rc;
}

static int ljvm_vm(const struct ljvm_memory *m, uint32_t n, struct ljvm_vm *out)
{
	struct ljvm_slot slot;
	int rc = ljvm_find_slot(m, n, 0, &slot);

	if (rc < 0)
		return rc;
	memset(out, 0, sizeof(*out));
	out->g = slot.g;
	out->thread = slot.thread;
	out->serial = slot.serial;
	return ljvm_get_ref(m, slot.g + offsetof(global_State, mainthref), &out->main);
}
#define LJVM_VM ljvm_vm
#else
#define LJVM_VM NULL
#endif

/* Is that a coroutine of a VM? Reads it. */
static int ljvm_read_L(const struct ljvm_memory *m, uint64_t addr, uint64_t g, lua_State *out)
{
	uint64_t first, size, base;

	if (ljvm_get(m, addr, out, sizeof(*out)) < 0)
		return LJVM_E_READ;
	if (out->gct != (uint8_t)~LJ_TTHREAD || (g && (uint64_t)(uintptr_t)G(out) != g))
		return LJVM_E_BROKEN;
	first = (uint64_t)(uintptr_t)tvref(out->stack);
	size = out->stacksize;
	base = (uint64_t)(uintptr_t)out->base;
	if (!first || first % sizeof(TValue) || size > 2 * LUAI_MAXSTACK || base < first || base > first + size * sizeof(TValue))
		return LJVM_E_BROKEN;
	return 0;
}

/* Does a VM live there? Its main thread says so too. */
static int ljvm_check_g(const struct ljvm_memory *m, uint64_t g)
{
	lua_State L;
	uint64_t main;

	if (!g || g % 8)
		return LJVM_E_BROKEN;
	if (ljvm_get_ref(m, g + offsetof(global_State, mainthref), &main) < 0)
		return LJVM_E_READ;
	return ljvm_read_L(m, main, g, &L);
}

/* ---- Code ---- */

static int ljvm_in_vm(const struct ljvm_memory *m, uint64_t pc)
{
	uint64_t slide = ljvm_slide(m);

	return pc >= (uint64_t)(uintptr_t)lj_vm_asm_begin + slide && pc < (uint64_t)(uintptr_t)lj_vm_asm_end + slide;
}

#if LJ_HASJIT
static int ljvm_in_trace(const struct ljvm_memory *m, uint64_t at, uint32_t number, uint64_t pc, struct ljvm_trace *out)
{
	uint64_t mcode;
	GCtrace T;

	if (!at || ljvm_get(m, at, &T, sizeof(T)) < 0)
		return LJVM_E_READ;
	mcode = (uint64_t)(uintptr_t)T.mcode;
	if (T.gct != (uint8_t)~LJ_TTRACE || T.traceno != number || pc < mcode || pc - mcode >= T.szmcode)
		return LJVM_E_NONE;
	memset(out, 0, sizeof(*out));
	out->object = at;
	out->mcode = mcode;
	out->startpt = (uint64_t)(uintptr_t)gcrefp(T.startpt, void);
	out->startpc = (uint64_t)(uintptr_t)mref(T.startpc, void);
	out->szmcode = T.szmcode;
	out->number = number;
	out->root = T.root;
	out->link = T.link;
	out->spadjust = T.spadjust;
	out->offset = (uint32_t)(pc - mcode);
	return 0;
}

#define LJVM_AT_ONCE 128
#define LJVM_MOST_TRACES 65536

/* Looks at *left traces at most. The one that is being made is in the table too, as J->cur: it has no code yet. */
static int ljvm_find_trace(const struct ljvm_memory *m, uint64_t g, uint64_t pc, uint32_t *left, struct ljvm_trace *out)
{
	uint64_t J = g + GG_OFS(J) - GG_OFS(g), table, cur = J + offsetof(jit_State, cur);
	GCRef ref[LJVM_AT_ONCE];
	MSize count, i, n, k;
	int32_t vmstate;
	int rc;

	if (ljvm_get_pointer(m, J + offsetof(jit_State, trace), &table) < 0 ||
	    ljvm_get(m, J + offsetof(jit_State, sizetrace), &count, sizeof(count)) < 0 ||
	    ljvm_get(m, g + offsetof(global_State, vmstate), &vmstate, sizeof(vmstate)) < 0)
		return LJVM_E_READ;
	if (count > LJVM_MOST_TRACES || count > *left)
		return LJVM_E_BROKEN;
	*left -= count;
	/* The one that runs, if the state says so, and else all. */
	if (vmstate > 0 && (MSize)vmstate < count &&
	    ljvm_get(m, table + (uint32_t)vmstate * sizeof(GCRef), ref, sizeof(GCRef)) == 0 &&
	    ljvm_in_trace(m, (uint64_t)(uintptr_t)gcrefp(ref[0], void), (uint32_t)vmstate, pc, out) == 0)
		return 0;
	for (i = 0; i < count; i += n) {
		n = count - i < LJVM_AT_ONCE ? count - i : LJVM_AT_ONCE;
		if (ljvm_get(m, table + i * sizeof(GCRef), ref, n * sizeof(GCRef)) < 0)
			return LJVM_E_READ;
		for (k = 0; k < n; k++) {
			uint64_t T = (uint64_t)(uintptr_t)gcrefp(ref[k], void);

			if (!T || T == cur)
				continue;
			rc = ljvm_in_trace(m, T, i + k, pc, out);
			if (rc != LJVM_E_NONE)
				return rc;
		}
	}
	return LJVM_E_NONE;
}

static int ljvm_trace(const struct ljvm_memory *m, uint64_t g, uint64_t pc, struct ljvm_trace *out)
{
	uint32_t left = LJVM_MOST_TRACES;

	return ljvm_find_trace(m, g, pc, &left, out);
}
#define LJVM_TRACE ljvm_trace
#else
#define LJVM_TRACE NULL
static int ljvm_trace(const struct ljvm_memory *m, uint64_t g, uint64_t pc, struct ljvm_trace *out)
{
	UNUSED(m);
	UNUSED(g);
	UNUSED(pc);
	UNUSED(out);
	return LJVM_E_NONE;
}
#endif

#if !defined(LJVM_NO_LIVE) && LJ_HASJIT
/* The VM that has a trace there. If there is none, but not all could be looked at: why. */
static int ljvm_trace_owner(const struct ljvm_memory *m, uint64_t pc, uint64_t *g, struct ljvm_trace *out)
{
	uint32_t left = 16 * LJVM_MOST_TRACES;
	int rc, failed = LJVM_E_NOT_MINE;
	struct ljvm_walk walk;
	struct ljvm_slot slot;

	ljvm_walk_begin(m, &walk);
	while ((rc = ljvm_walk_next(m, &walk, &slot)) == 0) {
		rc = ljvm_find_trace(m, slot.g, pc, &left, out);
		if (rc == 0) {
			*g = slot.g;
			return LJVM_PC_TRACE;
		}
		if (rc != LJVM_E_NONE)
			failed = rc;
	}
	return rc == LJVM_E_NONE ? failed : rc;
}
#endif

static int ljvm_owner(const struct ljvm_memory *m, uint64_t pc, uint64_t *g, struct ljvm_trace *out)
{
	if (ljvm_in_vm(m, pc))
		return LJVM_PC_INTERPRETER;
#if !defined(LJVM_NO_LIVE) && LJ_HASJIT
	{
		struct ljvm_trace trace;
		uint64_t found;

		return ljvm_trace_owner(m, pc, g ? g : &found, out ? out : &trace);
	}
#else
	UNUSED(g);
	UNUSED(out);
	return LJVM_E_NOT_MINE;
#endif
}

/* ---- C frames ---- */

static int ljvm_cframe(const struct ljvm_memory *m, uint64_t sp, struct ljvm_cframe *out)
{
	uint64_t return_at = sp + CFRAME_SIZE - sizeof(void *);

	memset(out, 0, sizeof(*out));
	if (!sp || sp % sizeof(void *))
		return LJVM_E_BROKEN;
	if (ljvm_get_ref(m, sp + CFRAME_OFS_L, &out->L) < 0 || ljvm_get_ref(m, sp + CFRAME_OFS_PC, &out->pc) < 0 ||
	    ljvm_get_pointer(m, sp + CFRAME_OFS_PREV, &out->prev) < 0)
		return LJVM_E_READ;
#if LJ_TARGET_ARM64
	/* Beside the frame pointer, at the frame's end since 2023, and at its beginning before. */
	return_at = sp + (CFRAME_OFS_PREV == 0 ? CFRAME_SIZE - 8 : 8);
#endif
	if (ljvm_get_pointer(m, return_at, &out->return_address) < 0)
		return LJVM_E_READ;
	out->prev &= ~(uint64_t)3;
	out->cfa = sp + CFRAME_SIZE;
	return 0;
}

#include "ljvm_frames.c"

#define LJVM_HELPERS \
	{ \
		ljvm_read_self, LJVM_VM, ljvm_owner, ljvm_context, ljvm_frame_first, ljvm_frame_next, ljvm_function, \
			LJVM_TRACE, LJVM_PLACES, ljvm_cframe, LJVM_SET_TABLES \
	}
#endif

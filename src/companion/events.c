/* SPDX-License-Identifier: MIT */
/*
 * The VM's own events, which jit.attach() is for, as probes. There is one place for who wants events of traces: it is
 * taken only while nobody has any event, and whoever comes later has it, as without us.
 */
#include <stdlib.h>
#include <string.h>

#include "companion/companion.h"
#include "../instrument/vm/ljvm_probes.h"

#define REGISTRY (-10000) /* LUA_REGISTRYINDEX */
#define NUMBER 3	  /* LUA_TNUMBER */
#define FUNCTION 6
#define TABLE 5

/* Where a trace began whose end is not told yet: by the thread that compiles. */
static __thread struct {
	uint64_t g, number, startpc;
} begun;

/* The address of a bytecode instruction of a Lua function, which an event tells by its position. */
static uint64_t pc_of(const struct companion_lua *lua, struct lua_State *L, int function, int pos)
{
	const struct ljvm_constants *c = companion_constants();
	uint64_t fn = (uintptr_t)lua->topointer(L, function), first;

	first = fn ? companion_ref(fn + (uint64_t)c->fn_pc) : 0;
	return first ? first + (uint64_t)lua->tointeger(L, pos) * (uint64_t)c->bc_size : 0;
}

static void trace_start(const struct companion_lua *lua, struct lua_State *L, uint64_t g,
			uint64_t number)
{
	int64_t parent = lua->tointeger(L, 5), exit = lua->tointeger(L, 6);

	if (exit == -1) { /* goes on after a call that was not compiled: no parent, but an exit */
		exit = parent;
		parent = 0;
	}
	begun.g = g;
	begun.number = number;
	begun.startpc = pc_of(lua, L, 3, 4);
	companion_seen(g);
	LJVM_PROBE5("trace_start", g, number, begun.startpc, parent, exit);
}

static void trace_abort(const struct companion_lua *lua, struct lua_State *L, uint64_t g,
			uint64_t number)
{
	/* A text is that of an error that was thrown: the first of the reasons. */
	int64_t reason = lua->type(L, 5) == NUMBER ? lua->tointeger(L, 5) : 0;
	uint64_t startpc = begun.g == g && begun.number == number ? begun.startpc : 0;

	LJVM_PROBE5("trace_abort", g, number, reason, startpc, pc_of(lua, L, 3, 4));
}

static void trace_stop(uint64_t g, uint64_t number)
{
	const struct ljvm_constants *c = companion_constants();
	uint64_t J = g + (uint64_t)c->g_J, trace, mcode, startpc;
	uint32_t count = 0, szmcode = 0;
	uint16_t spadjust = 0;

	if (!companion_read(&count, J + (uint64_t)c->J_sizetrace, sizeof(count)) || number >= count)
		return;
	trace = companion_ref(companion_word(J + (uint64_t)c->J_trace) +
			      number * (c->gc64 ? 8 : 4));
	mcode = companion_word(trace + (uint64_t)c->T_mcode);
	startpc = companion_ref(trace + (uint64_t)c->T_startpc);
	companion_read(&szmcode, trace + (uint64_t)c->T_szmcode, sizeof(szmcode));
	companion_read(&spadjust, trace + (uint64_t)c->T_spadjust, sizeof(spadjust));
	LJVM_PROBE6("trace_stop", g, number, mcode, szmcode, spadjust, startpc);
}

/* The VM calls it: what happened, number of the trace, function, position in it, and more. */
static int on_trace(struct lua_State *L)
{
	const struct companion_lua *lua = companion_lua_of_vm();
	uint64_t g = lua ? companion_vm_of((uintptr_t)L) : 0, number;
	const char *what = g ? lua->tolstring(L, 1, NULL) : NULL;

	if (!what)
		return 0;
	number = (uint64_t)lua->tointeger(L, 2);
	if (!strcmp(what, "start"))
		trace_start(lua, L, g, number);
	else if (!strcmp(what, "stop"))
		trace_stop(g, number);
	else if (!strcmp(what, "abort"))
		trace_abort(lua, L, g, number);
	else if (!strcmp(what, "flush"))
		LJVM_PROBE2("trace_flush", g, 0);
	return 0;
}

/* Does anybody have an event? Leaves nothing on the stack. */
static bool is_taken(const struct companion_lua *lua, struct lua_State *L)
{
	bool taken = false;

	lua->getfield(L, REGISTRY, "_VMEVENTS");
	if (lua->type(L, -1) == TABLE) {
		lua->pushnil(L);
		while (!taken && lua->next(L, -2)) {
			taken = lua->type(L, -1) == FUNCTION;
			lua->settop(L, taken ? -3 : -2);
		}
	}
	lua->settop(L, -2);
	return taken;
}

static int attach(struct lua_State *L)
{
	const struct companion_lua *lua = companion_lua_of_vm();

	if (is_taken(lua, L))
		return 0;
	lua->getfield(L, REGISTRY, "_LOADED");
	if (lua->type(L, -1) != TABLE)
		return 0;
	lua->getfield(L, -1, "jit");
	if (lua->type(L, -1) != TABLE)
		return 0;
	lua->getfield(L, -1, "attach");
	if (lua->type(L, -1) != FUNCTION)
		return 0;
	lua->pushcclosure(L, on_trace, 0);
	lua->pushstring(L, "trace");
	lua->pcall(L, 2, 0, 0);
	return 0;
}

void companion_events(struct lua_State *L)
{
	const struct companion_lua *lua = companion_lua_of_vm();
	const char *wanted = getenv("MOONSPY_VM_EVENTS");

	if (!lua || companion_constants()->jit != 1 || (wanted && !strcmp(wanted, "0")))
		return;
	if (lua->checkstack(L, 4) && lua->cpcall(L, attach, NULL))
		lua->settop(L, -2); /* why it could not be done */
}

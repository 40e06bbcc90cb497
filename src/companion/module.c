/* SPDX-License-Identifier: MIT */
/*
 * require "moonspy.vm": the descriptor for the LuaJIT that says so, and its VM in the list. Gives a table: proved is
 * true, or why says why it is not.
 */
#include "companion/companion.h"

#define REGISTRY (-10000) /* LUA_REGISTRYINDEX */
#define NIL 0

__attribute__((visibility("default"))) int luaopen_moonspy_vm(struct lua_State *L);

static const char watched; /* its address is the key */

static int end_of_vm(struct lua_State *L)
{
	companion_closed(L);
	return 0;
}

/* Has the VM call us as it is closed: whoever closes it may not come by lua_close() of preload.c. */
static void watch(const struct companion_lua *lua, struct lua_State *L)
{
	bool is_watched;

	lua->pushlightuserdata(L, (void *)(uintptr_t)&watched);
	lua->rawget(L, REGISTRY);
	is_watched = lua->type(L, -1) != NIL;
	lua->settop(L, -2);
	if (is_watched)
		return;
	lua->pushlightuserdata(L, (void *)(uintptr_t)&watched);
	lua->newuserdata(L, 1);
	lua->createtable(L, 0, 1);
	lua->pushcclosure(L, end_of_vm, 0);
	lua->setfield(L, -2, "__gc");
	lua->setmetatable(L, -2);
	lua->rawset(L, REGISTRY);
}

int luaopen_moonspy_vm(struct lua_State *L)
{
	struct companion_lua lua;

	if (!companion_lua(__builtin_return_address(0), &lua))
		return 0;
	lua.createtable(L, 0, 2);
	if (companion_created(L)) {
		watch(&lua, L);
		companion_events(L);
		lua.pushboolean(L, 1);
		lua.setfield(L, -2, "proved");
	} else {
		lua.pushstring(L, companion_why());
		lua.setfield(L, -2, "why");
	}
	return 1;
}

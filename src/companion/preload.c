/* SPDX-License-Identifier: MIT */
/*
 * Where VMs are created and closed: these functions of Lua come to us first if we are preloaded and the program has its
 * LuaJIT in a library. Each does what it does without us, and gives what that gives.
 */
#include <errno.h>
#include <stddef.h>

#include "companion/companion.h"

#define EXPORTED __attribute__((visibility("default")))

typedef void *(*allocator)(void *ud, void *pointer, size_t old, size_t size);

EXPORTED struct lua_State *lua_newstate(allocator f, void *ud);
EXPORTED struct lua_State *luaL_newstate(void);
EXPORTED void luaL_openlibs(struct lua_State *L);
EXPORTED void lua_close(struct lua_State *L);

static struct lua_State *is_created(struct lua_State *L)
{
	int kept = errno;

	if (L)
		companion_created(L);
	errno = kept;
	return L;
}

struct lua_State *lua_newstate(allocator f, void *ud)
{
	struct lua_State *(*next)(allocator, void *) = (struct lua_State * (*)(allocator, void *))
		companion_symbol("lua_newstate", __builtin_return_address(0));

	return next ? is_created(next(f, ud)) : NULL;
}

struct lua_State *luaL_newstate(void)
{
	struct lua_State *(*next)(void) = (struct lua_State * (*)(void))
		companion_symbol("luaL_newstate", __builtin_return_address(0));

	return next ? is_created(next()) : NULL;
}

void luaL_openlibs(struct lua_State *L)
{
	void (*next)(struct lua_State *) = (void (*)(struct lua_State *))companion_symbol(
		"luaL_openlibs", __builtin_return_address(0));

	if (next)
		next(L);
	if (companion_created(L))
		companion_events(L);
}

void lua_close(struct lua_State *L)
{
	void (*next)(struct lua_State *) = (void (*)(struct lua_State *))companion_symbol(
		"lua_close", __builtin_return_address(0));

	companion_closed(L);
	if (next)
		next(L);
}

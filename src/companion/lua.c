/* SPDX-License-Identifier: MIT */
/*
 * Lua's functions. We are loaded before the program's LuaJIT, or into programs with none: what we used by name would
 * keep those from starting. So each is asked for when it is needed.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "companion/companion.h"

/* What a name means for an object that was loaded for itself alone, as modules of Python are. */
static void *symbol_there(const char *name, const void *code)
{
	Dl_info info;
	void *object, *found;

	if (!dladdr(code, &info) || !info.dli_fname)
		return NULL;
	object = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!object)
		return NULL;
	found = dlsym(object, name);
	dlclose(object);
	return found;
}

void *companion_symbol(const char *name, const void *code)
{
	/* The first but ours is what there would be without us. */
	void *found = dlsym(RTLD_NEXT, name);

	if (!found && code)
		found = symbol_there(name, code);
	dlerror();
	return found;
}

/* The VM's own object is asked first: there may be another LuaJIT, or another Lua, which others see. */
static void *function(const char *name, const void *code)
{
	void *found = symbol_there(name, code);

	if (!found)
		found = dlsym(RTLD_DEFAULT,
			      name); /* the program itself is none that can be opened by name */
	dlerror();
	return found;
}

bool companion_lua(const void *code, struct companion_lua *out)
{
	bool all = true;

#define _(name, type, args) all &= (out->name = (type(*) args)function("lua_" #name, code)) != NULL;
	COMPANION_API(_)
#undef _
	return all;
}

static struct companion_lua vm_functions;
static int vm_functions_known; /* 0: not looked for, 1: known, -1: not to be had */

const struct companion_lua *companion_lua_of_vm(void)
{
	struct companion_lua lua;

	if (!companion_ready())
		return NULL;
	if (!__atomic_load_n(&vm_functions_known, __ATOMIC_ACQUIRE)) {
		/* Whoever looks at the same time finds the same. */
		if (companion_lua(companion_addresses()->vm_code, &lua)) {
			vm_functions = lua;
			__atomic_store_n(&vm_functions_known, 1, __ATOMIC_RELEASE);
		} else {
			__atomic_store_n(&vm_functions_known, -1, __ATOMIC_RELEASE);
		}
	}
	return vm_functions_known > 0 ? &vm_functions : NULL;
}

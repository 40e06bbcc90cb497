/* SPDX-License-Identifier: MIT */
/* moonspy/sysprof.h: the C interface. */
#include <lua.h>

#include "inprocess/internal.h"

/* What sessions are started with; sysprof_lock. */
static struct session_options configured;

/* All globals of a VM have one registry. */
const void *vm_of(struct lua_State *L)
{
	return lua_topointer(L, LUA_REGISTRYINDEX);
}

static int configure(void (*set)(const struct session_options *), const struct session_options *to)
{
	if (session_runs(NULL))
		return PROFILE_ERRUSE;
	set(to);
	return PROFILE_SUCCESS;
}

static void set_writer(const struct session_options *to)
{
	configured.writer = to->writer;
}

static void set_on_stop(const struct session_options *to)
{
	configured.on_stop = to->on_stop;
}

static void set_backtracer(const struct session_options *to)
{
	configured.backtracer = to->backtracer;
}

int luaM_sysprof_set_writer(luam_Sysprof_writer writer)
{
	return writer ? configure(set_writer, &(struct session_options){.writer = writer})
		      : PROFILE_ERRUSE;
}

int luaM_sysprof_set_on_stop(luam_Sysprof_on_stop on_stop)
{
	return on_stop ? configure(set_on_stop, &(struct session_options){.on_stop = on_stop})
		       : PROFILE_ERRUSE;
}

int luaM_sysprof_set_backtracer(luam_Sysprof_backtracer backtracer)
{
	return configure(set_backtracer, &(struct session_options){.backtracer = backtracer});
}

int luaM_sysprof_start(struct lua_State *L, const struct luam_Sysprof_Options *options)
{
	struct session_options o = configured;

	o.options = *options;
	watch_vm(L);
	return session_start(vm_of(L), &o);
}

int luaM_sysprof_stop(struct lua_State *L)
{
	return session_stop(vm_of(L));
}

int luaM_sysprof_report(struct luam_Sysprof_Counters *counters)
{
	session_counters(NULL, counters);
	return PROFILE_SUCCESS;
}

/* SPDX-License-Identifier: MIT */
/*
 * The companion: the VM descriptor (moonspy/vm_descriptor.h) for a LuaJIT that was built without one. Preloaded, or
 * loaded as the Lua module moonspy.vm. When the first VM is there, its LuaJIT is found and proved by the means that
 * moonspy has for any process (find.c), and the descriptor is filled (descriptor.c). The program is never changed.
 */
#ifndef MSP_COMPANION_H
#define MSP_COMPANION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moonspy/vm_descriptor.h"

struct lua_State;
struct msp_lj_build;

/* All of the descriptor, in one piece: parts are found by their distance. */
struct companion_whole {
	struct ljvm_descriptor head;
	struct ljvm_constants constants;
	struct ljvm_addresses addresses;
	struct ljvm_helpers helpers;
};

/* ---- find.c ---- */

/* A LuaJIT that was found in the own process and proved on a VM. Lives while it is handed out. */
struct companion_found {
	const struct msp_lj_build *build;
	uint64_t base; /* address of the image-relative address 0 */
	uint64_t g;
};
typedef void (*companion_found_fn)(const struct companion_found *found);
/* Looks for the LuaJIT whose lua_State L is, and hands it to fn. 0, or MSP_E_*: then why says it in words. */
int companion_find(uint64_t L, companion_found_fn fn, char *why, size_t size);

/* ---- descriptor.c ---- */

void companion_fill(const struct companion_found *found);
/* Is it filled? */
bool companion_ready(void);
/* Its constants; to be used once it is ready. */
const struct ljvm_constants *companion_constants(void);
const struct ljvm_addresses *companion_addresses(void);
/* The list of live VMs. */
struct ljvm_live *companion_live(void);
/* Is another descriptor in this process, of a LuaJIT that has its own? */
bool companion_is_needless(void);
/* The global_State of a lua_State; 0: it is none of the LuaJIT that was proved. */
uint64_t companion_vm_of(uint64_t L);

/* Memory of the own process: false where a load would fault. Signal-safe. */
bool companion_read(void *to, uint64_t address, size_t size);
/* A reference of the VM's: 8 bytes with GC64, else 4. 0: not readable. */
uint64_t companion_ref(uint64_t address);
/* An address in the VM's structures; 0: not readable. */
uint64_t companion_word(uint64_t address);

/* ---- live.c ---- */

/* A VM is there: finds its LuaJIT if it is the first, adds the VM to the list if it is not in it. Its global_State, or 0. */
uint64_t companion_created(struct lua_State *L);
/* A VM is about to be closed. */
void companion_closed(struct lua_State *L);
/* Is a VM in the list? */
bool companion_is_live(uint64_t g);
/* The calling thread runs that VM. */
void companion_seen(uint64_t g);
/* Why no LuaJIT was proved; "": one was, or nobody has looked. */
const char *companion_why(void);

/* ---- lua.c: Lua's functions, those of the LuaJIT that has the code at an address ---- */

#define COMPANION_API(_) \
	_(checkstack, int, (struct lua_State *, int)) \
	_(cpcall, int, (struct lua_State *, int (*)(struct lua_State *), void *)) \
	_(createtable, void, (struct lua_State *, int, int)) \
	_(getfield, void, (struct lua_State *, int, const char *)) \
	_(newuserdata, void *, (struct lua_State *, size_t)) \
	_(next, int, (struct lua_State *, int)) \
	_(pcall, int, (struct lua_State *, int, int, int)) \
	_(pushboolean, void, (struct lua_State *, int)) \
	_(pushcclosure, void, (struct lua_State *, int (*)(struct lua_State *), int)) \
	_(pushlightuserdata, void, (struct lua_State *, void *)) \
	_(pushnil, void, (struct lua_State *)) \
	_(pushstring, void, (struct lua_State *, const char *)) \
	_(rawget, void, (struct lua_State *, int)) \
	_(rawset, void, (struct lua_State *, int)) \
	_(setfield, void, (struct lua_State *, int, const char *)) \
	_(setmetatable, int, (struct lua_State *, int)) \
	_(settop, void, (struct lua_State *, int)) \
	_(tointeger, intptr_t, (struct lua_State *, int)) \
	_(tolstring, const char *, (struct lua_State *, int, size_t *)) \
	_(topointer, const void *, (struct lua_State *, int)) \
	_(type, int, (struct lua_State *, int))

struct companion_lua {
#define _(name, type, args) type(*name) args;
	COMPANION_API(_)
#undef _
};

/* A function by its name, as the object with the code at that address would have it. NULL: there is none. */
void *companion_symbol(const char *name, const void *code);
/* All of them; false: some are not to be had. */
bool companion_lua(const void *code, struct companion_lua *out);
/* Those of the LuaJIT that was proved; NULL: it is not, or does not show them. */
const struct companion_lua *companion_lua_of_vm(void);

/* ---- events.c ---- */

/*
 * Has the VM of L, which is in the list, call us when its compiler begins, ends and gives up on traces, if nobody else
 * has asked for that. Throws nothing.
 */
void companion_events(struct lua_State *L);

#endif

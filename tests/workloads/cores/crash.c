/* SPDX-License-Identifier: MIT */
/*
 * usage: crash FILE.lua WHERE jit|nojit
 * Runs a Lua file that ends in a crash, with what it needs for that: a table "crash" of C
 * functions. Threads: with WHERE "threads" a second one runs a VM of its own meanwhile.
 * With CRASH_HANDLER in the environment a signal handler meets the crash first; with CRASH_GIB
 * it has so many GiB of memory.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

/* lua_State.stack and .stacksize of LuaJIT 2.1 with GC64 */
#define L_STACK 56
#define L_STACKSIZE 88

static const char *file, *where, *mode;
static volatile uintptr_t nowhere = 16;

static int crash_poke(lua_State *L)
{
	uint64_t value = (uint64_t)luaL_checknumber(L, 2);

	memcpy((void *)(uintptr_t)luaL_checknumber(L, 1), &value, sizeof(value));
	return 0;
}

/* Writes over its caller's frames, and returns into nowhere. */
__attribute__((noinline)) static int crash_smash_c(lua_State *L)
{
	volatile char *at = __builtin_frame_address(0);

	(void)L;
	for (int i = 0; i < 600; i++)
		at[i] = 0x41;
	return 0;
}

/* Writes over the Lua stack. */
static int crash_smash_lua(lua_State *L)
{
	uint64_t stack;
	uint32_t size;

	memcpy(&stack, (char *)L + L_STACK, sizeof(stack));
	memcpy(&size, (char *)L + L_STACKSIZE, sizeof(size));
	memset((void *)(uintptr_t)stack, 0x41, (size_t)size * 8);
	raise(SIGSEGV);
	return 0;
}

__attribute__((noinline)) static int crash_abort(lua_State *L)
{
	(void)L;
	*(volatile int *)nowhere = 1;
	return 0;
}

/* Calls itself until the C stack is full. */
__attribute__((noinline)) static int crash_deep(lua_State *L)
{
	volatile char room[4096];

	room[0] = lua_gettop(L) >= 0;
	return room[0] ? crash_deep(L) + 1 : 0;
}

/* A handler of the program's own, as many have: on its own stack, and it ends in abort(). */
__attribute__((noinline)) static void handler(int number)
{
	(void)number;
	abort();
}

static void catch_signals(void)
{
	static char stack[1 << 16];
	const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};

	sigaltstack(&alternative, NULL);
	sigaction(SIGSEGV, &action, NULL);
}

/* So many GiB, of which a page in 16 MiB is used: with "full", every page is. */
static void take_memory(const char *amount)
{
	size_t size = strtoul(amount, NULL, 10) << 30;
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		exit(1);
	for (size_t i = 0; i < size; i += strstr(amount, "full") ? 4096 : 16 << 20)
		memset(at + i, 'a' + (i >> 12) % 26, 4096);
}

static void run(const char *what);

static int crash_nested(lua_State *L)
{
	run(luaL_checkstring(L, 1));
	return 0;
}

static const luaL_Reg functions[] = {{"poke", crash_poke},
				     {"smash_c", crash_smash_c},
				     {"smash_lua", crash_smash_lua},
				     {"abort", crash_abort},
				     {"nested", crash_nested},
				     {"deep", crash_deep},
				     {NULL, NULL}};

static void run(const char *what)
{
	lua_State *L = luaL_newstate();

	luaL_openlibs(L);
	luaL_register(L, "crash", functions);
	lua_pop(L, 1);
	if (luaL_loadfile(L, file)) {
		fprintf(stderr, "%s\n", lua_tostring(L, -1));
		exit(1);
	}
	lua_pushstring(L, what);
	lua_pushstring(L, mode);
	lua_call(L, 2, 0);
}

static void *other(void *arg)
{
	(void)arg;
	run("sleep");
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc < 4)
		return 2;
	file = argv[1];
	where = argv[2];
	mode = argv[3];
	if (getenv("CRASH_HANDLER"))
		catch_signals();
	if (getenv("CRASH_GIB"))
		take_memory(getenv("CRASH_GIB"));
	if (!strcmp(where, "threads") && pthread_create(&thread, NULL, other, NULL))
		return 1;
	if (!strcmp(where, "threads"))
		usleep(300000);
	run(where);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * usage: vms SECONDS nested|turns|threads|passed [jit|nojit]
 *   nested   VM k's Lua calls a C function that runs VM k + 1, four deep, on one C stack
 *   turns    one thread uses many VMs in turn, and closes and makes them anew
 *   threads  every thread makes a VM, works, closes it, and again
 *   passed   a VM that threads hand to each other
 * Prints `truth NAME SECONDS` for the work in each mode.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#define NESTED 4
#define THREADS 3

static const char source[] = "local enter_next = ...\n"
			     "local function bottom(n)\n"
			     "  local x = 0\n"
			     "  for i = 1, n do x = x + i % 7 end\n"
			     "  return x\n"
			     "end\n"
			     "local function outer(n)\n"
			     "  local x = enter_next and enter_next(n) or bottom(n)\n"
			     "  return x + 1\n"
			     "end\n"
			     "return outer\n";

static lua_State *vm[NESTED];
static int jit_off;

static double seconds_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Calls the function at index 1 of a VM's stack, which stays there. */
__attribute__((noinline)) static double call_vm(lua_State *L, int n)
{
	double x;

	lua_pushvalue(L, 1);
	lua_pushinteger(L, n);
	if (lua_pcall(L, 1, 1, 0)) {
		fprintf(stderr, "%s\n", lua_tostring(L, -1));
		exit(1);
	}
	x = lua_tonumber(L, -1);
	lua_pop(L, 1);
	return x;
}

static int enter_next(lua_State *L)
{
	int k = (int)lua_tointeger(L, lua_upvalueindex(1));

	lua_pushnumber(L, call_vm(vm[k + 1], (int)lua_tointeger(L, 1)));
	return 1;
}

/* A VM with outer() at index 1. next >= 0: it calls VM next + 1. */
__attribute__((noinline)) static lua_State *make_vm(int next)
{
	lua_State *L = luaL_newstate();

	if (!L)
		exit(1);
	luaL_openlibs(L);
	if (jit_off)
		(void)luaL_dostring(L, "jit.off()");
	lua_settop(L, 0);
	if (luaL_loadbuffer(L, source, sizeof(source) - 1, "=vm")) {
		fprintf(stderr, "%s\n", lua_tostring(L, -1));
		exit(1);
	}
	if (next >= 0) {
		lua_pushinteger(L, next);
		lua_pushcclosure(L, enter_next, 1);
	} else {
		lua_pushnil(L);
	}
	lua_call(L, 1, 1);
	return L;
}

__attribute__((noinline)) static void run_nested(double end)
{
	for (int k = 0; k < NESTED; k++)
		vm[k] = make_vm(k + 1 < NESTED ? k : -1);
	while (seconds_of(CLOCK_MONOTONIC) < end)
		call_vm(vm[0], 100000);
	for (int k = 0; k < NESTED; k++)
		lua_close(vm[k]);
}

__attribute__((noinline)) static void run_turns(double end)
{
	lua_State *pool[16] = {0};

	for (unsigned i = 0; seconds_of(CLOCK_MONOTONIC) < end; i++) {
		lua_State **L = &pool[i % 16];

		if (*L && i % 5 == 0) {
			lua_close(*L);
			*L = NULL;
		}
		if (!*L)
			*L = make_vm(-1);
		call_vm(*L, 20000);
	}
	for (int i = 0; i < 16; i++)
		if (pool[i])
			lua_close(pool[i]);
}

static void *thread_main(void *end)
{
	while (seconds_of(CLOCK_MONOTONIC) < *(double *)end) {
		lua_State *L = make_vm(-1);
		double until = seconds_of(CLOCK_THREAD_CPUTIME_ID) + 0.02;

		while (seconds_of(CLOCK_THREAD_CPUTIME_ID) < until)
			call_vm(L, 100000);
		lua_close(L);
	}
	return NULL;
}

static lua_State *shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *passing_main(void *end)
{
	while (seconds_of(CLOCK_MONOTONIC) < *(double *)end) {
		pthread_mutex_lock(&lock);
		call_vm(shared, 20000);
		pthread_mutex_unlock(&lock);
		/* Lets another thread have it. */
		nanosleep(&(struct timespec){0, 50000}, NULL);
	}
	return NULL;
}

__attribute__((noinline)) static void run_threads(double end, void *(*body)(void *))
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, body, &end);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	double end = seconds_of(CLOCK_MONOTONIC) + (argc > 1 ? atof(argv[1]) : 2);
	const char *mode = argc > 2 ? argv[2] : "nested";

	jit_off = argc > 3 && !strcmp(argv[3], "nojit");
	if (!strcmp(mode, "nested")) {
		run_nested(end);
	} else if (!strcmp(mode, "turns")) {
		run_turns(end);
	} else if (!strcmp(mode, "threads")) {
		run_threads(end, thread_main);
	} else if (!strcmp(mode, "passed")) {
		shared = make_vm(-1);
		run_threads(end, passing_main);
		lua_close(shared);
	} else {
		fprintf(stderr, "usage: vms SECONDS nested|turns|threads|passed [jit|nojit]\n");
		return 2;
	}
	printf("truth outer %.6f\n", seconds_of(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}

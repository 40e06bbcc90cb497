/* SPDX-License-Identifier: MIT */
/*
 * usage: embed SECONDS [jit|nojit]
 * A program that has LuaJIT inside, and goes through it in every way that the
 * C interface has: calls, protected calls, coroutines, with more or fewer results
 * than are asked for, errors through C functions, a wrapper around all C functions,
 * finalizers, hooks that yield, and signal handlers that interrupt any of it: by a
 * timer, and when SIGUSR1 or SIGUSR2 comes from outside, one on a stack of its own.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <luajit.h>
#include <lualib.h>

static const char source[] =
	"local step, raise, collect, hooked = ...\n"
	"local function bottom(n)\n"
	"  local x = 0\n"
	"  for i = 1, n do x = x + i % 7 end\n"
	"  return x\n"
	"end\n"
	"local function level(d, n)\n"
	"  if d == 0 then return bottom(n) end\n"
	"  local x = step[d % #step + 1](level, d - 1, n)\n"
	"  return x + 1\n"
	"end\n"
	"local function paused(d, n)\n"
	"  coroutine.yield(d)\n"
	"  local x = level(d, n)\n"
	"  return x\n"
	"end\n"
	"local function failing(d)\n"
	"  if d == 0 then raise('failed') end\n"
	"  step[1](failing, d - 1)\n"
	"end\n"
	"local function on_error(message)\n"
	"  return message .. '!'\n"
	"end\n"
	"local function collected(object)\n"
	"  bottom(10)\n"
	"end\n"
	"local function lines(n)\n"
	"  local x = n\n"
	"  x = x + 1\n"
	"  return x\n"
	"end\n"
	"local function main(n)\n"
	"  local x = level(10, n)\n"
	"  for d = 0, 3 do step.protected(failing, on_error, d) end\n"
	"  for _ = 1, 10 do getmetatable(newproxy(true)).__gc = collected end\n"
	"  collect()\n"
	"  hooked(lines)\n"
	"  return x\n"
	"end\n"
	"return main, paused\n";

static double seconds_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Each of these calls its first argument with the others. */
static int call(lua_State *L)
{
	lua_call(L, lua_gettop(L) - 1, 1);
	return 1;
}

static int call_protected(lua_State *L)
{
	if (lua_pcall(L, lua_gettop(L) - 1, 1, 0))
		return lua_error(L);
	return 1;
}

/* Too many results, then too few. */
static int call_twice(lua_State *L)
{
	int count = lua_gettop(L);

	for (int i = 1; i <= count; i++)
		lua_pushvalue(L, i);
	lua_call(L, count - 1, 0);
	lua_call(L, count - 1, 30);
	lua_pop(L, 29);
	return 1;
}

/* Places in the registry. */
#define CHUNK_REF 999
#define PAUSED_REF 1000

static int call_coroutine(lua_State *L)
{
	lua_State *co = lua_newthread(L);

	lua_rawgeti(L, LUA_REGISTRYINDEX, PAUSED_REF);
	lua_pushvalue(L, 2);
	lua_pushvalue(L, 3);
	lua_xmove(L, co, 3);
	if (lua_resume(co, 2) != LUA_YIELD)
		return luaL_error(L, "no yield");
	lua_settop(co, 0);
	if (lua_resume(co, 0))
		return luaL_error(L, "%s", lua_tostring(co, -1));
	lua_xmove(co, L, 1);
	return 1;
}

/* What is called, and with what, is in the registry. */
static int protected_body(lua_State *L)
{
	double *result = lua_touserdata(L, 1);

	lua_rawgeti(L, LUA_REGISTRYINDEX, PAUSED_REF + 1);
	lua_rawgeti(L, LUA_REGISTRYINDEX, PAUSED_REF + 2);
	lua_rawgeti(L, LUA_REGISTRYINDEX, PAUSED_REF + 3);
	lua_call(L, 2, 1);
	*result = lua_tonumber(L, -1);
	return 0;
}

static int call_cpcall(lua_State *L)
{
	double result = 0;

	for (int i = 1; i <= 3; i++) {
		lua_pushvalue(L, i);
		lua_rawseti(L, LUA_REGISTRYINDEX, PAUSED_REF + i);
	}
	if (lua_cpcall(L, protected_body, &result))
		return lua_error(L);
	lua_pushnumber(L, result);
	return 1;
}

/* protected(function, handler, argument) */
static int protect(lua_State *L)
{
	lua_pushvalue(L, 2);
	lua_insert(L, 1);
	lua_remove(L, 3);
	if (!lua_pcall(L, 1, 0, 1))
		return luaL_error(L, "no error");
	return 0;
}

static int raise_error(lua_State *L)
{
	return luaL_error(L, "%s", lua_tostring(L, 1));
}

/* Only here: a finalizer could otherwise run anywhere. */
static int collect(lua_State *L)
{
	lua_gc(L, LUA_GCCOLLECT, 0);
	lua_gc(L, LUA_GCSTOP, 0);
	return 0;
}

static void yield_hook(lua_State *L, lua_Debug *ar)
{
	(void)ar;
	lua_yield(L, 0);
}

/* Line by line, by a hook that yields. */
static int run_hooked(lua_State *L)
{
	lua_State *co = lua_newthread(L);

	lua_pushvalue(L, 1);
	lua_pushinteger(L, 3);
	lua_xmove(L, co, 2);
	lua_sethook(co, yield_hook, LUA_MASKLINE, 0);
	for (int i = 0; i < 20 && lua_resume(co, i ? 0 : 1) == LUA_YIELD; i++)
		lua_settop(co, 0);
	lua_sethook(co, NULL, 0, 0);
	return 0;
}

static int wrapper(lua_State *L, lua_CFunction f)
{
	return f(L);
}

static void wrap_functions(lua_State *L, int on)
{
	lua_pushlightuserdata(L, (void *)wrapper);
	luaJIT_setmode(L, -1, LUAJIT_MODE_WRAPCFUNC | (on ? LUAJIT_MODE_ON : LUAJIT_MODE_OFF));
	lua_pop(L, 1);
}

static volatile unsigned int signals;

static void on_signal(int number)
{
	(void)number;
	for (int i = 0; i < 300; i++)
		signals += 1;
}

/* With a system call of its own. */
static void on_user_signal(int number)
{
	(void)number;
	signals += (unsigned int)getppid();
}

static void handle_user_signals(void)
{
	static char room[65536];
	stack_t own = {.ss_sp = room, .ss_size = sizeof(room)};
	struct sigaction action = {.sa_handler = on_user_signal, .sa_flags = SA_RESTART};

	sigaltstack(&own, NULL);
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR2, &action, NULL);
}

static void start_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct itimerval every = {{0, 4000}, {0, 4000}};

	sigaction(SIGVTALRM, &action, NULL);
	setitimer(ITIMER_VIRTUAL, &every, NULL);
}

static lua_State *make_vm(int jit_off)
{
	static const lua_CFunction steps[] = {call, call_protected, call_twice, call_coroutine,
					      call_cpcall};
	lua_State *L = luaL_newstate();

	if (!L)
		exit(1);
	luaL_openlibs(L);
	if (jit_off)
		luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
	if (luaL_loadbuffer(L, source, sizeof(source) - 1, "=embed"))
		exit(1);
	/* Names are found where functions are defined: the chunk stays. */
	lua_pushvalue(L, -1);
	lua_rawseti(L, LUA_REGISTRYINDEX, CHUNK_REF);
	lua_newtable(L);
	for (int i = 0; i < (int)(sizeof(steps) / sizeof(steps[0])); i++) {
		lua_pushcfunction(L, steps[i]);
		lua_rawseti(L, -2, i + 1);
	}
	lua_pushcfunction(L, protect);
	lua_setfield(L, -2, "protected");
	lua_pushcfunction(L, raise_error);
	lua_pushcfunction(L, collect);
	lua_pushcfunction(L, run_hooked);
	lua_call(L, 4, 2);
	lua_rawseti(L, LUA_REGISTRYINDEX, PAUSED_REF);
	lua_gc(L, LUA_GCSTOP, 0);
	return L;
}

int main(int argc, char **argv)
{
	double end = seconds_of(CLOCK_MONOTONIC) + (argc > 1 ? atof(argv[1]) : 2);
	lua_State *L;

	handle_user_signals();
	L = make_vm(argc > 2 && !strcmp(argv[2], "nojit"));
	start_signals();
	for (int i = 0; seconds_of(CLOCK_MONOTONIC) < end; i++) {
		wrap_functions(L, i % 2);
		lua_pushvalue(L, 1);
		lua_pushinteger(L, 1000);
		if (lua_pcall(L, 1, 0, 0)) {
			fprintf(stderr, "%s\n", lua_tostring(L, -1));
			return 1;
		}
	}
	lua_close(L);
	printf("truth main %.6f\n", seconds_of(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}

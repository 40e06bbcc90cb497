/* SPDX-License-Identifier: MIT */
/*
 * usage: processes fork COUNT MS | exec SECONDS PROGRAM ARGS...
 *   fork   forks COUNT times; each child runs Lua for MS of CPU time in the VM that it inherited
 *   exec   works natively for SECONDS, then becomes PROGRAM
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "work.h"

static const char source[] = LUA_WORK "return outer\n";

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void child_work(lua_State *L, double seconds)
{
	do {
		lua_pushvalue(L, -1);
		lua_pushinteger(L, 10000);
		if (lua_pcall(L, 1, 0, 0))
			_exit(1);
	} while (cpu_seconds() < seconds);
}

__attribute__((noinline)) static int fork_many(int count, double seconds)
{
	lua_State *L = luaL_newstate();
	int failed = 0;

	if (!L)
		return 1;
	luaL_openlibs(L);
	if (luaL_loadbuffer(L, source, sizeof(source) - 1, "=child") || lua_pcall(L, 0, 1, 0))
		return 1;
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			child_work(L, seconds);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			failed++;
	}
	lua_close(L);
	printf("forks %d failed %d\n", count, failed);
	return failed ? 1 : 0;
}

__attribute__((noinline)) static void native_work(double seconds)
{
	volatile double x = 1;

	while (cpu_seconds() < seconds)
		x = x * 1.0000001;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "fork"))
		return fork_many(atoi(argv[2]), atof(argv[3]) / 1000);
	if (argc > 3 && !strcmp(argv[1], "exec")) {
		native_work(atof(argv[2]));
		execvp(argv[3], argv + 3);
		perror(argv[3]);
		return 127;
	}
	fprintf(stderr, "usage: processes fork COUNT MS | exec SECONDS PROGRAM ARGS...\n");
	return 2;
}

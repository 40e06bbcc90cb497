/* SPDX-License-Identifier: MIT */
/*
 * host: has LuaJIT in a library, and does what standard input says, a line each, and answers "done" when it is done.
 *
 *	new N        N more VMs, made by as many threads with small stacks at once
 *	close N      the N oldest of them are closed
 *	run TEXT     TEXT is Lua for the newest
 *	fork         goes on as the child; the answer is its pid
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#define MOST 256

static lua_State *vm[MOST];
static int first, last;

static void *create(void *to)
{
	lua_State *L = luaL_newstate();

	if (L)
		luaL_openlibs(L);
	*(lua_State **)to = L;
	return NULL;
}

static void create_some(int n)
{
	pthread_t thread[MOST];
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10); /* LuaJIT needs less */
	for (int i = 0; i < n; i++)
		pthread_create(&thread[i], &small, create, &vm[last + i]);
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	last += n;
}

static void run(const char *text)
{
	if (luaL_dostring(vm[last - 1], text))
		printf("%s\n", lua_tostring(vm[last - 1], -1));
}

static void go_on_as_child(void)
{
	pid_t child = fork();

	if (child) {
		waitpid(child, NULL, 0);
		_exit(0);
	}
	printf("%d\n", (int)getpid());
}

int main(void)
{
	char line[1024];
	int n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "new %d", &n) == 1 && n > 0 && last + n <= MOST)
			create_some(n);
		else if (sscanf(line, "close %d", &n) == 1)
			for (; n && first < last; n--)
				lua_close(vm[first++]);
		else if (!strncmp(line, "run ", 4) && last > first)
			run(line + 4);
		else if (!strcmp(line, "fork\n"))
			go_on_as_child();
		puts("done");
	}
	return 0;
}

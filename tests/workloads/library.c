/* SPDX-License-Identifier: MIT */
/*
 * usage: library SECONDS LIBLUAJIT
 * Loads a LuaJIT some time after it was started: a copy of LIBLUAJIT under a random file
 * name, opened, and deleted at once; used, closed, and opened again from a fresh copy.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <lua.h>

#include "work.h"

static const char source[] = LUA_WORK "local x = outer(...)\n";

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Opens a copy of the library under a name of no meaning; NULL on failure. */
static void *open_copy(const char *path)
{
	char copy[] = "/tmp/XXXXXX";
	int from = open(path, O_RDONLY | O_CLOEXEC), to = mkstemp(copy);
	struct stat st;
	void *handle = NULL;

	if (from >= 0 && to >= 0 && !fstat(from, &st)) {
		off_t left = st.st_size;

		while (left > 0) {
			ssize_t n = sendfile(to, from, NULL, (size_t)left);

			if (n <= 0)
				break;
			left -= n;
		}
		handle = left ? NULL : dlopen(copy, RTLD_NOW | RTLD_LOCAL);
	}
	if (to >= 0)
		unlink(copy);
	close(from);
	close(to);
	return handle;
}

__attribute__((noinline)) static int use_library(void *handle, double until)
{
	lua_State *(*new_state)(void) = (lua_State * (*)(void)) dlsym(handle, "luaL_newstate");
	void (*close_state)(lua_State *) = (void (*)(lua_State *))dlsym(handle, "lua_close");
	int (*load)(lua_State *, const char *, size_t, const char *) =
		(int (*)(lua_State *, const char *, size_t, const char *))dlsym(handle,
										"luaL_loadbuffer");
	void (*push)(lua_State *, lua_Integer) =
		(void (*)(lua_State *, lua_Integer))dlsym(handle, "lua_pushinteger");
	int (*call)(lua_State *, int, int, int) =
		(int (*)(lua_State *, int, int, int))dlsym(handle, "lua_pcall");
	lua_State *L;

	if (!new_state || !close_state || !load || !push || !call)
		return 1;
	L = new_state();
	while (L && now() < until) {
		if (load(L, source, sizeof(source) - 1, "=late"))
			return 1;
		/* some milliseconds: it is not collected before it can be named */
		push(L, 1000000);
		if (call(L, 1, 0, 0))
			return 1;
	}
	close_state(L);
	return 0;
}

int main(int argc, char **argv)
{
	double start = now(), seconds = argc > 1 ? atof(argv[1]) : 2;
	volatile double x = 1;

	if (argc < 3) {
		fprintf(stderr, "usage: library SECONDS LIBLUAJIT\n");
		return 2;
	}
	while (now() < start + seconds / 8)
		x = x * 1.0000001;
	for (int round = 0; round < 4; round++) {
		void *handle = open_copy(argv[2]);

		if (!handle ||
		    use_library(handle, start + seconds / 8 + seconds * 7 / 8 * (round + 1) / 4)) {
			fprintf(stderr, "library: %s\n", dlerror());
			return 1;
		}
		dlclose(handle);
	}
	return 0;
}

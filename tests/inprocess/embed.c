/* SPDX-License-Identifier: MIT */
/*
 * Programs that embed LuaJIT and the profiler: several VMs at once, on threads; a VM that is closed,
 * a fork, an exec, an exit while they run; who had SIGPROF; the C interface. embed CASE FOLDER. Prints
 * "ok", or what is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <moonspy/sysprof.h>

int luaopen_moonspy_sysprof(lua_State *L);

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, \
				#what, errno); \
			exit(1); \
		} \
	} while (0)

static const char *folder;

static const char code[] = "local function spin(n) local x = 0 "
			   "for i = 1, n do x = x + i % 7 + #tostring(i) end return x end\n"
			   "function busy(seconds) local stop = os.clock() + seconds "
			   "while os.clock() < stop do spin(1000) end end\n"
			   "function start(path, interval) return sysprof.start{mode = 'C', "
			   "interval = interval or 1, path = path} end\n";

static lua_State *make_vm(void)
{
	lua_State *L = luaL_newstate();

	CHECK(L);
	luaL_openlibs(L);
	luaopen_moonspy_sysprof(L);
	lua_setglobal(L, "sysprof");
	CHECK(!luaL_dostring(L, code));
	return L;
}

static const char *path_of(const char *name)
{
	static __thread char path[4][300];
	static __thread int i;

	i = (i + 1) % 4;
	snprintf(path[i], sizeof(path[i]), "%s/%s.bin", folder, name);
	return path[i];
}

/* start(path): errno, 0: it runs. */
static int start(lua_State *L, const char *path)
{
	int error = 0;

	lua_getglobal(L, "start");
	lua_pushstring(L, path);
	CHECK(!lua_pcall(L, 1, 3, 0));
	if (lua_isnil(L, -3))
		error = (int)lua_tointeger(L, -1);
	else
		CHECK(lua_toboolean(L, -3));
	lua_pop(L, 3);
	return error;
}

static int stop(lua_State *L)
{
	int error = 0;

	CHECK(!luaL_loadstring(L, "return sysprof.stop()"));
	CHECK(!lua_pcall(L, 0, 3, 0));
	if (lua_isnil(L, -3))
		error = (int)lua_tointeger(L, -1);
	lua_pop(L, 3);
	return error;
}

static void busy(lua_State *L, double seconds)
{
	lua_getglobal(L, "busy");
	lua_pushnumber(L, seconds);
	CHECK(!lua_pcall(L, 1, 0, 0));
}

static long samples(lua_State *L)
{
	long n;

	CHECK(!luaL_dostring(L, "return sysprof.report().samples"));
	n = (long)lua_tointeger(L, -1);
	lua_pop(L, 1);
	return n;
}

/* Until that many more samples have been taken: CPU time may pass without a tick of the kernel's. */
static void be_sampled(lua_State *L, long more)
{
	long last = samples(L) + more;

	while (samples(L) < last)
		busy(L, 0.01);
}

static off_t size_of(const char *path)
{
	struct stat file;

	CHECK(!stat(path, &file));
	return file.st_size;
}

/* The stream is whole: its last byte is the end. */
static bool is_whole(const char *path)
{
	unsigned char last = 0;
	FILE *in = fopen(path, "r");

	CHECK(in && !fseek(in, -1, SEEK_END) && fread(&last, 1, 1, in) == 1);
	fclose(in);
	return last == 0x80;
}

/* ---- Cases ---- */

static void *vm_thread(void *name)
{
	lua_State *L = make_vm();
	const char *path = path_of(name);

	CHECK(!start(L, path));
	be_sampled(L, 50);
	CHECK(!stop(L));
	CHECK(samples(L) >= 50 && is_whole(path));
	lua_close(L);
	return NULL;
}

static void case_threads(void)
{
	static const char *const names[] = {"t0", "t1", "t2"};
	pthread_t thread[3];

	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&thread[i], NULL, vm_thread, (void *)(uintptr_t)names[i]));
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_join(thread[i], NULL));
}

/* It cannot read what is mapped, and takes nothing from those that run. */
static void fail_to_start(lua_State *L)
{
	struct rlimit was, none;

	CHECK(!getrlimit(RLIMIT_NOFILE, &was));
	none = (struct rlimit){0, was.rlim_max};
	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	CHECK(luaL_dostring(L, "assert(sysprof.start{mode = 'D'})"));
	CHECK(!setrlimit(RLIMIT_NOFILE, &was));
}

/* Two VMs on one thread, two files; one file for both is refused, and stays as it is. */
static void case_vms(void)
{
	lua_State *a = make_vm(), *b = make_vm(), *c = make_vm();
	long stopped_at;

	CHECK(!start(a, path_of("a")));
	CHECK(start(b, path_of("a")) == EBUSY);
	CHECK(!start(b, path_of("b")));
	be_sampled(a, 40);
	fail_to_start(c);
	be_sampled(b, 40);
	CHECK(!stop(a));
	stopped_at = samples(a);
	be_sampled(b, 20);
	CHECK(!stop(b));
	/* What is stopped keeps its count. */
	CHECK(samples(a) == stopped_at && stopped_at >= 40 && samples(b) >= 60);
	CHECK(is_whole(path_of("a")) && is_whole(path_of("b")));
	CHECK(!start(b, path_of("a")) && !stop(b));
	lua_close(a);
	lua_close(b);
	lua_close(c);
}

static void case_close(void)
{
	lua_State *L = make_vm(), *other = make_vm();

	for (int i = 0; i < 3; i++) {
		CHECK(!start(L, path_of("close")));
		busy(L, 0.1);
		lua_close(L);
		CHECK(is_whole(path_of("close")));
		L = make_vm();
	}
	busy(other, 0.1);
	lua_close(L);
	lua_close(other);
}

static void case_exit(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		lua_State *L = make_vm();

		CHECK(!start(L, path_of("exit")));
		busy(L, 0.1);
		exit(7); /* no lua_close() */
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	CHECK(is_whole(path_of("exit")));
}

/* The child does not write to the parent's file, may have its own, and leaves the parent alone. */
static void case_fork(void)
{
	lua_State *L = make_vm();
	int status;

	CHECK(!start(L, path_of("parent")));
	be_sampled(L, 20);
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();

		if (!pid) {
			struct sigaction now;

			CHECK(!sigaction(SIGPROF, NULL, &now) && now.sa_handler == SIG_DFL);
			CHECK(stop(L) == EINVAL);
			busy(L, 0.05);
			CHECK(!start(L, path_of("child")));
			be_sampled(L, 20);
			CHECK(!stop(L) && is_whole(path_of("child")));
			lua_close(L);
			_exit(7);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		be_sampled(L, 10);
	}
	CHECK(!stop(L) && is_whole(path_of("parent")));
	lua_close(L);
}

/* What follows an exec is not sampled, nor does it have the file. */
static void case_exec(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		lua_State *L = make_vm();

		CHECK(!start(L, path_of("exec")));
		while (size_of(path_of("exec")) <= 500)
			busy(L, 0.01);
		execl("/bin/sh", "sh", "-c",
		      "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; "
		      "ls -l /proc/$$/fd | grep -q exec.bin && exit 1; exit 7",
		      (char *)NULL);
		_exit(1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	CHECK(size_of(path_of("exec")) > 500);
}

static volatile sig_atomic_t got;
static void mine(int number)
{
	(void)number;
	got++;
}

/* Signals of others go to who had SIGPROF, and to that only once the profiler has gone. */
static void case_owner(void)
{
	lua_State *L = make_vm();
	struct sigaction action = {.sa_handler = mine, .sa_flags = SA_RESTART}, now;

	CHECK(!sigaction(SIGPROF, &action, NULL));
	CHECK(!start(L, path_of("owner")));
	be_sampled(L, 20);
	CHECK(got == 0);
	raise(SIGPROF);
	CHECK(got == 1);
	CHECK(!stop(L));
	CHECK(!sigaction(SIGPROF, NULL, &now) && now.sa_handler == mine);
	raise(SIGPROF);
	CHECK(got == 2);
	/* Who takes it while the profiler runs keeps it. */
	CHECK(!start(L, path_of("owner")));
	CHECK(!sigaction(SIGPROF, &action, NULL));
	CHECK(!stop(L));
	CHECK(!sigaction(SIGPROF, NULL, &now) && now.sa_handler == mine);
	/* Nobody: the signal that nobody wants does not end the program. */
	signal(SIGPROF, SIG_DFL);
	CHECK(!start(L, path_of("owner")));
	raise(SIGPROF);
	be_sampled(L, 20);
	CHECK(!stop(L));
	CHECK(!sigaction(SIGPROF, NULL, &now) && now.sa_handler == SIG_DFL);
	lua_close(L);
}

/* A disk that fills up while the profiler runs, a pipe that nobody reads any more. */
static void case_full(void)
{
	lua_State *L = make_vm();
	struct rlimit most;
	char path[300];
	int ends[2];

	CHECK(!pipe(ends));
	fcntl(ends[0], F_SETPIPE_SZ, 4096);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[1]);
	CHECK(!start(L, path));
	close(ends[0]);
	be_sampled(L, 1);
	busy(L, 0.5);
	CHECK(stop(L) == EPIPE);
	close(ends[1]);
	CHECK(!getrlimit(RLIMIT_FSIZE, &most));
	CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){2000, most.rlim_max}));
	CHECK(!start(L, path_of("full")));
	busy(L, 0.5);
	CHECK(stop(L) == EFBIG && size_of(path_of("full")) == 2000);
	CHECK(!setrlimit(RLIMIT_FSIZE, &most));
	CHECK(!start(L, path_of("after")));
	busy(L, 0.1);
	CHECK(!stop(L) && is_whole(path_of("after")));
	lua_close(L);
}

/* ---- The C interface ---- */

struct memory {
	uint8_t buffer[4096];
	size_t written, most;
	int stops;
};

static size_t to_memory(const void **data, size_t len, void *ctx)
{
	struct memory *memory = ctx;

	CHECK(*data && len <= sizeof(memory->buffer));
	if (memory->most && memory->written + len > memory->most) {
		errno = ENOSPC;
		*data = NULL;
		return 0;
	}
	memory->written += len;
	return len;
}

static int stopped(void *ctx, uint8_t *buffer)
{
	struct memory *memory = ctx;

	if (memory)
		memory->stops++;
	(void)buffer;
	return 0;
}

static void two_frames(void *(*frame_writer)(int frame_no, void *addr))
{
	if (frame_writer(1, (void *)(uintptr_t)printf))
		frame_writer(2, (void *)(uintptr_t)luaL_newstate);
}

static void case_api(void)
{
	struct luam_Sysprof_Counters counters;
	struct memory memory = {0};
	struct luam_Sysprof_Options o = {.mode = 9, .interval = 1};
	lua_State *L = make_vm();
	uint64_t sum = 0;

	CHECK(luaM_sysprof_stop(L) == PROFILE_ERRRUN);
	CHECK(luaM_sysprof_start(L, &o) == PROFILE_ERRUSE);
	o.mode = LUAM_SYSPROF_CALLGRAPH;
	CHECK(luaM_sysprof_start(L, &o) == PROFILE_ERRUSE); /* no writer */
	CHECK(luaM_sysprof_set_writer(NULL) == PROFILE_ERRUSE);
	CHECK(luaM_sysprof_set_writer(to_memory) == PROFILE_SUCCESS);
	CHECK(luaM_sysprof_set_on_stop(stopped) == PROFILE_SUCCESS);
	CHECK(luaM_sysprof_set_backtracer(NULL) == PROFILE_SUCCESS);
	CHECK(luaM_sysprof_start(L, &o) == PROFILE_ERRUSE); /* no buffer */
	o.buf = memory.buffer;
	o.len = sizeof(memory.buffer);
	o.ctx = &memory;
	o.interval = 0;
	CHECK(luaM_sysprof_start(L, &o) == PROFILE_ERRUSE && memory.stops == 1);
	o.interval = 1;
	CHECK(luaM_sysprof_start(L, &o) == PROFILE_SUCCESS);
	CHECK(luaM_sysprof_set_writer(to_memory) == PROFILE_ERRUSE);
	be_sampled(L, 50);
	CHECK(luaM_sysprof_report(&counters) == PROFILE_SUCCESS && counters.samples >= 50);
	CHECK(luaM_sysprof_stop(L) == PROFILE_SUCCESS && memory.stops == 2);
	CHECK(memory.written > 1000);
	CHECK(luaM_sysprof_report(&counters) == PROFILE_SUCCESS);
	for (int i = 0; i < 10; i++)
		sum += ((uint64_t *)&counters)[i];
	CHECK(sum == counters.samples);
	/* A writer that fails. */
	memory = (struct memory){.most = 2000};
	CHECK(luaM_sysprof_start(L, &o) == PROFILE_SUCCESS);
	busy(L, 0.5);
	CHECK(luaM_sysprof_stop(L) == PROFILE_ERRIO && errno == ENOSPC && memory.stops == 1);
	/* A backtracer of one's own. */
	memory = (struct memory){0};
	CHECK(luaM_sysprof_set_backtracer(two_frames) == PROFILE_SUCCESS);
	CHECK(luaM_sysprof_start(L, &o) == PROFILE_SUCCESS);
	be_sampled(L, 20);
	CHECK(luaM_sysprof_stop(L) == PROFILE_SUCCESS && memory.written > 100);
	lua_close(L);
}

/* Started and stopped all the time, while others fork and load. */
static void case_loop(void)
{
	lua_State *L = make_vm();

	for (int i = 0; i < 60; i++) {
		CHECK(!start(L, path_of("loop")));
		busy(L, 0.003);
		CHECK(!stop(L));
	}
	CHECK(is_whole(path_of("loop")));
	lua_close(L);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"threads", case_threads}, {"vms", case_vms},   {"close", case_close},
		     {"exit", case_exit},	{"fork", case_fork}, {"exec", case_exec},
		     {"owner", case_owner},	{"full", case_full}, {"api", case_api},
		     {"loop", case_loop}};

	if (argc != 3)
		return 2;
	folder = argv[2];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(cases[i].name, argv[1]))
			continue;
		cases[i].run();
		puts("ok");
		return 0;
	}
	return 2;
}

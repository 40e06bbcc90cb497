/* SPDX-License-Identifier: MIT */
/* require "moonspy.sysprof": start, stop, report, as misc.sysprof of Tarantool has them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#include "inprocess/internal.h"

#define BUFFER_SIZE (64 * 1024)
#define DEFAULT_INTERVAL 10
#define DEFAULT_PATH "sysprof.bin"

MSP_SYSPROF_API int luaopen_moonspy_sysprof(lua_State *L);

/* ---- The file of a session ---- */

struct output {
	int fd;
	dev_t dev;
	ino_t ino;
	struct output *next;
	uint8_t buffer[BUFFER_SIZE];
};

static struct output *outputs; /* of sessions that run */
static pthread_mutex_t outputs_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t write_output(const void **data, size_t len, void *ctx)
{
	const struct output *output = ctx;
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(output->fd, (const char *)*data + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done;
}

static int close_output(void *ctx, uint8_t *buffer)
{
	struct output *output = ctx, **at;
	int rc;

	(void)buffer;
	if (!output)
		return 0;
	pthread_mutex_lock(&outputs_lock);
	for (at = &outputs; *at; at = &(*at)->next) {
		if (*at == output) {
			*at = output->next;
			break;
		}
	}
	pthread_mutex_unlock(&outputs_lock);
	rc = close(output->fd);
	free(output);
	return rc;
}

/* Does another session write that file? */
static bool is_taken(const struct stat *file)
{
	const struct output *output;

	for (output = outputs; output; output = output->next)
		if (output->dev == file->st_dev && output->ino == file->st_ino)
			return true;
	return false;
}

/* Empties a file only once nobody else is known to write it. Returns errno. */
static int take_file(struct output *output)
{
	struct stat file;
	int error = 0;

	if (fstat(output->fd, &file))
		return errno;
	pthread_mutex_lock(&outputs_lock);
	if (S_ISREG(file.st_mode) && is_taken(&file))
		error = EBUSY;
	else if (S_ISREG(file.st_mode) && ftruncate(output->fd, 0))
		error = errno;
	if (!error) {
		output->dev = file.st_dev;
		output->ino = file.st_ino;
		output->next = outputs;
		outputs = output;
	}
	pthread_mutex_unlock(&outputs_lock);
	return error;
}

/* A pipe that nobody reads is an error, not a reason to wait. Returns errno. */
static int open_output(const char *path, struct output **out)
{
	struct output *output = calloc(1, sizeof(*output));
	int error;

	if (!output)
		return ENOMEM;
	output->fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC | O_NONBLOCK, 0644);
	error = output->fd < 0 ? errno : take_file(output);
	if (!error && fcntl(output->fd, F_SETFL, fcntl(output->fd, F_GETFL) & ~O_NONBLOCK))
		error = errno;
	if (!error) {
		*out = output;
		return 0;
	}
	if (output->fd >= 0)
		close(output->fd);
	free(output);
	return error;
}

/* ---- Results ---- */

static int push_error(lua_State *L, const char *text, int number)
{
	lua_pushnil(L);
	lua_pushstring(L, text);
	lua_pushinteger(L, number);
	return 3;
}

static int push_file_error(lua_State *L, const char *path, int number)
{
	lua_pushnil(L);
	if (path)
		lua_pushfstring(L, "%s: %s", path, strerror(number));
	else
		lua_pushstring(L, strerror(number));
	lua_pushinteger(L, number);
	return 3;
}

/* why: of a start, NULL: of a stop. */
static int push_status(lua_State *L, int status, const char *path, const char *why)
{
	int error = errno;

	switch (status) {
	case PROFILE_SUCCESS:
		lua_pushboolean(L, 1);
		return 1;
	case PROFILE_ERRRUN:
		return push_error(
			L, why ? "profiler is running already" : "profiler is not running", EINVAL);
	case PROFILE_ERRMEM:
		return push_error(L, "not enough memory", ENOMEM);
	case PROFILE_ERRIO:
		return push_file_error(L, path, error);
	default:
		if (why && why[0])
			return push_error(L, why, ENOTSUP);
		return push_error(L, "profiler misuse", EINVAL);
	}
}

/* ---- Options ---- */

static bool take_mode(lua_State *L, struct luam_Sysprof_Options *options)
{
	const char *mode;
	bool known = true;

	lua_getfield(L, 1, "mode");
	mode = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
	if (!strcmp(mode, "D"))
		options->mode = LUAM_SYSPROF_DEFAULT;
	else if (!strcmp(mode, "L"))
		options->mode = LUAM_SYSPROF_LEAF;
	else if (!strcmp(mode, "C"))
		options->mode = LUAM_SYSPROF_CALLGRAPH;
	else
		known = false;
	lua_pop(L, 1);
	return known;
}

static bool take_interval(lua_State *L, struct luam_Sysprof_Options *options)
{
	int type;
	lua_Number given;

	lua_getfield(L, 1, "interval");
	type = lua_type(L, -1);
	given = type == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
	lua_pop(L, 1);
	if (type == LUA_TNIL)
		given = DEFAULT_INTERVAL;
	if (!(given >= 1 && given <= INT32_MAX))
		return false;
	options->interval = (uint64_t)given;
	return true;
}

/* Leaves the path on the stack, where it lives. NULL: it is none. */
static const char *take_path(lua_State *L)
{
	lua_getfield(L, 1, "path");
	if (lua_isnil(L, -1))
		return DEFAULT_PATH;
	if (lua_type(L, -1) != LUA_TSTRING || strlen(lua_tostring(L, -1)) != lua_objlen(L, -1))
		return NULL;
	return lua_tostring(L, -1);
}

/* ---- The functions ---- */

static int start(lua_State *L)
{
	char why[200] = "";
	struct session_options o = {.writer = write_output,
				    .on_stop = close_output,
				    .why = why,
				    .why_size = sizeof(why),
				    .ours = true};
	struct output *output = NULL;
	const char *path = NULL;
	int error;

	if (lua_gettop(L) != 1 || !lua_istable(L, 1) || !take_mode(L, &o.options) ||
	    !take_interval(L, &o.options) ||
	    (o.options.mode != LUAM_SYSPROF_DEFAULT && !(path = take_path(L))))
		return push_error(L, "profiler misuse", EINVAL);
	if (session_runs(vm_of(L))) /* before its file is touched */
		return push_status(L, PROFILE_ERRRUN, NULL, "");
	watch_vm(L);
	if (path) {
		error = open_output(path, &output);
		if (error)
			return push_file_error(L, path, error);
		o.options.ctx = output;
		o.options.buf = output->buffer;
		o.options.len = sizeof(output->buffer);
	}
	return push_status(L, session_start(vm_of(L), &o), path, why);
}

static int stop(lua_State *L)
{
	return push_status(L, session_stop(vm_of(L)), NULL, NULL);
}

static void set_counter(lua_State *L, const char *name, uint64_t value)
{
	lua_pushnumber(L, (lua_Number)value);
	lua_setfield(L, -2, name);
}

static void set_states(lua_State *L, const struct luam_Sysprof_Counters *counters)
{
	static const char *const names[] = {
#define _(id, text) #id,
		SYSPROF_STATES(_)
#undef _
	};
	const uint64_t *value = (const uint64_t *)counters;

	for (int i = 0; i < SYSPROF_STATE_COUNT; i++)
		set_counter(L, names[i], value[i]);
}

static int report(lua_State *L)
{
	struct luam_Sysprof_Counters counters;

	session_counters(vm_of(L), &counters);
	lua_createtable(L, 0, SYSPROF_STATE_COUNT + 2);
	set_counter(L, "samples", counters.samples);
	set_states(L, &counters);
	lua_createtable(L, 0, SYSPROF_STATE_COUNT);
	set_states(L, &counters);
	lua_setfield(L, -2, "vmstate");
	return 1;
}

/* ---- The end of a VM ---- */

static const char watched; /* its address is the key */

static int end_of_vm(lua_State *L)
{
	session_stop(vm_of(L));
	return 0;
}

void watch_vm(lua_State *L)
{
	lua_pushlightuserdata(L, (void *)(uintptr_t)&watched);
	lua_rawget(L, LUA_REGISTRYINDEX);
	if (!lua_isnil(L, -1)) {
		lua_pop(L, 1);
		return;
	}
	lua_pop(L, 1);
	lua_pushlightuserdata(L, (void *)(uintptr_t)&watched);
	lua_newuserdata(L, 1);
	lua_createtable(L, 0, 1);
	lua_pushcfunction(L, end_of_vm);
	lua_setfield(L, -2, "__gc");
	lua_setmetatable(L, -2);
	lua_rawset(L, LUA_REGISTRYINDEX);
}

int luaopen_moonspy_sysprof(lua_State *L)
{
	static const luaL_Reg functions[] = {
		{"start", start}, {"stop", stop}, {"report", report}, {NULL, NULL}};

	lua_createtable(L, 0, 3);
	luaL_register(L, NULL, functions);
	return 1;
}

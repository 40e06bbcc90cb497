/* SPDX-License-Identifier: MIT */
#include "kit.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_FRAMES 400
#define MOST_LINES 256

static bool edge[MOST_LINES][MOST_LINES];
static struct {
	uint32_t caller, callee;
	int result;
} first_wrong;

void kit_die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		kit_die("no %s: %s", name, dlerror());
	return found;
}

void kit_open(struct kit *kit, const char *library)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);

	if (!handle)
		kit_die("%s", dlerror());
	kit->head = symbol(handle, "luaJIT_vm_descriptor");
	if (memcmp(kit->head->magic, LJVM_MAGIC, sizeof(kit->head->magic)) != 0 ||
	    kit->head->major != LJVM_MAJOR)
		kit_die("no descriptor of this kind");
	kit->constants = (const void *)((const char *)kit->head + kit->head->constants.offset);
	kit->addresses = (const void *)((const char *)kit->head + kit->head->addresses.offset);
	kit->helpers = (const void *)((const char *)kit->head + kit->head->helpers.offset);
	kit->newstate = symbol(handle, "luaL_newstate");
	kit->openlibs = symbol(handle, "luaL_openlibs");
	kit->loadfile = symbol(handle, "luaL_loadfile");
	kit->pushinteger = symbol(handle, "lua_pushinteger");
	kit->pcall = symbol(handle, "lua_pcall");
	kit->tolstring = symbol(handle, "lua_tolstring");
	kit->settop = symbol(handle, "lua_settop");
	kit->close = symbol(handle, "lua_close");
}

static int read_mem(void *fd, uint64_t addr, void *out, size_t size)
{
	return pread((int)(intptr_t)fd, out, size, (off_t)addr) == (ssize_t)size ? 0 : -1;
}

void kit_reader(const struct kit *kit, struct ljvm_memory *memory)
{
	char byte;

	memset(memory, 0, sizeof(*memory));
	memory->read = kit->helpers->read_self;
	if (memory->read(NULL, (uintptr_t)kit->head, &byte, 1) == 0)
		return;
	memory->context = (void *)(intptr_t)open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	memory->read = read_mem;
	if (memory->read(memory->context, (uintptr_t)kit->head, &byte, 1) != 0)
		kit_die("the own memory cannot be read");
	printf("reader: /proc/self/mem, since read_self fails here\n");
}

void kit_run(const struct kit *kit, void *L, const char *script, long rounds)
{
	if (kit->loadfile(L, script) != 0)
		kit_die("%s", kit->tolstring(L, -1, NULL));
	kit->pushinteger(L, rounds);
	if (kit->pcall(L, 1, 0, 0) != 0)
		kit_die("%s", kit->tolstring(L, -1, NULL));
	kit->settop(L, 0);
}

void kit_graph_read(const char *script)
{
	FILE *file = fopen(script, "r");
	char line[1024], *at, *end;
	unsigned long caller, callee;

	if (!file)
		kit_die("%s cannot be read", script);
	while (fgets(line, sizeof(line), file)) {
		at = strstr(line, "-- graph: ");
		for (at = at ? at + strlen("-- graph: ") : NULL; at && *at && *at != '\n';
		     at = end + strspn(end, " ")) {
			caller = strtoul(at, &end, 10);
			callee = strtoul(end + 1, &end, 10);
			if (caller < MOST_LINES && callee < MOST_LINES)
				edge[caller][callee] = true;
		}
	}
	fclose(file);
}

static void wrong(struct kit_counts *counts, uint32_t caller, uint32_t callee, int result)
{
	if (counts->wrong++ == 0) {
		first_wrong.caller = caller;
		first_wrong.callee = callee;
		first_wrong.result = result;
	}
}

static void count_failure(struct kit_counts *counts, int result)
{
	switch (result) {
	case LJVM_E_NOT_MINE:
		counts->elsewhere++;
		break;
	case LJVM_E_READ:
		counts->unread++;
		break;
	case LJVM_E_BROKEN:
		counts->broken++;
		break;
	default:
		wrong(counts, 0, 0, result);
	}
}

/* From frame to frame; every Lua function must be one of the script's, called by one that calls it. */
static int walk(const struct kit *kit, const struct ljvm_memory *memory,
		const struct ljvm_context *context, struct kit_counts *counts)
{
	const struct ljvm_helpers *helpers = kit->helpers;
	struct ljvm_function function;
	struct ljvm_frame frame;
	uint32_t callee = MOST_LINES;
	int result = helpers->frame_first(memory, context, &frame);

	if (result < 0)
		return result;
	for (unsigned int n = 0; n < MOST_FRAMES; n++) {
		counts->frames++;
		if (frame.kind == LJVM_FRAME_LUA) {
			result = helpers->function(memory, frame.pt, frame.pos, &function);
			if (result < 0)
				return result;
			if (function.chunk[0] != '@' || function.first_line >= MOST_LINES ||
			    (function.line && function.line < function.first_line) ||
			    (callee != MOST_LINES && !edge[function.first_line][callee]))
				wrong(counts, function.first_line, callee, (int)function.line);
			callee = function.first_line;
		}
		result = helpers->frame_next(memory, &frame);
		if (result <= 0)
			return result;
	}
	wrong(counts, 0, 0, MOST_FRAMES);
	return 0;
}

void kit_walk(const struct kit *kit, const struct ljvm_memory *memory,
	      const struct ljvm_registers *registers, struct kit_counts *counts)
{
	struct ljvm_context context;
	int result = kit->helpers->context(memory, registers, &context), kind = result;

	if (result >= 0)
		result = walk(kit, memory, &context, counts);
	if (result < 0)
		count_failure(counts, result);
	else if (kind == LJVM_PC_TRACE)
		counts->trace++;
	else
		counts->interpreter++;
}

void kit_judge(const struct kit_counts *c, const char *what)
{
	unsigned long whole = c->interpreter + c->trace, failed = c->broken + c->unread;

	printf("%s: %lu whole (%lu in the interpreter, %lu in traces; %lu frames), %lu in other "
	       "code, "
	       "%lu broken, %lu unreadable, %lu wrong\n",
	       what, whole, c->interpreter, c->trace, c->frames, c->elsewhere, c->broken, c->unread,
	       c->wrong);
	if (c->wrong)
		kit_die("wrong: function of line %u called from line %u (%d)", first_wrong.callee,
			first_wrong.caller, first_wrong.result);
	if (whole <= failed)
		kit_die("more failed than not");
}

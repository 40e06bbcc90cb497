/* SPDX-License-Identifier: MIT */
/*
 * usage: fiber SCRIPT SECONDS [jit|nojit]
 * What Tarantool is to who unwinds it: LuaJIT linked in, and fibers, each with a C stack of its own
 * that begins in code without unwind data. Gives the script Tarantool's functions fiber.create,
 * fiber.yield and fiber.sleep. arm64.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lauxlib.h"
#include "lualib.h"

#define STACK_SIZE (256 << 10)
#define MAX_FIBERS 16
#define SAVED 20 /* words that fiber_switch has on a stack: x19 to x30, d8 to d15 */

/* Leaves its registers at *from, and goes on with those at to. */
void fiber_switch(uint64_t **from, uint64_t *to);
void fiber_start(void);

/*
 * Where a fiber begins nothing has called it, and no row says so; with START_HAS_ROWS one says that it returns
 * to address 0, as Tarantool's do.
 */
__asm__("	.text\n"
	"	.globl fiber_switch\n"
	"	.type fiber_switch, %function\n"
	"fiber_switch:\n"
	"	.cfi_startproc\n"
	"	sub sp, sp, #160\n"
	"	.cfi_def_cfa_offset 160\n"
	"	stp x19, x20, [sp]\n"
	"	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n"
	"	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n"
	"	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n"
	"	.cfi_offset x19, -160\n"
	"	.cfi_offset x20, -152\n"
	"	.cfi_offset x21, -144\n"
	"	.cfi_offset x22, -136\n"
	"	.cfi_offset x23, -128\n"
	"	.cfi_offset x24, -120\n"
	"	.cfi_offset x25, -112\n"
	"	.cfi_offset x26, -104\n"
	"	.cfi_offset x27, -96\n"
	"	.cfi_offset x28, -88\n"
	"	.cfi_offset x29, -80\n"
	"	.cfi_offset x30, -72\n"
	"	mov x2, sp\n"
	"	str x2, [x0]\n"
	"	mov sp, x1\n"
	"	ldp x19, x20, [sp]\n"
	"	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n"
	"	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n"
	"	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n"
	"	.cfi_def_cfa_offset 0\n"
	"	.cfi_restore x19\n"
	"	.cfi_restore x20\n"
	"	.cfi_restore x21\n"
	"	.cfi_restore x22\n"
	"	.cfi_restore x23\n"
	"	.cfi_restore x24\n"
	"	.cfi_restore x25\n"
	"	.cfi_restore x26\n"
	"	.cfi_restore x27\n"
	"	.cfi_restore x28\n"
	"	.cfi_restore x29\n"
	"	.cfi_restore x30\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size fiber_switch, . - fiber_switch\n"
	"	.globl fiber_start\n"
	"	.type fiber_start, %function\n"
	"fiber_start:\n"
#ifdef START_HAS_ROWS
	"	.cfi_startproc\n"
	"	mov x30, #0\n"
	"	str x30, [sp, #-16]!\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset x30, -16\n"
#endif
	"	mov x0, x20\n"
	"	blr x19\n"
	"	brk #0\n"
#ifdef START_HAS_ROWS
	"	.cfi_endproc\n"
#endif
	"	.size fiber_start, . - fiber_start\n");

static struct fiber {
	uint64_t *sp;
	lua_State *L;
} fibers[MAX_FIBERS];
static uint64_t *scheduler;
static int fiber_count, current;

static int nothing(lua_State *L)
{
	(void)L;
	return 0;
}

/* The others have run meanwhile: LuaJIT learns who runs now. */
static void back(lua_State *L)
{
	if (lua_cpcall(L, nothing, NULL))
		exit(1);
}

__attribute__((noinline)) static void fiber_main(struct fiber *f)
{
	if (lua_pcall(f->L, lua_gettop(f->L) - 1, 0, 0))
		fprintf(stderr, "%s\n", lua_tostring(f->L, -1));
	exit(1); /* a worker does not end */
}

static int fiber_create(lua_State *L)
{
	struct fiber *f = &fibers[fiber_count];
	char *stack = malloc(STACK_SIZE);

	if (!stack || fiber_count++ == MAX_FIBERS)
		return luaL_error(L, "no more fibers");
	f->L = lua_newthread(L);
	luaL_ref(L, LUA_REGISTRYINDEX);
	lua_xmove(L, f->L, lua_gettop(L));
	f->sp = (uint64_t *)(stack + STACK_SIZE) - SAVED;
	memset(f->sp, 0, SAVED * 8);
	f->sp[0] = (uint64_t)fiber_main;
	f->sp[1] = (uint64_t)f;
	f->sp[11] = (uint64_t)fiber_start;
	return 0;
}

static int fiber_yield(lua_State *L)
{
	fiber_switch(&fibers[current].sp, scheduler);
	back(L);
	return 0;
}

static int fiber_sleep(lua_State *L)
{
	double end = (double)clock() + luaL_checknumber(L, 1) * CLOCKS_PER_SEC;

	for (int round = 0; (double)clock() < end; round++) {
		for (current = 0; current < fiber_count; current++)
			fiber_switch(&scheduler, fibers[current].sp);
		if (round == 0) {
			printf("ready\n");
			fflush(stdout);
		}
	}
	back(L);
	return 0;
}

static int open_fiber(lua_State *L)
{
	static const luaL_Reg functions[] = {{"create", fiber_create},
					     {"yield", fiber_yield},
					     {"sleep", fiber_sleep},
					     {NULL, NULL}};

	luaL_register(L, "fiber", functions);
	return 1;
}

int main(int argc, char **argv)
{
	lua_State *L = luaL_newstate();

	if (!L || argc < 3)
		return 2;
	luaL_openlibs(L);
	lua_pushcfunction(L, open_fiber);
	lua_call(L, 0, 0);
	lua_createtable(L, 2, 0);
	for (int i = 2; i < argc; i++) {
		lua_pushstring(L, argv[i]);
		lua_rawseti(L, -2, i - 1);
	}
	lua_setglobal(L, "arg");
	if (luaL_loadfile(L, argv[1]) || lua_pcall(L, 0, 0, 0)) {
		fprintf(stderr, "%s\n", lua_tostring(L, -1));
		return 1;
	}
	return 0;
}

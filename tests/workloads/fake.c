/* SPDX-License-Identifier: MIT */
/*
 * usage: fake SECONDS LIBLUAJIT
 * Runs an honest LuaJIT, and looks like others that are none. Its own code has the shape of an
 * interpreter, with the table of its pieces, and the names of the C interface. Copies of a global
 * state lie around, moved and spoilt, and change all the time. Threads spin inside the interpreter
 * of a second LuaJIT with registers that point at all that.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#define STATE_WORDS 1536 /* of a main thread and its global state: enough for the start of any */
#define LIES 8
#define STACK_WORDS 512
#define FUNCTION_TAG 0xfffb800000000000ULL

/* Pieces that end in the dispatch idiom, and the table of their offsets: 24 bytes each. */
__asm__(".text\n.balign 32\n.globl lj_vm_asm_begin\nlj_vm_asm_begin:\n"
	".rept 120\n"
	"  mov (%rdx,%rcx,8),%r11\n  mov (%rbx),%eax\n  movzbl %ah,%ecx\n  movzbl %al,%ebp\n"
	"  add $4,%rbx\n  shr $16,%eax\n  jmp *(%r14,%rbp,8)\n"
	".endr\n"
	".section .rodata\n.balign 2\n.globl lj_bc_ofs\nlj_bc_ofs:\n"
	".set at, 0\n.rept 120\n  .short at\n  .set at, at + 24\n.endr\n.short 0\n.text\n");

__attribute__((used)) static const char version[] = "LuaJIT 2.1.0-beta3";
static const char source[] = "local stop = ...\n"
			     "local function honest(n)\n"
			     "  local x = 0\n"
			     "  for i = 1, n do x = x + i % 7 end\n"
			     "  return x\n"
			     "end\n"
			     "local function outer()\n"
			     "  local x = honest(1000)\n"
			     "  return x + 1\n"
			     "end\n"
			     "repeat local x = outer() until stop()\n";

/* Where one of the lies is: a copy of a state, a Lua stack, and a C frame. */
struct lie {
	uint64_t state[STATE_WORDS], stack[STACK_WORDS], frame[16];
	uint64_t registers[5]; /* rip, rsp, r14, rdx, rbx */
};

static struct lie *lies;
static uint64_t text_start, text_end;
static double end_at;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int stop(lua_State *L)
{
	lua_pushboolean(L, now() > end_at);
	return 1;
}

/* Where the code of the library is that has that address. */
static void find_text(const void *address)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], x;
	uint64_t start, end;

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx r-%c", &start, &end, &x) == 3 && x == 'x' &&
		    (uint64_t)address >= start && (uint64_t)address < end) {
			text_start = start;
			text_end = end;
		}
	if (maps)
		fclose(maps);
}

/* The dispatch table: a long run of pointers to code. */
static unsigned int find_dispatch(const uint64_t *state)
{
	unsigned int run = 0;

	for (unsigned int i = 0; i < STATE_WORDS; i++) {
		run = state[i] >= text_start && state[i] < text_end ? run + 1 : 0;
		if (run == 80)
			return i - 79;
	}
	return 0;
}

static uint64_t random_word(void)
{
	static uint64_t seed = 88172645463325252ULL;

	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* What a lie says: pointers into it, to nowhere, of another thread; huge and odd numbers. */
static uint64_t random_lie(const struct lie *lie)
{
	switch (random_word() % 8) {
	case 0:
		return (uint64_t)lie->stack + random_word() % STACK_WORDS * 8;
	case 1:
		return (uint64_t)lie->state + random_word() % STATE_WORDS * 8;
	case 2:
		return (uint64_t)lies[random_word() % LIES].state;
	case 3:
		return text_start + random_word() % (text_end - text_start);
	case 4:
		return random_word() & 0xfff8;
	case 5:
		return random_word();
	case 6:
		return ~0ULL << random_word() % 64;
	}
	return 0;
}

/* A copy of the state, moved to where it is; the more spoilt, the higher its number. */
static void make_lie(unsigned int number, const uint64_t *state, unsigned int dispatch)
{
	struct lie *lie = &lies[number];
	uint64_t from = (uint64_t)state, to = (uint64_t)lie->state;

	for (unsigned int i = 0; i < STATE_WORDS; i++) {
		lie->state[i] = state[i];
		if (state[i] - from < sizeof(lie->state))
			lie->state[i] += to - from;
		if (number > 2 && (i < dispatch || i > dispatch + 100) &&
		    random_word() % 100 < number)
			lie->state[i] = random_lie(lie);
	}
	/* Frames whose links lead to themselves, up, and in circles; functions that are none. */
	for (unsigned int i = 0; i < STACK_WORDS; i++)
		lie->stack[i] =
			i % 2 ? number * 8 + i % 8 : FUNCTION_TAG | (to & ((1ULL << 47) - 1));
	for (unsigned int i = 0; i < 16; i++)
		lie->frame[i] = number % 2 ? random_lie(lie) : (uint64_t)lie->frame;
	lie->frame[2] = number == 5 ? from : to; /* its coroutine; one has a true one */
	lie->frame[3] = random_lie(lie);
	lie->frame[9] = number % 3 ? state[dispatch] : (uint64_t)lie->frame;
	lie->registers[0] = state[dispatch + 10];
	lie->registers[1] = (uint64_t)lie->frame;
	lie->registers[2] = number == 7 ? 0 : (uint64_t)(lie->state + dispatch);
	lie->registers[3] = (uint64_t)(lie->stack + STACK_WORDS / 2);
	lie->registers[4] = number % 2 ? (uint64_t)lie->stack : random_word() % 256;
}

static void *spin_inside(void *registers)
{
	__asm__ volatile(
		"mov 8(%0), %%rsp\n mov 16(%0), %%r14\n mov 24(%0), %%rdx\n mov 32(%0), %%rbx\n"
		"jmp *(%0)\n" ::"a"(registers)
		: "memory");
	return NULL;
}

static void *change(void *unused)
{
	for (;;) {
		struct lie *lie = &lies[1 + random_word() % (LIES - 1)];
		uint64_t *word = (uint64_t *)lie + random_word() % (sizeof(*lie) / 8 - 5),
			 was = *word;

		*(volatile uint64_t *)word = random_lie(lie);
		for (volatile unsigned int i = 0; i < random_word() % 4096; i++)
			;
		*word = was; /* so that they stay good lies */
	}
	return unused;
}

/* A second LuaJIT, whose interpreter gets an endless loop in one of its handlers. */
static int make_lies(const char *library)
{
	void *handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW | RTLD_LOCAL);
	lua_State *(*new_state)(void) =
		handle ? (lua_State * (*)(void)) dlsym(handle, "luaL_newstate") : NULL;
	uint64_t *state = new_state ? (uint64_t *)new_state() : NULL;
	unsigned int dispatch;
	pthread_t thread;

	if (!state)
		return 1;
	find_text((void *)new_state);
	dispatch = find_dispatch(state);
	lies = mmap(NULL, LIES * sizeof(*lies), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	if (!dispatch || lies == MAP_FAILED ||
	    mprotect((void *)text_start, text_end - text_start,
		     PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
		return 1;
	memcpy((void *)state[dispatch + 10], "\xeb\xfe", 2);
	mprotect((void *)text_start, text_end - text_start, PROT_READ | PROT_EXEC);
	for (unsigned int i = 0; i < LIES; i++)
		make_lie(i, state, dispatch);
	for (unsigned int i = 0; i < LIES; i++)
		if (pthread_create(&thread, NULL, spin_inside, lies[i].registers) != 0)
			return 1;
	return pthread_create(&thread, NULL, change, NULL);
}

int main(int argc, char **argv)
{
	lua_State *L = luaL_newstate();

	if (argc < 3 || !L || make_lies(argv[2]) != 0) {
		fprintf(stderr, "usage: fake SECONDS LIBLUAJIT\n");
		return 1;
	}
	luaL_openlibs(L);
	end_at = now() + atof(argv[1]);
	if (luaL_loadbuffer(L, source, sizeof(source) - 1, "@fake.lua") != 0)
		return 1;
	lua_pushcfunction(L, stop);
	puts("ready");
	fflush(stdout);
	if (lua_pcall(L, 1, 0, 0) != 0)
		return 1;
	puts("honest to the end");
	fflush(stdout);
	_exit(0);
}

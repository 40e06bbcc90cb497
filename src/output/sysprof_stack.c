/* SPDX-License-Identifier: MIT */
/*
 * A sample of theirs has a stack of Lua frames, with C functions called from Lua among them, and the
 * host's stack, on which each such C function is too. A run of Lua frames that ends in a C function is
 * what one call of lua_call() and its like runs; the innermost runs belong to the innermost calls, as
 * coroutines further out are not in the sample.
 */
#include <stdlib.h>
#include <string.h>

#include "output/sysprof.h"

#define NO_LUA "the file has no Lua stack for it"
#define NO_STACK "the file has only the trace"

int sysprof_stack_init(struct sysprof_stack *stack)
{
	*stack = (struct sysprof_stack){
		.lua = malloc(SYSPROF_FRAMES_KEPT * sizeof(*stack->lua)),
		.host = malloc(SYSPROF_FRAMES_KEPT * sizeof(*stack->host)),
		.id = malloc((2 * SYSPROF_FRAMES_KEPT + 2) * sizeof(*stack->id)),
	};
	return stack->lua && stack->host && stack->id ? 0 : MSP_E_NOMEM;
}

void sysprof_stack_free(struct sysprof_stack *stack)
{
	free(stack->lua);
	free(stack->host);
	free(stack->id);
}

struct join {
	struct sysprof_stack *stack;
	const struct sysprof_symbols *symbols;
	struct sysprof_frame_cache *cache;
	struct msp_profile *profile;
	int err;
	size_t lua;	    /* Lua frames still to come: the outermost is the last of them */
	size_t runs, calls; /* of Lua frames; host frames at which Lua is entered */
};

static void put(struct join *j, uint32_t id)
{
	j->stack->id[j->stack->ids++] = id;
}

static uint32_t keep(struct join *j, const struct msp_frame *frame)
{
	int64_t id = msp_profile_frame(j->profile, frame);

	if (id < 0 && !j->err)
		j->err = (int)id;
	return id < 0 ? 0 : (uint32_t)id;
}

static bool starts_with_one_of(const char *name, const char *const *heads)
{
	for (; *heads; heads++)
		if (!strncmp(name, *heads, strlen(*heads)))
			return true;
	return false;
}

static bool is_one_of(const char *name, const char *const *names)
{
	for (; *names; names++)
		if (!strcmp(name, *names))
			return true;
	return false;
}

/* A library without symbols stands there by its path, at its first address. */
static void name_native(struct join *j, struct sysprof_known *known, struct msp_frame *frame)
{
	/* The interpreter is written in assembly: its symbols, and those at which Lua is entered. */
	static const char *const vm[] = {"lj_BC_", "lj_vm_", "lj_ff_", "lj_fff_", "lj_cont_", NULL};
	static const char *const calls[] = {"lua_call", "lua_pcall", "lua_cpcall", "lua_resume",
					    NULL};
	const struct sysprof_cfunc *cfunc = sysprof_cfunc(j->symbols, known->value);
	const char *slash;

	frame->address = known->value;
	if (!cfunc)
		return;
	known->start = cfunc->addr;
	slash = strrchr(cfunc->name, '/');
	if (slash) {
		frame->object = slash + 1;
		frame->address = known->value - cfunc->addr;
		return;
	}
	frame->address = 0;
	frame->name = cfunc->name;
	frame->vm = frame->kind == MSP_FRAME_NATIVE && starts_with_one_of(cfunc->name, vm);
	known->call = is_one_of(cfunc->name, calls);
}

static void name_lua(struct join *j, uint64_t addr, uint64_t line, struct msp_frame *frame)
{
	const struct sysprof_proto *proto = sysprof_proto(j->symbols, addr);

	frame->file = proto ? proto->label : NULL;
	frame->defined = line < UINT32_MAX ? (uint32_t)line : 0;
	if (!frame->defined && proto)
		frame->name = "main chunk";
}

static void make_frame(struct join *j, struct sysprof_known *known)
{
	struct msp_frame frame = {.kind = (enum msp_frame_kind)known->kind, .certain = true};
	char text[40];

	if (known->kind == MSP_FRAME_LUA) {
		name_lua(j, known->value, known->line, &frame);
	} else if (known->kind == MSP_FRAME_FAST) {
		snprintf(text, sizeof(text), "fast function %llu",
			 (unsigned long long)known->value);
		frame.name = text;
	} else {
		name_native(j, known, &frame);
	}
	known->id = keep(j, &frame);
}

/* Frames come again and again: most are found without a look at their names. */
static struct sysprof_known known_frame(struct join *j, enum msp_frame_kind kind, uint64_t value,
					uint64_t line)
{
	uint32_t hash = msp_hash(value ^ line << 40 ^ (uint64_t)kind << 60, 0);
	struct sysprof_known *slot = &j->cache->slot[hash % SYSPROF_CACHED];

	if (slot->generation != j->symbols->generation || slot->value != value ||
	    slot->line != line || slot->kind != kind) {
		*slot = (struct sysprof_known){.value = value,
					       .line = line,
					       .kind = (uint8_t)kind,
					       .generation = j->symbols->generation};
		make_frame(j, slot);
	}
	return *slot;
}

static void put_lua(struct join *j, const struct sysprof_lua_frame *frame)
{
	enum msp_frame_kind kind = frame->type == SYSPROF_FRAME_LFUNC	? MSP_FRAME_LUA
				   : frame->type == SYSPROF_FRAME_FFUNC ? MSP_FRAME_FAST
									: MSP_FRAME_CFUNCTION;

	put(j, known_frame(j, kind, frame->value, frame->line).id);
}

/* Does the host enter Lua here? */
static bool is_call(struct join *j, uint64_t addr)
{
	return known_frame(j, MSP_FRAME_NATIVE, addr, 0).call;
}

static bool same_function(struct join *j, uint64_t a, uint64_t b)
{
	uint64_t start = known_frame(j, MSP_FRAME_NATIVE, a, 0).start;

	return start && start == known_frame(j, MSP_FRAME_NATIVE, b, 0).start;
}

/*
 * The Lua frames of a call, up to the C function that it ends in. That is on the host's stack too,
 * among the hosts that are left: returns its place there. 0: it is not, and was put.
 */
static size_t put_run(struct join *j, size_t hosts)
{
	while (j->lua) {
		const struct sysprof_lua_frame *frame = &j->stack->lua[--j->lua];

		if (frame->type == SYSPROF_FRAME_CFUNC) {
			for (size_t i = hosts; i; i--) {
				if (is_call(j, j->stack->host[i - 1]))
					break;
				if (same_function(j, j->stack->host[i - 1], frame->value))
					return i;
			}
			put_lua(j, frame);
			return 0;
		}
		put_lua(j, frame);
	}
	return 0;
}

static void count(struct join *j)
{
	const struct sysprof_stack *s = j->stack;

	for (size_t i = 0; i < s->luas; i++)
		j->runs += s->lua[i].type == SYSPROF_FRAME_CFUNC;
	j->runs += s->luas && s->lua[0].type != SYSPROF_FRAME_CFUNC;
	for (size_t i = 0; i < s->hosts; i++)
		j->calls += is_call(j, s->host[i]);
}

static void join_stacks(struct join *j)
{
	size_t function = 0, left;

	j->lua = j->stack->luas;
	count(j);
	/* The innermost frame alone, as in mode L. */
	while (j->stack->hosts == 1 && !j->calls && j->lua)
		put_lua(j, &j->stack->lua[--j->lua]);
	left = j->calls;
	for (size_t i = j->stack->hosts; i; i--) {
		uint64_t addr = j->stack->host[i - 1];

		put(j,
		    known_frame(j, i == function ? MSP_FRAME_CFUNCTION : MSP_FRAME_NATIVE, addr, 0)
			    .id);
		if (!is_call(j, addr))
			continue;
		/* Runs for which there is no call come with the first. */
		while (left == j->calls && j->runs > left && j->lua) {
			put_run(j, 0);
			j->runs--;
		}
		if (left-- <= j->runs)
			function = put_run(j, i - 1);
	}
	while (j->lua)
		put_lua(j, &j->stack->lua[--j->lua]);
}

static void put_error(struct join *j, const char *reason)
{
	char text[80];
	struct msp_frame frame = {.kind = MSP_FRAME_ERROR, .certain = true, .name = text};

	snprintf(text, sizeof(text), "[error: %s]", reason);
	put(j, keep(j, &frame));
}

/* All there is of it: the trace and where it starts. */
static void put_trace(struct join *j)
{
	const struct sysprof_trace *trace = sysprof_trace(j->symbols, j->stack->trace);
	struct msp_frame frame = {.kind = MSP_FRAME_JIT, .certain = true};

	name_lua(j, j->stack->proto, j->stack->line, &frame);
	if (j->stack->trace <= UINT32_MAX)
		frame.trace = (uint32_t)j->stack->trace;
	if (trace && trace->line < UINT32_MAX)
		frame.line = (uint32_t)trace->line;
	put(j, keep(j, &frame));
}

int sysprof_join(struct sysprof_stack *stack, const struct sysprof_symbols *symbols,
		 struct sysprof_frame_cache *cache, struct msp_profile *profile,
		 const char **reason)
{
	static const char *const texts[] = {
#define _(id, text) text,
		SYSPROF_STATES(_)
#undef _
	};
	struct join j = {stack, symbols, cache, profile};
	struct msp_frame busy = {.kind = MSP_FRAME_STATE, .certain = true};

	stack->ids = 0;
	*reason = NULL;
	if (stack->state == SYSPROF_IN_TRACE) {
		*reason = NO_STACK;
		put_error(&j, NO_STACK);
		put_trace(&j);
		return j.err;
	}
	join_stacks(&j);
	busy.name = texts[stack->state];
	if (busy.name)
		put(&j, keep(&j, &busy));
	if (!stack->luas && j.calls)
		*reason = NO_LUA;
	/* The innermost frames are those that were left out of both stacks. */
	if (stack->deep || stack->ids > MSP_PROFILE_MAX_STACK) {
		*reason = "truncated";
		if (stack->ids > MSP_PROFILE_MAX_STACK)
			stack->ids = MSP_PROFILE_MAX_STACK;
	}
	return j.err;
}

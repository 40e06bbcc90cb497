/* SPDX-License-Identifier: MIT */
/* Which stack may follow which. */
#include <stdio.h>
#include <string.h>

#include "oracle.h"

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

static bool is_lua(const struct msp_raw_frame *f)
{
	return f->kind == MSP_RAW_LUA || f->kind == MSP_RAW_FAST || f->kind == MSP_RAW_CFUNC;
}

/* What a Lua-level frame is, other than where in it. */
static uint64_t frame_key(const struct msp_raw_frame *f)
{
	if (f->kind == MSP_RAW_FAST)
		return mix(f->kind, f->pos);
	return mix(f->kind, f->addr);
}

void oracle_stack_take(struct oracle_stack *s, const struct msp_stack *from)
{
	uint32_t n = (uint32_t)from->count;

	memcpy(s->raw, from->frames, n * sizeof(*s->raw));
	s->count = n;
	s->error = from->error;
	s->ways = from->ways;
	s->lua_count = s->native_count = s->markers = 0;
	s->trace = false;
	for (uint32_t i = n; i-- > 0;) {
		const struct msp_raw_frame *f = &s->raw[i];

		s->markers += f->kind == MSP_RAW_VM;
		s->trace |= (f->kind == MSP_RAW_VM || f->kind == MSP_RAW_LUA) &&
			    (f->flags & MSP_RAWF_JIT);
		if (f->kind == MSP_RAW_STATE && f->pos != MSP_STATE_GC)
			s->trace = true;
		if (f->kind == MSP_RAW_NATIVE && (f->flags & MSP_RAWF_RETURN))
			s->native[s->native_count++] = f->addr;
		if (!is_lua(f))
			continue;
		s->lua[s->lua_count] = frame_key(f);
		s->pos[s->lua_count++] =
			f->kind == MSP_RAW_LUA && !(f->flags & MSP_RAWF_NOPC) ? f->pos : UINT32_MAX;
	}
}

uint64_t oracle_stack_hash(const struct oracle_stack *s)
{
	uint64_t hash = s->error;

	for (uint32_t i = 0; i < s->lua_count; i++)
		hash = mix(hash, s->lua[i]);
	for (uint32_t i = 0; i < s->native_count; i++)
		hash = mix(hash, s->native[i]);
	return hash;
}

static uint32_t common(const uint64_t *a, uint32_t n, const uint64_t *b, uint32_t m)
{
	uint32_t i = 0;

	while (i < n && i < m && a[i] == b[i])
		i++;
	return i;
}

static enum oracle_move move_of(const struct oracle_stack *a, const struct oracle_stack *b,
				uint32_t gone, uint32_t come)
{
	if (!gone && !come)
		return ORACLE_SAME;
	if (!gone && come == 1)
		return ORACLE_PUSH;
	if (gone == 1 && !come)
		return ORACLE_POP;
	if (gone == 1 && come == 1)
		return ORACLE_REPLACE;
	if (!gone)
		return b->markers == a->markers + 1 ? ORACLE_RESUME : ORACLE_GROW;
	if (!come)
		return a->markers == b->markers + 1 ? ORACLE_YIELD : ORACLE_UNWIND;
	return ORACLE_MIX;
}

static bool fault(struct oracle_judge *judge, const char *why)
{
	snprintf(judge->why, sizeof(judge->why), "%s", why);
	return false;
}

/* Frames below the top stand still: where they are in their code does not change. */
static bool judge_positions(struct oracle_judge *judge, const struct oracle_stack *a,
			    const struct oracle_stack *b, uint32_t same)
{
	uint32_t top = a->lua_count < b->lua_count ? a->lua_count : b->lua_count;

	for (uint32_t i = 0; i < same && i + 1 < top; i++)
		if (a->pos[i] != b->pos[i])
			return fault(judge, "a frame below the top has moved");
	return true;
}

/*
 * An unwinder that is about to leave has put its goal in its caller's place: outer callers are gone, the inner ones
 * are the same. It may have the C library copy that: then there is one more.
 */
static bool has_put_goal(const struct oracle_stack *a, const struct oracle_stack *b, uint32_t gone,
			 uint32_t come)
{
	if (come >= gone || come > (b->ways & 1u << MSP_WAY_LANDING ? 2 : 1))
		return false;
	for (uint32_t i = 1; i <= come; i++)
		if (a->native[a->native_count - i] != b->native[b->native_count - i])
			return false;
	return come > 0;
}

static bool judge_native(struct oracle_judge *judge, const struct oracle_step *step,
			 const struct oracle_stack *a, const struct oracle_stack *b)
{
	uint32_t same = common(a->native, a->native_count, b->native, b->native_count);
	uint32_t gone = a->native_count - same, come = b->native_count - same;

	if (gone + come <= 1)
		return true;
	if (!come && step->insn->moves_sp) /* longjmp, and what libgcc's unwinder ends with */
		return true;
	if (step->native && has_put_goal(a, b, gone, come))
		return true;
	return fault(judge, come ? "native callers came from nowhere" : "native callers are lost");
}

/*
 * A frame that was called runs, before it returns or calls: the interpreter
 * jumps to its first instruction, or C code runs in it. Otherwise it was seen
 * where it was not.
 */
static bool judge_top(struct oracle_judge *judge, const struct oracle_step *step,
		      const struct oracle_stack *a, const struct oracle_stack *b,
		      enum oracle_move move)
{
	enum oracle_top was = judge->top;

	judge->top = move == ORACLE_POP || move == ORACLE_YIELD || move == ORACLE_UNWIND ||
				     move == ORACLE_RESUME
			     ? ORACLE_TOP_EXPOSED
			     : ORACLE_TOP_NEW;
	/*
	 * C code that puts a metamethod in the place of the function that it is of
	 * has it called from where that came from: its frame is made anew.
	 */
	if (was == ORACLE_TOP_UNDONE &&
	    (move != ORACLE_PUSH || b->lua[b->lua_count - 1] != judge->undone))
		return fault(judge, "a frame came and went without running");
	if (move == ORACLE_POP && was == ORACLE_TOP_NEW) {
		judge->top = ORACLE_TOP_UNDONE;
		judge->undone = a->lua[a->lua_count - 1];
	}
	/* A tail call is a return, then a call from where the old frame came from. */
	if (move == ORACLE_PUSH && was == ORACLE_TOP_EXPOSED && !step->tail_call)
		return fault(judge, "a frame went and another came at once");
	if (move == ORACLE_PUSH && was == ORACLE_TOP_NEW)
		return fault(judge, "two frames came at once");
	if (move == ORACLE_REPLACE && was != ORACLE_TOP_ACTIVE)
		return fault(judge, "the top frame became another without running");
	return true;
}

bool oracle_judge_step(struct oracle_judge *judge, const struct oracle_step *step,
		       const struct oracle_stack *a, const struct oracle_stack *b)
{
	uint32_t same = common(a->lua, a->lua_count, b->lua, b->lua_count);
	enum oracle_move move = move_of(a, b, a->lua_count - same, b->lua_count - same);
	bool free = a->trace || b->trace;

	judge->moves[move]++;
	if (free || step->native || step->dispatch) {
		if (!free && judge->top == ORACLE_TOP_UNDONE)
			return fault(judge, "a frame came and went without running");
		judge->top = ORACLE_TOP_ACTIVE;
	}
	if (!free && !judge_native(judge, step, a, b))
		return false;
	if (!free && !judge_positions(judge, a, b, same))
		return false;
	if (move == ORACLE_SAME)
		return true;
	if (free) /* frames of compiled code are on no stack */
		return true;
	if (move == ORACLE_MIX || move == ORACLE_GROW ||
	    (move == ORACLE_UNWIND && !step->native && !step->insn->moves_sp))
		return fault(judge, "several frames changed at once");
	return judge_top(judge, step, a, b, move);
}

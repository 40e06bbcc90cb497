/* SPDX-License-Identifier: MIT */
/* Helper functions for Lua stacks: which VM runs, its frames, their functions. A part of ljvm_helpers.c. */

#define LJVM_ROOM (LJ_FR2 ? 2 : 1) /* slots of a frame's function and link */

struct ljvm_link {
	uint64_t base, function;
	int64_t word; /* what it is linked by */
};

/* The function and link of the frame whose first slot is at base. L: as it was read. */
static int ljvm_get_link(const struct ljvm_memory *m, const lua_State *L, uint64_t base, struct ljvm_link *out)
{
	uint64_t first = (uint64_t)(uintptr_t)tvref(L->stack), end = first + (uint64_t)L->stacksize * sizeof(TValue);
	TValue slot[2];
	cTValue *frame = &slot[LJVM_ROOM - 1];

	if (base % sizeof(TValue) || base < first + 2 * LJVM_ROOM * sizeof(TValue) || base > end)
		return LJVM_E_BROKEN;
	if (ljvm_get(m, base - LJVM_ROOM * sizeof(TValue), slot, LJVM_ROOM * sizeof(TValue)) < 0)
		return LJVM_E_READ;
#if LJ_FR2
	if (!tvisfunc(frame - 1) && !tvisthread(frame - 1))
		return LJVM_E_BROKEN;
#endif
	out->base = base;
	out->function = (uint64_t)(uintptr_t)frame_gc(frame);
	out->word = frame_ftsz(frame);
	return 0;
}

/* The frame below: where its first slot is, and the PC that it goes on at, if it is a Lua function's. */
static int ljvm_get_below(const struct ljvm_memory *m, const struct ljvm_link *link, uint64_t *base, uint64_t *pc)
{
	int type = (int)(link->word & FRAME_TYPEP);
	uint64_t at = link->base - LJVM_ROOM * sizeof(TValue), size;
	BCIns call;
	TValue slot;

	*pc = 0;
	if ((type & FRAME_TYPE) == FRAME_LUA) {
		*pc = LJ_FR2 ? (uint64_t)link->word : (uint64_t)(uint32_t)link->word;
		if (ljvm_get(m, *pc - sizeof(call), &call, sizeof(call)) < 0)
			return LJVM_E_READ;
		size = (1 + LJ_FR2 + bc_a(call)) * sizeof(TValue);
	} else {
		size = (uint64_t)(link->word & ~(int64_t)FRAME_TYPEP);
	}
	if (type == FRAME_CONT) {
		if (ljvm_get(m, at - sizeof(slot), &slot, sizeof(slot)) < 0)
			return LJVM_E_READ;
		*pc = (uint64_t)(uintptr_t)frame_pc(&slot);
	}
	if (!size || size % sizeof(TValue) || size > link->base)
		return LJVM_E_BROKEN;
	*base = link->base - size;
	return 0;
}

static int ljvm_is_bottom(const lua_State *L, uint64_t base)
{
	return base - sizeof(TValue) <= (uint64_t)(uintptr_t)tvref(L->stack) + LJ_FR2 * sizeof(TValue);
}

static int ljvm_get_proto(const struct ljvm_memory *m, uint64_t at, GCproto *out)
{
	if (at % 4)
		return LJVM_E_BROKEN;
	if (ljvm_get(m, at, out, sizeof(*out)) < 0)
		return LJVM_E_READ;
	if (out->gct != (uint8_t)~LJ_TPROTO || !out->sizebc || out->sizebc > 0x4000000)
		return LJVM_E_BROKEN;
	return 0;
}

/* The instruction before pc, in a prototype; -1: it is not in it. */
static int32_t ljvm_position(uint64_t at, const GCproto *pt, uint64_t pc)
{
	uint64_t first = at + sizeof(GCproto);

	if (pc <= first || pc % sizeof(BCIns) || pc > first + (uint64_t)pt->sizebc * sizeof(BCIns))
		return -1;
	return (int32_t)((pc - first) / sizeof(BCIns)) - 1;
}

/* What function a frame is of. 1: it is none, to be passed over. */
static int ljvm_get_function(const struct ljvm_memory *m, const struct ljvm_link *link, uint64_t pc,
			     struct ljvm_frame *out)
{
	GCfuncC fn;
	GCproto pt;
	int rc;

	if (link->function == out->L)
		return 1;
	if (ljvm_get(m, link->function, &fn, offsetof(GCfuncC, f)) < 0)
		return LJVM_E_READ;
	if (fn.gct != (uint8_t)~LJ_TFUNC)
		return LJVM_E_BROKEN;
	out->base = link->base;
	out->function = link->function;
	out->return_pc = pc;
	out->ffid = fn.ffid;
	out->pos = -1;
	if (fn.ffid != FF_LUA) {
		out->kind = fn.ffid == FF_C ? LJVM_FRAME_C : LJVM_FRAME_FAST;
		out->return_pc = 0;
		return ljvm_get_pointer(m, link->function + offsetof(GCfuncC, f), &out->pt);
	}
	out->kind = LJVM_FRAME_LUA;
	out->pt = (uint64_t)(uintptr_t)mref(fn.pc, char) - sizeof(GCproto);
	rc = ljvm_get_proto(m, out->pt, &pt);
	if (rc < 0)
		return rc;
	out->pos = ljvm_position(out->pt, &pt, pc);
	return 0;
}

/* The frame at base, or, if it is one that only the VM knows, the next one that is a function's. 0: none is left. */
static int ljvm_frame_at(const struct ljvm_memory *m, const lua_State *L, uint64_t base, uint64_t pc,
			 struct ljvm_frame *out)
{
	struct ljvm_link link;
	int rc;

	for (;;) {
		if (ljvm_is_bottom(L, base))
			return 0;
		rc = ljvm_get_link(m, L, base, &link);
		if (rc == 0)
			rc = ljvm_get_function(m, &link, pc, out);
		if (rc < 0)
			return rc;
		if (rc == 0)
			break;
		rc = ljvm_get_below(m, &link, &base, &pc);
		if (rc < 0)
			return rc;
	}
	/* A vararg function has a second frame below, whose link is that to its caller. */
	if ((link.word & FRAME_TYPEP) == FRAME_VARG) {
		rc = ljvm_get_below(m, &link, &base, &pc);
		if (rc == 0)
			rc = ljvm_get_link(m, L, base, &link);
		if (rc < 0)
			return rc;
	}
	out->from_c = (link.word & FRAME_TYPE) == FRAME_C;
	return 1;
}

static int ljvm_frame_next(const struct ljvm_memory *m, struct ljvm_frame *frame)
{
	struct ljvm_link link;
	uint64_t base = frame->base, pc;
	lua_State L;
	int rc = ljvm_read_L(m, frame->L, 0, &L);
	int vararg;

	if (rc < 0)
		return rc;
	do {
		rc = ljvm_get_link(m, &L, base, &link);
		if (rc == 0)
			rc = ljvm_get_below(m, &link, &base, &pc);
		if (rc < 0)
			return rc;
		vararg = (link.word & FRAME_TYPEP) == FRAME_VARG;
		if (ljvm_is_bottom(&L, base))
			return 0;
	} while (vararg);
	return ljvm_frame_at(m, &L, base, pc, frame);
}

/* A Lua function's frame where it should be: the PC, if it is known, is in it. 0; else why not. */
static int ljvm_fits(const struct ljvm_memory *m, const lua_State *L, uint64_t at, uint64_t base, uint64_t pc)
{
	struct ljvm_frame frame;
	int rc;

	memset(&frame, 0, sizeof(frame));
	frame.L = at;
	rc = ljvm_frame_at(m, L, base, pc, &frame);
	if (rc < 0)
		return rc;
	return rc == 1 && (frame.kind != LJVM_FRAME_LUA || frame.pos >= 0) ? 0 : LJVM_E_BROKEN;
}

static int ljvm_frame_first(const struct ljvm_memory *m, const struct ljvm_context *context, struct ljvm_frame *out)
{
	uint64_t base = context->base, pc = context->pc;
	struct ljvm_cframe cframe;
	lua_State L;
	int rc = ljvm_read_L(m, context->L, context->g, &L);

	if (rc < 0)
		return rc;
	if (!base) {
		base = (uint64_t)(uintptr_t)L.base;
		rc = context->cframe ? ljvm_cframe(m, context->cframe, &cframe) : 0;
		if (rc < 0)
			return rc;
		if (context->cframe && cframe.L == context->L)
			pc = cframe.pc;
	}
	memset(out, 0, sizeof(*out));
	out->L = context->L;
	rc = ljvm_frame_at(m, &L, base, pc, out);
	return rc == 0 ? LJVM_E_NONE : rc;
}

#if LJ_TARGET_X64 || LJ_TARGET_ARM64
#if LJ_TARGET_X64
#define LJVM_PUSHED 1 /* words that a call puts on the stack */
#else
#define LJVM_PUSHED 0
#endif

/* The interpreter runs: its C frame is at the stack pointer, or, in a routine that it calls, above it. */
static int ljvm_interpreter(const struct ljvm_memory *m, const struct ljvm_registers *r, struct ljvm_context *out)
{
	uint64_t sp, stored;
	lua_State L;
	int i, rc, found = 0;

	for (i = 0; i <= LJVM_PUSHED && !found; i++) {
		sp = r->sp + (uint64_t)i * sizeof(void *);
		found = ljvm_get_ref(m, sp + CFRAME_OFS_L, &out->L) == 0 &&
			ljvm_read_L(m, out->L, out->g, &L) == 0 &&
			((uint64_t)(uintptr_t)L.cframe & ~(uint64_t)3) == sp;
	}
	if (!found)
		return LJVM_E_BROKEN;
	out->cframe = sp;
	out->kind = LJVM_PC_INTERPRETER;
	out->base = r->reg[LJVM_REG_BASE];
	out->pc = r->reg[LJVM_REG_PC];
	rc = ljvm_fits(m, &L, out->L, out->base, out->pc);
	/* BASE or PC are on their way: as they were last stored. What could not be read may fit. */
	if (rc == LJVM_E_BROKEN) {
		out->base = (uint64_t)(uintptr_t)L.base;
		rc = ljvm_fits(m, &L, out->L, out->base, out->pc);
	}
	if (rc == LJVM_E_BROKEN) {
		if (ljvm_get_ref(m, sp + CFRAME_OFS_PC, &stored) < 0)
			return LJVM_E_READ;
		out->pc = stored;
		rc = ljvm_fits(m, &L, out->L, out->base, out->pc);
	}
	return rc < 0 ? rc : LJVM_PC_INTERPRETER;
}

static int ljvm_compiled(const struct ljvm_memory *m, const struct ljvm_registers *r, struct ljvm_context *out)
{
	struct ljvm_trace trace;
	lua_State L;
	int rc = ljvm_trace(m, out->g, r->pc, &trace);

	if (rc < 0)
		return rc == LJVM_E_NONE ? LJVM_E_NOT_MINE : rc;
	if (ljvm_get_ref(m, out->g + offsetof(global_State, cur_L), &out->L) < 0 ||
	    ljvm_get_ref(m, out->g + offsetof(global_State, jit_base), &out->base) < 0)
		return LJVM_E_READ;
	rc = ljvm_read_L(m, out->L, out->g, &L);
	if (rc < 0)
		return rc;
	/* In the head of a trace, jit_base is not set yet. */
	if (!out->base)
		out->base = (uint64_t)(uintptr_t)L.base;
	out->cframe = (uint64_t)(uintptr_t)L.cframe & ~(uint64_t)3;
	out->kind = LJVM_PC_TRACE;
	out->trace = trace.number;
	out->trace_offset = trace.offset;
	return LJVM_PC_TRACE;
}

static int ljvm_context(const struct ljvm_memory *m, const struct ljvm_registers *r, struct ljvm_context *out)
{
	int in_vm = ljvm_in_vm(m, r->pc);

	memset(out, 0, sizeof(*out));
	out->g = r->reg[LJVM_REG_DISPATCH] - (uint64_t)(int64_t)LJVM_REG_DISPATCH_G;
	if (ljvm_check_g(m, out->g) < 0)
		return in_vm ? LJVM_E_BROKEN : LJVM_E_NOT_MINE;
	if (ljvm_get(m, out->g + offsetof(global_State, vmstate), &out->vmstate, sizeof(out->vmstate)) < 0)
		return LJVM_E_READ;
	return in_vm ? ljvm_interpreter(m, r, out) : ljvm_compiled(m, r, out);
}
#else
static int ljvm_context(const struct ljvm_memory *m, const struct ljvm_registers *r, struct ljvm_context *out)
{
	UNUSED(m);
	UNUSED(r);
	UNUSED(out);
	return LJVM_E_NOT_MINE;
}
#endif

/* ---- Functions and lines ---- */

static int ljvm_get_line(const struct ljvm_memory *m, const GCproto *pt, int32_t pos, uint32_t *out)
{
	uint64_t lines = (uint64_t)(uintptr_t)mref(pt->lineinfo, void);
	uint32_t delta = 0, width = pt->numline < 256 ? 1 : pt->numline < 65536 ? 2 : 4;
	uint8_t bytes[4] = {0, 0, 0, 0};
	uint16_t half;

	*out = 0;
	if (!lines || pos < 0 || (MSize)pos >= pt->sizebc)
		return 0;
	if (pos > 0) {
		if (ljvm_get(m, lines + (uint64_t)(pos - 1) * width, bytes, width) < 0)
			return LJVM_E_READ;
		memcpy(&half, bytes, sizeof(half));
		memcpy(&delta, bytes, sizeof(delta));
		delta = width == 1 ? bytes[0] : width == 2 ? half : delta;
	}
	*out = (uint32_t)pt->firstline + delta;
	return 0;
}

static int ljvm_function(const struct ljvm_memory *m, uint64_t at, int32_t pos, struct ljvm_function *out)
{
	uint64_t name;
	GCproto pt;
	GCstr str;
	MSize kept;
	int rc;

	memset(out, 0, sizeof(*out));
	rc = ljvm_get_proto(m, at, &pt);
	if (rc < 0)
		return rc;
	name = (uint64_t)(uintptr_t)gcrefp(pt.chunkname, void);
	if (ljvm_get(m, name, &str, sizeof(str)) < 0)
		return LJVM_E_READ;
	if (str.gct != (uint8_t)~LJ_TSTR)
		return LJVM_E_BROKEN;
	kept = str.len < sizeof(out->chunk) - 1 ? str.len : (MSize)sizeof(out->chunk) - 1;
	if (kept && ljvm_get(m, name + sizeof(GCstr), out->chunk, kept) < 0)
		return LJVM_E_READ;
	out->chunk_size = str.len;
	out->first_line = (uint32_t)pt.firstline;
	return ljvm_get_line(m, &pt, pos, &out->line);
}

/* ---- Tables of traces ---- */

#ifndef LJVM_NO_TABLES
/* Is that the trace's table, and all there? */
static int ljvm_check_table(const struct ljvm_memory *m, uint64_t at, const struct ljvm_trace *trace, struct ljvm_table *out)
{
	uint32_t word[64], sum = 0, i, k, n;

	if (ljvm_get(m, at, out, sizeof(*out)) < 0)
		return LJVM_E_READ;
	if (out->magic != LJVM_TABLE_MAGIC || out->mcode != trace->mcode || out->szmcode != trace->szmcode)
		return LJVM_E_NONE;
	if (out->places > LJVM_MOST_PLACES || out->pieces > LJVM_MOST_PLACES ||
	    out->size != sizeof(*out) + out->places * sizeof(struct ljvm_place) + out->pieces * sizeof(struct ljvm_piece))
		return LJVM_E_BROKEN;
	for (i = 0; i < out->size / 4; i += n) {
		n = out->size / 4 - i < 64 ? out->size / 4 - i : 64;
		if (ljvm_get(m, at + i * 4, word, n * 4) < 0)
			return LJVM_E_READ;
		for (k = 0; k < n; k++)
			if (i + k != offsetof(struct ljvm_table, sum) / 4)
				sum = ljvm_add_sum(sum, word[k]);
	}
	return sum == out->sum ? 0 : LJVM_E_BROKEN;
}

/* The place of the last piece that begins at or before offset. */
static int ljvm_piece_place(const struct ljvm_memory *m, uint64_t pieces, uint32_t count, uint32_t offset, uint32_t *place)
{
	uint32_t low = 0, high = count, middle;
	struct ljvm_piece piece;

	*place = LJVM_NO_PLACE;
	while (low < high) {
		middle = low + (high - low) / 2;
		if (ljvm_get(m, pieces + middle * sizeof(piece), &piece, sizeof(piece)) < 0)
			return LJVM_E_READ;
		if (piece.offset <= offset) {
			*place = piece.place;
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return 0;
}

static int ljvm_trace_places(const struct ljvm_memory *m, uint64_t g, const struct ljvm_trace *trace, uint32_t offset,
			     struct ljvm_place *out, uint32_t room)
{
	struct ljvm_slot slot;
	struct ljvm_table_list list;
	struct ljvm_table table;
	uint64_t at;
	uint32_t place, n;
	int rc = ljvm_find_slot(m, 0, g, &slot);

	if (rc < 0 || !slot.tables)
		return rc < 0 ? rc : LJVM_E_NONE;
	if (ljvm_get(m, slot.tables, &list, sizeof(list)) < 0)
		return LJVM_E_READ;
	if (trace->number >= list.count)
		return LJVM_E_NONE;
	if (ljvm_get(m, slot.tables + sizeof(list) + trace->number * sizeof(at), &at, sizeof(at)) < 0)
		return LJVM_E_READ;
	rc = at ? ljvm_check_table(m, at, trace, &table) : LJVM_E_NONE;
	if (rc < 0)
		return rc;
	at += sizeof(table);
	rc = ljvm_piece_place(m, at + table.places * sizeof(*out), table.pieces, offset, &place);
	if (rc < 0)
		return rc;
	/* Outer places have lower numbers. */
	for (n = 0; place != LJVM_NO_PLACE && n < room; n++) {
		uint32_t inner = place;

		if (inner >= table.places)
			return LJVM_E_BROKEN;
		if (ljvm_get(m, at + inner * sizeof(*out), &out[n], sizeof(*out)) < 0)
			return LJVM_E_READ;
		place = out[n].outer;
		if (place != LJVM_NO_PLACE && place >= inner)
			return LJVM_E_BROKEN;
	}
	return n ? (int)n : LJVM_E_NONE;
}
#endif

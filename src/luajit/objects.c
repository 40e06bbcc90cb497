/* SPDX-License-Identifier: MIT */
/* Objects on a VM's heap: the collector's list of all of them, and the coroutines in it. */
#include "luajit/objects.h"

#include <string.h>

#include "luajit/proto.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

#define OBJECTS_MAX (1u << 28)
#define GLOBAL_GC_PART 160 /* of the global state: the collector's fields are within */
#define CHAIN_MIN 12	   /* so many objects in a row are the list */

static const struct msp_lj_object_layout wide = {
	.ref = 8,
	.tab_array = 16,
	.tab_node = 40,
	.tab_asize = 48,
	.tab_hmask = 52,
	.tab_size = 56,
	.node_next = 16,
	.node_size = 24,
	.uv_value = 32,
	.fn_uv = 8,
	.cd_type = 10,
	.cd_data = 16,
	.ct_size = 24,
	.ct_name = 16,
	.cts_top = 8,
	.cts_g = 24,
	.ud_meta = 32,
};

static const struct msp_lj_object_layout narrow = {
	.ref = 4,
	.tab_array = 8,
	.tab_node = 20,
	.tab_asize = 24,
	.tab_hmask = 28,
	.tab_size = 32,
	.node_next = 16,
	.node_size = 24,
	.uv_value = 16,
	.fn_uv = 4,
	.cd_type = 6,
	.cd_data = 8,
	.ct_size = 16,
	.ct_name = 12,
	.cts_top = 8, /* its pointers are plain ones, of 8 bytes */
	.cts_g = 24,
	.ud_meta = 16,
};

const struct msp_lj_object_layout *msp_lj_object_layout(const struct msp_lj_layout *layout)
{
	return layout->gc64 ? &wide : &narrow;
}

bool msp_lj_read_ref(const struct msp_lj_layout *layout, const struct msp_memory *mem, uint64_t at,
		     uint64_t *out)
{
	*out = 0;
	return msp_read(mem, at, out, layout->gc64 ? 8 : 4) == 0;
}

int msp_lj_object_type(const struct msp_lj_layout *layout, const struct msp_memory *mem,
		       uint64_t addr)
{
	uint8_t type;

	if (!msp_lj_object_address(addr) ||
	    msp_read(mem, addr + (uint64_t)layout->gc_gct, &type, 1))
		return -1;
	return type;
}

/* The object after one of the list, and that one's type; false: it is none. */
static bool next_object(const struct msp_lj_layout *layout, const struct msp_memory *mem,
			uint64_t obj, int *type, uint64_t *next)
{
	uint8_t head[16];

	if (!msp_lj_object_address(obj) || msp_read(mem, obj, head, sizeof(head)))
		return false;
	*next = 0;
	memcpy(next, head, layout->gc64 ? 8 : 4);
	*type = head[layout->gc_gct & 15];
	return *type >= MSP_GCT_UPVAL && *type <= MSP_GCT_LAST;
}

static bool is_chain(const struct msp_lj_layout *layout, const struct msp_memory *mem, uint64_t obj)
{
	int type;

	for (int n = 0; n < CHAIN_MIN; n++)
		if (!next_object(layout, mem, obj, &type, &obj))
			return false;
	return true;
}

uint64_t msp_lj_gc_root(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g)
{
	const struct msp_lj_layout *layout = &build->layout;
	uint32_t ref = layout->gc64 ? 8 : 4;
	uint64_t head;

	if (build->g_gcroot > 0)
		return msp_lj_read_ref(layout, mem, g + (uint64_t)build->g_gcroot, &head) ? head
											  : 0;
	for (uint32_t off = 2 * ref; off < GLOBAL_GC_PART; off += ref)
		if (msp_lj_read_ref(layout, mem, g + off, &head) && is_chain(layout, mem, head))
			return head;
	return 0;
}

/* ---- Coroutines ---- */

struct stack {
	uint64_t base, top, stack, cframe;
	uint8_t status;
};

static bool read_stack(const struct msp_lj_layout *layout, const struct msp_memory *mem, uint64_t l,
		       struct stack *out)
{
	uint64_t glref;

	return msp_read(mem, l + (uint64_t)layout->L_base, &out->base, 8) == 0 &&
	       msp_read(mem, l + (uint64_t)layout->L_top, &out->top, 8) == 0 &&
	       msp_read(mem, l + (uint64_t)layout->L_status, &out->status, 1) == 0 &&
	       msp_lj_read_ref(layout, mem, l + (uint64_t)layout->L_stack, &out->stack) &&
	       msp_lj_read_ref(layout, mem, l + (uint64_t)layout->L_glref, &glref);
}

/* The function that a coroutine will start with is the first value on its stack. */
static void read_start(const struct msp_lj_layout *layout, const struct msp_memory *mem,
		       const struct stack *stack, struct msp_lj_coroutine *out)
{
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX];
	struct msp_proto pt;
	uint64_t fn, pc;
	uint8_t ffid;

	if (!msp_lj_read_ref(layout, mem, stack->base, &fn))
		return;
	fn &= (1ull << 47) - 1;
	if (msp_lj_object_type(layout, mem, fn) != MSP_GCT_FUNC ||
	    msp_read(mem, fn + (uint64_t)layout->fn_ffid, &ffid, 1) || ffid ||
	    !msp_lj_read_ref(layout, mem, fn + (uint64_t)layout->fn_pc, &pc))
		return;
	pc -= (uint64_t)layout->pt_size;
	if (msp_proto_read_header(layout, mem, pc, header) ||
	    msp_proto_parse(layout, header, pc, &pt))
		return;
	out->pt = pc;
	out->ident = pt.ident;
}

static void describe(const struct msp_lj_layout *layout, const struct msp_memory *mem, uint64_t l,
		     struct msp_lj_coroutine *out)
{
	uint64_t head = layout->fr2 ? 16 : 8;
	struct stack stack;

	out->l = l;
	if (!read_stack(layout, mem, l, &stack))
		out->status = MSP_COROUTINE_DEAD;
	else if (stack.status == 1) /* LUA_YIELD */
		out->status = MSP_COROUTINE_SUSPENDED;
	else if (stack.status)
		out->status = MSP_COROUTINE_DEAD;
	else if (stack.base > stack.stack + head)
		out->status = MSP_COROUTINE_NORMAL;
	else if (stack.top == stack.base)
		out->status = MSP_COROUTINE_DEAD;
	else
		out->status = MSP_COROUTINE_NEW;
	if (out->status == MSP_COROUTINE_NEW)
		read_start(layout, mem, &stack, out);
}

static int tell(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t l,
		bool main, int (*each)(void *ctx, const struct msp_lj_coroutine *coroutine),
		void *ctx)
{
	struct msp_lj_coroutine coroutine = {.main = main};

	describe(&build->layout, mem, l, &coroutine);
	return each(ctx, &coroutine);
}

int msp_lj_coroutines(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g,
		      int (*each)(void *ctx, const struct msp_lj_coroutine *coroutine), void *ctx)
{
	const struct msp_lj_layout *layout = &build->layout;
	uint64_t obj = msp_lj_gc_root(build, mem, g), next, mark = 0, l = 0;
	uint32_t marked = 1;
	int type, r = 0;

	if (msp_lj_read_ref(layout, mem, g + (uint64_t)layout->g_mainthref, &l) &&
	    msp_lj_object_type(layout, mem, l) == MSP_GCT_THREAD)
		r = tell(build, mem, l, true, each, ctx);
	for (uint32_t n = 1; !r && obj; n++, obj = next) {
		if (n == OBJECTS_MAX)
			return MSP_E_LIMIT;
		/* Brent: an object that was met before, at a power of two. */
		if (obj == mark || !next_object(layout, mem, obj, &type, &next))
			return MSP_E_FORMAT;
		if (n == marked) {
			mark = obj;
			marked *= 2;
		}
		if (type == MSP_GCT_THREAD && obj != l) /* the main thread is in the list too */
			r = tell(build, mem, obj, false, each, ctx);
	}
	return r;
}

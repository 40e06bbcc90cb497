/* SPDX-License-Identifier: MIT */
/* The table of traces of a VM, and all else that its compiler can be asked. */
#include "luajit/jit.h"

#include <stdlib.h>

#include "luajit/jit_refusals.h"
#include "luajit/objects.h"
#include "luajit/trace_reader.h"
#include "moonspy/moonspy.h"

#define MAX_TRACES 65536
#define JIT_STATE_SIZE 8192 /* the trace that is being recorded lies in the jit_State */

/* lj_jit.h, with the names of lib_jit.c. */
enum { LINK_NONE, LINK_INTERP = 6, LINK_STITCH = 8 };
static const char *const links[] = {
	"none",		  "root",	 "loop",   "tail-recursion", "up-recursion",
	"down-recursion", "interpreter", "return", "stitch",
};

const char *msp_lj_link_name(uint8_t linktype)
{
	return linktype < sizeof(links) / sizeof(*links) ? links[linktype] : NULL;
}

bool msp_lj_link_gives_up(const struct msp_lj_trace *trace)
{
	/* A stitched trace that could not be continued is linked to itself. */
	return trace->linktype == LINK_INTERP ||
	       (trace->linktype == LINK_STITCH && trace->link == trace->number);
}

struct table {
	const struct msp_lj_build *build;
	const struct msp_lj_layout *layout;
	const struct msp_memory *mem;
	const struct msp_lj_protos *protos;
	uint64_t J, trace;
	uint32_t size;
};

static int read_table(struct table *t, uint64_t g)
{
	const struct msp_lj_layout *y = t->layout;

	t->J = g + (int64_t)y->g_to_J;
	if (msp_read(t->mem, t->J + (int64_t)y->J_trace, &t->trace, 8) ||
	    msp_read(t->mem, t->J + (int64_t)y->J_sizetrace, &t->size, 4))
		return MSP_E_FAULT;
	return t->size <= MAX_TRACES ? 0 : MSP_E_FORMAT;
}

static void place_at(const struct table *t, uint64_t pc, struct msp_lj_code_place *out)
{
	const struct msp_lj_proto_ref *pt = msp_lj_protos_at(t->protos, t->layout, pc);

	if (!pt || pc & 3)
		return;
	out->pt = pt->addr;
	out->ident = pt->ident;
	out->pos = (pc - pt->addr - (uint64_t)t->layout->pt_size) / 4;
}

/* The IR's first instruction, BASE, has where the trace comes from (lj_record.c). */
static void read_origin(const struct table *t, const uint8_t *header, struct msp_lj_trace *out)
{
	uint64_t ir = msp_hdr_ref(header, t->layout->T_ir, 1);
	uint8_t base[MSP_IR_SIZE];
	uint32_t parent, exit;

	if (msp_read(t->mem, ir + (uint64_t)MSP_REF_BIAS * MSP_IR_SIZE, base, sizeof(base)))
		return;
	parent = msp_get16(base);
	exit = msp_get16(base + 2);
	if (parent >= t->size || (!parent && exit >= t->size))
		return;
	if (out->root) {
		out->parent = parent;
		out->exit = exit;
	} else if (!parent && exit) {
		out->parent = exit;
		out->stitched = true;
	}
}

/* False: it is no trace, or one that is being recorded. */
static bool read_trace(const struct table *t, uint32_t number, struct msp_lj_trace *out)
{
	const struct msp_lj_layout *y = t->layout;
	_Alignas(8) uint8_t header[MSP_TRACE_HEADER_MAX];
	uint64_t at;

	if (!msp_lj_read_ref(y, t->mem, t->trace + (uint64_t)number * (y->gc64 ? 8 : 4), &at) ||
	    !msp_lj_object_address(at) || at - t->J < JIT_STATE_SIZE ||
	    msp_read(t->mem, at, header, sizeof(header)) ||
	    header[y->gc_gct & 127] != MSP_GCT_TRACE || msp_hdr_u16(header, y->T_traceno) != number)
		return false;
	*out = (struct msp_lj_trace){
		.at = at,
		.number = number,
		.root = msp_hdr_u16(header, y->T_root),
		.link = msp_hdr_u16(header, y->T_link),
		.linktype = msp_hdr_u8(header, y->T_linktype),
		.szmcode = msp_hdr_u32(header, y->T_szmcode),
		.snapshots = msp_hdr_u16(header, y->T_nsnap),
	};
	read_origin(t, header, out);
	place_at(t, msp_hdr_ref(header, y->T_startpc, y->gc64), &out->start);
	return true;
}

static int read_traces(const struct table *t, struct msp_lj_jit *out)
{
	out->trace = calloc(t->size ? t->size : 1, sizeof(*out->trace));
	if (!out->trace)
		return MSP_E_NOMEM;
	for (uint32_t i = 1; i < t->size; i++)
		if (read_trace(t, i, &out->trace[out->traces]))
			out->mcode += out->trace[out->traces++].szmcode;
	return 0;
}

int msp_lj_jit_read(const struct msp_lj_build *build, const struct msp_memory *mem, uint64_t g,
		    struct msp_lj_jit *out)
{
	struct msp_lj_protos protos = {0};
	struct msp_lj_aborts aborts;
	struct table t = {.build = build, .layout = &build->layout, .mem = mem, .protos = &protos};
	int r = build->layout.jit ? read_table(&t, g) : MSP_E_UNSUPPORTED;

	*out = (struct msp_lj_jit){0};
	if (!r)
		r = msp_lj_protos_read(build, mem, g, &protos);
	if (!r)
		r = read_traces(&t, out);
	if (!r) {
		msp_lj_aborts_read(&build->layout, mem, g, &protos, &aborts);
		out->aborts_known = aborts.found;
		out->flushed = aborts.flushed;
		out->all_functions = protos.complete;
		r = msp_lj_refusals_read(&build->layout, mem, &protos, &aborts, out);
	}
	msp_lj_protos_free(&protos);
	if (r)
		msp_lj_jit_free(out);
	return r;
}

void msp_lj_jit_free(struct msp_lj_jit *jit)
{
	free(jit->trace);
	free(jit->refusal);
	*jit = (struct msp_lj_jit){0};
}

int msp_lj_trace_places(const struct msp_lj_build *build, const struct msp_memory *mem,
			const struct msp_lj_trace *trace,
			void (*fn)(void *ctx, const struct msp_lj_code_place *place), void *ctx)
{
	struct msp_trace_image *image;
	int r = msp_trace_image_read(&build->layout, mem, 0, trace->at, NULL, NULL, 0, &image);

	if (r)
		return r;
	for (uint32_t i = 0; i < image->snap_count; i++)
		for (uint32_t n = image->snap[i].leaf; n; n = image->node[n].parent)
			if (image->node[n].kind == MSP_RAW_LUA)
				fn(ctx, &(struct msp_lj_code_place){image->node[n].addr,
								    image->node[n].ident,
								    image->node[n].pos});
	msp_trace_image_free(image);
	return 0;
}

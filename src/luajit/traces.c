/* SPDX-License-Identifier: MIT */
/* Traces by identity. */
#include "luajit/traces.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/trace_image.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

#define BUCKETS 1024
#define MAX_MEMORY (8u << 20) /* a program that makes traces without end: start again then */

struct msp_lj_traces {
	struct msp_lj_layout layout;
	const struct msp_lj_build *build;
	const struct msp_memory *mem;
	uint64_t g;
	uint64_t descriptor; /* 0: there is none */
	size_t memory;
	struct msp_trace_image *bucket[BUCKETS]; /* by number */
};

struct msp_lj_traces *msp_lj_traces_new(const struct msp_lj_layout *layout,
					const struct msp_lj_build *build,
					const struct msp_memory *mem, uint64_t g)
{
	struct msp_lj_traces *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->layout = *layout;
	t->build = build;
	t->mem = mem;
	t->g = g;
	return t;
}

void msp_lj_traces_set_descriptor(struct msp_lj_traces *traces, uint64_t descriptor)
{
	traces->descriptor = descriptor;
}

static void forget(struct msp_lj_traces *t)
{
	struct msp_trace_image *next;

	for (int i = 0; i < BUCKETS; i++)
		for (; t->bucket[i]; t->bucket[i] = next) {
			next = t->bucket[i]->next;
			msp_trace_image_free(t->bucket[i]);
		}
	t->memory = 0;
}

void msp_lj_traces_free(struct msp_lj_traces *traces)
{
	if (traces)
		forget(traces);
	free(traces);
}

size_t msp_lj_traces_memory(const struct msp_lj_traces *traces)
{
	return sizeof(*traces) + traces->memory;
}

static struct msp_trace_image *find(const struct msp_lj_traces *t, const struct msp_raw_frame *vm)
{
	struct msp_trace_image *image = t->bucket[vm->trace % BUCKETS];

	while (image && !msp_trace_image_is(image, vm))
		image = image->next;
	return image;
}

static struct msp_trace_image *keep(struct msp_lj_traces *t, struct msp_trace_image *image)
{
	struct msp_trace_image **bucket = &t->bucket[image->number % BUCKETS];

	if (t->memory + image->size > MAX_MEMORY)
		forget(t);
	t->memory += image->size;
	image->next = *bucket;
	return *bucket = image;
}

/* Reads the trace that a sample was in, if it is still the same. */
static int read_image(struct msp_lj_traces *t, const struct msp_raw_frame *vm,
		      struct msp_trace_image **out)
{
	uint64_t at = msp_trace_find(&t->layout, t->mem, t->g, vm->trace);
	struct msp_trace_image *image;
	int err;

	if (!at || !vm->ident) /* it could not be read: that is no identity */
		return MSP_E_GONE;
	err = msp_trace_image_read(&t->layout, t->mem, t->g, at, vm, t->build, t->descriptor,
				   &image);
	if (err)
		return err;
	*out = keep(t, image);
	return 0;
}

/*
 * Does the VM have the trace now that was made there? Most of those that it has not are found out
 * before all of it is read.
 */
static bool is_there(const struct msp_lj_traces *t, uint64_t at, uint64_t mcode, uint64_t szmcode)
{
	_Alignas(8) uint8_t header[MSP_TRACE_HEADER_MAX];

	return at && !msp_read(t->mem, at, header, sizeof(header)) &&
	       msp_hdr_ref(header, t->layout.T_mcode, 1) == mcode &&
	       msp_hdr_u32(header, t->layout.T_szmcode) == szmcode;
}

int msp_lj_traces_keep(struct msp_lj_traces *t, uint64_t number, uint64_t mcode, uint64_t szmcode,
		       struct msp_raw_frame *vm)
{
	uint64_t at = msp_trace_find(&t->layout, t->mem, t->g, (uint32_t)number);
	struct msp_trace_image *image;
	int err;

	*vm = (struct msp_raw_frame){.trace = (uint32_t)number};
	if (number > UINT16_MAX || !is_there(t, at, mcode, szmcode))
		return MSP_E_GONE;
	err = msp_trace_image_read(&t->layout, t->mem, t->g, at, vm, t->build, t->descriptor,
				   &image);
	if (err)
		return err;
	vm->trace = image->number;
	vm->ident = msp_trace_image_ident(image, 0);
	if (find(t, vm))
		msp_trace_image_free(image);
	else
		keep(t, image);
	return 0;
}

int msp_lj_traces_frames(struct msp_lj_traces *traces, const struct msp_raw_frame *vm,
			 const struct msp_raw_frame *base,
			 struct msp_raw_frame out[MSP_TRACE_DEPTH], bool *fresh)
{
	struct msp_trace_image *image = find(traces, vm);
	int err = 0;

	*fresh = !image;
	if (!image)
		err = read_image(traces, vm, &image);
	if (err)
		*fresh = false;
	return err ? err : (int)msp_trace_frames_at(image, vm, base, out);
}

void msp_lj_traces_functions(struct msp_lj_traces *traces, const struct msp_raw_frame *vm,
			     void (*fn)(void *ctx, const struct msp_raw_frame *frame,
					const struct msp_raw_frame *parent),
			     void *ctx)
{
	const struct msp_trace_image *image = find(traces, vm);
	struct msp_raw_frame frame, parent;
	const struct msp_trace_node *node;

	for (uint32_t i = 1; image && i < image->node_count; i++) {
		node = &image->node[i];
		if (node->kind != MSP_RAW_LUA)
			continue;
		msp_trace_put_frame(&frame, node, vm);
		msp_trace_put_frame(&parent, &image->node[node->parent], vm);
		fn(ctx, &frame, node->parent ? &parent : NULL);
	}
}

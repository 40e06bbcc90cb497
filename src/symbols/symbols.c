/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"
#include "symbols/internal.h"

#define CALLER_REACH 16 /* frames: C functions between a Lua function and its caller */

int msp_symbolizer_new(struct msp_images *images, struct msp_space *space,
		       const struct msp_kernel_symbols *kernel, struct msp_symbolizer **out)
{
	struct msp_symbolizer *s = calloc(1, sizeof(*s));

	*out = s;
	if (!s)
		return MSP_E_NOMEM;
	s->images = images;
	s->space = space;
	s->kernel = kernel;
	return 0;
}

void msp_symbolizer_free(struct msp_symbolizer *symbols)
{
	free(symbols);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static void name_kernel(struct msp_symbolizer *s, const struct msp_raw_frame *raw,
			struct msp_frame *out)
{
	const char *name, *module;

	out->kind = MSP_FRAME_KERNEL;
	out->address = raw->addr;
	out->object = "[kernel]";
	/* of a return address, the call before it counts */
	if (!msp_kernel_symbol(s->kernel, raw->addr - !!(raw->flags & MSP_RAWF_RETURN), &name,
			       &module))
		return;
	out->name = name;
	if (strcmp(module, "kernel")) {
		snprintf(s->text, sizeof(s->text), "[%s]", module);
		out->object = s->text;
	}
}

/* Start of the function around an address by the unwind table, which stripped files have too; else the address. */
static uint64_t function_start(const struct msp_image_entry *entry, uint64_t addr)
{
	const struct msp_unwind_table *table = entry->table;
	uint32_t lo = 0, hi = table ? table->function_count : 0, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (table->functions[mid] <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? table->functions[lo - 1] : addr;
}

/* Without a symbol a function is known by where it starts. */
static void name_native(struct msp_symbolizer *s, const struct msp_raw_frame *raw,
			struct msp_frame *out)
{
	const struct msp_image_entry *entry = msp_images_get(s->images, raw->image);
	struct msp_symbol symbol;

	out->kind = MSP_FRAME_NATIVE;
	out->address = raw->ident;
	if (!entry)
		return;
	s->image = entry->image;
	out->object = base_name(msp_image_name(entry->image));
	out->address = raw->ident + msp_image_min_vaddr(entry->image);
	if (!msp_image_symbol(entry->image, raw->ident, &symbol))
		out->name = symbol.name;
	else
		out->address =
			function_start(entry, raw->ident) + msp_image_min_vaddr(entry->image);
}

/*
 * The image that has code at an address, and where in it. Of a process that ended before it could be read its stack tells
 * where the images are that other frames are of. 0: not known.
 */
static uint32_t image_at(struct msp_symbolizer *s, const struct msp_raw_frame *raw, size_t n,
			 uint64_t addr, uint64_t *at)
{
	const struct msp_mapping *map = s->space ? msp_space_find(s->space, addr) : NULL;
	const struct msp_image_entry *entry;
	size_t size;

	if (s->space) {
		*at = map ? addr - map->base : 0;
		return map ? map->image : 0;
	}
	for (size_t i = 0; i < n; i++) {
		entry = raw[i].kind == MSP_RAW_NATIVE ? msp_images_get(s->images, raw[i].image)
						      : NULL;
		/* images are placed in whole pages; a return address was looked up one byte lower */
		*at = addr - ((raw[i].addr - raw[i].ident) & ~4095ull);
		if (entry && msp_image_bytes(entry->image, *at, &size))
			return raw[i].image;
	}
	return 0;
}

static int name_gone(struct msp_frame *out)
{
	out->name = "[function gone]";
	return MSP_E_GONE;
}

/* A C function known by its address only. */
static int name_cfunction(struct msp_symbolizer *s, const struct msp_raw_frame *raw, size_t n,
			  uint64_t addr, struct msp_frame *out)
{
	struct msp_raw_frame native = {.addr = addr};
	uint64_t at;

	native.image = image_at(s, raw, n, addr, &at);
	native.ident = at;
	if (native.image)
		name_native(s, &native, out);
	else
		out->address = addr;
	out->kind = MSP_FRAME_CFUNCTION;
	return native.image || s->space ? 0 : name_gone(out);
}

/* Does the native frame just inside of a C function's Lua frame show that function already? */
static bool shown_already(struct msp_symbolizer *s, const struct msp_raw_frame *raw, size_t n,
			  size_t i)
{
	const struct msp_image_entry *entry;
	uint64_t at;
	uint32_t image;

	/* the VM frame stands between them */
	if (i < 2 || raw[i - 1].kind != MSP_RAW_VM || raw[i - 2].kind != MSP_RAW_NATIVE)
		return false;
	image = image_at(s, raw, n, raw[i].addr, &at);
	entry = image == raw[i - 2].image ? msp_images_get(s->images, image) : NULL;
	return entry && function_start(entry, raw[i - 2].ident) == at;
}

static const struct msp_image_entry *build_of(struct msp_symbolizer *s, uint32_t layout)
{
	return layout ? msp_images_by_layout(s->images, layout) : NULL;
}

/* The VM frame that a Lua frame belongs to: the nearest one towards the leaf. */
const struct msp_raw_frame *msp_raw_vm_of(const struct msp_raw_frame *raw, size_t i)
{
	while (i--)
		if (raw[i].kind == MSP_RAW_VM)
			return &raw[i];
	return NULL;
}

const struct msp_raw_frame *msp_raw_caller_of(const struct msp_raw_frame *raw, size_t n, size_t i)
{
	size_t at = i + 1, last = i + CALLER_REACH < n ? i + CALLER_REACH : n;

	while (at < last && raw[at].kind != MSP_RAW_LUA)
		at++;
	return at < last ? &raw[at] : NULL;
}

/* Its prototype, and where it called; no position if there are others between. 0: there is none. */
static void caller_of(const struct msp_raw_frame *raw, size_t n, size_t i, uint64_t *pt,
		      uint32_t *pos)
{
	const struct msp_raw_frame *f = msp_raw_caller_of(raw, n, i);

	*pt = f ? f->addr : 0;
	*pos = f == &raw[i + 1] && !(f->flags & MSP_RAWF_NOPC) ? f->pos : 0;
}

static int name_lua(struct msp_symbolizer *s, const struct msp_raw_frame *raw, size_t n, size_t i,
		    struct msp_frame *out)
{
	const struct msp_raw_frame *vm_frame = msp_raw_vm_of(raw, i), *f = &raw[i];
	uint64_t caller;
	uint32_t caller_pos;
	const struct msp_vm *vm;
	struct msp_lj_names *names;
	const struct msp_lj_function *function;

	out->kind = f->flags & MSP_RAWF_INLINED ? MSP_FRAME_INLINED
		    : f->flags & MSP_RAWF_JIT	? MSP_FRAME_JIT
						: MSP_FRAME_LUA;
	out->certain = !(f->flags & MSP_RAWF_GUESS);
	out->trace = f->trace;
	vm = vm_frame && s->space ? msp_space_vm_at(s->space, f->image, vm_frame->addr) : NULL;
	names = vm ? msp_space_vm_names(s->space, vm) : NULL;
	if (!names)
		return name_gone(out);
	caller_of(raw, n, i, &caller, &caller_pos);
	if (msp_lj_names_function(names, f->addr, f->ident, caller, caller_pos, &function))
		return name_gone(out);
	out->name = function->name;
	out->file = function->file;
	out->defined = function->defined;
	s->provisional = !function->by_definition;
	if (!(f->flags & MSP_RAWF_NOPC))
		out->line = msp_lj_names_line(names, f->addr, f->ident, f->pos);
	return 0;
}

static void name_fast(struct msp_symbolizer *s, const struct msp_raw_frame *f,
		      struct msp_frame *out)
{
	const struct msp_image_entry *build = build_of(s, f->image);

	out->kind = MSP_FRAME_FAST;
	out->name = build && build->build ? msp_lj_build_ff_name(build->build, f->pos) : NULL;
	if (!out->name) {
		snprintf(s->text, sizeof(s->text), "fast function %u", f->pos);
		out->name = s->text;
	}
}

static void name_vm(struct msp_symbolizer *s, const struct msp_raw_frame *f, struct msp_frame *out)
{
	struct msp_raw_frame native = {.addr = f->ident, .ident = f->ident, .image = f->pos};

	if (f->flags & MSP_RAWF_JIT) {
		snprintf(s->text, sizeof(s->text), "[trace %u]", f->trace);
		out->kind = MSP_FRAME_NATIVE;
		out->name = s->text;
	} else {
		name_native(s, &native, out);
		out->name = "[luajit vm]";
	}
	out->vm = true;
}

static void name_error(struct msp_symbolizer *s, const struct msp_raw_frame *f,
		       struct msp_frame *out)
{
	static const char *const reason[] = {
#define _(id, text) text,
		MSP_ERROR_REASONS(_)
#undef _
	};

	out->kind = MSP_FRAME_ERROR;
	out->name = s->text;
	if (f->pos == MSP_ERR_TRUNCATED)
		snprintf(s->text, sizeof(s->text), "[truncated]");
	else
		snprintf(s->text, sizeof(s->text), "[error: %s]",
			 f->pos < MSP_ERROR_REASON_COUNT ? reason[f->pos] : "unknown");
}

static void name_state(const struct msp_raw_frame *f, struct msp_frame *out)
{
	static const char *const text[] = {
#define _(id, name) name,
		MSP_STATES(_)
#undef _
	};

	out->kind = MSP_FRAME_STATE;
	out->name = f->pos < MSP_STATE_COUNT ? text[f->pos] : "[state]";
}

int msp_symbolizer_frame(struct msp_symbolizer *s, const struct msp_raw_frame *raw, size_t n,
			 size_t i, struct msp_frame *out)
{
	const struct msp_raw_frame *f = &raw[i];

	memset(out, 0, sizeof(*out));
	s->image = NULL;
	out->certain = true;
	switch (f->kind) {
	case MSP_RAW_KERNEL:
		name_kernel(s, f, out);
		return 0;
	case MSP_RAW_NATIVE:
		name_native(s, f, out);
		return 0;
	case MSP_RAW_LUA:
		return name_lua(s, raw, n, i, out);
	case MSP_RAW_FAST:
		name_fast(s, f, out);
		return 0;
	case MSP_RAW_CFUNC:
		return shown_already(s, raw, n, i) ? 1 : name_cfunction(s, raw, n, f->addr, out);
	case MSP_RAW_VM:
		name_vm(s, f, out);
		return 0;
	case MSP_RAW_STATE:
		name_state(f, out);
		return 0;
	default:
		name_error(s, f, out);
		return 0;
	}
}

const struct msp_image *msp_symbolizer_image(const struct msp_symbolizer *symbols)
{
	return symbols->image;
}

bool msp_symbolizer_final(const struct msp_symbolizer *s)
{
	return !s->provisional;
}

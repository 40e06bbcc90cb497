/* SPDX-License-Identifier: MIT */
/* Names of Lua functions: the cache, and the order in which names are looked for. */
#include <stdlib.h>
#include <string.h>

#include "luajit/names.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

#define SITES_MAX 4096
#define TRIES_MAX 2 /* times that an answer is looked for again, each after a pass of the index */

/* A parent or caller: the last few are kept. NULL: not readable. */
static const struct msp_proto *recent(struct msp_lj_names *names, uint64_t addr)
{
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX];
	struct msp_proto fresh, *slot;

	for (int i = 0; i < MSP_NAMES_RECENT; i++) {
		slot = &names->recent[i];
		if (!slot->data || slot->addr != addr)
			continue;
		if (!msp_proto_read_header(&names->layout, &names->mem, addr, header) &&
		    msp_hdr_u8(header, names->layout.gc_gct) == MSP_GCT_PROTO &&
		    msp_proto_ident(header, &names->layout) == slot->ident)
			return slot;
		msp_proto_free(slot);
	}
	if (!addr || msp_proto_read(&names->layout, &names->mem, addr, &fresh))
		return NULL;
	slot = &names->recent[names->recent_next++ % MSP_NAMES_RECENT];
	msp_proto_free(slot);
	*slot = fresh;
	return slot;
}

/* Is that the parent, and what does it call its child? 1: this; 0: nothing; negative: not the parent. */
static int name_by_parent(struct msp_lj_names *names, const struct msp_proto *child,
			  uint64_t parent, struct msp_text *out)
{
	struct msp_bc_view view = {.layout = &names->layout,
				   .mem = &names->mem,
				   .set = names->set,
				   .work = MSP_VIEW_WORK};
	enum msp_proto_tail tail;
	uint32_t pos;

	view.pt = parent && names->set ? recent(names, parent) : NULL;
	if (!view.pt || !msp_define_find(&view, child, &pos))
		return MSP_E_NOT_FOUND;
	tail = msp_proto_tail(view.pt);
	if (tail == MSP_TAIL_BROKEN)
		return MSP_E_NOT_FOUND;
	if (msp_define_name(&view, child, pos, out))
		return 1;
	return tail == MSP_TAIL_WHOLE ? 0 : MSP_E_NOT_FOUND;
}

static int name_by_index(struct msp_lj_names *names, const struct msp_proto *pt,
			 struct msp_text *out)
{
	const struct msp_pair *pair = msp_pairs_find(&names->index.heap.parent, pt->addr);
	int result = MSP_E_NOT_FOUND;

	for (int i = 0; pair && i < 2 && result < 0; i++)
		result = name_by_parent(names, pt, pair->value[i], out);
	return result;
}

/* From the cheapest to the most expensive way to a parent. Result as above. */
static int name_by_definition(struct msp_lj_names *names, const struct msp_proto *pt,
			      uint64_t caller, struct msp_text *out)
{
	int result = name_by_parent(names, pt, caller, out);

	if (result < 0)
		result = name_by_index(names, pt, out);
	if (names->improving)
		return result;
	if (result < 0 && msp_index_near(names, pt->addr, pt->sizept)) {
		result = name_by_index(names, pt, out);
		names->index.misses = result < 0 ? names->index.misses + 1 : 0;
	}
	if (result < 0) {
		msp_index_run(names);
		result = name_by_index(names, pt, out);
	}
	return result;
}

/* A call site that calls different functions names none of them, except the first. */
static bool site_take(struct msp_lj_names *names, const struct msp_names_site *site)
{
	struct msp_names_site *slot;
	size_t at = msp_ident_mix(site->caller, site->pos);

	if (!names->site)
		names->site = calloc(SITES_MAX, sizeof(*names->site));
	if (!names->site)
		return false;
	for (int i = 0; i < 8; i++) {
		slot = &names->site[(at + i) % SITES_MAX];
		if (!slot->caller)
			break;
		if (slot->caller == site->caller && slot->pos == site->pos)
			return slot->pt == site->pt && slot->ident == site->ident;
	}
	*slot = *site;
	return true;
}

/*
 * A function that was reached by a tail call is not the one that the call site
 * names: where the heap can tell, it is asked.
 */
static bool site_holds(const struct msp_lj_names *names, const struct msp_site *site,
		       uint64_t caller, uint64_t pt)
{
	if (site->kind == MSP_SITE_UPVALUE)
		return !msp_heap_upvalue_other(names, caller, site->index, pt);
	return msp_heap_has_key(names, pt, site->name) != 0;
}

/* As a variable around the caller: also if it was handed on, as to table.sort. */
static bool name_by_upvalue(const struct msp_lj_names *names, const struct msp_proto *caller,
			    const struct msp_proto *pt, struct msp_text *out)
{
	int index = msp_heap_upvalue_of(names, caller->addr, caller->sizeuv, pt->addr);
	const char *name = index < 0 ? NULL : msp_proto_uvname(caller, index);

	if (name)
		msp_text_add(out, name);
	return name && *name;
}

static bool name_by_site(struct msp_lj_names *names, const struct msp_proto *pt, uint64_t caller,
			 uint32_t pos, struct msp_text *out)
{
	struct msp_names_site taken = {.pt = pt->addr, .ident = pt->ident, .pos = pos};
	struct msp_bc_view view = {.layout = &names->layout,
				   .mem = &names->mem,
				   .set = names->set,
				   .work = MSP_VIEW_WORK};
	struct msp_site site;
	bool found;

	view.pt = caller && names->set ? recent(names, caller) : NULL;
	if (!view.pt)
		return false;
	taken.caller = view.pt->ident;
	found = msp_site_find(&view, pos, &site);
	if (found && site.kind != MSP_SITE_LOCAL && site_holds(names, &site, caller, pt->addr) &&
	    site_take(names, &taken)) {
		msp_text_add_key(out, site.name, '.');
		return true;
	}
	if (name_by_upvalue(names, view.pt, pt, out))
		return true;
	/* A variable may well hold another function each time: "for _, test in ipairs(tests)". */
	if (found && site.kind == MSP_SITE_LOCAL)
		msp_text_add(out, site.name);
	return found && site.kind == MSP_SITE_LOCAL;
}

/* A main chunk is defined on line 0; so is everything in stripped bytecode. */
static bool is_main(const struct msp_proto *pt)
{
	return !pt->firstline && (pt->lineinfo || (pt->flags & MSP_PROTO_VARARG && !pt->sizeuv));
}

/* Fills in the name. Returns whether it is final. */
static bool name_function(struct msp_lj_names *names, const struct msp_proto *pt, uint64_t caller,
			  uint32_t pos, struct msp_lj_function *fn, struct msp_text *text)
{
	int result = MSP_E_NOT_FOUND;

	msp_text_clear(text);
	if (pt->firstline == MSP_PROTO_BUILTIN_LINE) {
		msp_text_add(text, fn->chunk);
		fn->by_definition = true;
		return true;
	}
	if (pt->firstline || !pt->lineinfo)
		result = name_by_definition(names, pt, caller, text);
	fn->by_definition = result > 0 || (is_main(pt) && result < 0);
	if (result > 0)
		return true;
	if (fn->by_definition) {
		msp_text_add(text, "main chunk");
		return pt->lineinfo != 0;
	}
	/* Where the parent was found and gives no name, a call site's would be an alias. */
	if (result == 0 ||
	    (!msp_heap_name(names, pt->addr, text) && !name_by_site(names, pt, caller, pos, text)))
		msp_text_add(text, MSP_ANONYMOUS);
	return result == 0;
}

/* Reads the prototype and makes sure that it is the one that was asked for. */
static int read_identified(struct msp_lj_names *names, uint64_t pt, uint64_t ident,
			   struct msp_proto *out)
{
	int error = msp_proto_read(&names->layout, &names->mem, pt, out);

	if (error == MSP_E_FORMAT || error == MSP_E_FAULT)
		return MSP_E_GONE;
	if (!error && out->ident != ident) {
		msp_proto_free(out);
		return MSP_E_GONE;
	}
	return error;
}

/* Looks at the target for an answer. settled: it will not get better. */
static int describe(struct msp_lj_names *names, const struct msp_proto *pt, uint64_t caller,
		    uint32_t pos, const struct msp_lj_function **out, bool *settled)
{
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX];
	struct msp_lj_function fn = {.defined = pt->firstline};
	struct msp_text text;
	int error = msp_cache_chunk(names, pt, &fn);

	if (error == MSP_E_LIMIT) {
		*settled = true;
		*out = msp_cache_function(names, &fn);
		return 0;
	}
	if (fn.defined == MSP_PROTO_BUILTIN_LINE)
		fn.defined = 0;
	if (!error)
		*settled = name_function(names, pt, caller, pos, &fn, &text);
	/* The chunk's name and the parent were read later than the prototype: is it still there? */
	if (!error)
		error = msp_proto_read_header(&names->layout, &names->mem, pt->addr, header);
	if (!error && (msp_hdr_u8(header, names->layout.gc_gct) != MSP_GCT_PROTO ||
		       msp_proto_ident(header, &names->layout) != pt->ident))
		error = MSP_E_GONE;
	if (error)
		return error == MSP_E_FORMAT || error == MSP_E_FAULT ? MSP_E_GONE : error;
	fn.name = msp_intern_add(&names->strings, text.s);
	*out = fn.name ? msp_cache_function(names, &fn) : NULL;
	return *out ? 0 : MSP_E_NOMEM;
}

/*
 * Is there a better answer by now? A definition replaces any name, and any
 * name "anonymous"; a name that is one stays, or the function had two.
 */
static void improve(struct msp_lj_names *names, struct msp_names_entry *entry)
{
	const struct msp_lj_function *fn;
	struct msp_proto pt;

	msp_index_run(names); /* the parent may be younger than the last pass */
	if (entry->tried == names->index.passes)
		return;
	entry->tried = names->index.passes;
	entry->settled = ++entry->tries >= TRIES_MAX;
	if (read_identified(names, entry->pt, entry->ident, &pt)) {
		entry->settled = true; /* gone */
		return;
	}
	names->improving = true;
	if (!describe(names, &pt, 0, 0, &fn, &entry->settled) &&
	    (fn->by_definition || !strcmp(entry->fn->name, MSP_ANONYMOUS)))
		entry->fn = fn;
	names->improving = false;
	entry->settled = entry->settled || entry->tries >= TRIES_MAX;
	msp_proto_free(&pt);
}

/*
 * A call site may tell a name, where none is known yet: the first that is seen, and one after each
 * of the next passes of the index, which finds what the caller's upvalues hold.
 */
static bool may_name_by_call(const struct msp_lj_names *names, const struct msp_names_entry *entry)
{
	return !entry->calls ||
	       (entry->calls <= TRIES_MAX && entry->called != names->index.passes &&
		!strcmp(entry->fn->name, MSP_ANONYMOUS));
}

static void name_by_call(struct msp_lj_names *names, struct msp_names_entry *entry, uint64_t caller,
			 uint32_t pos)
{
	const struct msp_lj_function *fn;
	struct msp_proto pt;

	entry->calls++;
	entry->called = names->index.passes;
	if (strcmp(entry->fn->name, MSP_ANONYMOUS) ||
	    read_identified(names, entry->pt, entry->ident, &pt))
		return;
	if (!describe(names, &pt, caller, pos, &fn, &entry->settled))
		entry->fn = fn;
	msp_proto_free(&pt);
}

static int entry_new(struct msp_lj_names *names, uint64_t pt, uint64_t ident, uint64_t caller,
		     uint32_t pos, struct msp_names_entry **out)
{
	const struct msp_lj_function *fn;
	struct msp_proto proto;
	bool settled = false;
	int error = msp_cache_reserve(names);

	if (!error)
		error = read_identified(names, pt, ident, &proto);
	if (error)
		return error;
	error = describe(names, &proto, caller, pos, &fn, &settled);
	if (!error) {
		*out = msp_cache_add(names, pt, ident);
		(*out)->fn = fn;
		(*out)->settled = settled;
		(*out)->calls = caller != 0;
		(*out)->called = names->index.passes;
		(*out)->tried = names->index.passes;
		msp_cache_keep_lines(names, *out, &proto);
	}
	msp_proto_free(&proto);
	return error;
}

/* ---- Interface ---- */

int msp_lj_names_function(struct msp_lj_names *names, uint64_t pt, uint64_t ident,
			  uint64_t caller_pt, uint32_t caller_pos,
			  const struct msp_lj_function **out)
{
	struct msp_names_entry *entry;
	int error;

	if (!pt || !ident)
		return MSP_E_INVALID;
	entry = msp_cache_find(names, pt, ident);
	if (!entry) {
		error = entry_new(names, pt, ident, caller_pt, caller_pos, &entry);
		if (error)
			return error;
	} else if (!entry->settled) {
		improve(names, entry);
	}
	if (caller_pt && may_name_by_call(names, entry))
		name_by_call(names, entry, caller_pt, caller_pos);
	entry->used = true;
	*out = entry->fn;
	return 0;
}

void msp_lj_names_remember(struct msp_lj_names *names, uint64_t pt, uint64_t ident,
			   uint64_t caller_pt, uint32_t caller_pos)
{
	struct msp_names_entry *entry;

	if (pt && ident && !msp_cache_find(names, pt, ident))
		entry_new(names, pt, ident, caller_pt, caller_pos, &entry);
}

uint32_t msp_lj_names_line(struct msp_lj_names *names, uint64_t pt, uint64_t ident, uint32_t pos)
{
	struct msp_names_entry *entry;
	struct msp_proto proto;
	uint32_t line;

	if (!ident)
		return 0;
	entry = msp_cache_find(names, pt, ident);
	if (entry && entry->lines)
		return msp_cache_line(entry->lines, pos);
	if (read_identified(names, pt, ident, &proto))
		return 0;
	line = msp_proto_line(&proto, pos);
	if (entry)
		msp_cache_keep_lines(names, entry, &proto);
	msp_proto_free(&proto);
	return line;
}

/* Every field that is read must lie within the header, and the header within its buffer. */
static bool layout_usable(const struct msp_lj_layout *layout)
{
	const int32_t wide[] = {layout->pt_k, layout->pt_chunkname, layout->pt_lineinfo,
				layout->pt_uvinfo, layout->pt_varinfo};
	const int32_t words[] = {layout->pt_sizebc, layout->pt_sizekgc,	  layout->pt_sizekn,
				 layout->pt_sizept, layout->pt_firstline, layout->pt_numline};
	const int32_t bytes[] = {layout->gc_gct, layout->pt_numparams, layout->pt_framesize,
				 layout->pt_sizeuv, layout->pt_flags};
	int32_t size = layout->pt_size, ref = layout->gc64 ? 8 : 4;
	/* The scan looks at closures where a prototype's header would fit. */
	bool closures = layout->fn_ffid > 0 && layout->fn_ffid < 48 && layout->fn_pc > 0 &&
			layout->fn_pc < 48 && layout->fn_pc + ref <= size;
	bool good = closures && size > 0 && size <= MSP_PROTO_HEADER_MAX && layout->str_len >= 0 &&
		    layout->gc_gct < layout->str_data;

	for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++)
		good = good && wide[i] >= 0 && wide[i] + ref <= size && !(wide[i] & 3);
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		good = good && words[i] >= 0 && words[i] + 4 <= size && !(words[i] & 3);
	for (size_t i = 0; i < sizeof(bytes) / sizeof(*bytes); i++)
		good = good && bytes[i] >= 0 && bytes[i] < size;
	return good;
}

struct msp_lj_names *msp_lj_names_new_layout(const struct msp_lj_layout *layout,
					     const struct msp_memory *mem, uint64_t g)
{
	struct msp_lj_names *names;

	if (!layout_usable(layout))
		return NULL;
	names = calloc(1, sizeof(*names));
	if (!names)
		return NULL;
	names->layout = *layout;
	names->mem = *mem;
	names->g = g;
	names->set = msp_bc_set_find(layout);
	names->chunk = malloc(MSP_CHUNK_MAX);
	if (!names->chunk) {
		free(names);
		return NULL;
	}
	msp_index_init(names);
	return names;
}

void msp_lj_names_free(struct msp_lj_names *names)
{
	if (!names)
		return;
	msp_cache_free(names);
	free(names->site);
	for (int i = 0; i < MSP_NAMES_RECENT; i++)
		msp_proto_free(&names->recent[i]);
	msp_index_free(names);
	free(names->chunk);
	free(names);
}

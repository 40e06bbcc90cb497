/* SPDX-License-Identifier: MIT */
/* Names of Lua functions: the cache, and the order in which names are looked for. */
#include <stdlib.h>
#include <string.h>

#include "luajit/names.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

/*
 * Bounds. A VM that loads new code all the time makes new functions for ever.
 * Entries and lines are forgotten and read again when they are asked for again;
 * what was handed out stays, so beyond its bound no new text is made.
 */
#define ENTRIES_MAX (1u << 18)	   /* in a table of 20 MiB */
#define LINE_BYTES_MAX (32u << 20) /* line information of all entries */
#define FUNCTIONS_MAX (1u << 18)   /* different answers */
#define STRING_BYTES_MAX (64u << 20)
#define CHUNK_BYTES_MAX (16u << 20) /* then a chunk name is its label only */
#define SITES_MAX 4096

#define ANONYMOUS "anonymous"

static const struct msp_lj_function overflow = {
	.name = ANONYMOUS, .file = "[too many chunks]", .chunk = "[too many chunks]"};

/* ---- Tables ---- */

static struct msp_names_entry *entry_slot(struct msp_names_entry *entry, size_t mask, uint64_t pt,
					  uint64_t ident)
{
	size_t at = msp_ident_mix(pt, ident) & mask;

	while (entry[at].ident && (entry[at].pt != pt || entry[at].ident != ident))
		at = (at + 1) & mask;
	return &entry[at];
}

/* A new table, with all entries or those in use. */
static int entries_rebuild(struct msp_lj_names *names, size_t mask, bool only_used)
{
	struct msp_names_entry *fresh = calloc(mask + 1, sizeof(*fresh));
	size_t count = 0;

	if (!fresh)
		return MSP_E_NOMEM;
	for (size_t i = 0; names->entry && i <= names->entry_mask; i++) {
		struct msp_names_entry *e = &names->entry[i];

		if (!e->ident)
			continue;
		if (only_used && !e->used) {
			if (e->lines)
				names->line_bytes -= (size_t)e->lines->sizebc *
						     msp_proto_line_width(e->lines->numline);
			free(e->lines);
			continue;
		}
		e->used = !only_used && e->used;
		*entry_slot(fresh, mask, e->pt, e->ident) = *e;
		count++;
	}
	free(names->entry);
	names->entry = fresh;
	names->entry_mask = mask;
	names->entry_count = count;
	return 0;
}

/* Room for one more. When the table is at its bound, what was not asked for since last time goes. */
static int entries_reserve(struct msp_lj_names *names)
{
	size_t mask = names->entry_mask;

	if (names->entry && names->entry_count * 2 < mask)
		return 0;
	if (!names->entry)
		return entries_rebuild(names, 1023, false);
	if (mask + 1 < ENTRIES_MAX * 2)
		return entries_rebuild(names, mask * 2 + 1, false);
	for (size_t i = 0; i <= mask; i++) /* at least half of them must go */
		if (names->entry_count > ENTRIES_MAX / 2 && i & 1)
			names->entry[i].used = false;
	return entries_rebuild(names, mask, true);
}

static void drop_lines(struct msp_lj_names *names)
{
	for (size_t i = 0; names->entry && i <= names->entry_mask; i++) {
		free(names->entry[i].lines);
		names->entry[i].lines = NULL;
	}
	names->line_bytes = 0;
}

static uint64_t function_hash(const struct msp_lj_function *fn)
{
	uint64_t hash = msp_ident_mix((uintptr_t)fn->name, (uintptr_t)fn->file);

	hash = msp_ident_mix(hash, (uintptr_t)fn->chunk);
	return msp_ident_mix(hash, (uint64_t)fn->defined << 1 | fn->by_definition);
}

static bool function_equal(const struct msp_lj_function *a, const struct msp_lj_function *b)
{
	return a->name == b->name && a->file == b->file && a->chunk == b->chunk &&
	       a->defined == b->defined && a->by_definition == b->by_definition;
}

static int functions_grow(struct msp_lj_names *names)
{
	size_t mask = names->function_mask ? names->function_mask * 2 + 1 : 255, at;
	struct msp_lj_function **fresh = calloc(mask + 1, sizeof(*fresh));

	if (!fresh)
		return MSP_E_NOMEM;
	for (size_t i = 0; names->function && i <= names->function_mask; i++) {
		if (!names->function[i])
			continue;
		at = function_hash(names->function[i]) & mask;
		while (fresh[at])
			at = (at + 1) & mask;
		fresh[at] = names->function[i];
	}
	free(names->function);
	names->function = fresh;
	names->function_mask = mask;
	return 0;
}

/* The one copy of an answer; its strings are interned already. */
static const struct msp_lj_function *function_add(struct msp_lj_names *names,
						  const struct msp_lj_function *fn)
{
	struct msp_lj_function *copy;
	size_t at;

	if (names->function_count * 2 >= names->function_mask && functions_grow(names))
		return NULL;
	at = function_hash(fn) & names->function_mask;
	for (; names->function[at]; at = (at + 1) & names->function_mask)
		if (function_equal(names->function[at], fn))
			return names->function[at];
	if (names->function_count >= FUNCTIONS_MAX)
		return &overflow;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return NULL;
	*copy = *fn;
	names->function[at] = copy;
	names->function_count++;
	return copy;
}

/* ---- Chunk names ---- */

static int labels_grow(struct msp_lj_names *names)
{
	size_t mask = names->label_mask ? names->label_mask * 2 + 1 : 255, at;
	struct msp_label *fresh = calloc(mask + 1, sizeof(*fresh));

	if (!fresh)
		return MSP_E_NOMEM;
	for (size_t i = 0; names->label && i <= names->label_mask; i++) {
		if (!names->label[i].label)
			continue;
		at = (uintptr_t)names->label[i].label / 16 & mask;
		while (fresh[at].label)
			at = (at + 1) & mask;
		fresh[at] = names->label[i];
	}
	free(names->label);
	names->label = fresh;
	names->label_mask = mask;
	return 0;
}

/* Is the label free, or this chunk's already? Then it is this chunk's from now on. */
static bool label_take(struct msp_lj_names *names, const char *label, uint64_t chunk_hash)
{
	size_t at;

	if (names->label_count * 2 >= names->label_mask && labels_grow(names))
		return true;
	at = (uintptr_t)label / 16 & names->label_mask;
	for (; names->label[at].label; at = (at + 1) & names->label_mask)
		if (names->label[at].label == label)
			return names->label[at].chunk_hash == chunk_hash;
	names->label[at] = (struct msp_label){label, chunk_hash};
	names->label_count++;
	return true;
}

/* Label of the chunk name in names->chunk. Two chunks never share one. */
static const char *label_add(struct msp_lj_names *names, uint32_t len, bool builtin)
{
	static const char digits[] = "0123456789abcdef";
	size_t read = len < MSP_CHUNK_MAX - 1 ? len : MSP_CHUNK_MAX - 1;
	uint64_t hash = msp_ident_mix(msp_hash_bytes(names->chunk, read), len);
	char label[MSP_LABEL_MAX];
	size_t size = msp_chunk_label(names->chunk, read, builtin, label);
	const char *text = msp_intern_add(&names->strings, label);

	if (!text || label_take(names, text, hash))
		return text;
	label[size++] = '#';
	for (int i = 0; i < 8; i++)
		label[size++] = digits[hash >> (60 - 4 * i) & 15];
	label[size] = 0;
	return msp_intern_add(&names->strings, label);
}

/* Reads the chunk name of a prototype into fn->chunk and fn->file. */
static int chunk_add(struct msp_lj_names *names, const struct msp_proto *pt,
		     struct msp_lj_function *fn)
{
	bool builtin = pt->firstline == MSP_PROTO_BUILTIN_LINE;
	uint32_t len;
	int error = msp_lj_string_read(&names->layout, &names->mem, pt->chunkname, names->chunk,
				       MSP_CHUNK_MAX, &len);

	if (error)
		return error;
	fn->file = label_add(names, len, builtin);
	fn->chunk = fn->file;
	if (names->strings.bytes < CHUNK_BYTES_MAX)
		fn->chunk = msp_intern_add(&names->strings, names->chunk);
	return fn->file && fn->chunk ? 0 : MSP_E_NOMEM;
}

/* ---- Looking for names ---- */

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
	uint32_t pos;

	view.pt = parent && names->set ? recent(names, parent) : NULL;
	if (!view.pt || !msp_define_find(&view, child, &pos))
		return MSP_E_NOT_FOUND;
	return msp_define_name(&view, child, pos, out);
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
	if (result < 0 && msp_index_near(names, pt->addr, pt->sizept))
		result = name_by_index(names, pt, out);
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
	if (site->upvalue)
		return !msp_heap_upvalue_other(names, caller, site->index, pt);
	return msp_heap_has_key(names, pt, site->name) != 0;
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

	view.pt = caller && names->set ? recent(names, caller) : NULL;
	if (!view.pt || !msp_site_find(&view, pos, &site) ||
	    !site_holds(names, &site, caller, pt->addr))
		return false;
	taken.caller = view.pt->ident;
	if (!site_take(names, &taken))
		return false;
	msp_text_add_key(out, site.name, '.');
	return true;
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
		msp_text_add(text, ANONYMOUS);
	return result == 0;
}

static void keep_lines(struct msp_lj_names *names, struct msp_names_entry *entry,
		       const struct msp_proto *pt)
{
	size_t size = (size_t)(pt->sizebc - 1) * msp_proto_line_width(pt->numline);
	size_t bytes = (size_t)pt->sizebc * msp_proto_line_width(pt->numline);

	if (!pt->lineinfo || entry->lines || bytes > LINE_BYTES_MAX)
		return;
	if (names->line_bytes + bytes > LINE_BYTES_MAX)
		drop_lines(names);
	entry->lines = malloc(sizeof(*entry->lines) + size);
	if (!entry->lines)
		return;
	*entry->lines = (struct msp_lines){pt->sizebc, pt->firstline, pt->numline};
	memcpy(entry->lines->delta, pt->data + pt->lineinfo, size);
	names->line_bytes += bytes;
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

/* Looks at the target: answers into *fn. settled: the answer will not get better. */
static int describe(struct msp_lj_names *names, const struct msp_proto *pt, uint64_t caller,
		    uint32_t pos, const struct msp_lj_function **out, bool *settled)
{
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX];
	struct msp_lj_function fn = {.defined = pt->firstline};
	struct msp_text text;
	int error = chunk_add(names, pt, &fn);

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
	*out = fn.name ? function_add(names, &fn) : NULL;
	return *out ? 0 : MSP_E_NOMEM;
}

/* The answer again, now that the index knows more: a definition, or as it was. */
static void improve(struct msp_lj_names *names, struct msp_names_entry *entry, uint64_t caller)
{
	const struct msp_lj_function *fn;
	struct msp_proto pt;
	bool settled = false;

	entry->tried = names->index.passes;
	if (read_identified(names, entry->pt, entry->ident, &pt)) {
		entry->settled = true; /* gone: there will be no better answer */
		return;
	}
	if (!describe(names, &pt, caller, 0, &fn, &settled)) {
		if (fn->by_definition || !strcmp(entry->fn->name, ANONYMOUS))
			entry->fn = fn;
		entry->settled = settled;
	}
	msp_proto_free(&pt);
}

static int entry_new(struct msp_lj_names *names, uint64_t pt, uint64_t ident, uint64_t caller,
		     uint32_t pos, struct msp_names_entry **out)
{
	const struct msp_lj_function *fn;
	struct msp_names_entry *entry;
	struct msp_proto proto;
	bool settled = false;
	int error = entries_reserve(names);

	if (!error)
		error = read_identified(names, pt, ident, &proto);
	if (error)
		return error;
	if (names->strings.bytes > STRING_BYTES_MAX) {
		fn = &overflow;
		settled = true;
	} else {
		error = describe(names, &proto, caller, pos, &fn, &settled);
	}
	if (!error) {
		entry = entry_slot(names->entry, names->entry_mask, pt, ident);
		*entry = (struct msp_names_entry){.pt = pt,
						  .ident = ident,
						  .fn = fn,
						  .settled = settled,
						  .tried = names->index.passes};
		names->entry_count++;
		keep_lines(names, entry, &proto);
		*out = entry;
	}
	msp_proto_free(&proto);
	return error;
}

/* ---- Interface ---- */

int msp_lj_names_function(struct msp_lj_names *names, uint64_t pt, uint64_t ident,
			  uint64_t caller_pt, uint32_t caller_pos,
			  const struct msp_lj_function **out)
{
	struct msp_names_entry *entry = NULL;

	if (!pt || !ident)
		return MSP_E_INVALID;
	if (names->entry)
		entry = entry_slot(names->entry, names->entry_mask, pt, ident);
	if (!entry || !entry->ident) {
		int error = entry_new(names, pt, ident, caller_pt, caller_pos, &entry);

		if (error)
			return error;
	} else if (!entry->settled && entry->tried != names->index.passes) {
		improve(names, entry, caller_pt);
	}
	entry->used = true;
	*out = entry->fn;
	return 0;
}

static uint32_t line_of(const struct msp_lines *lines, uint32_t pos)
{
	uint32_t width = msp_proto_line_width(lines->numline), delta = 0;

	if (pos > lines->sizebc)
		return 0;
	if (pos == 0)
		return lines->firstline;
	if (pos == lines->sizebc)
		return lines->firstline + lines->numline;
	memcpy(&delta, lines->delta + (size_t)(pos - 1) * width, width);
	return lines->firstline + delta;
}

uint32_t msp_lj_names_line(struct msp_lj_names *names, uint64_t pt, uint64_t ident, uint32_t pos)
{
	struct msp_names_entry *entry = NULL;
	struct msp_proto proto;
	uint32_t line;

	if (!ident)
		return 0;
	if (names->entry)
		entry = entry_slot(names->entry, names->entry_mask, pt, ident);
	if (entry && entry->ident && entry->lines)
		return line_of(entry->lines, pos);
	if (read_identified(names, pt, ident, &proto))
		return 0;
	line = msp_proto_line(&proto, pos);
	if (entry && entry->ident)
		keep_lines(names, entry, &proto);
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
	drop_lines(names);
	free(names->entry);
	for (size_t i = 0; names->function && i <= names->function_mask; i++)
		free(names->function[i]);
	free(names->function);
	free(names->label);
	free(names->site);
	for (int i = 0; i < MSP_NAMES_RECENT; i++)
		msp_proto_free(&names->recent[i]);
	msp_intern_free(&names->strings);
	msp_index_free(names);
	free(names->chunk);
	free(names);
}

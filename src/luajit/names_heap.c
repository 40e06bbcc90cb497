/* SPDX-License-Identifier: MIT */
/*
 * Names from the heap, for functions whose parent was collected: a module's
 * main chunk is, soon after it ran. Its functions live on as closures, under
 * string keys in tables, and in upvalues. The scan that looks for parents
 * notes both; this also tells whether a call site can have called a function.
 *
 *   closure (GCfuncL)   pc -> first instruction of its prototype
 *   node of a table     value: tagged reference of a closure
 *                       key:   tagged reference of a string
 */
#include <stdlib.h>
#include <string.h>

#include "luajit/names.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

#define PAIRS_MAX (1u << 18) /* slots of a map: 6 MiB */
#define PROBES_MAX 128

/* Tags of values (lj_obj.h: LJ_TSTR, LJ_TFUNC), the same in all LuaJIT 2.x. */
#define TAG_STR (~4u)
#define TAG_FUNC (~8u)

/* The key's place, or the free one for it; NULL: too far, as only keys made for it are. */
static struct msp_pair *pair_slot(struct msp_pair *pair, size_t mask, uint64_t key)
{
	/* Addresses are regular: mixed once, they still come in clusters. */
	size_t at = msp_ident_mix(msp_ident_mix(1, key), 2) >> 24;

	for (int i = 0; i < PROBES_MAX; i++, at++)
		if (!pair[at & mask].key || pair[at & mask].key == key)
			return &pair[at & mask];
	return NULL;
}

static int pairs_grow(struct msp_pairs *pairs)
{
	size_t mask = pairs->mask ? pairs->mask * 2 + 1 : 1023;
	struct msp_pair *fresh = calloc(mask + 1, sizeof(*fresh)), *slot;

	if (!fresh)
		return MSP_E_NOMEM;
	for (size_t i = 0; pairs->pair && i <= pairs->mask; i++) {
		slot = pairs->pair[i].key ? pair_slot(fresh, mask, pairs->pair[i].key) : NULL;
		if (slot)
			*slot = pairs->pair[i];
	}
	free(pairs->pair);
	pairs->pair = fresh;
	pairs->mask = mask;
	return 0;
}

void msp_pairs_add(struct msp_pairs *pairs, uint64_t key, uint64_t value)
{
	struct msp_pair *pair;

	if (!key || (pairs->count * 2 >= pairs->mask &&
		     (pairs->mask >= PAIRS_MAX - 1 || pairs_grow(pairs))))
		return;
	pair = pair_slot(pairs->pair, pairs->mask, key);
	if (!pair)
		return;
	if (!pair->key) {
		*pair = (struct msp_pair){.key = key, .value = {value, value}};
		pairs->count++;
	} else if (pair->value[0] != value) {
		pair->value[1] = value;
	}
}

const struct msp_pair *msp_pairs_find(const struct msp_pairs *pairs, uint64_t key)
{
	const struct msp_pair *pair = NULL;

	if (pairs->pair && key)
		pair = pair_slot(pairs->pair, pairs->mask, key);
	return pair && pair->key ? pair : NULL;
}

void msp_heap_clear(struct msp_heap *heap)
{
	free(heap->parent.pair);
	free(heap->closure.pair);
	free(heap->field.pair);
	memset(heap, 0, sizeof(*heap));
}

void msp_heap_init(struct msp_heap *heap, const struct msp_lj_layout *layout)
{
	memset(heap, 0, sizeof(*heap));
	heap->tag_shift = layout->gc64 ? 47 : 32;
	heap->ref_mask = (1ull << heap->tag_shift) - 1;
	heap->func_tag = (uint64_t)TAG_FUNC << heap->tag_shift >> heap->tag_shift;
	heap->str_tag = (uint64_t)TAG_STR << heap->tag_shift >> heap->tag_shift;
}

static uint32_t ref_size(const struct msp_lj_layout *layout)
{
	return layout->gc64 ? 8 : 4;
}

static uint64_t ref_at(const struct msp_lj_layout *layout, const uint8_t *p)
{
	uint64_t ref = 0;

	memcpy(&ref, p, ref_size(layout));
	return ref;
}

/* As much of a closure as tells its prototype. */
static uint32_t closure_size(const struct msp_lj_layout *layout)
{
	return layout->fn_pc + ref_size(layout);
}

/* Address of the prototype of a closure's header; 0: no Lua function. */
static uint64_t closure_proto(const struct msp_lj_layout *layout, const uint8_t *closure)
{
	uint64_t pc;

	if (closure[layout->gc_gct] != MSP_GCT_FUNC || closure[layout->fn_ffid])
		return 0;
	pc = ref_at(layout, closure + layout->fn_pc);
	if (pc & 3 || pc >> 47 || pc < (uint64_t)layout->pt_size)
		return 0;
	pc -= layout->pt_size;
	return pc & 7 ? 0 : pc;
}

void msp_heap_closure(struct msp_heap *heap, const struct msp_lj_layout *layout, uint64_t addr,
		      const uint8_t *closure)
{
	uint64_t pt = closure_proto(layout, closure);

	if (pt)
		msp_pairs_add(&heap->closure, pt, addr);
}

void msp_heap_node(struct msp_heap *heap, uint64_t value, uint64_t key)
{
	msp_pairs_add(&heap->field, value & heap->ref_mask, key & heap->ref_mask);
}

/* Is there a closure of the prototype now? */
static bool closure_alive(const struct msp_lj_names *names, uint64_t closure, uint64_t pt)
{
	uint8_t header[64];

	return closure && !msp_read(&names->mem, closure, header, closure_size(&names->layout)) &&
	       closure_proto(&names->layout, header) == pt;
}

/* The one key under which a closure stands in tables; false: none, or several. */
static bool closure_key(const struct msp_lj_names *names, uint64_t closure, char *buf)
{
	const struct msp_pair *field = msp_pairs_find(&names->index.heap.field, closure);
	char other[MSP_NAME_MAX];
	uint32_t len;

	if (!field || msp_lj_string_read(&names->layout, &names->mem, field->value[0], buf,
					 MSP_NAME_MAX, &len))
		return false;
	if (field->value[1] == field->value[0])
		return len > 0;
	/* Two strings are two keys, unless one of them is only the garbage of a table. */
	return !msp_lj_string_read(&names->layout, &names->mem, field->value[1], other,
				   MSP_NAME_MAX, &len) &&
	       !strcmp(buf, other);
}

bool msp_heap_name(const struct msp_lj_names *names, uint64_t pt, struct msp_text *out)
{
	const struct msp_pair *pair = msp_pairs_find(&names->index.heap.closure, pt);
	char key[MSP_NAME_MAX];

	msp_text_clear(out);
	for (int i = 0; pair && i < 2; i++) {
		if (!closure_alive(names, pair->value[i], pt) ||
		    !closure_key(names, pair->value[i], key))
			continue;
		msp_text_add_key(out, key, '.');
		return true;
	}
	return false;
}

/*
 * Value of a closed upvalue of a closure, if it is a function: its prototype.
 * 0: unknown. The upvalue proves its own layout: it holds a pointer to its value.
 */
static uint64_t upvalue_proto(const struct msp_lj_names *names, uint64_t closure, uint32_t index)
{
	const struct msp_lj_layout *layout = &names->layout;
	const struct msp_heap *heap = &names->index.heap;
	uint32_t ref = ref_size(layout), value = 2 * ref;
	uint8_t header[64], upvalue[40];
	uint64_t uv, tv;

	if (msp_read(&names->mem, closure + layout->fn_pc + ref + (uint64_t)index * ref, header,
		     ref))
		return 0;
	uv = ref_at(layout, header);
	if (!uv || msp_read(&names->mem, uv, upvalue, 5 * ref))
		return 0;
	if (upvalue[layout->gc_gct] != MSP_GCT_UPVAL ||
	    ref_at(layout, upvalue + 4 * ref) != uv + value)
		return 0;
	memcpy(&tv, upvalue + value, sizeof(tv));
	if (tv >> heap->tag_shift != heap->func_tag ||
	    msp_read(&names->mem, tv & heap->ref_mask, header, closure_size(layout)))
		return 0;
	return closure_proto(layout, header);
}

bool msp_heap_upvalue_other(const struct msp_lj_names *names, uint64_t caller, uint32_t index,
			    uint64_t pt)
{
	const struct msp_pair *pair = msp_pairs_find(&names->index.heap.closure, caller);
	bool other = false;

	for (int i = 0; pair && i < 2; i++) {
		uint64_t found;

		if (!closure_alive(names, pair->value[i], caller))
			continue;
		found = upvalue_proto(names, pair->value[i], index);
		if (found == pt)
			return false;
		other = other || found;
	}
	return other;
}

int msp_heap_upvalue_of(const struct msp_lj_names *names, uint64_t caller, uint32_t count,
			uint64_t pt)
{
	const struct msp_pair *pair = msp_pairs_find(&names->index.heap.closure, caller);

	for (int i = 0; pair && i < 2; i++) {
		if (!closure_alive(names, pair->value[i], caller))
			continue;
		for (uint32_t index = 0; index < count; index++)
			if (upvalue_proto(names, pair->value[i], index) == pt)
				return index;
	}
	return -1;
}

int msp_heap_has_key(const struct msp_lj_names *names, uint64_t pt, const char *key)
{
	const struct msp_pair *pair = msp_pairs_find(&names->index.heap.closure, pt), *field;
	char buf[MSP_NAME_MAX];
	int result = -1;
	uint32_t len;

	for (int i = 0; pair && i < 4; i++) {
		uint64_t closure = pair->value[i / 2];

		if (!closure_alive(names, closure, pt))
			continue;
		result = 0;
		field = msp_pairs_find(&names->index.heap.field, closure);
		if (field &&
		    !msp_lj_string_read(&names->layout, &names->mem, field->value[i % 2], buf,
					sizeof(buf), &len) &&
		    !strcmp(buf, key))
			return 1;
	}
	return result;
}

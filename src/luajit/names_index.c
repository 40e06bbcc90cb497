/* SPDX-License-Identifier: MIT */
/*
 * Who is whose parent. A prototype has no link to the one it was defined in;
 * the parent has its children among its constants. So memory is scanned, block
 * by block, for prototypes with children: they cannot be mistaken, since each
 * holds a pointer to its own inside. (The collector's object list leads to
 * them too, but it is a chain through all objects of the VM, changing while it
 * is walked.) The index may be stale: who uses an answer checks it.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "luajit/names.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

#define BLOCK (256u << 10)
#define PAGE 4096u
#define NEAR (128u << 10) /* around a prototype: what the same parser run made */
#define MISSES_IN_A_ROW 32
#define SEED_REACH (64ull << 20) /* around a known address, where no ranges are known */
#define SPANS_MAX 4096
#define MISSES_MAX 8 /* a hole is crossed in steps of up to a page shifted by this */
#define ADDRESS_END (1ull << 47)
#define CREDIT_MAX 50000   /* us that one request may spend */
#define CREDIT_SHARE 20	   /* scanning takes at most 1/20 of the time */
#define PASS_PAUSE 1000000 /* us between passes, at least */

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- Scanning ---- */

/* Where to note what is found. */
static struct msp_heap *heap_of(struct msp_lj_index *index)
{
	return index->in_pass && index->passes ? &index->next : &index->heap;
}

static void add_children(struct msp_lj_names *names, const struct msp_proto *pt)
{
	const struct msp_bc_view view = {.set = names->set, .pt = pt};

	for (uint32_t i = 1; i < pt->sizebc; i++) {
		struct msp_bc_ins ins = msp_view_ins(&view, i);
		uint64_t child = ins.op == MSP_BC_FNEW ? msp_proto_kgc(pt, ins.d) : 0;

		if (child && !(child & 7))
			msp_pairs_add(&heap_of(&names->index)->parent, child, pt->addr);
	}
}

/* A header with children was found: the rest of it may lie beyond the block. */
static void add_parent(struct msp_lj_names *names, struct msp_proto *pt, uint8_t *at, size_t left)
{
	struct msp_proto whole;

	/* True prototypes do not overlap: they never have this much in one block. */
	if (pt->sizept > names->index.work)
		return;
	names->index.work -= pt->sizept;
	names->index.protos++;
	if (pt->sizept <= left) {
		pt->data = at;
		add_children(names, pt);
	} else if (!msp_proto_read(&names->layout, &names->mem, pt->addr, &whole)) {
		add_children(names, &whole);
		msp_proto_free(&whole);
	}
}

static void scan_proto(struct msp_lj_names *names, uint64_t addr, uint8_t *at, size_t left)
{
	const struct msp_lj_layout *layout = &names->layout;
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX] = {0};
	struct msp_proto pt;

	memcpy(header, at, layout->pt_size);
	if (msp_hdr_u8(header, layout->pt_flags) & MSP_PROTO_CHILD &&
	    !msp_proto_parse(layout, header, addr, &pt))
		add_parent(names, &pt, at, left);
}

/*
 * A function, a string behind it: a table's node, if a link to another node or
 * none follows. Arguments on a Lua stack look like it, but for that.
 */
static bool links_on(const struct msp_lj_names *names, const uint8_t *node)
{
	uint64_t next;

	memcpy(&next, node + 16, sizeof(next));
	if (!names->layout.gc64)
		next &= UINT32_MAX;
	return !(next & 7) && next >> 47 == 0;
}

/* The inner loop of everything: 8 bytes a turn, a few GB a second. */
static void scan_block(struct msp_lj_names *names, uint64_t addr, uint8_t *block, size_t size)
{
	struct msp_heap *heap = heap_of(&names->index);
	size_t head = names->layout.pt_size, gct = names->layout.gc_gct;
	uint32_t shift = heap->tag_shift;
	uint64_t func = heap->func_tag, word, key;

	names->index.bytes += size;
	names->index.work = MSP_PROTO_SIZE_MAX + 2 * BLOCK;
	for (size_t off = 0; off + head <= size; off += 8) {
		memcpy(&word, block + off, sizeof(word));
		if (word >> shift == func) {
			memcpy(&key, block + off + 8, sizeof(key));
			if (key >> shift == heap->str_tag && links_on(names, block + off))
				msp_heap_node(heap, word, key);
		}
		if (block[off + gct] == MSP_GCT_PROTO)
			scan_proto(names, addr + off, block + off, size - off);
		else if (block[off + gct] == MSP_GCT_FUNC)
			msp_heap_closure(heap, &names->layout, addr + off, block + off);
	}
}

/*
 * Reads [addr, addr + size), and a header's size more so that none is lost
 * between two blocks; scans it. Returns how much of it could be read: from the
 * start, or from the end if backward.
 */
static uint32_t scan(struct msp_lj_names *names, uint64_t addr, uint32_t size, bool backward)
{
	uint32_t more = MSP_PROTO_HEADER_MAX;

	while (size >= PAGE) {
		if (!msp_read(&names->mem, addr, names->index.block, size + more)) {
			scan_block(names, addr, names->index.block, size + more);
			return size;
		}
		if (more && !msp_read(&names->mem, addr, names->index.block, size)) {
			scan_block(names, addr, names->index.block, size);
			return size;
		}
		if (backward)
			addr += size - size / 2;
		size /= 2;
		more = backward ? more : 0;
	}
	return 0;
}

/* ---- Spans ---- */

static void span_add(struct msp_lj_index *index, struct msp_span span)
{
	struct msp_span *grown;

	if (index->span_count >= SPANS_MAX)
		return;
	if (!(index->span_count & (index->span_count - 1))) { /* full at 0 and at powers of two */
		grown = realloc(index->span,
				(index->span_count ? index->span_count * 2 : 1) * sizeof(*grown));
		if (!grown)
			return;
		index->span = grown;
	}
	index->span[index->span_count++] = span;
}

/* All over again: what was the end of the memory around a seed may have moved. */
static void span_rewind(struct msp_span *span)
{
	span->lo = span->hi = span->seed;
	span->misses = 0;
	if (span->given)
		return;
	span->lo_limit = span->seed > SEED_REACH ? span->seed - SEED_REACH : PAGE;
	span->hi_limit = span->seed + SEED_REACH;
}

/* Memory around addr is to be scanned, unless a span reaches there anyway. */
static void seed_add(struct msp_lj_index *index, uint64_t addr)
{
	struct msp_span span = {.seed = addr & ~(uint64_t)(PAGE - 1)};

	if (!addr || addr >= ADDRESS_END)
		return;
	for (size_t i = 0; i < index->span_count; i++)
		if (addr >= index->span[i].lo_limit && addr < index->span[i].hi_limit)
			return;
	span_rewind(&span);
	span_add(index, span);
}

static uint32_t block_size(uint64_t left)
{
	return left < BLOCK ? left : BLOCK;
}

static void span_up(struct msp_lj_names *names, struct msp_span *span)
{
	uint32_t size = block_size(span->hi_limit - span->hi);
	uint32_t got = scan(names, span->hi, size, false);

	if (!got && !span->given) {
		span->hi_limit = span->hi;
		return;
	}
	if (!got) {
		got = PAGE << span->misses;
		got = got < size ? got : size;
		span->misses += span->misses < MISSES_MAX;
	} else {
		span->misses = 0;
	}
	span->hi += got;
}

static void span_down(struct msp_lj_names *names, struct msp_span *span)
{
	uint32_t size = block_size(span->lo - span->lo_limit);
	uint32_t got = scan(names, span->lo - size, size, true);

	span->lo -= got;
	if (!got)
		span->lo_limit = span->lo;
}

/* One block more of a span. False: there is none left. */
static bool span_step(struct msp_lj_names *names, struct msp_span *span)
{
	if (span->hi < span->hi_limit)
		span_up(names, span);
	else if (span->lo > span->lo_limit)
		span_down(names, span);
	else
		return false;
	return true;
}

static void pass_begin(struct msp_lj_names *names)
{
	struct msp_lj_index *index = &names->index;

	for (size_t i = 0; i < index->span_count; i++)
		span_rewind(&index->span[i]);
	index->running = true;
	index->pass_cost = 0;
	msp_heap_clear(&index->next);
	msp_heap_init(&index->next, &names->layout);
}

/* Goes on for at most budget microseconds. True: the pass is complete. */
static bool pass_run(struct msp_lj_names *names, uint64_t budget)
{
	struct msp_lj_index *index = &names->index;
	uint64_t start = now_us(), now = start;
	bool more = true;

	index->in_pass = true;
	while (more && now - start < budget) {
		more = false;
		for (size_t i = 0; i < index->span_count && !more; i++)
			more = span_step(names, &index->span[i]);
		now = now_us();
	}
	index->in_pass = false;
	index->pass_cost += now - start;
	if (more)
		return false;
	if (index->passes) {
		msp_heap_clear(&index->heap);
		index->heap = index->next;
		memset(&index->next, 0, sizeof(index->next));
	}
	index->running = false;
	index->passes++;
	index->pass_end = now;
	return true;
}

/* ---- What a request may spend ---- */

static uint64_t credit(struct msp_lj_index *index)
{
	uint64_t now = now_us();

	if (now > index->credit_time) {
		index->credit += (now - index->credit_time) / CREDIT_SHARE;
		index->credit_time = now;
	}
	if (index->credit > CREDIT_MAX)
		index->credit = CREDIT_MAX;
	return index->credit;
}

static void spend(struct msp_lj_index *index, uint64_t since)
{
	uint64_t cost = now_us() - since;

	index->credit -= cost < index->credit ? cost : index->credit;
}

bool msp_index_near(struct msp_lj_names *names, uint64_t addr, uint32_t size)
{
	uint64_t start = now_us();
	uint64_t page = addr & ~(uint64_t)(PAGE - 1);

	if (!names->set || !names->index.block || credit(&names->index) < 1000)
		return false;
	/* Where parents are gone, as of modules, looking around each function leads nowhere. */
	if (names->index.misses > MISSES_IN_A_ROW && names->index.skipped++ % MISSES_IN_A_ROW)
		return false;
	/* The parent is made after its children: mostly at a higher address. */
	scan(names, page, NEAR, false);
	if (size < NEAR)
		scan(names, page + NEAR, NEAR, false);
	else
		scan(names, (addr + size) & ~(uint64_t)(PAGE - 1), NEAR, false);
	if (page > NEAR)
		scan(names, page - NEAR, NEAR, true);
	seed_add(&names->index, addr);
	spend(&names->index, start);
	return true;
}

void msp_index_run(struct msp_lj_names *names)
{
	struct msp_lj_index *index = &names->index;
	uint64_t budget = credit(index), start = now_us();
	uint64_t pause = index->pass_cost * CREDIT_SHARE;

	if (!names->set || !index->block || budget < 1000)
		return;
	if (!index->running) {
		if (index->passes &&
		    start - index->pass_end < (pause > PASS_PAUSE ? pause : PASS_PAUSE))
			return;
		pass_begin(names);
	}
	pass_run(names, budget);
	spend(index, start);
}

void msp_index_init(struct msp_lj_names *names)
{
	struct msp_lj_index *index = &names->index;

	index->block = malloc(BLOCK + MSP_PROTO_HEADER_MAX);
	index->credit = CREDIT_MAX;
	index->credit_time = now_us();
	msp_heap_init(&index->heap, &names->layout);
	seed_add(index, names->g);
}

void msp_index_free(struct msp_lj_names *names)
{
	free(names->index.block);
	free(names->index.span);
	msp_heap_clear(&names->index.heap);
	msp_heap_clear(&names->index.next);
}

int msp_lj_names_add_range(struct msp_lj_names *names, uint64_t start, uint64_t end)
{
	struct msp_lj_index *index = &names->index;
	size_t kept = 0;

	start = (start + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	end &= ~(uint64_t)(PAGE - 1);
	if (start >= end || end > ADDRESS_END)
		return MSP_E_INVALID;
	for (size_t i = 0; i < index->span_count; i++) {
		struct msp_span *span = &index->span[i];

		if (span->given && span->seed == start && span->hi_limit == end)
			return 0;
		/* A seed of our own in there, or an older state of this range, is covered by it. */
		if (span->seed < start || span->seed >= end)
			index->span[kept++] = *span;
	}
	index->span_count = kept;
	if (index->span_count >= SPANS_MAX)
		return MSP_E_LIMIT;
	span_add(index, (struct msp_span){.seed = start,
					  .lo = start,
					  .hi = start,
					  .lo_limit = start,
					  .hi_limit = end,
					  .given = true});
	return 0;
}

int msp_lj_names_index(struct msp_lj_names *names, uint64_t budget_us)
{
	struct msp_lj_index *index = &names->index;

	if (!names->set || !index->block)
		return MSP_E_UNSUPPORTED;
	if (!index->running)
		pass_begin(names);
	return pass_run(names, budget_us) ? 1 : 0;
}

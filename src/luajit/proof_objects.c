/* SPDX-License-Identifier: MIT */
/* Objects for the proof: functions on the stacks and in the list of all objects, and their prototypes. */
#include "luajit/proof.h"

#include <inttypes.h>
#include <string.h>

/* How much is looked at, at most. */
#define MAX_SLOTS 2048
#define MAX_OBJECTS 4096
#define SLOT_CHUNK 32
#define MAX_CHILDREN 256
/* lj_obj.h: what is in the list of all objects, by type code. */
#define MIN_LIST_GCT 5
#define MAX_LIST_GCT 13
/* A chain of that many objects is the list. */
#define LIST_EVIDENCE 12
#define GLOBAL_GC_PART 160
/* GCHeader.marked, right before the type: white of two kinds, or black. */
#define COLORS 7

/* Slots with a function: the tag of functions in the upper 17 bits (GC64), or the upper half. */
#define TAG_FUNC 0x1fff7
#define TAG_FUNC_32 0xfffffff7
static bool slot_function(const struct msp_prover *p, uint64_t slot, uint64_t *func)
{
	if (!p->layout->gc64) {
		*func = (uint32_t)slot;
		/* Or a frame: its link is in the upper half. */
		return slot >> 32 == TAG_FUNC_32 || slot >> 32 < TAG_FUNC_32 - 16;
	}
	*func = slot & ((1ULL << 47) - 1);
	return slot >> 47 == TAG_FUNC;
}

static bool have(const uint64_t *list, unsigned int count, uint64_t item)
{
	for (unsigned int i = 0; i < count; i++) {
		if (list[i] == item)
			return true;
	}
	return false;
}

static void add_proto(struct msp_prover *p, uint64_t pt)
{
	if (p->proto_count < MSP_PROOF_PROTOS && msp_proof_is(p, pt, MSP_GCT_PROTO) &&
	    !have(p->proto, p->proto_count, pt))
		p->proto[p->proto_count++] = pt;
}

static void add_function(struct msp_prover *p, uint64_t func)
{
	const struct msp_lj_layout *l = p->layout;
	uint64_t pc;
	uint8_t ffid;

	if (p->func_count == MSP_PROOF_FUNCS || have(p->func, p->func_count, func))
		return;
	p->func[p->func_count++] = func;
	if (msp_proof_u8(p, func + (uint64_t)l->fn_ffid, &ffid) && ffid == 0 &&
	    msp_proof_ref(p, func + (uint64_t)l->fn_pc, &pc))
		add_proto(p, pc - (uint64_t)(int64_t)l->pt_size);
}

static void collect_stack(struct msp_prover *p, uint64_t L)
{
	const struct msp_lj_layout *l = p->layout;
	uint64_t slot[SLOT_CHUNK], stack, top, func;

	if (!L || !msp_proof_ref(p, L + (uint64_t)l->L_stack, &stack) ||
	    !msp_proof_u64(p, L + (uint64_t)l->L_top, &top) || top <= stack ||
	    !msp_proof_pointer(stack, 8))
		return;
	for (unsigned int i = 0; i < MAX_SLOTS && stack + i * 8 < top; i += SLOT_CHUNK) {
		if (!msp_proof_read(p, stack + i * 8, slot, sizeof(slot)))
			return;
		for (unsigned int k = 0; k < SLOT_CHUNK && stack + (i + k) * 8 < top; k++) {
			/* Slots above the top may hold what was collected since. */
			if (slot_function(p, slot[k], &func) && msp_proof_is(p, func, MSP_GCT_FUNC))
				add_function(p, func);
		}
	}
}

/*
 * An object has a color, but for the moment in which the collector has it in hand. Of a block that
 * was freed the allocator has a pointer there, which is aligned.
 */
static bool has_color(struct msp_prover *p, uint64_t obj)
{
	uint8_t marked;

	return msp_proof_u8(p, obj + (uint64_t)p->layout->gc_gct - 1, &marked) && marked & COLORS;
}

static bool list_object(struct msp_prover *p, uint64_t obj, uint8_t *gct)
{
	if (p->proto_count == MSP_PROOF_PROTOS && p->func_count == MSP_PROOF_FUNCS)
		return false;
	return msp_proof_pointer(obj, 8) &&
	       msp_proof_u8(p, obj + (uint64_t)p->layout->gc_gct, gct) && *gct >= MIN_LIST_GCT &&
	       *gct <= MAX_LIST_GCT;
}

/* How many objects follow each other from there, up to max. */
static unsigned int chain_length(struct msp_prover *p, uint64_t obj, unsigned int max)
{
	unsigned int n = 0;
	uint8_t gct;

	while (n < max && list_object(p, obj, &gct)) {
		n++;
		if (!msp_proof_ref(p, obj, &obj))
			break;
	}
	return n;
}

/* The list's head: where the code says, else the first word of the collector's part that is one. */
static uint64_t list_head(struct msp_prover *p)
{
	uint64_t head;

	if (p->build->g_gcroot > 0)
		return msp_proof_ref(p, p->g + (uint64_t)p->build->g_gcroot, &head) ? head : 0;
	for (uint64_t off = 8; off < GLOBAL_GC_PART; off += msp_proof_ref_size(p)) {
		if (msp_proof_ref(p, p->g + off, &head) &&
		    chain_length(p, head, LIST_EVIDENCE) == LIST_EVIDENCE)
			return head;
	}
	return 0;
}

static void collect_list(struct msp_prover *p)
{
	uint64_t obj = list_head(p);
	uint8_t gct;

	for (unsigned int i = 0; i < MAX_OBJECTS && list_object(p, obj, &gct); i++) {
		bool whole = i && has_color(p, obj); /* the newest may be half made */

		if (whole && gct == MSP_GCT_FUNC)
			add_function(p, obj);
		if (whole && gct == MSP_GCT_PROTO)
			add_proto(p, obj);
		if (!msp_proof_ref(p, obj, &obj))
			break;
	}
}

/* Prototypes nested in those found: constants of objects lie before k, newest first. */
static void collect_children(struct msp_prover *p)
{
	for (unsigned int i = 0; i < p->proto_count; i++) {
		struct msp_proof_proto pt;
		uint64_t child;

		if (!msp_proof_read_proto(p, p->proto[i], &pt) || !msp_proof_pointer(pt.k, 8))
			continue;
		for (unsigned int k = 1; k <= pt.sizekgc && k <= MAX_CHILDREN; k++) {
			if (msp_proof_ref(p, pt.k - k * msp_proof_ref_size(p), &child))
				add_proto(p, child);
		}
	}
}

void msp_proof_collect(struct msp_prover *p)
{
	collect_stack(p, p->main_L);
	if (p->cur_L != p->main_L)
		collect_stack(p, p->cur_L);
	collect_list(p);
	collect_children(p);
}

/* A Lua function: its position leads to a header, right behind a prototype. */
static void check_lua(struct msp_prover *p, struct msp_tally *t, uint64_t func, uint64_t pc)
{
	const struct msp_lj_layout *l = p->layout;
	uint32_t ins;

	if (!msp_tally_add(t, msp_proof_pointer(pc, 4) && msp_proof_u32(p, pc, &ins),
			   "function 0x%" PRIx64 " has its bytecode at 0x%" PRIx64, func, pc))
		return;
	/* FUNCF, IFUNCF, JFUNCF, FUNCV, IFUNCV, JFUNCV; then C functions' */
	if (!msp_tally_add(t, (ins & 0xff) >= l->bc_funcf && (ins & 0xff) < l->bc_funcf + 6U,
			   "function 0x%" PRIx64 " starts with opcode %u", func, ins & 0xff))
		return;
	msp_tally_add(t, msp_proof_is(p, pc - (uint64_t)(int64_t)l->pt_size, MSP_GCT_PROTO),
		      "function 0x%" PRIx64 ": no prototype %d bytes before its bytecode", func,
		      l->pt_size);
}

static bool in_image(struct msp_prover *p, uint64_t addr)
{
	return addr >= p->image_base && msp_lj_in_exec(p->build, addr - p->image_base);
}

/* A C function: its position leads to one of two headers, or to a fast function's own. */
static void check_c(struct msp_prover *p, struct msp_tally *t, uint64_t func, uint64_t pc,
		    uint8_t ffid)
{
	const struct msp_lj_layout *l = p->layout;
	uint64_t cfunc;
	uint32_t ins = 0;

	if (!msp_tally_add(t,
			   msp_proof_u32(p, pc, &ins) && (ins & 0xff) >= l->bc_funccw - 1U &&
				   (ins & 0xff) <= p->build->handler_count,
			   "C function 0x%" PRIx64 " starts with opcode %u", func, ins & 0xff))
		return;
	if (!msp_tally_add(t,
			   msp_proof_u64(p, func + (uint64_t)l->fn_cfunc, &cfunc) &&
				   msp_proof_address(p, cfunc, 1),
			   "C function 0x%" PRIx64 " has no address", func))
		return;
	/* The library's own functions are in the same file as the VM. */
	if (ffid > 1)
		msp_tally_add(t, in_image(p, cfunc),
			      "fast function %u is at 0x%" PRIx64 ", not in the VM's file", ffid,
			      cfunc);
}

static void check_function(struct msp_prover *p, struct msp_tally *t, uint64_t func)
{
	const struct msp_lj_layout *l = p->layout;
	uint64_t pc;
	uint8_t ffid;

	if (!msp_proof_u8(p, func + (uint64_t)l->fn_ffid, &ffid) ||
	    !msp_proof_ref(p, func + (uint64_t)l->fn_pc, &pc))
		return;
	if (ffid == 0)
		check_lua(p, t, func, pc);
	else
		check_c(p, t, func, pc, ffid);
}

void msp_proof_functions(struct msp_prover *p)
{
	struct msp_tally t = {0};

	for (unsigned int i = 0; i < p->func_count; i++)
		msp_tally_object(p, &t, check_function, p->func[i], MSP_GCT_FUNC);
	msp_tally_result(p, MSP_LJ_CHECK_FUNCTIONS, &t);
}

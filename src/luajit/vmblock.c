/* SPDX-License-Identifier: MIT */
/*
 * Unwind rows of the VM block, an instruction at a time. The assembler gives
 * the whole block one rule; it is wrong in entries and exits, in helpers that
 * are reached by a call, and between a trace and the interpreter.
 */
#include <stdlib.h>
#include <string.h>

#include "luajit/vmstate.h"
#include "moonspy/moonspy.h"

#define MAX_RULES 96
/* Instructions of vm_ffi_call. */
#define MAX_FFI_CALL 64

struct rows {
	struct msp_vm_flow flow;
	struct msp_vm_states *states;
	int16_t frame_saved[MSP_SLOT_COUNT]; /* where the full frame has each register */
	struct msp_row *row;
	uint32_t row_count;
	struct msp_rule *rule;
	uint32_t rule_count;
};

static int slot_of_reg(const struct rows *rows, uint8_t reg)
{
	const struct msp_code_abi *abi = rows->flow.abi;

	for (unsigned int i = 0; i < abi->slots && reg != MSP_REG_NONE; i++) {
		if (reg == abi->slot[i])
			return (int)i;
	}
	return -1;
}

static int slot_of(const struct rows *rows, const struct msp_operand *opnd)
{
	return opnd->kind == MSP_OPND_REG ? slot_of_reg(rows, opnd->reg) : -1;
}

/* A rule by the stack pointer, with all registers as they are. */
static void plain_rule(const struct rows *rows, int32_t height, struct msp_rule *rule)
{
	rule->cfa_kind = MSP_CFA_REG;
	rule->cfa_reg = rows->flow.abi->sp;
	rule->cfa_off = height;
	for (unsigned int i = 0; i < MSP_SLOT_COUNT; i++)
		rule->saved[i] = MSP_SAVED_SAME;
	if (rows->flow.abi->pushed)
		rule->saved[MSP_SLOT_RA] = -8;
}

/* What the instruction saves below a CFA that is height above the stack pointer. */
static void note_saved(const struct rows *rows, const struct msp_insn *insn, int32_t height,
		       int16_t saved[MSP_SLOT_COUNT])
{
	const struct msp_operand *to = &insn->operand[0], *from = &insn->operand[1];
	int64_t at;
	int slot;

	if (insn->op == MSP_OP_PUSH) {
		slot = slot_of(rows, to);
		if (slot > 0)
			saved[slot] = (int16_t) - (height + 8);
		return;
	}
	/* A store that moves the stack pointer is counted from where that is then. */
	at = (to->step ? 0 : to->value) - height;
	if (rows->flow.abi->pushed || insn->op != MSP_OP_MOV || to->kind != MSP_OPND_MEM ||
	    to->base != rows->flow.abi->sp || to->size != 8 || at >= 0 || at < INT16_MIN)
		return;
	slot = slot_of(rows, from);
	if (slot >= 0)
		saved[slot] = (int16_t)at;
	slot = slot_of_reg(rows, insn->second);
	if (slot >= 0)
		saved[slot] = (int16_t)(at + 8);
}

/* The instruction that makes the frame in one step (arm64): sub sp, sp, #size; stp fp, lr, [sp, #-size]! */
static bool makes_frame(const struct rows *rows, const struct msp_insn *insn)
{
	const struct msp_operand *size = &insn->operand[2], *to = &insn->operand[0];

	if (insn->op == MSP_OP_MOV && to->kind == MSP_OPND_MEM && to->base == rows->flow.abi->sp)
		return to->step == -rows->flow.build->layout.cframe_size;
	return insn->op == MSP_OP_SUB && insn->operand_count == 3 &&
	       insn->operand[0].reg == rows->flow.abi->sp &&
	       insn->operand[1].reg == rows->flow.abi->sp && size->kind == MSP_OPND_IMM &&
	       size->value == rows->flow.build->layout.cframe_size;
}

/* The instructions behind it that save the registers. */
#define MAX_SAVES 12

/* The entries from C save the registers in one order: that is where the frame has them. */
static void find_saved(struct rows *rows)
{
	const struct msp_lj_build *build = rows->flow.build;
	int32_t size = build->layout.cframe_size;

	for (unsigned int i = 0; i < MSP_SLOT_COUNT; i++)
		rows->frame_saved[i] = MSP_SAVED_SAME;
	if (rows->flow.abi->pushed)
		rows->frame_saved[MSP_SLOT_RA] = -8;
	for (uint32_t i = 0; i < build->insn_count; i++) {
		const struct msp_insn *insn = &build->insn[i];
		int32_t height;

		if (makes_frame(rows, insn)) {
			for (uint32_t k = i; k <= i + MAX_SAVES && k < build->insn_count; k++)
				note_saved(rows, &build->insn[k], size, rows->frame_saved);
			continue;
		}
		if (insn->op != MSP_OP_PUSH || slot_of(rows, &insn->operand[0]) < 0 ||
		    msp_vm_kind(&rows->flow, (int32_t)i) != MSP_VM_FRAME)
			continue;
		height = msp_vm_height(&rows->flow, (int32_t)i);
		if (height >= 8 && height < size)
			note_saved(rows, insn, height, rows->frame_saved);
	}
}

/* How far behind the instruction that makes the frame, on a straight way; 0: it is not near. */
static int32_t behind_frame_start(const struct rows *rows, int32_t i)
{
	const struct msp_insn *insn = rows->flow.build->insn;

	for (int32_t n = 1; n <= MAX_SAVES && n <= i; n++) {
		if (makes_frame(rows, &insn[i - n]))
			return n;
		if (!msp_insn_falls_through(&insn[i - n]) || insn[i - n].op == MSP_OP_CALL)
			break;
	}
	return 0;
}

/* The frame's registers are saved as far as the stack pointer has gone, or (arm64) the code. */
static void frame_rule(const struct rows *rows, int32_t i, int32_t height, struct msp_rule *rule)
{
	int32_t size = rows->flow.build->layout.cframe_size, done;

	plain_rule(rows, height, rule);
	if (rows->flow.abi->pushed) {
		for (unsigned int s = 0; s < MSP_SLOT_COUNT; s++) {
			if (rows->frame_saved[s] != MSP_SAVED_SAME &&
			    -rows->frame_saved[s] <= height)
				rule->saved[s] = rows->frame_saved[s];
		}
		return;
	}
	if (height < size)
		return;
	done = i < 0 ? 0 : behind_frame_start(rows, i);
	if (!done) {
		memcpy(rule->saved, rows->frame_saved, sizeof(rule->saved));
		return;
	}
	for (int32_t k = i - done; k < i; k++)
		note_saved(rows, &rows->flow.build->insn[k], size, rule->saved);
}

/* A leaf's registers: those that it has pushed itself, in its own few instructions. */
static void leaf_rule(struct rows *rows, int32_t i, struct msp_rule *rule)
{
	struct msp_vm_flow *flow = &rows->flow;
	int32_t height = msp_vm_height(flow, i), root = msp_vm_root(flow, i);

	plain_rule(rows, height, rule);
	for (int32_t k = i - 1; k >= 0 && msp_vm_root(flow, k) == root; k--) {
		const struct msp_insn *insn = &flow->build->insn[k];
		int slot = insn->op == MSP_OP_PUSH ? slot_of(rows, &insn->operand[0]) : -1;

		if (slot > 0 && msp_vm_height(flow, k) < height)
			rule->saved[slot] = (int16_t) - (msp_vm_height(flow, k) + 8);
	}
}

static void exit_rule(const struct rows *rows, struct msp_rule *rule)
{
	plain_rule(rows, rows->flow.abi->pushed, rule);
	rule->flags = MSP_RULE_VM_EXIT;
}

/* Does an entry hand its frame to a C function that completes it (lj_ccallback_enter)? */
static bool completes_frame(struct msp_vm_flow *flow, int32_t i)
{
	const struct msp_insn *insn = flow->build->insn;

	if (insn[i].op != MSP_OP_CALL || msp_vm_height(flow, i) != flow->build->layout.cframe_size)
		return false;
	for (int32_t k = i - 1; k >= 0 && k >= i - 6; k--) {
		if (insn[k].op == MSP_OP_MOV && insn[k].operand[0].reg == flow->abi->arg[1] &&
		    insn[k].operand[1].kind == MSP_OPND_REG &&
		    insn[k].operand[1].reg == flow->abi->sp)
			return true;
	}
	return false;
}

/* A C function that an FFI callback begins or ends with: the frame comes or goes while it runs. */
static bool passes_frame(struct msp_vm_flow *flow, int32_t i)
{
	const struct msp_insn *insn = &flow->build->insn[i];

	if (insn->op != MSP_OP_CALL)
		return false;
	return completes_frame(flow, i) ||
	       ((flow->node[i].flags & MSP_VM_BODY) && (flow->node[i].flags & MSP_VM_LEAVES) &&
		!msp_lj_in_block(flow->build, insn->target));
}

static void make_rule(struct rows *rows, int32_t i, struct msp_rule *rule)
{
	struct msp_vm_flow *flow = &rows->flow;
	int32_t size = flow->build->layout.cframe_size;
	uint16_t flags = flow->node[i].flags;

	memset(rule, 0, sizeof(*rule));
	if (!(flags & MSP_VM_REACHED) || msp_vm_kind(flow, i) == MSP_VM_UNKNOWN) {
		/* Not understood: what the assembler says. */
		frame_rule(rows, -1, size, rule);
		rule->flags = MSP_RULE_VM;
		return;
	}
	switch (msp_vm_kind(flow, i)) {
	case MSP_VM_LEAF:
		leaf_rule(rows, i, rule);
		break;
	case MSP_VM_EXIT:
		exit_rule(rows, rule);
		break;
	default:
		frame_rule(rows, i, msp_vm_height(flow, i), rule);
		/*
		 * Not yet, and no longer: before the entry's Lua frame is there, and
		 * after L->base went back to the caller's, the frame is just a C frame.
		 */
		if (rule->cfa_off >= size && (flags & MSP_VM_BODY) &&
		    (!(flags & MSP_VM_LEAVES) || (flags & MSP_VM_STORES))) {
			rule->flags = MSP_RULE_VM;
			rule->leaf = msp_vm_state_at(rows->states, i);
		} else if (rule->cfa_off == size && passes_frame(flow, i)) {
			rule->flags = MSP_RULE_VM | MSP_RULE_VM_CALLBACK;
			rule->leaf = MSP_LEAF_KNOWN | MSP_LEAF_BASE_STORED;
		}
		break;
	}
}

static uint32_t intern_rule(struct rows *rows, const struct msp_rule *rule)
{
	for (uint32_t i = 0; i < rows->rule_count; i++) {
		if (memcmp(&rows->rule[i], rule, sizeof(*rule)) == 0)
			return i;
	}
	if (rows->rule_count == MAX_RULES)
		return 0; /* none: honest about not knowing */
	rows->rule[rows->rule_count] = *rule;
	return rows->rule_count++;
}

static int make_rows(struct rows *rows)
{
	const struct msp_lj_build *build = rows->flow.build;

	rows->row = calloc(build->insn_count + MAX_FFI_CALL + 8, sizeof(*rows->row));
	rows->rule = calloc(MAX_RULES, sizeof(*rows->rule));
	if (!rows->row || !rows->rule)
		return MSP_E_NOMEM;
	rows->rule_count = 1; /* rule 0 is MSP_CFA_NONE */
	for (uint32_t i = 0; i < build->insn_count; i++) {
		struct msp_rule rule;
		uint32_t number;

		make_rule(rows, (int32_t)i, &rule);
		number = intern_rule(rows, &rule);
		if (rows->row_count && rows->row[rows->row_count - 1].rule == number)
			continue;
		rows->row[rows->row_count].addr = (uint32_t)build->insn[i].addr;
		rows->row[rows->row_count++].rule = number;
	}
	return 0;
}

static void add_row(struct rows *rows, uint64_t addr, const struct msp_rule *rule)
{
	rows->row[rows->row_count].addr = (uint32_t)addr;
	rows->row[rows->row_count++].rule = intern_rule(rows, rule);
}

/*
 * Behind the block is vm_ffi_call, a function with a frame pointer. The
 * assembler gives it one rule too, that of its middle. Returns where it ends.
 */
static uint64_t x64_ffi_call_rows(struct rows *rows)
{
	const struct msp_lj_build *build = rows->flow.build;
	uint64_t at = build->block_end;
	struct msp_rule rule = {.cfa_kind = MSP_CFA_REG, .cfa_reg = MSP_X64_RSP, .cfa_off = 8};
	struct msp_insn insn;

	for (unsigned int s = 1; s < MSP_SLOT_COUNT; s++)
		rule.saved[s] = MSP_SAVED_SAME;
	rule.saved[MSP_SLOT_RA] = -8;
	for (unsigned int i = 0; i < MAX_FFI_CALL; i++, at += insn.size) {
		if (msp_code_decode(build->code, at, &insn) != 0)
			return 0;
		if (i == 0 && (insn.op != MSP_OP_PUSH || slot_of(rows, &insn.operand[0]) != 2))
			return 0;
		if (i == 1 && (insn.op != MSP_OP_MOV || insn.operand[0].reg != MSP_X64_RBP ||
			       insn.operand[1].reg != MSP_X64_RSP))
			return 0;
		if (i < 4)
			add_row(rows, at, &rule);
		if (i == 0) {
			rule.cfa_off = 16;
			rule.saved[2] = -16;
		} else if (i == 1) {
			rule.cfa_reg = MSP_X64_RBP;
		} else if (insn.op == MSP_OP_PUSH && i == 2 &&
			   slot_of(rows, &insn.operand[0]) == 1) {
			rule.saved[1] = -24;
		} else if (insn.op == MSP_OP_LEAVE) {
			rule.cfa_reg = MSP_X64_RSP;
			rule.cfa_off = 8;
			rule.saved[1] = rule.saved[2] = MSP_SAVED_SAME;
			add_row(rows, at + insn.size, &rule);
		} else if (insn.op == MSP_OP_RET) {
			return at + insn.size;
		}
	}
	return 0;
}

/*
 * The same on arm64: a pair or two of registers is saved with a step of the stack pointer, fp is set,
 * and the stack pointer, moved for the arguments, comes back from it in the end.
 */
static uint64_t arm64_ffi_call_rows(struct rows *rows)
{
	const struct msp_lj_build *build = rows->flow.build;
	const struct msp_code_abi *abi = rows->flow.abi;
	uint64_t at = build->block_end;
	int32_t height = 0, by_fp = 0;
	struct msp_rule rule;
	struct msp_insn insn;

	memset(&rule, 0, sizeof(rule));
	plain_rule(rows, 0, &rule);
	for (unsigned int i = 0; i < MAX_FFI_CALL; i++, at += insn.size) {
		const struct msp_operand *o = insn.operand;

		if (msp_code_decode(build->code, at, &insn) != 0)
			return 0;
		rule.cfa_reg = by_fp ? abi->fp : abi->sp;
		rule.cfa_off = by_fp ? by_fp : height;
		add_row(rows, at, &rule);
		if (insn.op == MSP_OP_RET)
			return at + 4;
		if (o[0].kind == MSP_OPND_MEM && o[0].base == abi->sp &&
		    insn.second != MSP_REG_NONE && !by_fp) {
			height -= (int32_t)o[0].step;
			note_saved(rows, &insn, height, rule.saved);
		} else if (insn.writes >> abi->fp & 1 && insn.op != MSP_OP_ADD &&
			   o[1].kind != MSP_OPND_MEM && o[1].reg != abi->sp) {
			return 0;
		} else if (insn.writes >> abi->fp & 1 && o[1].kind == MSP_OPND_REG) {
			by_fp = height - (insn.op == MSP_OP_ADD ? (int32_t)o[2].value : 0);
		} else if (o[1].kind == MSP_OPND_MEM && o[1].base == abi->sp &&
			   by_fp + height > 0 &&
			   (slot_of(rows, &o[0]) >= 0 || slot_of_reg(rows, insn.second) >= 0)) {
			int a = slot_of(rows, &o[0]), b = slot_of_reg(rows, insn.second);

			if (insn.writes >> abi->fp & 1)
				by_fp = 0;
			if (a >= 0)
				rule.saved[a] = MSP_SAVED_SAME;
			if (b >= 0)
				rule.saved[b] = MSP_SAVED_SAME;
			height -= (int32_t)o[1].step;
		}
	}
	return 0;
}

static uint64_t ffi_call_rows(struct rows *rows)
{
	return rows->flow.abi->pushed ? x64_ffi_call_rows(rows) : arm64_ffi_call_rows(rows);
}

/* Where interpreter code starts that has a Lua frame; what only the entries reach has none yet. */
#define BODY_ROOT 0x8000
static void mark_body(struct msp_vm_flow *flow, int32_t *queue)
{
	int32_t size = flow->build->layout.cframe_size, next[2];

	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		uint16_t flags = flow->node[i].flags;
		unsigned int n;

		if (!(flags & MSP_VM_REACHED))
			continue;
		if (msp_vm_is_reset(flow, &flow->build->insn[i]) ||
		    (msp_vm_kind(flow, (int32_t)i) == MSP_VM_FRAME &&
		     completes_frame(flow, (int32_t)i))) {
			n = msp_vm_successors(flow, (int32_t)i, next);
			while (n--)
				flow->node[next[n]].flags |= BODY_ROOT;
		}
		if ((flags & MSP_VM_ROOT) && msp_vm_kind(flow, (int32_t)i) == MSP_VM_FRAME &&
		    msp_vm_height(flow, (int32_t)i) >= size)
			flow->node[i].flags |= BODY_ROOT;
	}
	msp_vm_spread(flow, BODY_ROOT, MSP_VM_BODY, queue);
}

/* An instruction with nothing behind it in the block that still returns to the frame's C caller. */
static bool returns_to_c(struct msp_vm_flow *flow, int32_t i)
{
	const struct msp_insn *insn = &flow->build->insn[i];

	return msp_vm_kind(flow, i) == MSP_VM_FRAME &&
	       msp_vm_height(flow, i) == flow->abi->pushed &&
	       (insn->op == MSP_OP_RET || (insn->op == MSP_OP_JMP && insn->has_target));
}

/* Everything from which only returns to C can follow: all are, until one is shown not to be. */
static void mark_leaves(struct msp_vm_flow *flow)
{
	int32_t count = (int32_t)flow->build->insn_count, next[2];
	bool changed = true;

	for (int32_t i = 0; i < count; i++)
		flow->node[i].flags |= MSP_VM_LEAVES;
	while (changed) {
		changed = false;
		for (int32_t i = count - 1; i >= 0; i--) {
			unsigned int n = msp_vm_successors(flow, i, next);
			bool leaves = n > 0 || returns_to_c(flow, i);

			while (n--)
				leaves = leaves && (flow->node[next[n]].flags & MSP_VM_LEAVES);
			if (leaves || !(flow->node[i].flags & MSP_VM_LEAVES))
				continue;
			flow->node[i].flags &= (uint16_t)~MSP_VM_LEAVES;
			changed = true;
		}
	}
}

static bool stores_base(const struct msp_vm_flow *flow, const struct msp_insn *insn)
{
	const struct msp_lj_build *build = flow->build;
	const struct msp_operand *to = &insn->operand[0];

	/* Without GC64 the upper half of L->base is always 0. */
	return insn->op == MSP_OP_MOV && to->kind == MSP_OPND_MEM &&
	       to->size == (build->layout.gc64 ? 8 : 4) && to->value == build->layout.L_base &&
	       to->index == MSP_REG_NONE && to->base != flow->abi->sp &&
	       to->base != build->layout.reg_dispatch;
}

/* On the way out, from which instructions L->base is still to be stored. */
static void mark_stores(struct msp_vm_flow *flow)
{
	int32_t count = (int32_t)flow->build->insn_count, next[2];
	bool changed = true;

	while (changed) {
		changed = false;
		for (int32_t i = count - 1; i >= 0; i--) {
			unsigned int n = msp_vm_successors(flow, i, next);
			bool stores = stores_base(flow, &flow->build->insn[i]);

			while (n--)
				stores = stores || (flow->node[next[n]].flags & MSP_VM_STORES);
			if (!stores || (flow->node[i].flags & MSP_VM_STORES))
				continue;
			flow->node[i].flags |= MSP_VM_STORES;
			changed = true;
		}
	}
}

int msp_lj_analyse_block(struct msp_lj_build *build)
{
	struct rows rows = {.row = NULL};
	uint32_t block_rows;
	int32_t *queue;
	int rc = msp_vm_flow_new(build, &rows.flow);

	if (rc != 0)
		return rc;
	queue = calloc(build->insn_count + 1, sizeof(*queue));
	if (!queue) {
		rc = MSP_E_NOMEM;
		goto out;
	}
	mark_body(&rows.flow, queue);
	mark_leaves(&rows.flow);
	mark_stores(&rows.flow);
	find_saved(&rows);
	rc = msp_vm_states_new(&rows.flow, &rows.states);
	if (rc != 0)
		goto out;
	rc = make_rows(&rows);
	block_rows = rows.row_count;
	build->rows.end = rc == 0 ? ffi_call_rows(&rows) : 0;
	if (!build->rows.end) {
		build->rows.end = build->block_end;
		rows.row_count = block_rows;
	}
	build->rows.rows = rows.row;
	build->rows.row_count = rows.row_count;
	build->rows.rules = rows.rule;
	build->rows.rule_count = rows.rule_count;
	build->rows.instructions = build->insn_count;
	for (uint32_t i = 0; i < build->insn_count; i++)
		build->rows.reached += rows.flow.node[i].flags & MSP_VM_REACHED &&
				       msp_vm_kind(&rows.flow, (int32_t)i) != MSP_VM_UNKNOWN;
	build->conflict[MSP_LJ_FIELD_cframe_size] |= rows.flow.conflicts != 0;
out:
	msp_vm_states_free(rows.states);
	free(queue);
	msp_vm_flow_free(&rows.flow);
	return rc;
}

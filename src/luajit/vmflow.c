/* SPDX-License-Identifier: MIT */
#include "luajit/vmflow.h"

#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"

/* How far before the jump its target is loaded, and the address of that computed. */
#define MAX_DISPATCH_WAY 24

/* The last instruction before insn that writes a register, in the way that leads to it; NULL: none near. */
static const struct msp_insn *writer_before(const struct msp_vm_flow *flow,
					    const struct msp_insn *insn, uint8_t reg)
{
	for (unsigned int n = 0; n < MAX_DISPATCH_WAY && insn > flow->build->insn; n++) {
		insn--;
		if (insn->writes >> reg & 1)
			return insn;
	}
	return NULL;
}

/* arm64: add tmp, GL, opcode, uxtb #3; ldr reg, [tmp, #table]; br reg. */
static bool is_dispatch_by_register(const struct msp_vm_flow *flow, const struct msp_insn *insn)
{
	const struct msp_operand *mem;

	if (insn->op != MSP_OP_JMP || insn->operand[0].kind != MSP_OPND_REG)
		return false;
	insn = writer_before(flow, insn, insn->operand[0].reg);
	if (!insn || insn->op != MSP_OP_MOV || insn->operand[1].kind != MSP_OPND_MEM)
		return false;
	mem = &insn->operand[1];
	insn = mem->base == MSP_REG_NONE ? NULL : writer_before(flow, insn, mem->base);
	return insn && insn->op == MSP_OP_ADD && insn->operand_count == 3 &&
	       insn->operand[1].kind == MSP_OPND_REG &&
	       insn->operand[1].reg == flow->build->layout.reg_dispatch &&
	       insn->operand[2].kind == MSP_OPND_REG && insn->operand[2].narrow == 1 &&
	       insn->operand[2].shift == 3;
}

bool msp_vm_is_dispatch(const struct msp_vm_flow *flow, const struct msp_insn *insn)
{
	if (flow->abi->arch == MSP_ARCH_ARM64)
		return is_dispatch_by_register(flow, insn);
	return insn->op == MSP_OP_JMP && insn->operand[0].kind == MSP_OPND_MEM &&
	       insn->operand[0].base == flow->build->layout.reg_dispatch &&
	       insn->operand[0].index != MSP_REG_NONE;
}

static bool is_sp(const struct msp_vm_flow *flow, const struct msp_operand *o)
{
	return o->kind == MSP_OPND_REG && o->reg == flow->abi->sp;
}

bool msp_vm_is_reset(const struct msp_vm_flow *flow, const struct msp_insn *insn)
{
	return (insn->op == MSP_OP_MOV || insn->op == MSP_OP_AND) &&
	       is_sp(flow, &insn->operand[0]) && insn->operand[1].kind == MSP_OPND_REG;
}

/* By how much the access of an instruction moves the stack pointer (arm64). */
static int64_t stack_step(const struct msp_vm_flow *flow, const struct msp_insn *insn)
{
	for (unsigned int i = 0; i < insn->operand_count; i++) {
		if (insn->operand[i].kind == MSP_OPND_MEM && insn->operand[i].base == flow->abi->sp)
			return insn->operand[i].step;
	}
	return 0;
}

/* By how much an instruction changes the height. */
static int32_t height_change(const struct msp_vm_flow *flow, const struct msp_insn *insn)
{
	const struct msp_operand *to = &insn->operand[0], *from = msp_insn_right(insn);
	const struct msp_operand *mem = &insn->operand[1];

	if (insn->op == MSP_OP_PUSH)
		return 8;
	if (insn->op == MSP_OP_POP)
		return -8;
	if (!is_sp(flow, to))
		return (int32_t)-stack_step(flow, insn);
	if (insn->op == MSP_OP_SUB && from->kind == MSP_OPND_IMM)
		return (int32_t)from->value;
	if (insn->op == MSP_OP_ADD && from->kind == MSP_OPND_IMM)
		return (int32_t)-from->value;
	if (insn->op == MSP_OP_LEA && mem->base == flow->abi->sp && mem->index == MSP_REG_NONE)
		return (int32_t)-mem->value;
	return 0;
}

unsigned int msp_vm_successors(const struct msp_vm_flow *flow, int32_t i, int32_t next[2])
{
	const struct msp_lj_build *build = flow->build;
	const struct msp_insn *insn = &build->insn[i];
	unsigned int n = 0;

	if (insn->has_target && insn->op != MSP_OP_CALL && msp_lj_in_block(build, insn->target)) {
		int32_t to = msp_lj_insn_at(build, insn->target);

		if (to >= 0)
			next[n++] = to;
	}
	if (!msp_insn_falls_through(insn) || (uint32_t)i + 1 >= build->insn_count)
		return n;
	/* A call right before another piece is one that does not return. */
	if (insn->op == MSP_OP_CALL && (flow->node[i + 1].flags & MSP_VM_ROOT))
		return n;
	next[n++] = i + 1;
	return n;
}

int32_t msp_vm_callee(const struct msp_vm_flow *flow, int32_t i)
{
	const struct msp_insn *insn = &flow->build->insn[i];
	int32_t to;

	if (insn->op != MSP_OP_CALL || !insn->has_target ||
	    !msp_lj_in_block(flow->build, insn->target))
		return -1;
	to = msp_lj_insn_at(flow->build, insn->target);
	return to >= 0 && (flow->node[to].flags & MSP_VM_SUB) ? to : -1;
}

int32_t msp_vm_root(struct msp_vm_flow *flow, int32_t i)
{
	struct msp_vm_node *node = flow->node;
	int32_t root = i, weight = 0;

	while (node[root].parent != root) {
		weight += node[root].weight;
		root = node[root].parent;
	}
	/* Shorten the way for the next time. */
	while (node[i].parent != root && i != root) {
		int32_t parent = node[i].parent, own = node[i].weight;

		node[i].parent = root;
		node[i].weight = weight;
		weight -= own;
		i = parent;
	}
	return root;
}

enum msp_vm_set msp_vm_kind(struct msp_vm_flow *flow, int32_t i)
{
	return (enum msp_vm_set)flow->kind[msp_vm_root(flow, i)];
}

/* Height of i above its set's root. */
static int32_t offset(struct msp_vm_flow *flow, int32_t i)
{
	int32_t root = msp_vm_root(flow, i);

	return i == root ? 0 : flow->node[i].weight;
}

int32_t msp_vm_height(struct msp_vm_flow *flow, int32_t i)
{
	return flow->height[msp_vm_root(flow, i)] + offset(flow, i);
}

/* height(b) = height(a) + change */
static void connect(struct msp_vm_flow *flow, int32_t a, int32_t b, int32_t change)
{
	int32_t ra = msp_vm_root(flow, a), rb = msp_vm_root(flow, b);
	int32_t oa = offset(flow, a), ob = offset(flow, b);

	if (ra == rb) {
		flow->conflicts += ob != oa + change;
		return;
	}
	flow->node[rb].parent = ra;
	flow->node[rb].weight = oa + change - ob;
}

static void anchor(struct msp_vm_flow *flow, int32_t i, enum msp_vm_set kind, int32_t height)
{
	int32_t root = msp_vm_root(flow, i);

	if (flow->kind[root] == MSP_VM_UNKNOWN) {
		flow->kind[root] = (uint8_t)kind;
		flow->height[root] = height - offset(flow, i);
	} else if (msp_vm_height(flow, i) != height) {
		flow->conflicts++;
	}
}

static void set_flag(struct msp_vm_flow *flow, uint64_t addr, uint16_t flags)
{
	int32_t i = msp_lj_insn_at(flow->build, addr);

	if (i >= 0)
		flow->node[i].flags |= flags;
}

/* Everything that is entered from elsewhere: handlers, references, callees, addresses taken inside. */
static void mark_roots(struct msp_vm_flow *flow)
{
	const struct msp_lj_build *build = flow->build;

	for (unsigned int i = 0; i < build->handler_count; i++)
		set_flag(flow, build->handler[i], MSP_VM_ROOT | MSP_VM_HANDLER);
	for (unsigned int i = 0; i < build->ref_count; i++)
		set_flag(flow, build->ref[i].target,
			 MSP_VM_ROOT |
				 (build->ref[i].kind == MSP_LJ_REF_ADDRESS ? 0 : MSP_VM_CALLED));
	for (uint32_t i = 0; i < build->insn_count; i++) {
		const struct msp_insn *insn = &build->insn[i];
		const struct msp_operand *from = &insn->operand[1];

		if (insn->op == MSP_OP_CALL && insn->has_target)
			set_flag(flow, insn->target, MSP_VM_SUB);
		if (insn->op == MSP_OP_LEA && from->base == MSP_REG_NONE &&
		    from->index == MSP_REG_NONE)
			set_flag(flow, (uint64_t)from->value, MSP_VM_ROOT);
	}
	for (uint32_t i = 0; i < build->insn_count; i++) {
		struct msp_vm_node *node = &flow->node[i];

		/* What others enter too is a function of its own. */
		if ((node->flags & MSP_VM_SUB) && (node->flags & MSP_VM_ROOT))
			node->flags &= (uint16_t)~MSP_VM_SUB;
	}
}

void msp_vm_spread(struct msp_vm_flow *flow, uint16_t from, uint16_t mark, int32_t *queue)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		if ((flow->node[i].flags & from) != from)
			continue;
		flow->node[i].flags |= mark;
		queue[count++] = (int32_t)i;
	}
	while (count) {
		int32_t i = queue[--count], next[3];
		unsigned int n = msp_vm_successors(flow, i, next);
		int32_t callee = msp_vm_callee(flow, i);

		if (callee >= 0)
			next[n++] = callee;
		while (n--) {
			if (flow->node[next[n]].flags & mark)
				continue;
			flow->node[next[n]].flags |= mark;
			queue[count++] = next[n];
		}
	}
}

static void connect_all(struct msp_vm_flow *flow)
{
	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		const struct msp_insn *insn = &flow->build->insn[i];
		int32_t next[2];
		unsigned int n;

		if (!(flow->node[i].flags & MSP_VM_REACHED) || msp_vm_is_reset(flow, insn))
			continue;
		n = msp_vm_successors(flow, (int32_t)i, next);
		while (n--)
			connect(flow, (int32_t)i, next[n], height_change(flow, insn));
	}
	/* A function that calls itself (lj_vm_powi) is at its own depth each time. */
	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		int32_t callee = msp_vm_callee(flow, (int32_t)i);

		if ((flow->node[i].flags & MSP_VM_REACHED) && callee >= 0 &&
		    msp_vm_root(flow, callee) != msp_vm_root(flow, (int32_t)i))
			connect(flow, (int32_t)i, callee, flow->abi->pushed);
	}
}

/* What is at the frame's full depth: handlers, dispatches, and wherever a C frame was restored. */
static void anchor_frames(struct msp_vm_flow *flow)
{
	int32_t size = flow->build->layout.cframe_size;

	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		const struct msp_insn *insn = &flow->build->insn[i];
		int32_t next[2];
		unsigned int n;

		if (!(flow->node[i].flags & MSP_VM_REACHED))
			continue;
		if ((flow->node[i].flags & MSP_VM_HANDLER) || msp_vm_is_dispatch(flow, insn))
			anchor(flow, (int32_t)i, MSP_VM_FRAME, size);
		if (!msp_vm_is_reset(flow, insn))
			continue;
		n = msp_vm_successors(flow, (int32_t)i, next);
		while (n--)
			anchor(flow, next[n], MSP_VM_FRAME, size);
	}
}

/* Of what is not connected to a frame, functions that return are leaves. */
static void anchor_leaves(struct msp_vm_flow *flow)
{
	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		if ((flow->node[i].flags & MSP_VM_REACHED) &&
		    flow->build->insn[i].op == MSP_OP_RET &&
		    msp_vm_kind(flow, (int32_t)i) != MSP_VM_FRAME)
			anchor(flow, (int32_t)i, MSP_VM_LEAF, flow->abi->pushed);
	}
}

/* Is there a place in the set that others enter at the frame's full depth? */
static bool entered_in_frame(struct msp_vm_flow *flow, int32_t root)
{
	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		if ((flow->node[i].flags & MSP_VM_ROOT) && msp_vm_root(flow, (int32_t)i) == root &&
		    msp_vm_height(flow, (int32_t)i) == flow->build->layout.cframe_size)
			return true;
	}
	return false;
}

/* A jump out of the block is a tail call: like a return (lj_vm_unwind_rethrow ends so). */
static void anchor_tail_calls(struct msp_vm_flow *flow)
{
	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		const struct msp_insn *insn = &flow->build->insn[i];
		int32_t root;

		if (!(flow->node[i].flags & MSP_VM_REACHED) || insn->op != MSP_OP_JMP ||
		    !insn->has_target || msp_lj_in_block(flow->build, insn->target))
			continue;
		root = msp_vm_root(flow, (int32_t)i);
		if (flow->kind[root] != MSP_VM_UNKNOWN)
			continue;
		anchor(flow, (int32_t)i, MSP_VM_LEAF, flow->abi->pushed);
		if (entered_in_frame(flow, root))
			flow->kind[root] = MSP_VM_FRAME;
	}
}

/* Does the set compute the register (other than by clearing flag bits in it)? */
static bool set_computes(struct msp_vm_flow *flow, int32_t root, uint8_t reg)
{
	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		const struct msp_insn *insn = &flow->build->insn[i];

		if ((flow->node[i].flags & MSP_VM_REACHED) && (insn->writes & 1U << reg) &&
		    insn->op != MSP_OP_AND && msp_vm_root(flow, (int32_t)i) == root)
			return true;
	}
	return false;
}

/*
 * What is left loads the stack pointer. With the caller's argument: it was
 * called by C code and unwinds. With a value of its own: it comes out of a
 * trace, whose stack pointer says nothing.
 */
static void anchor_others(struct msp_vm_flow *flow)
{
	for (uint32_t i = 0; i < flow->build->insn_count; i++) {
		const struct msp_insn *insn = &flow->build->insn[i];
		int32_t root;

		if (!(flow->node[i].flags & MSP_VM_REACHED) || !msp_vm_is_reset(flow, insn))
			continue;
		root = msp_vm_root(flow, (int32_t)i);
		if (flow->kind[root] != MSP_VM_UNKNOWN)
			continue;
		if (set_computes(flow, root, insn->operand[1].reg))
			flow->kind[root] = MSP_VM_EXIT;
		else
			anchor(flow, (int32_t)i, MSP_VM_LEAF, flow->abi->pushed);
	}
}

int msp_vm_flow_new(const struct msp_lj_build *build, struct msp_vm_flow *flow)
{
	uint32_t count = build->insn_count;
	int32_t *queue = calloc(count ? count : 1, sizeof(*queue));

	memset(flow, 0, sizeof(*flow));
	flow->build = build;
	flow->abi = msp_code_abi(build->code);
	flow->node = calloc(count ? count : 1, sizeof(*flow->node));
	flow->height = calloc(count ? count : 1, sizeof(*flow->height));
	flow->kind = calloc(count ? count : 1, sizeof(*flow->kind));
	if (!queue || !flow->node || !flow->height || !flow->kind) {
		free(queue);
		msp_vm_flow_free(flow);
		return MSP_E_NOMEM;
	}
	for (uint32_t i = 0; i < count; i++)
		flow->node[i].parent = (int32_t)i;
	mark_roots(flow);
	msp_vm_spread(flow, MSP_VM_ROOT, MSP_VM_REACHED, queue);
	connect_all(flow);
	anchor_frames(flow);
	anchor_leaves(flow);
	anchor_tail_calls(flow);
	anchor_others(flow);
	free(queue);
	return 0;
}

void msp_vm_flow_free(struct msp_vm_flow *flow)
{
	free(flow->node);
	free(flow->height);
	free(flow->kind);
}

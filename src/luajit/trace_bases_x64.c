/* SPDX-License-Identifier: MIT */
/*
 * The trace's base: in rdx where a root trace begins, else loaded from the VM's state; and copies of it
 * (lj_asm_x86.h: asm_head_root_base(), asm_sload(), asm_retf()).
 */
#include "luajit/trace_decode.h"

#define RDX (1u << 2)

unsigned int msp_trace_register_x64(unsigned int reg)
{
	static const uint16_t names[][2] = {
		{X86_REG_RAX, X86_REG_EAX},  {X86_REG_RCX, X86_REG_ECX},
		{X86_REG_RDX, X86_REG_EDX},  {X86_REG_RBX, X86_REG_EBX},
		{X86_REG_RSP, X86_REG_ESP},  {X86_REG_RBP, X86_REG_EBP},
		{X86_REG_RSI, X86_REG_ESI},  {X86_REG_RDI, X86_REG_EDI},
		{X86_REG_R8, X86_REG_R8D},   {X86_REG_R9, X86_REG_R9D},
		{X86_REG_R10, X86_REG_R10D}, {X86_REG_R11, X86_REG_R11D},
		{X86_REG_R12, X86_REG_R12D}, {X86_REG_R13, X86_REG_R13D},
		{X86_REG_R14, X86_REG_R14D}, {X86_REG_R15, X86_REG_R15D}};
	unsigned int i = 0;

	while (i < 16 && reg != names[i][0] && reg != names[i][1])
		i++;
	return i;
}

/* Is it the field at an offset of the VM's state? */
static bool is_field(const struct msp_trace_decoder *d, const cs_x86_op *op, int32_t field)
{
	if (op->type != X86_OP_MEM || op->mem.index != X86_REG_INVALID)
		return false;
	if (op->mem.base == X86_REG_R14)
		return op->mem.disp == field - d->layout->dispatch_to_g;
	return op->mem.base == X86_REG_INVALID &&
	       (uint32_t)op->mem.disp == (uint32_t)(d->g + (uint64_t)(int64_t)field);
}

/* The one with the trace's base? */
static bool is_jit_base(const struct msp_trace_decoder *d, const cs_x86_op *op)
{
	return is_field(d, op, d->layout->g_jit_base);
}

static bool is_base(const struct msp_trace_decoder *d, unsigned int reg)
{
	unsigned int i = msp_trace_register_x64(reg);

	return i < 16 && d->x64.bases >> i & 1;
}

/* Registers that it writes hold no base any more. One of which only a part is written has another name. */
static void drop_written(struct msp_trace_decoder *d, const cs_insn *insn)
{
	cs_regs read, written;
	uint8_t reads, writes;

	if (insn->id == X86_INS_CALL ||
	    cs_regs_access(d->handle, insn, read, &reads, written, &writes)) {
		d->x64.bases = 0;
		return;
	}
	while (writes--) {
		unsigned int reg = written[writes], i = msp_trace_register_x64(reg);

		if (i < 16)
			d->x64.bases &= ~(1u << i);
		else if (reg != X86_REG_EFLAGS && reg != X86_REG_RIP &&
			 (reg < X86_REG_XMM0 || reg > X86_REG_XMM15))
			d->x64.bases = 0;
	}
}

/* A slot that is loaded, or whose type is looked at; not one that is an operand of something else. */
static bool reads_slot(const struct msp_trace_decoder *d, const cs_insn *insn, int32_t *slot)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *op;

	if (x86->op_count != (insn->id == X86_INS_RORX ? 3 : 2))
		return false;
	op = &x86->operands[insn->id == X86_INS_CMP ? 0 : 1];
	if (op->type != X86_OP_MEM || op->mem.index != X86_REG_INVALID || op->mem.disp < 0 ||
	    !is_base(d, op->mem.base))
		return false;
	*slot = (int32_t)(op->mem.disp >> 3);
	if (insn->id == X86_INS_CMP)
		return x86->operands[1].type == X86_OP_IMM && op->size == 4 &&
		       (op->mem.disp & 7) == 4;
	return insn->id == X86_INS_MOV || insn->id == X86_INS_MOVSD || insn->id == X86_INS_RORX;
}

/* Where it is loaded again the trace may have moved it; but all copies that are older were it, too. */
static void follow_base(struct msp_trace_decoder *d, const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *op = x86->operands;
	bool loads, copies;

	if (insn->id != X86_INS_MOV || op[0].type != X86_OP_REG) {
		drop_written(d, insn);
		return;
	}
	loads = is_jit_base(d, &op[1]);
	copies = op[1].type == X86_OP_REG && is_base(d, op[1].reg);
	drop_written(d, insn);
	if (loads && d->x64.entered) {
		d->x64.bases = 0;
		d->x64.entered = false;
	}
	if ((loads || copies) && msp_trace_register_x64(op[0].reg) < 16)
		d->x64.bases |= 1u << msp_trace_register_x64(op[0].reg);
}

/*
 * Is an open upvalue a slot of the base? Its place is loaded, the base is subtracted, and that is
 * compared (lj_record.c: rec_upvalue()).
 */
static void join_alias(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	const cs_x86_op *op = insn->detail->x86.operands;
	const struct msp_trace_before *last = &d->x64.before[1], *two = &d->x64.before[2];
	uint8_t joined = d->x64.entered ? MSP_JOINED_ROOT : MSP_JOINED;

	if (insn->id == X86_INS_CMP && d->x64.alias && op[0].type == X86_OP_REG &&
	    op[0].reg == last->to)
		out->joined = d->x64.alias;
	d->x64.alias = MSP_JOINED_NOT;
	if (insn->id != X86_INS_SUB || op[0].type != X86_OP_REG ||
	    !(is_jit_base(d, &op[1]) || (op[1].type == X86_OP_REG && is_base(d, op[1].reg))))
		return;
	d->x64.alias = is_jit_base(d, &op[1]) ? MSP_JOINED : joined;
	if (last->id != X86_INS_MOV || last->to != op[0].reg)
		return;
	if (out[-1].place) {
		out->joined = d->x64.alias;
	} else if (last->from && two->id == X86_INS_MOV && two->to == last->from && out[-2].place) {
		out->joined = d->x64.alias;
		out[-1].joined = d->x64.alias;
	}
}

/*
 * asm_head_side(), asm_head_root(): behind the store of its number come no more than stores of what
 * is spilled, and a copy of the base; if that is not the beginning of something else.
 */
static void follow_head(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	const cs_x86_op *op = insn->detail->x86.operands;
	bool moves = insn->id == X86_INS_MOV || insn->id == X86_INS_MOVSD;

	if (d->x64.head == MSP_HEAD_MOVED && !(out->does & (MSP_DOES_COPY | MSP_DOES_CALL)) &&
	    (op[0].type != X86_OP_REG ||
	     msp_trace_register_x64(op[0].reg) != msp_trace_register_x64(d->x64.before[1].to)))
		out[-1].tells |= MSP_TELLS_MOVED;
	if (insn->id == X86_INS_MOV && is_field(d, &op[0], d->layout->g_vmstate)) {
		d->x64.head = MSP_HEAD_STORED;
		out->tells |= MSP_TELLS_HEAD;
	} else if (d->x64.head == MSP_HEAD_STORED && moves && op[0].type == X86_OP_MEM &&
		   op[0].mem.base == X86_REG_RSP) {
		out->tells |= MSP_TELLS_HEAD;
	} else if (d->x64.head == MSP_HEAD_STORED && insn->id == X86_INS_MOV &&
		   op[0].type == X86_OP_REG && op[1].type == X86_OP_REG &&
		   op[0].reg != X86_REG_ECX) { /* a shift's count */
		d->x64.head = MSP_HEAD_MOVED;
	} else {
		d->x64.head = MSP_HEAD_NONE;
	}
}

void msp_trace_base_x64(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	const cs_x86_op *op = insn->detail->x86.operands;

	if (out->code == 0) {
		d->x64.bases = RDX;
		d->x64.entered = true;
	}
	if (reads_slot(d, insn, &out->slot))
		out->tells |= MSP_TELLS_SLOT | (d->x64.entered ? MSP_TELLS_ENTRY : 0);
	if (insn->id == X86_INS_MOV && is_jit_base(d, &op[0]) && op[1].type == X86_OP_REG)
		out->tells |= MSP_TELLS_RETURN;
	join_alias(d, insn, out);
	follow_head(d, insn, out);
	follow_base(d, insn);
}

/* SPDX-License-Identifier: MIT */
/* What x86-64's instructions of a trace are for (lj_asm_x86.h). */
#include "luajit/objects.h"
#include "luajit/trace_decode.h"

static const struct {
	uint16_t id;
	uint32_t does;
} x64[] = {
	{X86_INS_ADD, MSP_DOES_ADD},
	{X86_INS_LEA, MSP_DOES_ADD | MSP_DOES_COPY},
	{X86_INS_ADDSD, MSP_DOES_ADD | MSP_DOES_FLOAT},
	{X86_INS_SUB, MSP_DOES_SUB},
	{X86_INS_SUBSD, MSP_DOES_SUB | MSP_DOES_FLOAT},
	{X86_INS_IMUL, MSP_DOES_MUL},
	{X86_INS_MULSD, MSP_DOES_MUL | MSP_DOES_FLOAT},
	{X86_INS_DIVSD, MSP_DOES_DIV | MSP_DOES_FLOAT},
	{X86_INS_SQRTSD, MSP_DOES_SQRT | MSP_DOES_FLOAT},
	{X86_INS_ROUNDSD, MSP_DOES_ROUND | MSP_DOES_FLOAT},
	{X86_INS_AND, MSP_DOES_AND},
	{X86_INS_OR, MSP_DOES_OR},
	{X86_INS_XOR, MSP_DOES_XOR},
	{X86_INS_SHL, MSP_DOES_SHL},
	{X86_INS_SHR, MSP_DOES_SHR},
	{X86_INS_SAR, MSP_DOES_SAR},
	{X86_INS_ROL, MSP_DOES_ROL},
	{X86_INS_ROR, MSP_DOES_ROL},
	{X86_INS_RORX, MSP_DOES_ROL},
	{X86_INS_SHLX, MSP_DOES_SHL},
	{X86_INS_SHRX, MSP_DOES_SHR},
	{X86_INS_SARX, MSP_DOES_SAR},
	{X86_INS_NOT, MSP_DOES_NOT},
	{X86_INS_NEG, MSP_DOES_NOT},
	{X86_INS_CMP, MSP_DOES_COMPARE},
	{X86_INS_TEST, MSP_DOES_COMPARE},
	{X86_INS_UCOMISD, MSP_DOES_COMPARE | MSP_DOES_FLOAT},
	{X86_INS_CVTSI2SD, MSP_DOES_CONVERT},
	{X86_INS_CVTTSD2SI, MSP_DOES_CONVERT | MSP_DOES_TOINT},
	{X86_INS_CVTSD2SS, MSP_DOES_CONVERT},
	{X86_INS_CVTSS2SD, MSP_DOES_CONVERT},
	{X86_INS_CALL, MSP_DOES_CALL},
	{X86_INS_MOV, MSP_DOES_COPY},
	{X86_INS_MOVABS, MSP_DOES_COPY},
	{X86_INS_MOVAPS, MSP_DOES_COPY},
	{X86_INS_MOVSD, MSP_DOES_COPY},
	{X86_INS_MOVZX, MSP_DOES_COPY},
	{X86_INS_MOVSX, MSP_DOES_COPY},
	{X86_INS_MOVSXD, MSP_DOES_COPY},
	{X86_INS_XORPS, MSP_DOES_XOR | MSP_DOES_FLOAT},
	{X86_INS_ANDPS, MSP_DOES_AND | MSP_DOES_FLOAT},
	{X86_INS_MOVD, MSP_DOES_COPY},
	{X86_INS_MOVQ, MSP_DOES_COPY},
};

/* Memory that is not on the C stack (spilled values), nor a constant or the VM's state. */
static bool is_object(const cs_x86_op *op)
{
	return op->mem.base != X86_REG_RSP && op->mem.base != X86_REG_RIP &&
	       op->mem.base != X86_REG_INVALID && op->mem.base != X86_REG_R14;
}

/* While rdx is the base of the trace's Lua frame: does it read a slot of it? */
static bool reads_slot(const cs_insn *insn, int32_t *slot)
{
	const cs_x86 *x86 = &insn->detail->x86;

	for (uint8_t i = 0; i < x86->op_count; i++)
		if (x86->operands[i].type == X86_OP_MEM &&
		    (i > 0 || insn->id == X86_INS_CMP || insn->id == X86_INS_UCOMISD) &&
		    (x86->operands[i].mem.base == X86_REG_RDX ||
		     x86->operands[i].mem.base == X86_REG_EDX) &&
		    x86->operands[i].mem.index == X86_REG_INVALID) {
			*slot = (int32_t)(x86->operands[i].mem.disp >> 3);
			return insn->id != X86_INS_LEA;
		}
	return false;
}

/* A memory operand in the VM's own state, at a fixed place. */
static const cs_x86_op *state_operand(const cs_insn *insn, uint16_t id)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *op = &x86->operands[1];

	if (insn->id != id || x86->op_count != 2 || x86->operands[0].type != X86_OP_REG ||
	    op->type != X86_OP_MEM || op->mem.index != X86_REG_INVALID ||
	    (op->mem.base != X86_REG_R14 && op->mem.base != X86_REG_INVALID)) /* without GC64 */
		return NULL;
	return op;
}

/* Objects are constants with their type in the upper bits. */
static uint64_t constant(const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;

	for (uint8_t i = 0; i < x86->op_count; i++)
		if (x86->operands[i].type == X86_OP_IMM && insn->id != X86_INS_CALL &&
		    (uint64_t)x86->operands[i].imm >= 65536)
			return (uint64_t)x86->operands[i].imm & ((1ull << 47) - 1);
	return 0;
}

static uint64_t jump_of(const cs_insn *insn, csh handle)
{
	const cs_x86 *x86 = &insn->detail->x86;

	if (!cs_insn_group(handle, insn, X86_GRP_JUMP) || x86->operands[0].type != X86_OP_IMM)
		return 0;
	return (uint64_t)x86->operands[0].imm;
}

/* Memory at a fixed place; 0: it is none. */
static uint64_t fixed_address(const struct msp_trace_decoder *d, const cs_insn *insn,
			      const cs_x86_op *op)
{
	if (op->type != X86_OP_MEM || op->mem.index != X86_REG_INVALID)
		return 0;
	switch (op->mem.base) {
	case X86_REG_INVALID:
		return (uint32_t)op->mem.disp;
	case X86_REG_RIP:
		return insn->address + insn->size + (uint64_t)op->mem.disp;
	case X86_REG_R14:
		return d->g + (uint64_t)(d->layout->dispatch_to_g + op->mem.disp);
	default:
		return 0;
	}
}

/*
 * What is moved from or to memory at a fixed place, or looks at the type of what is there, in its upper
 * half: what is compared else may be an operand of another step.
 */
static uint64_t place_of(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *op = x86->operands;
	uint64_t at;

	if (x86->op_count != 2)
		return 0;
	switch (insn->id) {
	case X86_INS_MOV:
	case X86_INS_MOVSD:
		op += op[0].type != X86_OP_MEM;
		return op->size >= 4 ? fixed_address(d, insn, op) : 0;
	case X86_INS_CMP:
		at = op[0].size == 4 && op[1].type == X86_OP_IMM ? fixed_address(d, insn, op) : 0;
		return (at & 7) == 4 ? at : 0;
	default:
		return 0;
	}
}

/* Types are negative numbers above the 47 bits of an address (lj_obj.h). */
static bool is_type(const cs_insn *insn, uint32_t does)
{
	const cs_x86 *x86 = &insn->detail->x86;
	int64_t imm = 0;

	for (uint8_t i = 0; i < x86->op_count; i++)
		if (x86->operands[i].type == X86_OP_IMM)
			imm = x86->operands[i].imm;
	if (does & (MSP_DOES_SHL | MSP_DOES_SHR | MSP_DOES_SAR | MSP_DOES_ROL))
		return imm == 47 || imm == 64 - 47;
	return insn->id == X86_INS_CMP && x86->operands[0].type == X86_OP_REG && imm < 0 &&
	       imm > -16;
}

static uint32_t x64_does(const cs_insn *insn, csh handle)
{
	const cs_x86 *x86 = &insn->detail->x86;
	uint32_t does = 0;

	for (size_t i = 0; i < sizeof(x64) / sizeof(x64[0]); i++)
		if (x64[i].id == insn->id)
			does = x64[i].does;
	if (!does && insn->id != X86_INS_JMP && cs_insn_group(handle, insn, X86_GRP_JUMP))
		return MSP_DOES_BRANCH;
	if (x86->op_count && x86->operands[0].type == X86_OP_REG &&
	    x86->operands[0].reg == X86_REG_RSP)
		return 0; /* room for what is spilled */
	if (insn->id == X86_INS_LEA)
		return does;
	if (insn->id == X86_INS_CALL && x86->operands[0].type == X86_OP_REG &&
	    x86->operands[0].reg != X86_REG_RAX)
		does |= MSP_DOES_FOREIGN;
	if (is_type(insn, does))
		does = MSP_DOES_TYPE;
	for (uint8_t i = 0; i < x86->op_count; i++) {
		if (x86->operands[i].type != X86_OP_MEM)
			continue;
		if (!is_object(&x86->operands[i])) {
			if (x86->operands[i].mem.base != X86_REG_RSP)
				does |= MSP_DOES_FIXED;
			continue;
		}
		if (i == 0 && !(does & MSP_DOES_COMPARE))
			does |= MSP_DOES_STORE;
		else
			does |= MSP_DOES_LOAD;
		does &= ~(uint32_t)MSP_DOES_COPY;
		if (x86->operands[i].mem.index != X86_REG_INVALID)
			does |= MSP_DOES_INDEX;
	}
	/* xor reg, reg makes a zero */
	if ((insn->id == X86_INS_XOR || insn->id == X86_INS_XORPS) &&
	    x86->operands[0].type == X86_OP_REG && x86->operands[1].type == X86_OP_REG &&
	    x86->operands[0].reg == x86->operands[1].reg)
		does = MSP_DOES_COPY;
	return does;
}

/* ---- What is known from one instruction to the next ---- */

static bool loads_state(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	const struct msp_lj_layout *y = d->layout;
	const cs_x86_op *op = state_operand(insn, X86_INS_MOV);
	x86_reg to = insn->detail->x86.operands[0].reg;

	if (!op || (to != X86_REG_RDI && to != X86_REG_EDI))
		return false;
	if (op->mem.base == X86_REG_R14)
		return op->mem.disp == y->g_cur_L - y->dispatch_to_g;
	return (uint32_t)op->mem.disp == d->g + (uint64_t)y->g_cur_L;
}

static void follow_state(struct msp_trace_decoder *d, const cs_insn *insn,
			 struct msp_trace_ins *out)
{
	if (insn->id == X86_INS_CALL) {
		out->does |= d->x64.state ? MSP_DOES_STATE : 0;
		d->x64.state = false;
	} else if (loads_state(d, insn)) {
		d->x64.state = true;
	} else if (!msp_trace_keeps(d, insn, X86_REG_RDI, X86_REG_EDI)) {
		d->x64.state = false;
	}
}

/*
 * Compares what has been allocated with when to collect, which is the word behind it; and jumps
 * over the collector's step.
 */
static void follow_check(struct msp_trace_decoder *d, const cs_insn *insn,
			 struct msp_trace_ins *out)
{
	const cs_x86_op *op = state_operand(insn, X86_INS_CMP);
	const cs_x86 *x86 = &insn->detail->x86;

	if (d->check == 2 && out[-1].does == MSP_DOES_CHECK && insn->id != X86_INS_JB) {
		out[-1].does = MSP_DOES_COMPARE;
		d->check = 0;
	}
	if (op && d->x64.reg == x86->operands[0].reg &&
	    d->x64.disp + (d->layout->gc64 ? 8 : 4) == op->mem.disp)
		d->check = 2;
	op = state_operand(insn, X86_INS_MOV);
	d->x64.reg = op ? x86->operands[0].reg : X86_REG_INVALID;
	d->x64.disp = op ? op->mem.disp : 0;
	if (!d->check)
		return;
	d->check -= out->does == MSP_DOES_BRANCH;
	out->does = MSP_DOES_CHECK;
	out->imm = 0;
}

/*
 * Is it the comparison of the size of a table's hash, which is told by its place in the table? What
 * else lies as far behind something is a type, which is negative, or aligned, or of a C type; that is
 * compared by steps that can do this too.
 */
static bool compares_hmask(const struct msp_trace_decoder *d, const cs_insn *insn)
{
	const cs_x86_op *op = insn->detail->x86.operands;
	int64_t imm;

	if (insn->id != X86_INS_CMP || op[0].type != X86_OP_MEM || op[0].size != 4 ||
	    op[1].type != X86_OP_IMM || !is_object(&op[0]) || op[0].mem.index != X86_REG_INVALID ||
	    op[0].mem.disp != msp_lj_object_layout(d->layout)->tab_hmask)
		return false;
	imm = (int32_t)op[1].imm;
	return imm >= 0 && !(imm & (imm + 1));
}

/*
 * A node's key is compared with a string that was loaded right before (lj_asm_x86.h: asm_hrefk(),
 * asm_href()). Where the size of the hash is another one the trace ends.
 */
static void follow_key(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	const cs_x86_op *op = insn->detail->x86.operands;

	if (insn->id == X86_INS_CMP && op[0].type == X86_OP_REG && op[1].type == X86_OP_MEM &&
	    d->x64.key && d->x64.key_reg == op[0].reg && op[0].size == 8) {
		out->does |= MSP_DOES_KEY;
		out->key = d->x64.key;
		out[-1].does |= MSP_DOES_KEY;
		out[-1].key = d->x64.key;
	}
	if (d->hmask && insn->id == X86_INS_JNE) {
		out->does |= MSP_DOES_KEY;
		out[-1].does |= MSP_DOES_KEY;
	}
	d->hmask = compares_hmask(d, insn);
	d->x64.key = 0;
	if ((insn->id == X86_INS_MOVABS || insn->id == X86_INS_MOV) && op[0].type == X86_OP_REG &&
	    op[1].type == X86_OP_IMM) {
		d->x64.key = msp_trace_tagged_string(d->layout, op[1].imm);
		d->x64.key_reg = op[0].reg;
	}
}

/* Jumps that a comparison without sign has (lj_asm_x86.h: asm_compmap); of numbers these are others. */
static void follow_bound(struct msp_trace_decoder *d, const cs_insn *insn,
			 struct msp_trace_ins *out)
{
	if (d->compares && (insn->id == X86_INS_JA || insn->id == X86_INS_JAE ||
			    insn->id == X86_INS_JB || insn->id == X86_INS_JBE)) {
		out->does |= MSP_DOES_BOUND;
		out[-1].does |= MSP_DOES_BOUND;
	}
	/* but of types, which are negative numbers */
	d->compares = insn->id == X86_INS_CMP && out->does != MSP_DOES_CHECK &&
		      (insn->detail->x86.operands[1].type != X86_OP_IMM ||
		       (int32_t)insn->detail->x86.operands[1].imm >= 0);
}

void msp_trace_decode_x64(struct msp_trace_decoder *d, const cs_insn *insn,
			  struct msp_trace_ins *out)
{
	*out = (struct msp_trace_ins){.code = insn->address - d->addr,
				      .does = x64_does(insn, d->handle),
				      .imm = constant(insn),
				      .place = place_of(d, insn),
				      .jump = jump_of(insn, d->handle)};
	if (d->layout->dualnum) /* any number may be an integer, and become one */
		out->does &= ~(uint32_t)MSP_DOES_TOINT;
	if (d->x64.base && reads_slot(insn, &out->slot)) {
		out->does &= ~(uint32_t)(MSP_DOES_LOAD | MSP_DOES_COPY);
		out->does |= MSP_DOES_SLOT;
	}
	d->x64.base = d->x64.base && insn->id != X86_INS_CALL &&
		      msp_trace_keeps(d, insn, X86_REG_RDX, X86_REG_EDX);
	follow_state(d, insn, out);
	follow_key(d, insn, out);
	follow_check(d, insn, out);
	follow_bound(d, insn, out);
	msp_trace_join_x64(d, insn, out);
	msp_trace_base_x64(d, insn, out);
	msp_trace_numbers_x64(d, insn, out);
}

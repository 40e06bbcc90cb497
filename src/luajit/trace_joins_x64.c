/* SPDX-License-Identifier: MIT */
/*
 * Which machine instructions the compiler has made of one instruction of its own: a comparison and its
 * jumps, what is copied and then computed with, the conversions (lj_asm_x86.h, lj_asm.c).
 */
#include "luajit/objects.h"
#include "luajit/trace_decode.h"

static bool is_conditional(unsigned int id)
{
	return id >= X86_INS_JAE && id <= X86_INS_JS && id != X86_INS_JMP && id != X86_INS_LJMP;
}

/* Numbers are worked with in the place of the first operand, which is copied there if it is still needed. */
static bool computes_number(unsigned int id)
{
	switch (id) {
	case X86_INS_ADDSD:
	case X86_INS_SUBSD:
	case X86_INS_MULSD:
	case X86_INS_DIVSD:
	case X86_INS_MINSD:
	case X86_INS_MAXSD:
	case X86_INS_XORPS:
	case X86_INS_ANDPS:
		return true;
	default:
		return false;
	}
}

static bool computes_integer(unsigned int id)
{
	switch (id) {
	case X86_INS_ADD:
	case X86_INS_SUB:
	case X86_INS_IMUL:
	case X86_INS_AND:
	case X86_INS_OR:
	case X86_INS_XOR:
	case X86_INS_SHL:
	case X86_INS_SHR:
	case X86_INS_SAR:
	case X86_INS_ROL:
	case X86_INS_ROR:
	case X86_INS_NOT:
	case X86_INS_NEG:
		return true;
	default:
		return false;
	}
}

/* asm_guardcc() behind what it is for. A jump that another one precedes goes with it. */
static uint8_t join_jump(const struct msp_trace_decoder *d, const struct msp_trace_before *is,
			 struct msp_trace_ins *out)
{
	unsigned int last = d->x64.before[0].id;

	if (out->does & MSP_DOES_CHECK)
		return MSP_JOINED_NOT;
	if (last == X86_INS_UCOMISD && (is->id == X86_INS_JA || is->id == X86_INS_JAE ||
					is->id == X86_INS_JB || is->id == X86_INS_JBE))
		out->tells |= MSP_TELLS_ORDER;
	if (is->id == X86_INS_JO && computes_integer(last))
		return MSP_JOINED;
	if (last == X86_INS_CMP || last == X86_INS_TEST || last == X86_INS_UCOMISD)
		return MSP_JOINED;
	return is_conditional(last) && d->x64.before[1].id == X86_INS_UCOMISD ? MSP_JOINED
									      : MSP_JOINED_NOT;
}

/*
 * ra_left(): copies the first operand. The result of a call is copied from its register for the call
 * itself; and a C type's integer that becomes another one may be no more than a copy.
 */
static uint8_t join_copy(const struct msp_trace_decoder *d, const struct msp_trace_before *is)
{
	const struct msp_trace_before *last = &d->x64.before[0];

	bool zero = is->from == is->to && (is->id == X86_INS_XORPS || is->id == X86_INS_XOR);

	if (!last->from || last->to != is->to || zero || d->x64.before[1].id == X86_INS_CALL)
		return MSP_JOINED_NOT;
	if (last->id == X86_INS_MOVAPS && computes_number(is->id))
		return MSP_JOINED;
	return last->id == X86_INS_MOV && computes_integer(is->id) ? MSP_JOINED_NUMBERS
								   : MSP_JOINED_NOT;
}

/* asm_tointg(): to an integer, back, and is it the same? C types' numbers may be asked so by the program. */
static void join_toint(const struct msp_trace_decoder *d, const struct msp_trace_before *is,
		       struct msp_trace_ins *out)
{
	const struct msp_trace_before *back = &d->x64.before[0], *zero = &d->x64.before[1],
				      *to = &d->x64.before[2];

	if (is->id != X86_INS_UCOMISD || back->id != X86_INS_CVTSI2SD || is->from != back->to ||
	    zero->id != X86_INS_XORPS || zero->to != back->to || to->id != X86_INS_CVTTSD2SI ||
	    to->to != back->from || to->from != is->to || !is->to)
		return;
	for (int i = 0; i >= -2; i--)
		if (out[i].joined == MSP_JOINED_NOT)
			out[i].joined = MSP_JOINED_NUMBERS;
}

/* ra_dest(): what has just been computed is spilled. */
static bool spills(const struct msp_trace_decoder *d, const struct msp_trace_before *is)
{
	const struct msp_trace_before *last = &d->x64.before[0];

	return (is->id == X86_INS_MOV || is->id == X86_INS_MOVSD) && !is->to && is->from &&
	       is->in_memory && is->mem.base == X86_REG_RSP && last->to == is->from &&
	       last->id != X86_INS_CMP && last->id != X86_INS_TEST && last->id != X86_INS_UCOMISD &&
	       !(last->in_memory && last->mem.base == X86_REG_RSP);
}

static bool same_memory(const struct msp_trace_before *a, const struct msp_trace_before *b,
			int64_t behind)
{
	return a->in_memory && b->in_memory && a->mem.base == b->mem.base &&
	       a->mem.index == b->mem.index && a->mem.scale == b->mem.scale &&
	       a->mem.disp == b->mem.disp + behind;
}

/*
 * asm_ahuvload(), asm_sload(): the type is looked at, then the value is loaded. With GC64 the value is
 * loaded, and turned round to look at its type, and back.
 */
static uint8_t join_load(const struct msp_trace_decoder *d, const struct msp_trace_before *is)
{
	const struct msp_trace_before *last = &d->x64.before[0], *two = &d->x64.before[1];
	bool loads = (is->id == X86_INS_MOV || is->id == X86_INS_MOVSD) && is->to;

	if (loads && is_conditional(last->id) && two->id == X86_INS_CMP && two->has_number &&
	    same_memory(two, is, 4))
		return MSP_JOINED;
	if (!d->layout->gc64)
		return MSP_JOINED_NOT;
	if ((is->id == X86_INS_ROR || is->id == X86_INS_SAR) && is->number == 47 &&
	    last->id == X86_INS_MOV && last->in_memory && last->to == is->to)
		return MSP_JOINED;
	if (is->id == X86_INS_CMP && is->to && is->has_number && last->number == 47 &&
	    (last->id == X86_INS_ROR || last->id == X86_INS_SAR || last->id == X86_INS_RORX))
		return MSP_JOINED;
	return is->id == X86_INS_SHR && is->number == 17 && is_conditional(last->id) &&
			       two->id == X86_INS_CMP && two->has_number &&
			       (d->x64.before[2].id == X86_INS_ROR ||
				d->x64.before[2].id == X86_INS_RORX) &&
			       d->x64.before[2].to == is->to
		       ? MSP_JOINED
		       : MSP_JOINED_NOT;
}

/* asm_hrefk(), asm_href(): the key is loaded to be compared. */
static uint8_t join_key(const struct msp_trace_decoder *d, const struct msp_trace_before *is,
			struct msp_trace_ins *out)
{
	const struct msp_lj_object_layout *o = msp_lj_object_layout(d->layout);
	const struct msp_trace_before *last = &d->x64.before[0], *two = &d->x64.before[1];

	if (is->id == X86_INS_CMP && out->does & MSP_DOES_KEY && out->key) {
		if (two->id == X86_INS_MOV && out[-2].joined && is->in_memory &&
		    msp_trace_register_x64(is->mem.base) == msp_trace_register_x64(two->to))
			out[-1].joined = MSP_JOINED; /* of the node that was loaded before */
		return MSP_JOINED;
	}
	/* the table's nodes, where a hash of that size has the key: where it has none no key is looked for */
	return is->id == X86_INS_MOV && is->to && is->in_memory && is_conditional(last->id) &&
			       out[-1].does & MSP_DOES_KEY && two->id == X86_INS_CMP &&
			       two->has_number && two->number &&
			       same_memory(two, is, o->tab_hmask - o->tab_node)
		       ? MSP_JOINED
		       : MSP_JOINED_NOT;
}

static uint8_t join(const struct msp_trace_decoder *d, const struct msp_trace_before *is,
		    struct msp_trace_ins *out)
{
	const struct msp_trace_before *last = &d->x64.before[0];
	uint8_t joined;

	if (is_conditional(is->id))
		return join_jump(d, is, out);
	/* asm_conv(): makes it a zero before */
	if (is->id == X86_INS_CVTSI2SD && last->id == X86_INS_XORPS && last->to == is->to &&
	    last->from == is->to)
		return MSP_JOINED;
	/* asm_tobit() */
	if (is->id == X86_INS_MOVD && is->from >= X86_REG_XMM0 && is->from <= X86_REG_XMM15) {
		out->tells |= MSP_TELLS_TOBIT;
		return last->id == X86_INS_ADDSD && last->to == is->from ? MSP_JOINED
									 : MSP_JOINED_NOT;
	}
	if (spills(d, is))
		return MSP_JOINED_SPILL;
	joined = join_copy(d, is);
	joined = joined ? joined : join_load(d, is);
	return joined ? joined : join_key(d, is, out);
}

void msp_trace_join_x64(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	const cs_x86 *x86 = &insn->detail->x86;
	struct msp_trace_before is = {.id = insn->id};

	for (uint8_t i = 0; i < x86->op_count; i++) {
		if (x86->operands[i].type == X86_OP_MEM) {
			is.in_memory = true;
			is.mem = x86->operands[i].mem;
		} else if (x86->operands[i].type == X86_OP_IMM) {
			is.has_number = true;
			is.number = x86->operands[i].imm;
		}
	}
	if (x86->op_count > 0 && x86->operands[0].type == X86_OP_REG)
		is.to = x86->operands[0].reg;
	if (x86->op_count > 1 && x86->operands[1].type == X86_OP_REG)
		is.from = x86->operands[1].reg;
	out->joined = join(d, &is, out);
	join_toint(d, &is, out);
	d->x64.before[2] = d->x64.before[1];
	d->x64.before[1] = d->x64.before[0];
	d->x64.before[0] = is;
}

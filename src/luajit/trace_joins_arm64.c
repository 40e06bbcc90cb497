/* SPDX-License-Identifier: MIT */
/*
 * Several instructions of arm64 that are always made for one thing, an instruction of the compiler's
 * intermediate code (lj_asm_arm64.h), and so for one of the bytecode.
 */
#include "luajit/trace_arm64.h"

#define MAX_CHAIN 16

static bool is_compare(const cs_insn *insn)
{
	return insn->id == ARM64_INS_CMP || insn->id == ARM64_INS_CMN ||
	       insn->id == ARM64_INS_TST || insn->id == ARM64_INS_FCMP;
}

/* Looking for a key in a chain of nodes is the only loop inside of a trace (asm_href()). */
static void join_chain(const struct msp_trace_decoder *d, struct msp_trace_ins *out)
{
	uint64_t begin = out->jump - d->addr;

	if (!out->jump || begin >= out->code || begin == d->loop)
		return;
	for (int i = 0; i < MAX_CHAIN && out[-i].code > begin; i++)
		out[-i].joined = MSP_JOINED;
}

/* A guard's branch, behind what it is about. */
static void join_branch(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	if (!out->code || !(out->does & MSP_DOES_BRANCH))
		return;
	join_chain(d, out);
	if (insn->id != ARM64_INS_B)
		return;
	if (insn->detail->arm64.cc == ARM64_CC_VS && out[-1].does & (MSP_DOES_ADD | MSP_DOES_SUB)) {
		out[-1].tells |= MSP_TELLS_OVERFLOW;
		out->joined = MSP_JOINED;
	}
	if (d->arm64.compared)
		out->joined = MSP_JOINED;
}

/* Has a product more than 32 bits? (asm_intmul()) */
static void join_product(struct msp_trace_decoder *d, const cs_insn *insn,
			 struct msp_trace_ins *out)
{
	if (d->arm64.product && out->does & (MSP_DOES_TYPE | MSP_DOES_BRANCH))
		out->joined = MSP_JOINED;
	else
		d->arm64.product = false;
	d->arm64.product |= insn->id == ARM64_INS_SMULL;
	d->arm64.product &= !(out->does & MSP_DOES_BRANCH);
}

/* The type of a value that was loaded is looked at, and then taken off (asm_ahuvload(), asm_sload()). */
static void join_value(struct msp_trace_decoder *d, const cs_insn *insn, struct msp_trace_ins *out)
{
	const cs_arm64_op *last = msp_arm64_operand(
		insn, insn->detail->arm64.op_count ? insn->detail->arm64.op_count - 1 : 0);
	int from = msp_arm64_general(insn, 1);

	if (d->arm64.value < 0 || !(out->does & MSP_DOES_TYPE))
		return;
	if (insn->id == ARM64_INS_CMN && msp_arm64_general(insn, 0) == d->arm64.value)
		out->joined = MSP_JOINED;
	else if (insn->id == ARM64_INS_CMN && out[-1].does & MSP_DOES_TYPE)
		out[-1].joined = out->joined = MSP_JOINED;
	else if (insn->id != ARM64_INS_ASR && from == d->arm64.value &&
		 (insn->id == ARM64_INS_CMP ? last->type == ARM64_OP_REG
					    : out[-1].joined && out[-1].does & MSP_DOES_BRANCH))
		out->joined = MSP_JOINED;
}

/* Goes on with a value while it is looked at. */
static void follow_value(struct msp_trace_decoder *d, const cs_insn *insn,
			 const struct msp_trace_ins *out)
{
	bool loads = insn->id == ARM64_INS_LDR || insn->id == ARM64_INS_LDUR;

	if (loads && msp_arm64_memory(insn) && msp_arm64_is_wide(msp_arm64_operand(insn, 0)->reg))
		d->arm64.value = msp_arm64_general(insn, 0);
	else if (insn->id == ARM64_INS_ASR && msp_arm64_general(insn, 1) == d->arm64.value)
		return;
	else if (!out->joined)
		d->arm64.value = -1;
}

void msp_trace_join_arm64(struct msp_trace_decoder *d, const cs_insn *insn,
			  struct msp_trace_ins *out)
{
	int first = msp_arm64_general(insn, 0);
	bool stores = insn->id == ARM64_INS_STR || insn->id == ARM64_INS_STUR;

	join_branch(d, insn, out);
	join_value(d, insn, out);
	join_product(d, insn, out);
	/* a key is loaded, and compared */
	if (insn->id == ARM64_INS_CMP && out->does & MSP_DOES_KEY && out[-1].does & MSP_DOES_LOAD &&
	    d->arm64.value >= 0 &&
	    (first == d->arm64.value || msp_arm64_general(insn, 1) == d->arm64.value))
		out->joined = MSP_JOINED;
	/* a value gets its type, and is stored (asm_ahustore()) */
	if (stores && first >= 0 && first == d->arm64.tagged)
		out->joined = MSP_JOINED;
	d->arm64.tagged = insn->id == ARM64_INS_ADD && msp_arm64_general(insn, 2) >= 0 &&
					  out->does == MSP_DOES_COPY
				  ? first
				  : -1;
	d->arm64.compared = is_compare(insn) || (d->arm64.compared && insn->id == ARM64_INS_MOV &&
						 first == msp_arm64_general(insn, 1));
	follow_value(d, insn, out);
}

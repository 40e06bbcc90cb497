/* SPDX-License-Identifier: MIT */
#include <stddef.h>

#include "luajit/bytecode.h"

#define INVALID(lo, hi) [lo... hi] = MSP_BC_UNKNOWN

/* From 2017's beta3 to 2026-07, OpenResty's and Tarantool's forks too. */
static const struct msp_bc_set set_2017 = {
	.funcf = 89,
	.op =
		{
#define _(name, mode, jump) MSP_BC_##name,
			MSP_BC_COMMON(_)
#undef _
				INVALID(97, 255),
			[89 ... 96] = MSP_BC_FUNC,
		},
};

/* Upstream since 2026-07: bit operators before the headers. */
static const struct msp_bc_set set_2026 = {
	.funcf = 96,
	.op =
		{
#define _(name, mode, jump) MSP_BC_##name,
			MSP_BC_COMMON(_) MSP_BC_BITOPS(_)
#undef _
				INVALID(104, 255),
			[96 ... 103] = MSP_BC_FUNC,
		},
};

static const struct msp_bc_set *const sets[] = {&set_2017, &set_2026};

static const struct {
	uint8_t mode;
	uint8_t jump;
} info[MSP_BC_COUNT] = {
#define _(name, mode, jump) [MSP_BC_##name] = {MSP_BC_##mode, jump},
	MSP_BC_COMMON(_) MSP_BC_BITOPS(_)
#undef _
};

_Static_assert(MSP_BC_BNOT == 89, "common opcodes end where the oldest generation's headers begin");
_Static_assert(MSP_BC_FUNC == 96, "bit operators end where the newest generation's headers begin");

const struct msp_bc_set *msp_bc_set_find(const struct msp_lj_layout *layout)
{
	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
		if (sets[i]->funcf == layout->bc_funcf)
			return sets[i];
	return NULL;
}

enum msp_bc_mode msp_bc_mode(uint8_t op)
{
	return op < MSP_BC_COUNT ? info[op].mode : MSP_BC_NONE;
}

bool msp_bc_is_jump(uint8_t op)
{
	return op < MSP_BC_COUNT && info[op].jump;
}

bool msp_bc_is_call(uint8_t op)
{
	return op == MSP_BC_CALLM || op == MSP_BC_CALL || op == MSP_BC_CALLMT ||
	       op == MSP_BC_CALLT || op == MSP_BC_ITERC || op == MSP_BC_ITERN;
}

uint8_t msp_bc_reads(uint8_t op)
{
	switch (op) {
	case MSP_BC_ISLT ... MSP_BC_ISNEV:
		return MSP_BC_A | MSP_BC_D;
	case MSP_BC_ISEQS ... MSP_BC_ISNEP:
	case MSP_BC_ISTYPE ... MSP_BC_ISNUM:
	case MSP_BC_GSET:
	case MSP_BC_CALLM ... MSP_BC_CALLT:
	case MSP_BC_RET1:
	case MSP_BC_FORI ... MSP_BC_JFORL:
		return MSP_BC_A;
	case MSP_BC_ISTC ... MSP_BC_ISF:
	case MSP_BC_MOV ... MSP_BC_LEN:
	case MSP_BC_USETV:
		return MSP_BC_D;
	case MSP_BC_ADDVN ... MSP_BC_MODNV:
	case MSP_BC_TGETS ... MSP_BC_TGETB:
		return MSP_BC_B;
	case MSP_BC_ADDVV ... MSP_BC_CAT:
	case MSP_BC_TGETV:
	case MSP_BC_TGETR:
		return MSP_BC_B | MSP_BC_C;
	case MSP_BC_TSETV:
	case MSP_BC_TSETR:
		return MSP_BC_A | MSP_BC_B | MSP_BC_C;
	case MSP_BC_TSETS ... MSP_BC_TSETB:
		return MSP_BC_A | MSP_BC_B;
	default:
		return 0;
	}
}

bool msp_bc_is_return(uint8_t op)
{
	return op == MSP_BC_RETM || op == MSP_BC_RET || op == MSP_BC_RET0 || op == MSP_BC_RET1 ||
	       op == MSP_BC_CALLMT || op == MSP_BC_CALLT;
}

/* SPDX-License-Identifier: MIT */
/* Register sets as the kernel hands them out (NT_PRSTATUS) to registers by DWARF number. */
#include "target/target.h"

#include <string.h>

#include "moonspy/moonspy.h"
#include "unwind/tables.h"

struct regset {
	int arch;
	size_t size;	 /* of the whole set, which also tells 64-bit from 32-bit threads */
	int count;	 /* DWARF registers there are */
	uint8_t pc;	 /* where they are, counted in 8-byte words */
	uint8_t syscall; /* number of the system call, -1 outside of one; 0: not there */
	uint8_t word[MSP_REG_COUNT];
};

static const struct regset regsets[] = {
	/* struct user_regs_struct of <sys/user.h> */
	{
		.arch = MSP_ARCH_X86_64,
		.size = 27 * 8,
		.count = 16,
		.pc = 16,
		.syscall = 15,
		.word = {10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0},
	},
	/* struct user_pt_regs of <asm/ptrace.h>: x0..x30, sp, pc, pstate */
	{
		.arch = MSP_ARCH_ARM64,
		.size = 34 * 8,
		.count = 32,
		.pc = 32,
		.word = {0,  1,	 2,  3,	 4,  5,	 6,  7,	 8,  9,	 10, 11, 12, 13, 14, 15,
			 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
	},
};

int msp_registers_from_regset(int arch, const void *set, size_t size, struct msp_registers *out)
{
	const struct regset *regset = NULL;
	uint64_t word[40];

	for (size_t i = 0; i < sizeof(regsets) / sizeof(regsets[0]); i++)
		if (regsets[i].arch == arch)
			regset = &regsets[i];
	if (!regset || size != regset->size)
		return MSP_E_UNSUPPORTED;
	memcpy(word, set, size);
	memset(out, 0, sizeof(*out));
	for (int i = 0; i < regset->count; i++)
		out->reg[i] = word[regset->word[i]];
	out->pc = word[regset->pc];
	out->syscall = regset->syscall && (int64_t)word[regset->syscall] >= 0;
	return 0;
}

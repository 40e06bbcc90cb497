/* SPDX-License-Identifier: MIT */
/*
 * arm64 code computes an address in steps: the page of something (adrp), what is to be added to
 * come to it, or from it to what lies near. This goes back over them, by the instructions' own
 * encoding (Arm ARM, C4.1): a whole program is gone over like that.
 */
#include "elf/bytes.h"
#include "luajit/build.h"

#define MAX_BACK 512
#define MAX_STEPS 6
#define MAX_TO_CALL 16
#define FIRST_SAVED 19 /* lower registers are lost in a call */

static bool is_branch(uint32_t word)
{
	return (word >> 26 & 7) == 5;
}

static bool is_call(uint32_t word)
{
	return word >> 26 == 0x25 || (word & 0xfffff81f) == 0xd63f0000; /* bl, blr */
}

/* May the instruction write the register? */
static bool writes(uint32_t word, uint32_t reg)
{
	uint32_t target = word & 31, class = word >> 25 & 15;

	if (is_call(word))
		return reg < FIRST_SAVED || reg == 30;
	if (is_branch(word) || (class & 7) == 7) /* vectors: from there to a general one, seldom */
		return class == 15 && target == reg && (word & 0x5f20fc00) == 0x1e200000;
	if ((class & 5) != 4)
		return target == reg;
	/* Loads and stores; of two registers; the base moves perhaps. */
	if ((word >> 5 & 31) == reg &&
	    ((word & 0x3a800000) == 0x28800000 || (word & 0x3b200400) == 0x38000400))
		return true;
	if (word >> 26 & 1)
		return false;
	if ((word & 0x3a400000) == 0x28400000 && (word >> 10 & 31) == reg)
		return true;
	return (word >> 22 & 3 || word >> 23 & 1) && target == reg;
}

static int64_t page_offset(uint32_t word)
{
	return (int64_t)((int32_t)(word << 8) >> 13) * 4 + (word >> 29 & 3);
}

bool msp_lj_arm64_value(const struct msp_lj_build *build, uint64_t addr, uint8_t reg,
			uint64_t *value)
{
	uint64_t start = addr < MAX_BACK * 4 ? 0 : addr - MAX_BACK * 4, sum = 0;
	size_t avail;
	const uint8_t *bytes = msp_image_bytes(build->image, start, &avail);
	unsigned int steps = 0;

	if (!bytes || addr % 4 || avail < addr - start)
		return false;
	while (addr > start && steps < MAX_STEPS) {
		uint32_t word;

		addr -= 4;
		word = msp_get32(bytes + (addr - start));
		if (!writes(word, reg))
			continue;
		steps++;
		if ((word & 0x1f000000) == 0x10000000) { /* adr, adrp */
			*value = (word >> 31 ? (addr & ~4095ULL) : addr) + sum +
				 (uint64_t)(page_offset(word) * (word >> 31 ? 4096 : 1));
			return true;
		}
		if ((word & 0xff800000) == 0x91000000) /* add reg, reg, imm */
			sum += (uint64_t)(word >> 10 & 0xfff) << (word >> 22 & 1 ? 12 : 0);
		else if ((word & 0xff800000) == 0xd1000000) /* sub */
			sum -= (uint64_t)(word >> 10 & 0xfff) << (word >> 22 & 1 ? 12 : 0);
		else if ((word & 0xffe0ffe0) == 0xaa0003e0) /* mov */
			word = word >> 16 << 5;
		else
			return false;
		reg = word >> 5 & 31;
	}
	return false;
}

bool msp_lj_arm64_taken(const struct msp_lj_build *build, uint64_t addr, uint32_t word,
			uint64_t *value)
{
	/* adr; add or sub, reg, imm; mov */
	if ((word & 0x9f000000) != 0x10000000 && (word & 0xbf800000) != 0x91000000 &&
	    (word & 0xffe0ffe0) != 0xaa0003e0)
		return false;
	return (word & 31) != 31 && msp_lj_arm64_value(build, addr + 4, word & 31, value);
}

bool msp_lj_arm64_argument(const struct msp_lj_build *build, uint64_t addr, uint8_t reg,
			   uint64_t *value)
{
	size_t avail;
	const uint8_t *bytes = msp_image_bytes(build->image, addr, &avail);

	for (size_t i = 0; bytes && i < MAX_TO_CALL && (i + 1) * 4 <= avail; i++) {
		uint32_t word = msp_get32(bytes + i * 4);

		if (is_call(word))
			return msp_lj_arm64_value(build, addr + i * 4, reg, value);
		if (is_branch(word))
			break;
	}
	return false;
}

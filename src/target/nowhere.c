/* SPDX-License-Identifier: MIT */
/*
 * A call of an address at which there is no code, mostly of a null pointer. Nothing ran there:
 * all registers are as they were at the call, whose operand therefore still says where it went.
 * Intel SDM, volume 2, chapter 2: ModR/M and SIB.
 */
#include "target/walker.h"

#include <string.h>

#include "elf/bytes.h"

#define CALL_MAX 8 /* REX, opcode, ModR/M, SIB, 32 bits */
#define RIP 16	   /* stands for the base that rip is */
#define NO_REG 17

struct operand {
	uint8_t size; /* of the instruction from its opcode on */
	bool memory;
	uint8_t base, index, scale; /* registers by their number in code */
	int32_t displacement;
};

/* A register by its number in code; of the stack pointer what it was before the call. */
static uint64_t value_of(const struct msp_registers *regs, uint8_t number, uint64_t rip)
{
	static const uint8_t dwarf[] = {0, 2, 1, 3, 7, 6, 4, 5};

	if (number == NO_REG)
		return 0;
	if (number == RIP)
		return rip;
	return regs->reg[number < 8 ? dwarf[number] : number] + (number == 4 ? 8 : 0);
}

/* The operand of call r/m (0xff /2) at code, of which size bytes are there; size 0: it is none. */
static struct operand decode(const uint8_t *code, size_t size, uint8_t rex)
{
	struct operand o = {.base = NO_REG, .index = NO_REG};
	uint8_t mod, rm, wide;
	size_t at = 2;

	if (size < 2 || code[0] != 0xff || (code[1] & 0x38) != 0x10)
		return o;
	mod = code[1] >> 6;
	rm = code[1] & 7;
	o.memory = mod != 3;
	o.base = rm | (rex & 1) << 3;
	wide = mod == 1 ? 1 : mod == 2 ? 4 : 0;
	if (o.memory && rm == 4 && at < size) {
		uint8_t index = (code[at] >> 3 & 7) | (rex & 2) << 2;

		o.base = (code[at] & 7) | (rex & 1) << 3;
		o.index = index == 4 ? NO_REG : index;
		o.scale = code[at] >> 6;
		if (!mod && (code[at] & 7) == 5) {
			o.base = NO_REG;
			wide = 4;
		}
		at++;
	} else if (!mod && rm == 5) {
		o.base = RIP;
		wide = 4;
	}
	if (at + wide > size)
		return o;
	if (wide)
		o.displacement = wide == 1 ? (int8_t)code[at] : (int32_t)msp_get32(code + at);
	o.size = (uint8_t)(at + wide);
	return o;
}

/* Does the instruction of size bytes that ends at ret call target? */
static bool calls(const struct msp_memory *mem, const struct msp_registers *regs,
		  const uint8_t *code, size_t size, uint8_t rex, uint64_t ret, uint64_t target)
{
	struct operand o = decode(code, size, rex);
	uint64_t value;

	if (size == 5 && code[0] == 0xe8)
		return ret + (uint64_t)(int64_t)(int32_t)msp_get32(code + 1) == target;
	if (o.size != size)
		return false;
	value = value_of(regs, o.base, ret);
	if (!o.memory)
		return value == target;
	value += (value_of(regs, o.index, ret) << o.scale) + (uint64_t)(int64_t)o.displacement;
	return msp_read(mem, value, &value, sizeof(value)) == 0 && value == target;
}

bool msp_call_to_nowhere(const struct msp_memory *mem, const struct msp_registers *regs,
			 uint64_t *ret)
{
	uint8_t code[CALL_MAX] = {0};

	if (msp_read(mem, regs->reg[7], ret, sizeof(*ret)) ||
	    msp_read(mem, *ret - sizeof(code), code, sizeof(code)))
		return false;
	for (size_t size = 2; size < CALL_MAX; size++) {
		const uint8_t *at = code + CALL_MAX - size;
		uint8_t rex = (at[-1] & 0xf0) == 0x40 ? at[-1] : 0;

		if (calls(mem, regs, at, size, rex, *ret, regs->pc) ||
		    (rex && calls(mem, regs, at, size, 0, *ret, regs->pc)))
			return true;
	}
	return false;
}

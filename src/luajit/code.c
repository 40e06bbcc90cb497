/* SPDX-License-Identifier: MIT */
#include "luajit/code.h"

#include <stdlib.h>
#include <string.h>

#include "luajit/code_decode.h"
#include "moonspy/moonspy.h"

#define MAX_INSN 16

struct msp_code {
	const struct msp_image *image;
	const struct msp_code_abi *abi;
	csh handle;
	cs_insn *insn;
};

/* psABI figure 3.4; AAPCS64 section 6.1. */
static const struct msp_code_abi abis[] = {
	{
		.arch = MSP_ARCH_X86_64,
		.align = 1,
		.regs = 16,
		.sp = MSP_X64_RSP,
		.fp = MSP_X64_RBP,
		.lr = MSP_REG_NONE,
		.result = MSP_X64_RAX,
		.pushed = 8,
		.arg = {MSP_X64_RDI, MSP_X64_RSI, MSP_X64_RDX, MSP_X64_RCX, MSP_X64_R8, MSP_X64_R9},
		.caller_saved = 1U << MSP_X64_RAX | 1U << MSP_X64_RCX | 1U << MSP_X64_RDX |
				1U << MSP_X64_RSI | 1U << MSP_X64_RDI | 1U << MSP_X64_R8 |
				1U << MSP_X64_R9 | 1U << MSP_X64_R10 | 1U << MSP_X64_R11,
		.slot = {MSP_REG_NONE, MSP_X64_RBX, MSP_X64_RBP, MSP_X64_R12, MSP_X64_R13,
			 MSP_X64_R14, MSP_X64_R15},
		.slots = 7,
	},
	{
		.arch = MSP_ARCH_ARM64,
		.align = 4,
		.regs = 32,
		.sp = 31,
		.fp = 29,
		.lr = 30,
		.result = 0,
		.pushed = 0,
		.arg = {0, 1, 2, 3, 4, 5},
		.caller_saved = 0x4007ffff,
		.slot = {30, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29},
		.slots = 12,
	},
};

const struct msp_code_abi *msp_code_abi_of(int arch)
{
	for (size_t i = 0; i < sizeof(abis) / sizeof(abis[0]); i++) {
		if (abis[i].arch == arch)
			return &abis[i];
	}
	return NULL;
}

const struct msp_code_abi *msp_code_abi(const struct msp_code *code)
{
	return code->abi;
}

static int open_disassembler(struct msp_code *code)
{
	bool x64 = code->abi->arch == MSP_ARCH_X86_64;

	if (cs_open(x64 ? CS_ARCH_X86 : CS_ARCH_ARM64, x64 ? CS_MODE_64 : CS_MODE_LITTLE_ENDIAN,
		    &code->handle) != CS_ERR_OK)
		return MSP_E_NOMEM;
	cs_option(code->handle, CS_OPT_DETAIL, CS_OPT_ON);
	code->insn = cs_malloc(code->handle);
	return code->insn ? 0 : MSP_E_NOMEM;
}

int msp_code_open(const struct msp_image *image, struct msp_code **out)
{
	const struct msp_code_abi *abi = msp_code_abi_of(msp_image_arch(image));
	struct msp_code *code;
	int rc;

	*out = NULL;
	if (!abi)
		return MSP_E_UNSUPPORTED;
	code = calloc(1, sizeof(*code));
	if (!code)
		return MSP_E_NOMEM;
	code->image = image;
	code->abi = abi;
	rc = open_disassembler(code);
	if (rc != 0) {
		msp_code_close(code);
		return rc;
	}
	*out = code;
	return 0;
}

void msp_code_close(struct msp_code *code)
{
	if (!code)
		return;
	if (code->insn)
		cs_free(code->insn, 1);
	if (code->handle)
		cs_close(&code->handle);
	free(code);
}

int msp_code_decode(struct msp_code *code, uint64_t addr, struct msp_insn *out)
{
	const uint8_t *bytes;
	size_t avail;
	uint64_t next = addr;
	uint32_t word;

	memset(out, 0, sizeof(*out));
	out->addr = addr;
	out->second = out->addend = MSP_REG_NONE;
	for (unsigned int i = 0; i < MSP_INSN_OPERANDS; i++)
		out->operand[i].reg = out->operand[i].base = out->operand[i].index = MSP_REG_NONE;
	bytes = msp_image_bytes(code->image, addr, &avail);
	if (!bytes)
		return MSP_E_FAULT;
	if (avail > MAX_INSN)
		avail = MAX_INSN;
	if (code->abi->arch == MSP_ARCH_ARM64 && avail >= sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		word = msp_decode_without_auth(word);
		bytes = (const uint8_t *)&word;
		avail = sizeof(word);
	}
	if (!cs_disasm_iter(code->handle, &bytes, &avail, &next, code->insn))
		return MSP_E_FORMAT;
	out->size = (uint8_t)code->insn->size;
	if (code->abi->arch == MSP_ARCH_ARM64)
		msp_decode_arm64(code->insn, out);
	else
		msp_decode_x64(code->handle, code->insn, out);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* What a disassembler's result means, a file an architecture. Internal to code.c. */
#ifndef MSP_LUAJIT_CODE_DECODE_H
#define MSP_LUAJIT_CODE_DECODE_H

#include <capstone/capstone.h>

#include "luajit/code.h"

void msp_decode_x64(csh handle, const cs_insn *insn, struct msp_insn *out);
void msp_decode_arm64(const cs_insn *insn, struct msp_insn *out);
/* arm64: a branch that checks its target's signature (BRAA, RETAB, ...) as the plain one. */
uint32_t msp_decode_without_auth(uint32_t word);

#endif

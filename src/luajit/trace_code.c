/* SPDX-License-Identifier: MIT */
#include "luajit/trace_code.h"

#include "moonspy/moonspy.h"
#include "luajit/objects.h"
#include "luajit/trace_decode.h"

bool msp_trace_keeps(const struct msp_trace_decoder *d, const cs_insn *insn, unsigned int reg,
		     unsigned int low)
{
	cs_regs read, written;
	uint8_t reads, writes;

	if (cs_regs_access(d->handle, insn, read, &reads, written, &writes))
		return false;
	while (writes--)
		if (written[writes] == reg || written[writes] == low)
			return false;
	return true;
}

uint64_t msp_trace_tagged_string(const struct msp_lj_layout *y, int64_t value)
{
	if (y->gc64)
		return value >> 47 == ~MSP_GCT_STR ? (uint64_t)value & ((1ull << 47) - 1) : 0;
	return value >> 32 == ~MSP_GCT_STR ? (uint32_t)value : 0;
}

int msp_trace_code_read(const struct msp_lj_layout *layout, uint64_t g, const uint8_t *code,
			size_t size, uint64_t addr, uint32_t loop, struct msp_trace_ins *out,
			size_t room, bool *all)
{
	struct msp_trace_decoder d = {
		.layout = layout, .g = g, .addr = addr, .loop = loop, .x64.base = true};
	bool arm64 = layout->arch == MSP_ARCH_ARM64;
	uint64_t at = addr;
	size_t n = 0;
	cs_insn *insn;

	*all = false;
	if (cs_open(arm64 ? CS_ARCH_ARM64 : CS_ARCH_X86, arm64 ? CS_MODE_LITTLE_ENDIAN : CS_MODE_64,
		    &d.handle) != CS_ERR_OK)
		return MSP_E_NOMEM;
	cs_option(d.handle, CS_OPT_DETAIL, CS_OPT_ON);
	insn = cs_malloc(d.handle);
	if (arm64)
		msp_trace_begin_arm64(&d);
	while (insn && n < room && cs_disasm_iter(d.handle, &code, &size, &at, insn)) {
		if (arm64)
			msp_trace_decode_arm64(&d, insn, &out[n++]);
		else
			msp_trace_decode_x64(&d, insn, &out[n++]);
	}
	if (insn)
		cs_free(insn, 1);
	cs_close(&d.handle);
	*all = !size;
	return (int)n;
}

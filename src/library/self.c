/* SPDX-License-Identifier: MIT */
/* Unwinding in signal handlers of the own process. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "library/internal.h"
#include "target/own.h"

struct msp_self {
	struct msp_target *target;
	struct msp_own *own;
};

#if defined(__x86_64__)

/* By DWARF number. */
static const uint8_t greg[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
			       REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
			       REG_R12, REG_R13, REG_R14, REG_R15};

/* Behind a syscall instruction: it may be the function's last one, as a call may be. */
static bool behind_call(uint64_t pc)
{
	uint8_t code[2] = {0};

	return own_read((uint32_t)getpid(), code, pc - 2, sizeof(code)) && code[0] == 0x0f &&
	       code[1] == 0x05;
}

static void from_context(const ucontext_t *context, struct msp_registers *out)
{
	for (size_t i = 0; i < sizeof(greg); i++)
		out->reg[i] = (uint64_t)context->uc_mcontext.gregs[greg[i]];
	out->pc = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
	out->syscall = behind_call(out->pc);
}

#elif defined(__aarch64__)

static void from_context(const ucontext_t *context, struct msp_registers *out)
{
	for (int i = 0; i < 31; i++)
		out->reg[i] = context->uc_mcontext.regs[i];
	out->reg[31] = context->uc_mcontext.sp;
	out->pc = context->uc_mcontext.pc;
}

#endif

void msp_registers_from_ucontext(const void *ucontext, struct msp_registers *out)
{
	int kept = errno;

	memset(out, 0, sizeof(*out));
	from_context(ucontext, out);
	errno = kept;
}

int msp_self_new(struct msp_target *target, const struct msp_self_options *given,
		 struct msp_self **out)
{
	struct msp_self_options options;
	struct msp_self *self;
	int err;

	*out = NULL;
	if (!target->self)
		return lib_error(target, MSP_E_INVALID, "the target is not the own process");
	if (!lib_take(&options, sizeof(options), given))
		return lib_error(target, MSP_E_INVALID, "options of another version");
	self = calloc(1, sizeof(*self));
	if (!self)
		return lib_error(target, MSP_E_NOMEM, "out of memory");
	self->target = target;
	err = msp_own_new(target->space, options.slots, options.reads, &self->own);
	if (err) {
		free(self);
		return lib_error(target, err, "%s",
				 err == MSP_E_UNSUPPORTED ? "process_vm_readv is not allowed here"
							  : msp_strerror(err));
	}
	*out = self;
	return 0;
}

void msp_self_free(struct msp_self *self)
{
	if (!self)
		return;
	msp_own_free(self->own);
	free(self);
}

int msp_self_refresh(struct msp_self *self)
{
	int changed = msp_target_refresh(self->target), err;

	if (changed < 0)
		return changed;
	err = msp_own_update(self->own);
	return err < 0 ? lib_error(self->target, err, "%s", msp_strerror(err)) : changed;
}

int msp_self_unwind(struct msp_self *self, const void *ucontext, struct msp_raw_frame *frames,
		    size_t room, struct msp_self_result *result)
{
	struct msp_registers registers;
	int kept = errno, n;

	msp_registers_from_ucontext(ucontext, &registers);
	n = msp_own_unwind(self->own, &registers, frames, room, result);
	errno = kept;
	return n;
}

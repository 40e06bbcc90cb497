/* SPDX-License-Identifier: MIT */
#include "moments.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a signal takes here, in nanoseconds; emulated, it is as long as much work. */
static long signal_takes = 1000;

static void nothing(int number)
{
	(void)number;
}

static long measure_signal(void)
{
	struct timespec begin, end;
	long least = 1000000;

	for (int i = 0; i < 20; i++) {
		clock_gettime(CLOCK_MONOTONIC, &begin);
		raise(SIGUSR2);
		clock_gettime(CLOCK_MONOTONIC, &end);
		end.tv_nsec += (end.tv_sec - begin.tv_sec) * 1000000000L - begin.tv_nsec;
		least = end.tv_nsec < least ? end.tv_nsec : least;
	}
	return least;
}

void moment_timer(timer_t *timer)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
	long takes;

	signal(SIGUSR2, nothing);
	takes = measure_signal();
	signal_takes = takes > signal_takes ? takes : signal_takes;
	event._sigev_un._tid = gettid();
	if (timer_create(CLOCK_MONOTONIC, &event, timer) != 0)
		kit_die("no timer");
}

void moment_soon(timer_t timer)
{
	static unsigned int seed = 1;
	long wait = signal_takes * (20 + rand_r(&seed) % 80);
	struct itimerspec when = {{0, 0}, {wait / 1000000000, wait % 1000000000}};

	timer_settime(timer, 0, &when, NULL);
}

void registers_of(const ucontext_t *uc, struct ljvm_registers *out)
{
	memset(out, 0, sizeof(*out));
#if defined(__x86_64__)
	static const int dwarf[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
				      REG_RBP, REG_RSP, REG_R8,	 REG_R9,  REG_R10, REG_R11,
				      REG_R12, REG_R13, REG_R14, REG_R15};

	for (int i = 0; i < 16; i++)
		out->reg[i] = (uint64_t)uc->uc_mcontext.gregs[dwarf[i]];
	out->pc = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
	out->sp = (uint64_t)uc->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
	for (int i = 0; i < 31; i++)
		out->reg[i] = uc->uc_mcontext.regs[i];
	out->pc = uc->uc_mcontext.pc;
	out->sp = uc->uc_mcontext.sp;
#endif
}

static void call_frame(const struct kit *kit, const struct ljvm_memory *memory, unsigned int call,
		       const struct moment *in, struct answer *out)
{
	const struct ljvm_frame *frame = &in->answer[call - 1].is.frame;

	if ((call - CALL_FRAMES) % 2) {
		out->result = LJVM_E_NONE;
		if (frame->kind == LJVM_FRAME_LUA)
			out->result = kit->helpers->function(memory, frame->pt, frame->pos,
							     &out->is.function);
	} else if (call == CALL_FRAMES) {
		out->result = kit->helpers->frame_first(memory, &in->start, &out->is.frame);
	} else {
		out->is.frame = in->answer[call - 2].is.frame;
		out->result = kit->helpers->frame_next(memory, &out->is.frame);
	}
}

void moment_call(const struct kit *kit, const struct ljvm_memory *memory, unsigned int call,
		 const struct moment *in, struct answer *out)
{
	const struct ljvm_helpers *helpers = kit->helpers;
	const struct ljvm_trace *trace = &in->answer[CALL_OWNER].is.owner.trace;

	memset(out, 0, sizeof(*out));
	switch (call) {
	case CALL_VM:
	case CALL_VM_NONE:
		out->result = helpers->vm(memory, call == CALL_VM ? 0 : 1, &out->is.vm);
		break;
	case CALL_OWNER:
		out->result = helpers->owner(memory, in->registers.pc, &out->is.owner.g,
					     &out->is.owner.trace);
		break;
	case CALL_CONTEXT:
		out->result = helpers->context(memory, &in->registers, &out->is.context);
		break;
	case CALL_TRACE:
		out->result = helpers->trace(memory, in->start.g, in->registers.pc, &out->is.trace);
		break;
	case CALL_PLACES:
		out->result = helpers->trace_places(memory, in->start.g, trace, trace->offset,
						    out->is.place, MOST_PLACES);
		break;
	case CALL_CFRAME:
		out->result = helpers->cframe(memory, in->start.cframe, &out->is.cframe);
		break;
	default:
		call_frame(kit, memory, call, in, out);
	}
}

/* The frames of what was answered so far. */
static void start_of(struct moment *moment)
{
	if (moment->answer[CALL_CONTEXT].result >= 0) {
		moment->start = moment->answer[CALL_CONTEXT].is.context;
		return;
	}
	moment->start.g = moment->answer[CALL_VM].is.vm.g;
	moment->start.L = moment->answer[CALL_VM].is.vm.main;
}

void moment_ask(const struct kit *kit, const struct ljvm_memory *memory, struct moment *moment)
{
	unsigned int call;

	for (call = 0; call < CALL_FRAMES; call++) {
		moment_call(kit, memory, call, moment, &moment->answer[call]);
		if (call == CALL_CONTEXT)
			start_of(moment);
	}
	for (; call < CALL_FRAMES + 2 * MOST_ASKED; call += 2) {
		moment_call(kit, memory, call, moment, &moment->answer[call]);
		moment->count = call + 1;
		if (moment->answer[call].result <= 0)
			return;
		moment_call(kit, memory, call + 1, moment, &moment->answer[call + 1]);
		moment->count = call + 2;
	}
}

bool answer_equal(const struct answer *a, const struct answer *b)
{
	return a->result == b->result &&
	       (a->result < 0 || memcmp(&a->is, &b->is, sizeof(a->is)) == 0);
}

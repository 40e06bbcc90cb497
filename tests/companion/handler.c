/* SPDX-License-Identifier: MIT */
/*
 * Preloaded together with the companion: a timer interrupts luajit at random moments. In the handler the helpers of the
 * descriptor say which VM runs and what is on its stack, and moonspy's walker does; where both say something, it is the
 * same. Every eighth time the helpers are given registers and addresses that are wrong. At the end: a line of counters.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <moonspy/moonspy.h>
#include <moonspy/vm_descriptor.h>

#define SIGNAL (SIGRTMAX - 3)
#define MOST 512

static const struct ljvm_descriptor *descriptor;
static struct msp_target *target;
static struct msp_self *self;
static struct msp_raw_frame raw[MSP_MAX_FRAMES];
static timer_t timer;
static uint32_t seed = 1;
static struct {
	unsigned long samples, elsewhere, interpreter, compiled, undecided, frames, lines, other,
		named, boundary, wrong;
} count;
static char first_wrong[1024];
static struct ljvm_frame taken[MOST + 1];

static uint32_t next_random(void)
{
	seed = seed * 1664525 + 1013904223;
	return seed >> 8;
}

static void arm(void)
{
	struct itimerspec next = {.it_value.tv_nsec = 20000 + next_random() % 200000};

	timer_settime(timer, 0, &next, NULL);
}

static const struct ljvm_helpers *helpers(void)
{
	return __atomic_load_n(&descriptor->helpers.size, __ATOMIC_ACQUIRE) <
			       sizeof(struct ljvm_helpers)
		       ? NULL
		       : (const void *)((const char *)descriptor + descriptor->helpers.offset);
}

static bool is_lua(const struct msp_raw_frame *frame)
{
	return frame->kind == MSP_RAW_LUA || frame->kind == MSP_RAW_FAST ||
	       frame->kind == MSP_RAW_CFUNC;
}

/* first: of compiled code, whose position the helpers do not tell. */
static bool same(const struct ljvm_frame *frame, const struct msp_raw_frame *as, bool first)
{
	switch (frame->kind) {
	case LJVM_FRAME_LUA:
		return as->kind == MSP_RAW_LUA && frame->pt == as->addr &&
		       (first || as->flags & MSP_RAWF_NOPC || (uint32_t)frame->pos == as->pos);
	case LJVM_FRAME_FAST:
		return as->kind == MSP_RAW_FAST && frame->ffid == as->pos;
	default:
		return as->kind == MSP_RAW_CFUNC && frame->pt == as->addr;
	}
}

/* Keeps what both say of the first that is wrong. */
static void is_wrong(const char *what, int from, int mine, int raws)
{
	size_t used;

	if (count.wrong++)
		return;
	used = (size_t)snprintf(first_wrong, sizeof(first_wrong), "%s, helpers:", what);
	for (int i = 0; i < mine && i < 5; i++)
		used += (size_t)snprintf(first_wrong + used, sizeof(first_wrong) - used,
					 " %u:%llx:%d:%u", taken[i].kind,
					 (unsigned long long)taken[i].pt, taken[i].pos,
					 taken[i].ffid);
	used += (size_t)snprintf(first_wrong + used, sizeof(first_wrong) - used, ", moonspy:");
	for (int i = from; i < raws && i < from + 5; i++)
		used += (size_t)snprintf(first_wrong + used, sizeof(first_wrong) - used,
					 " %u:%llx:%d:%x", raw[i].kind,
					 (unsigned long long)raw[i].addr, (int)raw[i].pos,
					 raw[i].flags);
}

static void take_line(const struct ljvm_helpers *h, const struct ljvm_memory *m,
		      const struct ljvm_frame *frame)
{
	struct ljvm_function function;

	if (frame->kind == LJVM_FRAME_LUA &&
	    h->function(m, frame->pt, frame->pos, &function) == 0) {
		count.named += function.chunk_size != 0;
		count.lines += function.line >= function.first_line && function.line > 0;
	}
}

/* The frames down to the first that C code called. */
static int take_frames(const struct ljvm_helpers *h, const struct ljvm_memory *m,
		       const struct ljvm_context *context)
{
	int n = 0, got = h->frame_first(m, context, &taken[0]);

	while (got == 1 && !taken[n++].from_c && n < MOST) {
		taken[n] = taken[n - 1];
		got = h->frame_next(m, &taken[n]);
	}
	return got < 0 ? got : n;
}

/* Are the frames from the i-th on the raw ones from the k-th on? Where not: *at. */
static bool match(const struct ljvm_context *context, int i, int n, int k, int raws, int *at)
{
	for (*at = i; *at < n; (*at)++, k++)
		if (k >= raws || !is_lua(&raw[k]) ||
		    !same(&taken[*at], &raw[k], *at == 0 && context->kind == LJVM_PC_TRACE))
			return false;
	return true;
}

/* A function of the VM's own that switches coroutines: around the switch either stack may be told. */
static bool switches(uint32_t ffid)
{
	const struct ljvm_addresses *a =
		(const void *)((const char *)descriptor + descriptor->addresses.offset);
	const char *name = a->ff_names;

	for (; *name && ffid; ffid--)
		name += strlen(name) + 1;
	return !strncmp(name, "coroutine_", 10);
}

static bool is_switch(const struct msp_raw_frame *as)
{
	return taken[0].kind == LJVM_FRAME_FAST && as->kind == MSP_RAW_FAST &&
	       switches(taken[0].ffid) && switches(as->pos);
}

static void compare(const struct ljvm_helpers *h, const struct ljvm_memory *m,
		    const struct ljvm_context *context, int from, int raws)
{
	int n = take_frames(h, m, context), at = 0, later;

	if (n < 0) {
		is_wrong("an error", from, 0, raws);
		return;
	}
	for (int i = 0; i < n; i++)
		take_line(h, m, &taken[i]);
	count.frames += (unsigned long)n;
	if (match(context, 0, n, from, raws, &at))
		return;
	/* As a function is called or returns, its frame may be there or not. */
	if (context->kind == LJVM_PC_INTERPRETER &&
	    (is_switch(&raw[from]) || match(context, 1, n, from, raws, &later) ||
	     match(context, 0, n, from + 1, raws, &later)))
		count.boundary++;
	else
		is_wrong(context->kind == LJVM_PC_TRACE ? "compiled" : "interpreter", from, n,
			 raws);
}

/* Whatever they are given, helpers say something, and come back. */
static void confuse(const struct ljvm_helpers *h, const struct ljvm_memory *m,
		    struct ljvm_registers *r)
{
	struct ljvm_context context;
	struct ljvm_function function;
	struct ljvm_frame frame;
	struct ljvm_cframe cframe;
	struct ljvm_trace trace;
	uint64_t g;

	for (int i = 0; i < 4; i++)
		r->reg[next_random() % 16] =
			next_random() % 2 ? next_random() : r->reg[next_random() % 16] + 8;
	r->sp += 8 * (next_random() % 8);
	if (h->context(m, r, &context) > 0 && h->frame_first(m, &context, &frame) > 0)
		for (int i = 0; i < 20 && h->frame_next(m, &frame) > 0; i++)
			;
	context.L = r->reg[next_random() % 16];
	context.base = r->reg[next_random() % 16];
	h->frame_first(m, &context, &frame);
	h->function(m, r->reg[next_random() % 16], 3, &function);
	h->cframe(m, r->sp, &cframe);
	h->owner(m, r->reg[next_random() % 16], &g, &trace);
	h->trace(m, r->reg[next_random() % 16], r->pc, &trace);
	count.other++;
}

static void take_registers(void *ucontext, struct ljvm_registers *out)
{
	struct msp_registers registers;

	msp_registers_from_ucontext(ucontext, &registers);
	memset(out, 0, sizeof(*out));
	memcpy(out->reg, registers.reg, sizeof(out->reg));
	out->pc = registers.pc;
#if defined(__aarch64__)
	out->sp = registers.reg[31];
#else
	out->sp = registers.reg[7];
#endif
}

static void look(const struct ljvm_helpers *h, void *ucontext)
{
	struct ljvm_memory memory = {h->read_self, NULL, 0};
	struct ljvm_registers registers;
	struct ljvm_context context;
	int got, raws, from;

	take_registers(ucontext, &registers);
	if (next_random() % 8 == 0) {
		confuse(h, &memory, &registers);
		return;
	}
	got = h->context(&memory, &registers, &context);
	count.samples++;
	if (got < 0) {
		/* LJVM_E_NONE: no VM is there yet. */
		count.elsewhere += got == LJVM_E_NOT_MINE || got == LJVM_E_NONE;
		count.undecided += got != LJVM_E_NOT_MINE && got != LJVM_E_NONE;
		return;
	}
	count.interpreter += got == LJVM_PC_INTERPRETER;
	count.compiled += got == LJVM_PC_TRACE;
	raws = msp_self_unwind(self, ucontext, raw, MSP_MAX_FRAMES, NULL);
	for (from = 0; from < raws && !is_lua(&raw[from]); from++)
		;
	if (from == raws) /* moonspy says why it has nothing */
		count.undecided++;
	else
		compare(h, &memory, &context, from, raws);
}

static void on_signal(int number, siginfo_t *info, void *ucontext)
{
	const struct ljvm_helpers *h = helpers();
	int kept = errno;

	if (h)
		look(h, ucontext);
	if (errno != kept)
		is_wrong("errno", 0, 0, 0);
	errno = kept;
	arm();
}

__attribute__((constructor)) static void begin(void)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGNAL};

	event._sigev_un._tid = (int)syscall(SYS_gettid);
	descriptor = dlsym(RTLD_DEFAULT, "luaJIT_vm_descriptor");
	if (!descriptor || msp_target_new(NULL, &target) || msp_target_open_self(target) ||
	    msp_self_new(target, NULL, &self) || timer_create(CLOCK_MONOTONIC, &event, &timer)) {
		fprintf(stderr, "handler: cannot begin\n");
		exit(1);
	}
	sigaction(SIGNAL, &action, NULL);
	arm();
}

__attribute__((destructor)) static void end(void)
{
	timer_delete(timer);
	signal(SIGNAL, SIG_IGN);
	fprintf(stderr,
		"samples %lu elsewhere %lu interpreter %lu compiled %lu undecided %lu frames %lu "
		"lines %lu named %lu other %lu boundary %lu "
		"wrong %lu %s\n",
		count.samples, count.elsewhere, count.interpreter, count.compiled, count.undecided,
		count.frames, count.lines, count.named, count.other, count.boundary, count.wrong,
		first_wrong);
}

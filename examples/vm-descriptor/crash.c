/* SPDX-License-Identifier: MIT */
/*
 * A crash reporter: prints the Lua stack of a thread that dies of a signal. Needs nothing but the VM descriptor of the
 * LuaJIT, or of a companion that is preloaded with it; the descriptor's helpers may be called in a signal handler.
 *
 *	cc -shared -fPIC -o crash.so crash.c $(pkg-config --cflags moonspy)
 *	LD_PRELOAD="libmoonspy-vm.so ./crash.so" luajit -lmoonspy.vm program.lua
 */
#include <moonspy/vm_descriptor.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

extern const char luaJIT_vm_descriptor[]
	__attribute__((weak)); /* and its parts, whose sizes only it knows */

static char alternate[64 << 10]; /* the thread's own stack may be what is broken */

static void put(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return; /* nobody reads it */
}

static void put_number(const char *before, uint32_t number)
{
	char text[12] = "", *at = text + sizeof(text) - 1;

	do
		*--at = (char)('0' + number % 10);
	while (number /= 10);
	put(before);
	put(at);
}

/* A part of the descriptor; NULL: it is not there, or not filled yet. */
#define PART(name) part(offsetof(struct ljvm_descriptor, name), sizeof(struct ljvm_##name))
static const void *part(size_t at, size_t needed)
{
	const struct ljvm_part *p = (const void *)(luaJIT_vm_descriptor + at);

	return p->size >= needed ? luaJIT_vm_descriptor + p->offset : NULL;
}

static void put_frame(const struct ljvm_helpers *h, const struct ljvm_memory *m,
		      const struct ljvm_frame *frame)
{
	const struct ljvm_addresses *a = PART(addresses);
	const char *name = a && frame->kind == LJVM_FRAME_FAST ? a->ff_names : NULL;
	struct ljvm_function f;

	if (name)
		for (uint32_t i = 0; i < frame->ffid && *name; i++)
			name += strlen(name) + 1;
	put("    ");
	if (frame->kind == LJVM_FRAME_LUA && h->function(m, frame->pt, frame->pos, &f) == 0) {
		put(f.chunk[0] == '@' ? f.chunk + 1 : f.chunk[0] == '=' ? f.chunk + 1 : "string");
		put_number(f.line ? ":" : ":(", f.line ? f.line : f.first_line);
		put(f.line ? "\n" : ") compiled\n");
	} else {
		put(name && *name ? name : "a C function");
		put("\n");
	}
}

/* A member of the VM's, at an offset that the descriptor tells. */
static uint64_t member(const struct ljvm_helpers *h, uint64_t of, int32_t offset, size_t size)
{
	uint64_t value = 0;

	return offset >= 0 && h->read_self(NULL, of + (uint64_t)offset, &value, size) == 0 ? value
											   : 0;
}

/* The coroutine that a VM of this thread runs, which is now in C code. */
static int running(const struct ljvm_helpers *h, const struct ljvm_memory *m,
		   struct ljvm_context *out)
{
	const struct ljvm_constants *c = PART(constants);
	size_t ref = c && c->gc64 ? 8 : 4;
	struct ljvm_vm vm;

	memset(out, 0, sizeof(*out));
	for (uint32_t n = 0; c && !out->L && h->vm(m, n, &vm) == 0; n++) {
		if (vm.thread != (uintptr_t)__builtin_thread_pointer())
			continue;
		out->g = vm.g;
		out->L = member(h, vm.g, c->g_cur_L, ref);
		out->base = member(h, vm.g, c->g_jit_base, ref); /* compiled code has called it */
		out->cframe = member(h, out->L, c->L_cframe, 8) & ~(uint64_t)c->cframe_flags;
	}
	return out->L != 0;
}

static void take_registers(const ucontext_t *u, struct ljvm_registers *r)
{
	memset(r, 0, sizeof(*r));
#if defined(__x86_64__)
	static const int dwarf[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
				      REG_RBP, REG_RSP, REG_R8,	 REG_R9,  REG_R10, REG_R11,
				      REG_R12, REG_R13, REG_R14, REG_R15};

	for (int i = 0; i < 16; i++)
		r->reg[i] = (uint64_t)u->uc_mcontext.gregs[dwarf[i]];
	r->pc = (uint64_t)u->uc_mcontext.gregs[REG_RIP];
	r->sp = r->reg[7];
#elif defined(__aarch64__)
	memcpy(r->reg, u->uc_mcontext.regs, sizeof(u->uc_mcontext.regs));
	r->pc = u->uc_mcontext.pc;
	r->sp = u->uc_mcontext.sp;
#endif
}

static void on_crash(int number, siginfo_t *info, void *ucontext)
{
	const struct ljvm_helpers *h = luaJIT_vm_descriptor ? PART(helpers) : NULL;
	struct ljvm_memory m = {h ? h->read_self : NULL, NULL, 0};
	struct ljvm_registers r;
	struct ljvm_context context;
	struct ljvm_frame frame;

	(void)info;
	signal(number, SIG_DFL); /* what follows kills as it would have */
	take_registers(ucontext, &r);
	if (!h)
		put("crashed: no VM\n");
	else if (h->context(&m, &r, &context) > 0 || running(h, &m, &context)) {
		put("crashed:\n");
		for (int got = h->frame_first(&m, &context, &frame); got == 1;
		     got = h->frame_next(&m, &frame))
			put_frame(h, &m, &frame);
	} else
		put("crashed: not in Lua\n");
	raise(number);
}

__attribute__((constructor)) static void start(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};

	sigaltstack(&stack, NULL); /* of this thread; others that may overflow need their own */
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
}

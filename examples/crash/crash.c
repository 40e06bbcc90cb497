/* SPDX-License-Identifier: MIT */
/*
 * A crash reporter: prints the stack of a thread that dies of a signal, C and Lua in one. Linked into
 * a program, or preloaded: LD_PRELOAD=./crash.so luajit program.lua
 *
 *	cc -shared -fPIC -o crash.so crash.c $(pkg-config --cflags --libs moonspy) -lpthread
 *
 * The handler only unwinds, which is safe whatever has happened. Names need memory and files: a thread
 * that was made ahead gives them. If it does not answer in a second (it may need a lock that the thread
 * which died holds), the handler prints what it has by itself: addresses.
 */
#include <errno.h>
#include <moonspy/moonspy.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ANSWER_MS 1000

static struct msp_target *target;
static struct msp_self *self;
static struct msp_backtrace *backtrace;
static struct msp_raw_frame frames[MSP_MAX_FRAMES];
static struct msp_self_result result;
static int count, crashed = -1, printed = -1;
static char alternate[64 << 10]; /* the thread's own stack may be what is broken */

static void print_frame(const struct msp_frame *frame)
{
	if (frame->vm)
		return; /* the interpreter itself */
	if (frame->file)
		fprintf(stderr, "    %s (%s:%u)", frame->name, frame->file,
			frame->line ? frame->line : frame->defined);
	else if (frame->name)
		fprintf(stderr, "    %s", frame->name);
	else
		fprintf(stderr, "    0x%llx", (unsigned long long)frame->address);
	fprintf(stderr, frame->object ? " in %s\n" : "\n", frame->object);
}

static void *reporter(void *arg)
{
	uint64_t one = 1;

	while (read(crashed, &one, sizeof(one)) != sizeof(one))
		; /* until then it costs nothing */
	msp_target_refresh(target);
	msp_backtrace_set(backtrace, frames, (size_t)count);
	for (int i = 0, n = msp_backtrace_name(backtrace); i < n; i++)
		print_frame(msp_backtrace_frame(backtrace, (size_t)i));
	write(printed, &one, sizeof(one));
	return arg;
}

static void put_hex(uint64_t value)
{
	char text[20] = "    0x";
	int at = 6;

	for (int shift = 60; shift >= 0; shift -= 4)
		if (value >> shift || shift == 0)
			text[at++] = "0123456789abcdef"[value >> shift & 15];
	text[at++] = '\n';
	write(STDERR_FILENO, text, (size_t)at);
}

static void on_crash(int number, siginfo_t *info, void *context)
{
	static const char head[] = "crashed:\n";
	static atomic_flag once = ATOMIC_FLAG_INIT;
	struct pollfd answer = {.fd = printed, .events = POLLIN};
	uint64_t one = 1;

	signal(number, SIG_DFL); /* what follows kills as it would have */
	if (atomic_flag_test_and_set(&once))
		return;
	count = msp_self_unwind(self, context, frames, MSP_MAX_FRAMES, &result);
	write(STDERR_FILENO, head, sizeof(head) - 1);
	write(crashed, &one, sizeof(one));
	if (poll(&answer, 1, ANSWER_MS) <= 0)
		for (int i = 0; i < count; i++)
			put_hex(frames[i].addr);
	raise(number);
}

__attribute__((constructor)) static void start(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
	pthread_t thread;

	crashed = eventfd(0, EFD_CLOEXEC);
	printed = eventfd(0, EFD_CLOEXEC);
	if (msp_target_new(NULL, &target) || msp_target_open_self(target) ||
	    msp_self_new(target, NULL, &self) || msp_backtrace_new(target, &backtrace) ||
	    pthread_create(&thread, NULL, reporter, NULL)) {
		fprintf(stderr, "crash: %s\n", target ? msp_target_error(target) : "out of memory");
		return;
	}
	sigaltstack(&stack, NULL); /* of this thread; others that may overflow need their own */
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
}

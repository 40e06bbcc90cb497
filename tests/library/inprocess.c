/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a program: timers interrupt all its threads at random moments, and the signal
 * handlers unwind. A stack that has not been seen before is given its names while its thread waits in
 * the handler. When the program ends it writes a profile (JSON) to $INPROCESS_OUT and the CPU time
 * that unwinding took to $INPROCESS_OUT.times; beside it that of as much plain arithmetic, which tells
 * what the machine adds: interrupts, and what its host takes, are in a thread's CPU time too.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <moonspy/moonspy.h>

#define SIGNAL (SIGRTMAX - 3)
#define THREADS_MAX 64
#define STACKS (1u << 16)
#define SEEN (1u << 20)
#define BUCKETS 64
#define SLOW_NS 1000000
#define SLOW_MAX 64
#define SPINS 20000 /* about as long as a stack takes */

/* A thread and its timer. */
struct look {
	pid_t tid; /* 0: free */
	timer_t timer;
	uint32_t seed;
	_Atomic(uint32_t) waits; /* a futex: its handler waits for the stack to be named */
	int count;
	struct msp_self_result result;
	uint64_t hash;
	struct msp_raw_frame frame[MSP_MAX_FRAMES];
};

/* Raw stacks that were named. */
static struct {
	_Atomic(uint64_t) hash; /* 0: free */
	_Atomic(uint32_t) count;
	uint32_t stack; /* in stacks */
} seen[SEEN];

static struct look look[THREADS_MAX];
static struct msp_target *target;
static struct msp_self *self;
static struct msp_backtrace *backtrace;
static pthread_t sampler;
static pid_t pid;
static atomic_int ready, stop;
static _Atomic(uint32_t) asked; /* a futex for the sampling thread */
static _Atomic(uint64_t) busy, most_ns, most_reads, times[BUCKETS], slow, unnamed;
static _Atomic(uint64_t) spin_ns, spin_most_ns, spin_slow;

/* What a handler did that took long: whose time was it? */
static struct slow {
	uint64_t ns, wall_ns, reads;
	long faults, waits, preempted;
} slow_ones[SLOW_MAX];

static struct {
	char *text;
	uint64_t count;
	uint32_t reason;
} stacks[STACKS];
static uint64_t samples, whole, truncated, errors[MSP_ERROR_REASON_COUNT];

/* ---- In the handler ---- */

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void futex_wait(_Atomic(uint32_t) *at, uint32_t value, long ns)
{
	struct timespec most = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, &most, NULL, 0);
}

static void futex_wake(_Atomic(uint32_t) *at)
{
	syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void raise_to(_Atomic(uint64_t) *most, uint64_t value)
{
	uint64_t old = atomic_load(most);

	while (value > old && !atomic_compare_exchange_weak(most, &old, value))
		;
}

static void note_slow(const struct look *l, uint64_t ns, uint64_t wall_ns,
		      const struct rusage *before)
{
	uint64_t i = atomic_fetch_add(&slow, 1);
	struct rusage after;

	getrusage(RUSAGE_THREAD, &after);
	if (i < SLOW_MAX)
		slow_ones[i] = (struct slow){.ns = ns,
					     .wall_ns = wall_ns,
					     .reads = l->result.reads,
					     .faults = after.ru_minflt - before->ru_minflt,
					     .waits = after.ru_nvcsw - before->ru_nvcsw,
					     .preempted = after.ru_nivcsw - before->ru_nivcsw};
}

static void note_time(const struct look *l, uint64_t ns)
{
	int bucket = 0;

	while (bucket < BUCKETS - 1 && (ns / 1000) >> bucket)
		bucket++;
	atomic_fetch_add(&times[bucket], 1);
	raise_to(&most_ns, ns);
	raise_to(&most_reads, l->result.reads);
}

/* Calls nothing and reads nothing: what it takes beyond the usual is not its own. */
static void spin(void)
{
	uint64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID), x = before, ns;

	for (int i = 0; i < SPINS; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		__asm__ volatile("" : "+r"(x));
	}
	ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
	atomic_fetch_add(&spin_ns, ns);
	atomic_fetch_add(&spin_slow, ns > SLOW_NS);
	raise_to(&spin_most_ns, ns);
}

static uint64_t hash_of(const struct look *l)
{
	const uint64_t *word = (const uint64_t *)l->frame;
	uint64_t hash = 14695981039346656037ull;

	_Static_assert(sizeof(l->frame[0]) % sizeof(*word) == 0, "whole words");
	for (size_t i = 0; i < (size_t)l->count * sizeof(l->frame[0]) / sizeof(*word); i++) {
		hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 29;
	}
	return hash | 1;
}

/* Counts a stack that was named before; false: it is new. */
static bool count_seen(uint64_t hash)
{
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t at = (hash + i) % SEEN;

		if (atomic_load(&seen[at].hash) == hash) {
			atomic_fetch_add(&seen[at].count, 1);
			return true;
		}
	}
	return false;
}

static void arm(struct look *l)
{
	struct itimerspec next = {.it_value.tv_nsec = 1};

	l->seed = l->seed * 1664525 + 1013904223;
	next.it_value.tv_nsec = 30000 + (l->seed >> 8) % 300000;
	timer_settime(l->timer, 0, &next, NULL);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
	struct look *l = info->si_value.sival_ptr;
	struct rusage usage;
	int kept = errno;
	uint64_t before, wall, ns;

	(void)number;
	if (info->si_code != SI_TIMER || atomic_load(&stop) || pid != getpid())
		return;
	getrusage(RUSAGE_THREAD, &usage);
	wall = clock_ns(CLOCK_MONOTONIC);
	before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	l->count = msp_self_unwind(self, context, l->frame, MSP_MAX_FRAMES, &l->result);
	ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
	note_time(l, ns);
	if (ns > SLOW_NS)
		note_slow(l, ns, clock_ns(CLOCK_MONOTONIC) - wall, &usage);
	spin();
	l->hash = l->count > 0 ? hash_of(l) : 0;
	if (l->count < 0) {
		atomic_fetch_add(&busy, 1);
	} else if (!count_seen(l->hash)) {
		atomic_store(&l->waits, 1);
		atomic_fetch_add(&asked, 1);
		futex_wake(&asked);
		for (int i = 0; i < 100 && atomic_load(&l->waits); i++)
			futex_wait(&l->waits, 1, 100000000);
	}
	arm(l);
	errno = kept;
}

/* ---- Profile ---- */

/* Names are any bytes, and a byte that is not ASCII need not be part of a character. */
static void put_string(FILE *out, const char *text)
{
	if (!text) {
		fputs("null", out);
		return;
	}
	fputc('"', out);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		if (*c < ' ' || *c >= 127 || *c == '"' || *c == '\\')
			fprintf(out, "\\u%04x", *c);
		else
			fputc(*c, out);
	fputc('"', out);
}

static void put_frame(FILE *out, const struct msp_frame *frame)
{
	static const char *const kinds[] = {
#define _(id, name) name,
		MSP_FRAME_KINDS(_)
#undef _
	};

	fprintf(out, "{\"kind\":\"%s\",\"name\":", kinds[frame->kind]);
	put_string(out, frame->name);
	fputs(",\"file\":", out);
	put_string(out, frame->file);
	fputs(",\"object\":", out);
	put_string(out, frame->object);
	fprintf(out, ",\"line\":%u,\"defined\":%u,\"address\":%llu,\"certain\":%s,\"vm\":%s}",
		frame->line, frame->defined, (unsigned long long)frame->address,
		frame->certain ? "true" : "false", frame->vm ? "true" : "false");
}

/* The frames of the backtrace, root first; NULL: out of memory. */
static char *stack_text(int count)
{
	size_t size;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (int i = count; i-- > 0;) {
		put_frame(out, msp_backtrace_frame(backtrace, (size_t)i));
		if (i)
			fputc(',', out);
	}
	fclose(out);
	return text;
}

/* Its number. */
static uint32_t add_stack(char *text)
{
	uint64_t hash = 14695981039346656037ull;
	uint32_t at;

	for (const char *c = text; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
	for (at = hash % STACKS; stacks[at].text; at = (at + 1) % STACKS)
		if (!strcmp(stacks[at].text, text))
			break;
	if (stacks[at].text)
		free(text);
	else
		stacks[at].text = text;
	return at;
}

/* A stack is from now on known. */
static bool keep_seen(const struct look *l, uint32_t stack, uint32_t reason)
{
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t at = (l->hash + i) % SEEN;

		if (atomic_load(&seen[at].hash))
			continue;
		seen[at].stack = stack;
		stacks[stack].reason = reason;
		atomic_store(&seen[at].count, 1);
		atomic_store(&seen[at].hash, l->hash);
		return true;
	}
	return false;
}

static void name_stack(struct look *l)
{
	int frames = -1;
	char *text;

	if (msp_backtrace_set(backtrace, l->frame, (size_t)l->count) >= 0)
		frames = msp_backtrace_name(backtrace);
	text = frames > 0 ? stack_text(frames) : NULL;
	if (!text || !keep_seen(l, add_stack(text), l->result.reason))
		atomic_fetch_add(&unnamed, 1);
}

static void sum_up(void)
{
	for (uint32_t i = 0; i < SEEN; i++) {
		uint32_t count = atomic_load(&seen[i].count), reason;

		if (!count)
			continue;
		stacks[seen[i].stack].count += count;
		reason = stacks[seen[i].stack].reason;
		samples += count;
		whole += reason == MSP_ERR_NONE ? count : 0;
		truncated += reason == MSP_ERR_TRUNCATED ? count : 0;
		errors[reason] += count;
	}
}

static void write_profile(void)
{
	const char *path = getenv("INPROCESS_OUT");
	FILE *out = path ? fopen(path, "w") : NULL;
	static const char *const text[] = {
#define _(id, words) words,
		MSP_ERROR_REASONS(_)
#undef _
	};
	const char *comma = "";

	if (!out)
		return;
	fprintf(out,
		"{\"schema\":1,\"quality\":{\"samples\":%llu,\"lost\":0,\"whole\":%llu,"
		"\"truncated\":%llu,\"seconds\":1,\"rate\":0,\"errors\":{",
		(unsigned long long)samples, (unsigned long long)whole,
		(unsigned long long)truncated);
	for (int i = MSP_ERR_TRUNCATED + 1; i < MSP_ERROR_REASON_COUNT; i++)
		if (errors[i]) {
			fprintf(out, "%s\"%s\":%llu", comma, text[i],
				(unsigned long long)errors[i]);
			comma = ",";
		}
	fputs("}},\"stacks\":[", out);
	comma = "";
	for (uint32_t i = 0; i < STACKS; i++)
		if (stacks[i].text) {
			fprintf(out, "%s\n{\"count\":%llu,\"pid\":%d,\"tid\":0,\"frames\":[%s]}",
				comma, (unsigned long long)stacks[i].count, (int)pid,
				stacks[i].text);
			comma = ",";
		}
	fputs("]}\n", out);
	fclose(out);
}

/*
 * A line "samples busy unnamed slow spin_slow spin_ns most_ns most_reads spin_most_ns", then how many took less than 1, 2, 4, ... us,
 * then a line for each that was slow.
 */
static void write_times(void)
{
	char path[4096];
	FILE *out;

	snprintf(path, sizeof(path), "%s.times", getenv("INPROCESS_OUT"));
	out = fopen(path, "w");
	if (!out)
		return;
	fprintf(out, "%llu %llu %llu %llu %llu %llu %llu %llu %llu\n", (unsigned long long)samples,
		(unsigned long long)busy, (unsigned long long)unnamed, (unsigned long long)slow,
		(unsigned long long)spin_slow, (unsigned long long)spin_ns,
		(unsigned long long)most_ns, (unsigned long long)most_reads,
		(unsigned long long)spin_most_ns);
	for (int i = 0; i < BUCKETS; i++)
		fprintf(out, "%llu\n", (unsigned long long)times[i]);
	for (uint64_t i = 0; i < slow && i < SLOW_MAX; i++)
		fprintf(out,
			"%llu us of CPU time, %llu us by the clock: %llu reads, %ld page faults, "
			"waited %ld times, preempted %ld times\n",
			(unsigned long long)slow_ones[i].ns / 1000,
			(unsigned long long)slow_ones[i].wall_ns / 1000,
			(unsigned long long)slow_ones[i].reads, slow_ones[i].faults,
			slow_ones[i].waits, slow_ones[i].preempted);
	fclose(out);
}

/* ---- The sampling thread ---- */

static void give_timer(pid_t tid)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGNAL};
	struct look *l = NULL;

	for (int i = 0; i < THREADS_MAX; i++) {
		if (look[i].tid == tid)
			return;
		if (!look[i].tid && !l)
			l = &look[i];
	}
	if (!l)
		return;
	event.sigev_value.sival_ptr = l;
	event._sigev_un._tid = tid;
	l->seed = (uint32_t)tid * 2654435761u;
	if (timer_create(CLOCK_MONOTONIC, &event, &l->timer))
		return;
	l->tid = tid;
	arm(l);
}

/* Threads that have ended free their places, new ones get timers. */
static void find_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	pid_t own = (pid_t)syscall(SYS_gettid), tid;
	struct dirent *entry;
	char path[64];

	for (int i = 0; i < THREADS_MAX; i++) {
		if (!look[i].tid)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%d", (int)look[i].tid);
		if (access(path, F_OK) == 0)
			continue;
		timer_delete(look[i].timer);
		look[i].tid = 0;
	}
	while (dir && (entry = readdir(dir))) {
		tid = atoi(entry->d_name);
		if (tid > 0 && tid != own)
			give_timer(tid);
	}
	if (dir)
		closedir(dir);
}

static void name_all(void)
{
	bool stale = false;

	for (int i = 0; i < THREADS_MAX; i++) {
		if (!atomic_load(&look[i].waits))
			continue;
		stale |= look[i].result.reason == MSP_ERR_NO_MAPPING;
		name_stack(&look[i]);
		atomic_store(&look[i].waits, 0);
		futex_wake(&look[i].waits);
	}
	if (stale)
		msp_self_refresh(self);
}

static void *sample(void *arg)
{
	struct msp_self_options options = {.size = sizeof(options)};
	uint32_t round;
	int turn = 0;
	sigset_t all;

	(void)arg;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	if (msp_target_new(NULL, &target) || msp_target_open_self(target) ||
	    msp_self_new(target, &options, &self) || msp_backtrace_new(target, &backtrace)) {
		fprintf(stderr, "inprocess: %s\n", target ? msp_target_error(target) : "no memory");
		_exit(99);
	}
	atomic_store(&ready, 1);
	while (!atomic_load(&stop)) {
		round = atomic_load(&asked);
		name_all();
		if (turn++ % 16 == 0)
			find_threads();
		if (turn % 4096 == 0)
			msp_self_refresh(self);
		if (round == atomic_load(&asked))
			futex_wait(&asked, round, 5000000);
	}
	for (int i = 0; i < THREADS_MAX; i++)
		if (look[i].tid)
			timer_delete(look[i].timer);
	name_all();
	return NULL;
}

__attribute__((constructor)) static void start(void)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

	if (!getenv("INPROCESS_OUT"))
		return;
	pid = getpid();
	sigemptyset(&action.sa_mask);
	sigaction(SIGNAL, &action, NULL);
	if (pthread_create(&sampler, NULL, sample, NULL))
		_exit(99);
	while (!atomic_load(&ready))
		usleep(1000);
}

__attribute__((destructor)) static void end(void)
{
	if (!pid || pid != getpid())
		return;
	atomic_store(&stop, 1);
	pthread_join(sampler, NULL);
	sum_up();
	write_profile();
	write_times();
	msp_backtrace_free(backtrace);
	msp_self_free(self);
	msp_target_free(target);
}

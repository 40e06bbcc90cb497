/* SPDX-License-Identifier: MIT */
/*
 * In the signal handler, and what leads to it. SIGPROF comes from the timers of sessions, each of
 * which counts the CPU time of one thread and signals that thread only. Everybody else's SIGPROF goes
 * to who had it before. No lock, no allocation, nothing of libc but memcpy(), sem_post(),
 * clock_gettime() and system calls.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inprocess/internal.h"
#include "unwind/tables.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define INDEX_BITS 8

static struct sigaction previous;
static bool installed;

/* ---- States ---- */

/* What LuaJIT's number for a state of its compiler says, as ~vmstate; a fork's comes as LuaJIT's own. */
static enum sysprof_event compiler_state(int32_t vmstate)
{
	switch (~vmstate) {
	case MSP_VMSTATE_OPT:
		return SYSPROF_IN_OPT;
	case MSP_VMSTATE_ASM:
		return SYSPROF_IN_ASM;
	default:
		return SYSPROF_IN_RECORD;
	}
}

static enum sysprof_event busy_state(uint32_t state, int32_t vmstate)
{
	switch (state) {
	case MSP_STATE_GC:
		return SYSPROF_IN_GC;
	case MSP_STATE_EXIT:
		return SYSPROF_IN_EXIT;
	default:
		return compiler_state(vmstate);
	}
}

/* The innermost frame that is not native decides. */
static enum sysprof_event state_of(const struct msp_raw_frame *frame, int n, int32_t vmstate)
{
	for (int i = 0; i < n; i++) {
		switch (frame[i].kind) {
		case MSP_RAW_STATE:
			return busy_state(frame[i].pos, vmstate);
		case MSP_RAW_LUA:
			return frame[i].flags & MSP_RAWF_JIT ? SYSPROF_IN_TRACE : SYSPROF_IN_LFUNC;
		case MSP_RAW_FAST:
			return SYSPROF_IN_FFUNC;
		case MSP_RAW_CFUNC:
			return SYSPROF_IN_CFUNC;
		default:
			break;
		}
	}
	return SYSPROF_IN_INTERP;
}

/* ---- A backtracer of the user's, which gets no context ---- */

/* In the thread's static block: reading it must not allocate. */
static __thread struct sample *collecting __attribute__((tls_model("initial-exec")));

static uint64_t *hosts_of(struct sample *sample)
{
	return (uint64_t *)(sample->frame + sample->frames);
}

static void *collect(int frame_no, void *addr)
{
	struct sample *sample = collecting;

	(void)frame_no;
	if (!sample || sample->hosts == HOST_FRAMES || !addr)
		return NULL;
	hosts_of(sample)[sample->hosts++] = (uintptr_t)addr;
	return addr;
}

/* ---- Samples ---- */

static void count(struct session *session, enum sysprof_event state)
{
	atomic_fetch_add_explicit(&session->counter[state], 1, memory_order_relaxed);
}

static void keep(struct session *session, struct sample *sample)
{
	bool known;

	if (session->backtracer) {
		sample->own = true;
		collecting = sample;
		session->backtracer(collect);
		collecting = NULL;
	}
	sample->size = (uint32_t)(sizeof(*sample) + sample->frames * sizeof(*sample->frame) +
				  sample->hosts * sizeof(uint64_t));
	known = known_all(sample);
	ring_add(&session->ring, sample);
	if (!known || ring_fills(&session->ring))
		worker_wake();
}

static void take_sample(struct session *session, const void *context)
{
	struct sample *sample = ring_room(&session->ring);
	struct msp_self_result result;
	int n;

	if (!sample) {
		atomic_fetch_add_explicit(&session->lost, 1, memory_order_relaxed);
		return;
	}
	n = msp_self_unwind(worker_self(), context, sample->frame, MSP_MAX_FRAMES, &result);
	if (n < 0) {
		atomic_fetch_add_explicit(&session->lost, 1, memory_order_relaxed);
		return;
	}
	sample->frames = (uint16_t)n;
	sample->hosts = 0;
	sample->own = false;
	sample->state = (uint8_t)state_of(sample->frame, n, result.vmstate);
	count(session, (enum sysprof_event)sample->state);
	if (session->mode != LUAM_SYSPROF_DEFAULT)
		keep(session, sample);
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void take_sample_timed(struct session *session, const void *context)
{
	uint64_t before = cpu_ns(), ns;

	take_sample(session, context);
	ns = cpu_ns() - before;
	atomic_fetch_add_explicit(&session->handler_ns, ns, memory_order_relaxed);
	if (ns > atomic_load_explicit(&session->handler_most_ns, memory_order_relaxed))
		atomic_store_explicit(&session->handler_most_ns, ns, memory_order_relaxed);
}

static struct session *session_of(const siginfo_t *info)
{
	uint32_t value = (uint32_t)info->si_value.sival_int;
	uint32_t i = value & ((1u << INDEX_BITS) - 1);

	if (info->si_code != SI_TIMER || i >= SESSIONS)
		return NULL;
	return sessions[i].generation == value >> INDEX_BITS ? &sessions[i] : NULL;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
	if (previous.sa_flags & SA_SIGINFO)
		previous.sa_sigaction(number, info, context);
	else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
		previous.sa_handler(number);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
	struct session *session = session_of(info);
	int kept = errno;

	if (!session) {
		/* A timer that is gone, or somebody else's signal. */
		pass_on(number, info, context);
		errno = kept;
		return;
	}
	atomic_store(&session->busy, true);
	if (atomic_load(&session->sampling))
		take_sample_timed(session, context);
	atomic_store(&session->busy, false);
	errno = kept;
}

/* ---- Who has SIGPROF ---- */

int handler_install(void)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

	if (installed)
		return 0;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGPROF, &action, &previous))
		return -1;
	/* It was ours: somebody put it back after we had left it. Nobody is behind it. */
	if ((previous.sa_flags & SA_SIGINFO) && previous.sa_sigaction == on_signal)
		previous = (struct sigaction){.sa_handler = SIG_DFL};
	installed = true;
	return 0;
}

void handler_remove(void)
{
	struct sigaction now, none = {.sa_handler = SIG_IGN};

	if (!installed)
		return;
	installed = false;
	if (sigaction(SIGPROF, NULL, &now) || !(now.sa_flags & SA_SIGINFO) ||
	    now.sa_sigaction != on_signal)
		return; /* somebody has taken it since */
	/* A last signal of a timer that is gone may wait: ignoring it takes it away. */
	sigaction(SIGPROF, &none, NULL);
	sigaction(SIGPROF, &previous, NULL);
}

/* ---- Timers ---- */

int handler_timer(struct session *session)
{
	uint32_t index = (uint32_t)(session - sessions);
	struct itimerspec every = {
		.it_interval = {.tv_sec = (time_t)(session->interval_ms / 1000),
				.tv_nsec = (long)(session->interval_ms % 1000) * 1000000}};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
	int kept;

	every.it_value = every.it_interval;
	event.sigev_value.sival_int = (int)(session->generation << INDEX_BITS | index);
	event.sigev_notify_thread_id = session->tid;
	if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &session->timer))
		return -1;
	atomic_store(&session->sampling, true);
	if (!timer_settime(session->timer, 0, &every, NULL))
		return 0;
	kept = errno;
	handler_stop(session);
	errno = kept;
	return -1;
}

void handler_stop(struct session *session)
{
	atomic_store(&session->sampling, false);
	timer_delete(session->timer);
	while (atomic_load(&session->busy))
		sched_yield();
}

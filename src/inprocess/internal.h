/* SPDX-License-Identifier: MIT */
/*
 * The in-process profiler. A timer's signal interrupts the thread of a session; the handler walks its
 * stack into a ring (handler.c). A thread of the profiler's own takes stacks from the rings, gives
 * them their names and writes them (worker.c, stream.c). Sessions start and stop in session.c.
 */
#ifndef MSP_INPROCESS_INTERNAL_H
#define MSP_INPROCESS_INTERNAL_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "moonspy/moonspy.h"
#include "moonspy/sysprof.h"
#include "output/sysprof_format.h"
#include "profile/profile.h"

#define SESSIONS 64
#define HOST_FRAMES 512 /* of a backtracer of the user's */

/* ---- Rings: one handler writes, the worker reads ---- */

struct sample {
	uint32_t size; /* with all that follows, a multiple of 8 */
	uint16_t frames, hosts;
	uint8_t state; /* enum sysprof_event; SAMPLE_SKIP: what is left of the ring is unused */
	bool own;      /* hosts are a backtracer's */
	struct msp_raw_frame frame[]; /* then uint64_t[hosts] */
};
#define SAMPLE_SKIP 0xff
#define SAMPLE_MOST (sizeof(struct sample) + MSP_MAX_FRAMES * sizeof(struct msp_raw_frame) + HOST_FRAMES * 8)
#define RING_SIZE (4u << 20)

struct ring {
	uint8_t *bytes;
	_Atomic(uint64_t) head, tail; /* count on; taken and freed */
};

/* Room for the largest sample; NULL: there is none. */
struct sample *ring_room(struct ring *ring);
void ring_add(struct ring *ring, struct sample *sample);
/* The oldest sample; NULL: there is none. */
struct sample *ring_first(struct ring *ring);
void ring_drop(struct ring *ring, struct sample *sample);

/* Much waits. */
bool ring_fills(const struct ring *ring);

/* ---- known.c: what has its name already; one for all sessions ---- */

/* Could a look at the mappings have made the stack whole? */
bool sample_may_be_new(const struct sample *sample);
/* Has all that may go away its name? For handlers. */
bool known_all(const struct sample *sample);
void known_add(const struct sample *sample);
void known_forget(void);

/* ---- memo.c: what was written for a stack ---- */

struct memo;
struct memo *memo_new(void);
void memo_free(struct memo *memo);
/* What was known does not hold any more. NULL is allowed. */
void memo_forget(struct memo *memo);
/* What was written for the same stack; NULL: it is to be named. */
const uint8_t *memo_find(struct memo *memo, const struct sample *sample, uint64_t now, size_t *size);
/* What is added from here to the end is for that stack. */
void memo_begin(struct memo *memo, const struct sample *sample, uint64_t now);
void memo_add(struct memo *memo, const void *from, size_t size);
void memo_end(struct memo *memo);

/* ---- stream.c, stream_bytes.c: what is written ---- */

struct stream {
	luam_Sysprof_writer writer;
	void *ctx;
	uint8_t *buffer;
	size_t size, used;
	int error; /* errno of the writer; sampling ends */
	bool ended; /* no more can be written */
	struct msp_profile *frames, *functions; /* numbers of what was written */
	int64_t last_frame, last_function;
	uint32_t *number; /* of the frames of a stack */
	uint8_t *record; /* being put together */
	size_t record_used, record_room;
	bool no_memory;
	struct memo *memo;
};

struct session;
int stream_open(struct stream *stream, luam_Sysprof_writer writer, void *ctx, uint8_t *buffer, size_t size);
void stream_close(struct stream *stream);
void stream_begin(struct stream *stream, const struct session *session);
/* True: all functions in it have their names. */
bool stream_sample(struct stream *stream, const struct session *session, const struct sample *sample,
		   struct msp_backtrace *backtrace);
void stream_end(struct stream *stream, const struct session *session, uint64_t milliseconds);
void stream_flush(struct stream *stream);
/* For stream.c. */
void put_bytes(struct stream *stream, const void *from, size_t size);
void put_byte(struct stream *stream, uint8_t byte);
void put_number(struct stream *stream, uint64_t value);
/* A record is put together, then written. */
void begin_record(struct stream *stream, enum sysprof_record kind);
void add_number(struct stream *stream, uint64_t value);
void add_text(struct stream *stream, const char *text);
void end_record(struct stream *stream);
void give_up(struct stream *stream, int error);

/* ---- Sessions ---- */

enum session_state {
	SESSION_FREE,
	SESSION_READY,	  /* to be begun by the worker */
	SESSION_RUNNING,
	SESSION_STOPPING, /* to be ended by the worker */
	SESSION_DONE,
};

struct session {
	_Atomic(int) state;
	_Atomic(bool) sampling; /* handlers may sample */
	_Atomic(bool) busy;	/* one does */
	const void *vm;		/* whose */
	uint32_t generation;	/* of this place in the table */
	pid_t tid;
	timer_t timer;
	uint8_t mode;
	uint64_t interval_ms, began_ns;
	luam_Sysprof_on_stop on_stop;
	luam_Sysprof_backtracer backtracer;
	bool ours;
	void *ctx;
	uint8_t *buffer;
	_Atomic(uint64_t) counter[SYSPROF_STATE_COUNT], lost;
	_Atomic(uint64_t) handler_ns, handler_most_ns; /* CPU time of all handlers, of one */
	struct ring ring;
	struct stream stream;
	uint64_t flushed_ns;
	uint64_t order; /* the session that was started last has the highest */
};

extern struct session sessions[SESSIONS];
/* All but what handlers touch. */
extern pthread_mutex_t sysprof_lock;

struct session_options {
	struct luam_Sysprof_Options options;
	luam_Sysprof_writer writer;
	luam_Sysprof_on_stop on_stop;
	luam_Sysprof_backtracer backtracer;
	char *why; /* for words on PROFILE_ERRUSE, where it is not for the options; may be NULL */
	size_t why_size;
	bool ours; /* on_stop is the Lua module's: it is right in the child of a fork, too */
};

/* PROFILE_*; on failure on_stop has been called, as Tarantool does. */
int session_start(const void *vm, const struct session_options *options);
int session_stop(const void *vm);
/* The VM's last session; NULL: the last of all. Zeroes if there was none. */
void session_counters(const void *vm, struct luam_Sysprof_Counters *counters);
/* Has the VM a session; NULL: has any? */
bool session_runs(const void *vm);

/* The VM of a lua_State. */
const void *vm_of(struct lua_State *L);
/* Its sessions end when it is closed. */
void watch_vm(struct lua_State *L);

/* ---- handler.c ---- */

int handler_install(void);
/* Gives SIGPROF back to who had it. */
void handler_remove(void);
int handler_timer(struct session *session);
/* No handler is in the session when it returns. */
void handler_stop(struct session *session);

/* ---- worker.c; all with the lock held ---- */

/* The process as a target: opened, or looked at again. 0, PROFILE_ERRUSE (why), PROFILE_ERRMEM. */
int worker_look(char *why, size_t size);
struct msp_self *worker_self(void);
int worker_start(void);
/* Has it look soon; for handlers, too. */
void worker_wake(void);
/* Has it do what the session's state asks for, and waits until it is done. */
void worker_do(struct session *session, enum session_state until);
/* When no session is left. */
void worker_stop(void);
/* In the child of a fork: it does not have the thread. */
void worker_forget(void);

uint64_t now_ns(void);

#endif

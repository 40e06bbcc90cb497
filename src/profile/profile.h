/* SPDX-License-Identifier: MIT */
/* Profiles: stacks of interned frames with counts, and the quality of the recording. */
#ifndef MSP_PROFILE_H
#define MSP_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moonspy/moonspy.h"

struct msp_profile;

/* Frames of one stack; msp_profile_add says MSP_E_LIMIT above it. */
#define MSP_PROFILE_MAX_STACK 4096

/* How good the recording was; all counters are of samples. */
#define MSP_PROFILE_MAX_REASONS 32
/* Samples of one kind. */
struct msp_quality_reason {
	char reason[48];
	uint64_t count;
};

struct msp_quality {
	uint64_t samples, lost, whole, truncated, estimated;
	/* Why stacks are not whole, and where the walker took a second way; by count, falling; "" ends. */
	struct msp_quality_reason errors[MSP_PROFILE_MAX_REASONS], ways[MSP_PROFILE_MAX_REASONS];
	double seconds;
	uint32_t rate;              /* Hz asked for */
	uint64_t bpf_ns_per_sample; /* 0 = not measured */
	uint64_t bpf_ns_median, bpf_ns_p99; /* the same; of several recordings together: the highest */
};

struct msp_profile *msp_profile_new(void); /* NULL: out of memory */
void msp_profile_free(struct msp_profile *profile);

/* Interns a frame: equal frames (all members) get the same id. Negative: error code. */
int64_t msp_profile_frame(struct msp_profile *profile, const struct msp_frame *frame);
/*
 * Changes what a frame says, in all stacks it is in. It may become equal to
 * another: views and outputs take the two for one.
 */
int msp_profile_replace_frame(struct msp_profile *profile, uint32_t id, const struct msp_frame *frame);
/* Adds count samples of a stack, frame ids root first. Copies ids. */
int msp_profile_add(struct msp_profile *profile, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
		    uint64_t count);
/* Name of a process (tid == 0) or thread. */
int msp_profile_set_name(struct msp_profile *profile, int32_t pid, int32_t tid, const char *name);
const char *msp_profile_name(const struct msp_profile *profile, int32_t pid, int32_t tid); /* NULL unknown */
/*
 * The file that frames call object: its build id in hexadecimal and its path, each NULL where not
 * known. What two files of that name do not have in common is from then on not known.
 */
int msp_profile_set_object(struct msp_profile *profile, const char *object, const char *build_id,
			   const char *path);
/* false: never set. */
bool msp_profile_object(const struct msp_profile *profile, const char *object, const char **build_id,
			const char **path);
/*
 * What the VM whose global_State is at g did while it was recorded, as its probes told: "traces made". Of several VMs, one
 * after the other at that address, together.
 */
struct msp_vm_events {
	int32_t pid;
	uint64_t g, count;
	const char *event;
};
/* Adds to what there is. Count 0: nothing. */
int msp_profile_add_vm_events(struct msp_profile *profile, int32_t pid, uint64_t g, const char *event,
			      uint64_t count);
/* Their order. */
int msp_vm_events_compare(const struct msp_vm_events *a, const struct msp_vm_events *b);
/* The i-th, by process, VM and event; NULL: there are no more. */
const struct msp_vm_events *msp_profile_vm_events(const struct msp_profile *profile, size_t i);
struct msp_quality *msp_profile_quality(struct msp_profile *profile);
const struct msp_quality *msp_profile_quality_of(const struct msp_profile *profile);
/* Counts an error; keeps errors[] sorted. Reasons that find no place are counted as "other". Count 0: nothing. */
void msp_quality_error(struct msp_quality *quality, const char *reason, uint64_t count);
/* The same for ways[]. */
void msp_quality_way(struct msp_quality *quality, const char *reason, uint64_t count);
/* Key/value of the recording ("version", "command", "event", "start" as RFC 3339, ...). */
int msp_profile_set_meta(struct msp_profile *profile, const char *key, const char *value);
const char *msp_profile_meta(const struct msp_profile *profile, const char *key);

/* Bytes that the profile takes, its unused room too. A stack that is seen again takes none. */
size_t msp_profile_memory(const struct msp_profile *profile);
size_t msp_profile_stack_count(const struct msp_profile *profile); /* different ones, of all threads */
size_t msp_profile_frame_count(const struct msp_profile *profile);
/* NULL: no such frame. The frame stays where it is until the next msp_profile_frame. */
const struct msp_frame *msp_profile_frame_at(const struct msp_profile *profile, uint32_t id);

/*
 * Calls fn for each distinct (pid, tid, stack), in a fixed order (by pid, tid, then stack root first,
 * frames by what they say, not by id). What fn returns other than 0 ends the walk and is returned.
 */
typedef int (*msp_profile_stack_fn)(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
				    uint64_t count);
int msp_profile_each(const struct msp_profile *profile, msp_profile_stack_fn fn, void *ctx);

/*
 * A copy with only what the view asks for; stacks that become equal are merged. A stack of which no
 * frame is left is left out; quality stays that of the whole recording. Error frames always stay.
 * C functions called from Lua count as Lua and as native frames; lua_only with native_only is both.
 */
struct msp_view {
	bool lines;     /* keep current lines; else frames of one function are one */
	bool lua_only, native_only;
	bool no_kernel;
	bool vm_frames; /* show the interpreter's own frames */
	bool certain;   /* leave estimates out */
	bool threads;   /* keep threads apart; else merge a process's threads (tid is then 0) */
	bool exact;     /* keep what no frame text shows: trace numbers, addresses of named functions */
};
int msp_profile_view(const struct msp_profile *profile, const struct msp_view *view,
		     struct msp_profile **out);

/* Metadata, objects and events of one profile for another, which keeps the metadata that it has. */
int msp_profile_copy_meta(const struct msp_profile *from, struct msp_profile *to);

/* Adds all of another profile; metadata that both have stays as it was. */
int msp_profile_merge(struct msp_profile *profile, const struct msp_profile *other);

#endif

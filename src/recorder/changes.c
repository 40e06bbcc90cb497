/* SPDX-License-Identifier: MIT */
/*
 * What processes do while they are recorded: fork, run other programs, map
 * files, end. Code that is sampled before it is known ends a stack, so this is
 * looked at also while samples are being named.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "moonspy/moonspy.h"
#include "recorder/internal.h"

/* Naming the first samples takes long; changes are looked at after so long. */
#define KEEP_UP_NS 1000000ull
/* A process of which a thread ended is looked after for so long. */
#define ENDING_NS 1000000000ull

/* A process of ours runs another program: nothing that is known of it holds any more. */
static void on_exec(struct msp_recorder *rec, struct rec_process *p)
{
	rec_unload(p);
	p->waiting = false;
	p->parent = 0;
	rec_load(rec, p);
}

/* To be applied when no sample is being named. */
static void defer_change(struct msp_recorder *rec, const struct msp_change *change)
{
	struct msp_change *bigger;

	if (rec->deferred_count == rec->deferred_room) {
		size_t room = rec->deferred_room ? 2 * rec->deferred_room : 16;

		bigger = realloc(rec->deferred, room * sizeof(*bigger));
		if (!bigger) {
			rec->failed = MSP_E_NOMEM;
			return;
		}
		rec->deferred = bigger;
		rec->deferred_room = room;
	}
	rec->deferred[rec->deferred_count++] = *change;
}

static void on_fork(struct msp_recorder *rec, const struct msp_change *change)
{
	const struct rec_process *parent = rec_find(rec, change->ppid);
	struct rec_process *p;

	if (!rec->opts.all && (!parent || !parent->added || !rec->opts.follow))
		return;
	p = rec_find(rec, change->pid);
	if (p && p->process && !msp_process_alive(p->process)) { /* the number is another's now */
		if (rec->naming) {
			defer_change(rec, change);
			return;
		}
		rec_remove(rec, p);
	}
	p = rec_insert(rec, change->pid);
	if (!p)
		return;
	p->parent = change->ppid;
	p->added = !rec->opts.all;
	if (!p->process)
		rec_load(rec, p);
}

/* ---- Mappings that the engine does not know yet ---- */

/* Does it lie over a file's mapping that is known? */
static bool covers_known(const struct rec_process *p, const struct msp_change *change)
{
	size_t n = 0;
	const struct msp_mapping *map = p->space ? msp_space_mappings(p->space, &n) : NULL;

	for (size_t i = 0; i < n; i++)
		if (map[i].flags & (MSP_MAP_FILE | MSP_MAP_UNREAD) && map[i].start < change->end &&
		    change->start < map[i].end)
			return true;
	return false;
}

void rec_note_remap(struct rec_process *p, uint64_t start, uint64_t end, uint64_t time)
{
	p->remap[p->remap_count++ % REC_REMAPS] =
		(struct rec_remap){start, end, time, time < p->refreshed_ns ? p->sent_ns : 0};
	p->dirty = true;
}

static void on_mapping(struct rec_process *p, const struct msp_change *change)
{
	if (p->waiting)
		return;
	/* Compiled code comes and goes, and needs no table. */
	if (!change->file && !covers_known(p, change))
		return;
	rec_note_remap(p, change->start, change->end, change->time);
}

void rec_mappings_sent(struct rec_process *p)
{
	p->sent_ns = rec_now_ns();
	for (int i = 0; i < REC_REMAPS; i++)
		if (!p->remap[i].until && p->remap[i].from < p->refreshed_ns)
			p->remap[i].until = p->sent_ns;
}

bool rec_is_stale(const struct rec_process *p, uint64_t addr, uint64_t time)
{
	uint32_t n = p->remap_count < REC_REMAPS ? p->remap_count : REC_REMAPS;

	for (uint32_t i = 0; i < n; i++)
		if (p->remap[i].from <= time && (!p->remap[i].until || time < p->remap[i].until) &&
		    addr - p->remap[i].start < p->remap[i].end - p->remap[i].start)
			return true;
	return false;
}

static void apply_change(struct msp_recorder *rec, const struct msp_change *change)
{
	struct rec_process *p;

	if (change->kind == MSP_CHANGE_FORK)
		on_fork(rec, change);
	if (change->kind == MSP_CHANGE_LOST)
		for (size_t i = 0; i < rec->process_count; i++)
			rec->process[i]->dirty = true;
	p = rec_find(rec, change->pid);
	if (!p && rec->opts.all && change->kind == MSP_CHANGE_EXEC)
		p = rec_insert(rec, change->pid);
	if (!p)
		return;
	if (change->kind == MSP_CHANGE_EXEC)
		on_exec(rec, p);
	else if (change->kind == MSP_CHANGE_MAPPING)
		on_mapping(p, change);
	else if (change->kind == MSP_CHANGE_EXIT)
		p->ending_ns = rec_now_ns();
}

/* Would it free what samples of the process are still to be named with? */
static bool must_wait(struct msp_recorder *rec, const struct msp_change *change)
{
	struct rec_process *p = rec_find(rec, change->pid);

	if (!rec->naming || !p)
		return false;
	if (change->kind == MSP_CHANGE_FORK && p->process)
		return false; /* on_fork() looks */
	if (change->kind == MSP_CHANGE_FORK && p->symbols)
		p->parent = change->ppid; /* whose names it may need meanwhile */
	return (change->kind == MSP_CHANGE_EXEC || change->kind == MSP_CHANGE_FORK) && p->symbols;
}

/* Threads that start others, where each has an event of its own. */
static void note_starter(struct msp_recorder *rec, const struct msp_change *change)
{
	const struct rec_process *parent;

	if (change->kind == MSP_CHANGE_EXIT)
		msp_sampler_ended(rec->sampler, change->tid);
	if (change->kind != MSP_CHANGE_FORK && change->kind != MSP_CHANGE_THREAD)
		return;
	parent = rec_find(rec, change->ppid);
	if (parent && parent->added)
		msp_sampler_keep_apart(rec->sampler, change->ptid);
}

static void on_change(void *ctx, const struct msp_change *change)
{
	struct msp_recorder *rec = ctx;

	if (change->pid <= 0 && change->kind != MSP_CHANGE_LOST)
		return; /* not of our pid namespace */
	if (rec->sampler && !rec->opts.all)
		note_starter(rec, change);
	if (must_wait(rec, change))
		defer_change(rec, change);
	else
		apply_change(rec, change);
}

static void refresh_dirty(struct msp_recorder *rec)
{
	for (size_t i = 0; i < rec->process_count; i++)
		if (rec->process[i]->dirty)
			rec_refresh(rec, rec->process[i]);
}

void rec_note_changes(struct msp_recorder *rec)
{
	rec->noted_ns = rec_now_ns();
	if (rec->sideband)
		msp_sideband_consume(rec->sideband, on_change, rec);
}

void rec_take_changes(struct msp_recorder *rec)
{
	for (size_t i = 0; !rec->naming && i < rec->deferred_count; i++)
		apply_change(rec, &rec->deferred[i]);
	if (!rec->naming)
		rec->deferred_count = 0;
	rec_note_changes(rec);
	refresh_dirty(rec);
	rec->changes_ns = rec_now_ns();
}

void rec_keep_up(struct msp_recorder *rec)
{
	if (!rec->naming || rec_now_ns() - rec->changes_ns <= KEEP_UP_NS)
		return;
	rec_probes_take(rec);
	rec_take_changes(rec);
}

void rec_wait_for_kernel(struct msp_recorder *rec)
{
	const struct timespec step = {.tv_nsec = 500000};

	while (rec->kernel && !msp_kernel_symbols_ready(rec->kernel)) {
		rec_keep_up(rec);
		nanosleep(&step, NULL);
	}
}

static bool has_ended(const struct rec_process *p)
{
	if (p->process)
		return !msp_process_alive(p->process);
	return kill(p->pid, 0) && errno == ESRCH;
}

void rec_forget_ended(struct msp_recorder *rec, bool sweep)
{
	uint64_t now = rec_now_ns();
	struct rec_process *p;

	for (size_t i = rec->process_count; i-- > 0;) {
		p = rec->process[i];
		if (p->ending_ns && has_ended(p))
			rec_remove(rec, p);
		else if (sweep && has_ended(p))
			p->ending_ns = now;
		else if (now - p->ending_ns > ENDING_NS)
			p->ending_ns = 0;
	}
}

void rec_try_again(struct msp_recorder *rec)
{
	struct rec_process *p;

	for (size_t i = 0; i < rec->process_count; i++) {
		p = rec->process[i];
		p->dirty |= p->unsent;
		if (p->failed && !p->process)
			rec_load(rec, p);
	}
}

/* SPDX-License-Identifier: MIT */
/* The processes being recorded: their tables, loaded, handed to the engine, kept up to date. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "recorder/internal.h"

/* First process with a pid not below this one. */
static size_t lower_bound(const struct msp_recorder *rec, pid_t pid)
{
	size_t lo = 0, hi = rec->process_count, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (rec->process[mid]->pid < pid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct rec_process *rec_find(struct msp_recorder *rec, pid_t pid)
{
	size_t at = lower_bound(rec, pid);

	return at < rec->process_count && rec->process[at]->pid == pid ? rec->process[at] : NULL;
}

struct rec_process *rec_insert(struct msp_recorder *rec, pid_t pid)
{
	size_t at = lower_bound(rec, pid);
	struct rec_process **bigger, *p;

	if (at < rec->process_count && rec->process[at]->pid == pid)
		return rec->process[at];
	if (rec->process_count == rec->process_room) {
		size_t room = rec->process_room ? 2 * rec->process_room : 16;

		bigger = realloc(rec->process, room * sizeof(*bigger));
		if (!bigger)
			return NULL;
		rec->process = bigger;
		rec->process_room = room;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	memmove(rec->process + at + 1, rec->process + at,
		(rec->process_count - at) * sizeof(*rec->process));
	rec->process[at] = p;
	rec->process_count++;
	return p;
}

void rec_unload(struct rec_process *p)
{
	rec_late_free(p);
	rec_stopper_free(p->stopper);
	frame_cache_clear(&p->cache);
	msp_symbolizer_free(p->symbols);
	msp_space_free(p->space);
	msp_process_close(p->process);
	p->stopper = NULL;
	p->symbols = NULL;
	p->space = NULL;
	p->process = NULL;
}

void rec_remove(struct msp_recorder *rec, struct rec_process *p)
{
	size_t at = lower_bound(rec, p->pid);

	if (rec->sampler)
		msp_tables_remove_process(msp_sampler_tables(rec->sampler), p->pid);
	rec_probes_forget(rec, p);
	rec_unload(p);
	free(p);
	memmove(rec->process + at, rec->process + at + 1,
		(rec->process_count - at - 1) * sizeof(*rec->process));
	rec->process_count--;
}

/* Why a build cannot be used, in one line. */
static void note_refused(struct msp_recorder *rec, const struct msp_image_entry *entry)
{
	const struct msp_lj_evidence *evidence;
	size_t n = msp_lj_build_evidence(entry->build, &evidence);

	if (rec->refused[0])
		return;
	snprintf(rec->refused, sizeof(rec->refused), "%s: layout incomplete",
		 msp_image_name(entry->image));
	for (size_t i = 0; i < n; i++)
		if (!evidence[i].found) {
			snprintf(rec->refused, sizeof(rec->refused), "%s: %s not found: %s",
				 msp_image_name(entry->image), evidence[i].field, evidence[i].why);
			return;
		}
}

static void note_refusals(struct msp_recorder *rec, const struct msp_space *space)
{
	const struct msp_image_entry *e;
	size_t count;
	const struct msp_mapping *map = msp_space_mappings(space, &count);

	for (size_t i = 0; i < count; i++) {
		e = msp_images_get(rec->images, map[i].image);
		if (e && e->build && e->layout == MSP_LAYOUT_NONE)
			note_refused(rec, e);
	}
}

static void on_image_gone(void *ctx, const struct msp_image_entry *entry)
{
	struct msp_recorder *rec = ctx;

	if (rec->sampler)
		msp_tables_remove_image(msp_sampler_tables(rec->sampler), entry->index);
	rec_probes_image_gone(rec, entry->index);
}

void rec_trim_images(struct msp_recorder *rec, bool all)
{
	msp_images_trim(rec->images, all, on_image_gone, rec);
}

void rec_note_vms(struct rec_process *p)
{
	struct msp_bpf_process process;

	if (p->space && msp_tables_builds(p->space, &process) != p->vms_sent)
		p->dirty = true;
}

static int send_process(struct msp_recorder *rec, struct rec_process *p)
{
	struct msp_bpf_process process;
	int err = 0;

	if (rec->sampler) {
		struct msp_tables *tables = msp_sampler_tables(rec->sampler);

		note_refusals(rec, p->space);
		p->vms_sent = msp_tables_builds(p->space, &process);
		err = msp_tables_send(tables, p->space, p->pid);
		if (err == MSP_E_LIMIT) {
			rec_trim_images(rec, true);
			err = msp_tables_send(tables, p->space, p->pid);
		}
		p->unsent = err != 0;
		rec_probes_listen(rec, p);
	}
	rec_mappings_sent(p);
	return err;
}

int rec_refresh(struct msp_recorder *rec, struct rec_process *p)
{
	int changed;
	bool more;

	p->dirty = false;
	rec_note_vms(p);
	more = p->dirty;
	p->dirty = false;
	p->refreshed_ns = rec_now_ns();
	if (!p->space)
		return 0;
	changed = msp_space_refresh(p->space);
	if (changed < 0)
		return changed == MSP_E_GONE ? 0 : changed;
	if (changed) /* an image that it had may have given its index to one that it has now */
		frame_cache_clear(&p->cache);
	if (changed || more || p->unsent)
		return send_process(rec, p);
	rec_mappings_sent(p);
	return 0;
}

int rec_prepare(struct msp_recorder *rec, struct rec_process *p)
{
	int err = msp_process_open(p->pid, &p->process);

	msp_symbolizer_free(p->symbols); /* of samples from before it was known */
	p->symbols = NULL;
	p->failed = false;
	if (!err)
		err = msp_space_new(rec->images, p->process, &p->space);
	p->refreshed_ns = rec_now_ns();
	if (!err)
		err = msp_space_refresh(p->space);
	if (err >= 0)
		msp_space_find_host_vms(p->space);
	else
		rec_unload(p);
	return err < 0 ? err : 0;
}

int rec_load(struct msp_recorder *rec, struct rec_process *p)
{
	int err = p->process ? 0 : rec_prepare(rec, p);

	if (!err)
		err = send_process(rec, p);
	if (err) {
		rec_unload(p);
		if (rec->sampler)
			msp_tables_forget_mappings(msp_sampler_tables(rec->sampler), p->pid);
		p->failed = err == MSP_E_LIMIT || err == MSP_E_NOMEM;
	}
	return err;
}

/* Clock ticks since boot, as start times of threads are counted. */
static uint64_t now_ticks(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * sysconf(_SC_CLK_TCK) + t.tv_nsec / (1000000000 / sysconf(_SC_CLK_TCK));
}

static bool contains(const pid_t *list, int n, pid_t tid)
{
	for (int i = 0; i < n; i++)
		if (list[i] == tid)
			return true;
	return false;
}

/*
 * One event for each thread; later threads inherit one. A thread that was
 * started while the list was walked has inherited it if its parent had it
 * already, else not; which, the next look at the list cannot tell. So threads
 * that a second look finds are attached only if they are older than the first
 * attachment, by their start time.
 */
int rec_attach_threads(struct msp_recorder *rec, pid_t pid)
{
	struct rec_process *p = rec_find(rec, pid);
	pid_t *tid = NULL, *again = NULL;
	int n, m, err = 0, attached = 0;
	uint64_t first_ticks = 0;

	n = msp_process_threads(p->process, &tid);
	if (n < 0)
		return n;
	first_ticks = now_ticks();
	for (int i = 0; i < n; i++) {
		err = msp_sampler_attach_thread(rec->sampler, tid[i]);
		if (err && err != MSP_E_GONE)
			break;
		attached += !err;
	}
	m = err && err != MSP_E_GONE ? 0 : msp_process_threads(p->process, &again);
	for (int i = 0; i < m; i++)
		if (!contains(tid, n, again[i]) &&
		    msp_process_thread_start_time(p->process, again[i]) < first_ticks)
			msp_sampler_attach_thread(rec->sampler, again[i]);
	free(tid);
	free(again);
	if (err == MSP_E_LIMIT) /* a part of the threads is no picture of the process */
		return err;
	return attached ? 0 : err ? err : MSP_E_GONE;
}

/* SPDX-License-Identifier: MIT */
/*
 * What VMs tell by their probes, where the user asked to listen: VMs that come and go, traces that are made, and counts
 * of what becomes of them. A VM that is told of is proved like any other.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bpf/probes.h"
#include "luajit/jit.h"
#include "moonspy/moonspy.h"
#include "recorder/internal.h"

/* Heartbeats are to tell of VMs that were there before: those that allocate in this time. */
#define HEARTBEATS_NS 1000000000ull
/* What is told may be lies: so many VMs of a process that cannot be proved are looked at in a second. */
#define MOST_LIES 256
#define LIES_NS 1000000000ull
/* Samples wait while events are handled: for so long. */
#define AT_ONCE_NS 10000000ull
/* At the end for so long; what is still left is only counted. */
#define AT_LAST_NS 500000000ull
#define MOST_CLOSED 256

/* A file in which probes were looked for. Its device and inode: of the mapping, and of the file as it is opened, which may differ. */
struct rec_listened {
	uint32_t image;
	dev_t dev;
	ino_t ino;
};

struct rec_probes {
	struct msp_probes *heard;  /* NULL: the kernel cannot do it */
	char why[200];		   /* nothing is heard, or not all */
	struct msp_vm_key *proved; /* at some time */
	size_t proved_count, proved_room;
	struct msp_vm_key closed[MOST_CLOSED]; /* to be applied when the samples before are named */
	size_t closed_count;
	uint64_t until_ns; /* events are handled */
	bool last;	   /* nothing is left for later */
};

void rec_probes_open(struct msp_recorder *rec)
{
	struct rec_probes *probes = calloc(1, sizeof(*probes));

	rec->probes = probes;
	if (probes)
		msp_probes_open(msp_sampler_tables(rec->sampler)->fd.pid_namespace, &probes->heard,
				probes->why, sizeof(probes->why));
}

void rec_probes_close(struct msp_recorder *rec)
{
	if (!rec->probes)
		return;
	msp_probes_close(rec->probes->heard);
	free(rec->probes->proved);
	free(rec->probes);
	rec->probes = NULL;
}

int rec_probes_fd(const struct msp_recorder *rec)
{
	return rec->probes && rec->probes->heard ? msp_probes_fd(rec->probes->heard) : -1;
}

const char *rec_probes_why(struct msp_recorder *rec)
{
	struct rec_probes *probes = rec->probes;
	size_t heard = 0;

	if (!probes)
		return rec->sampler ? msp_strerror(MSP_E_NOMEM) : "that needs BPF";
	if (probes->heard && !probes->why[0])
		heard = msp_probes_heard(probes->heard, probes->why, sizeof(probes->why));
	if (probes->why[0])
		return probes->why;
	return heard ? NULL : "no LuaJIT there has any";
}

/* ---- Where ---- */

static void *more_room(void *array, size_t count, size_t *room, size_t size)
{
	size_t more = *room ? 2 * *room : 16;
	void *bigger = count < *room ? array : reallocarray(array, more, size);

	if (bigger && count == *room)
		*room = more;
	return bigger;
}

static bool is_known(const struct rec_process *p, const struct rec_listened *file)
{
	for (size_t i = 0; i < p->listened_count; i++)
		if (p->listened[i].image == file->image && p->listened[i].dev == file->dev &&
		    p->listened[i].ino == file->ino)
			return true;
	return false;
}

static bool note_known(struct msp_recorder *rec, struct rec_process *p,
		       const struct rec_listened *file)
{
	struct rec_listened *bigger =
		more_room(p->listened, p->listened_count, &p->listened_room, sizeof(*bigger));

	if (!bigger) {
		rec->failed = MSP_E_NOMEM;
		return false;
	}
	p->listened = bigger;
	p->listened[p->listened_count++] = *file;
	return true;
}

/* The file itself, in whatever place it is; -1: it cannot be opened. map NULL: by its name, of a program that is not yet there. */
static int open_file(const struct rec_process *p, const struct msp_image_entry *entry,
		     const struct msp_map *map)
{
	int fd = map ? msp_process_open_map(p->process, map)
		     : open(msp_image_name(entry->image), O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? -1 : fd;
}

/* By its name there can be another file than the one that was read: with something else where the probes are. */
static bool is_that_file(int fd, const struct msp_image *image, const struct msp_probe *probe,
			 int count)
{
	char path[64];
	int file;
	bool same;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	same = file >= 0;
	for (int i = 0; same && i < count; i++)
		same = msp_image_nop_at(image, file, probe[i].offset);
	if (file >= 0)
		close(file);
	return same;
}

/* True: it is one in which probes have not been looked for, but from now on they have. */
static bool is_news(struct msp_recorder *rec, struct rec_process *p, uint32_t image, dev_t dev,
		    ino_t ino)
{
	const struct rec_listened file = {image, dev, ino};

	return !is_known(p, &file) && note_known(rec, p, &file);
}

/* Where it says it is, and where it is. */
static bool is_new_file(struct msp_recorder *rec, struct rec_process *p, uint32_t image, int fd,
			const struct msp_map *map)
{
	struct stat st;

	if (fstat(fd, &st))
		return false;
	return (map && st.st_dev == makedev(map->dev_major, map->dev_minor) &&
		st.st_ino == map->inode) ||
	       is_news(rec, p, image, st.st_dev, st.st_ino);
}

static void listen_to(struct msp_recorder *rec, struct rec_process *p,
		      const struct msp_image_entry *entry, const struct msp_map *map)
{
	struct rec_probes *probes = rec->probes;
	struct msp_probe *probe = NULL;
	int fd, count;

	if (map &&
	    !is_news(rec, p, entry->index, makedev(map->dev_major, map->dev_minor), map->inode))
		return;
	count = msp_image_probes(entry->image, MSP_PROBE_PROVIDER, &probe);
	fd = count > 0 ? open_file(p, entry, map) : -1;
	if (fd >= 0 && is_new_file(rec, p, entry->index, fd, map)) {
		if (is_that_file(fd, entry->image, probe, count))
			msp_probes_attach(probes->heard, p->pid, entry->index, fd,
					  msp_image_name(entry->image),
					  msp_image_arch(entry->image), probe, count);
		else if (!probes->why[0])
			snprintf(probes->why, sizeof(probes->why),
				 "%s is not what it was when it was read",
				 msp_image_name(entry->image));
	}
	if (count == MSP_E_NOMEM)
		rec->failed = count;
	if (fd >= 0)
		close(fd);
	free(probe);
}

void rec_probes_launch(struct msp_recorder *rec, struct rec_process *p)
{
	const struct msp_image_entry *entry;

	if (rec_probes_fd(rec) < 0)
		return;
	for (uint32_t i = 1; i <= msp_images_count(rec->images); i++) {
		entry = msp_images_get(rec->images, i);
		if (entry && entry->image)
			listen_to(rec, p, entry, NULL);
	}
}

void rec_probes_listen(struct msp_recorder *rec, struct rec_process *p)
{
	const struct msp_maps *maps = msp_space_maps(p->space);
	const struct msp_mapping *mapping;
	size_t n, k = 0;

	if (rec_probes_fd(rec) < 0)
		return;
	mapping = msp_space_mappings(p->space, &n);
	for (size_t i = 0; i < n; i++) { /* both are sorted */
		while (k < maps->count && maps->map[k].start < mapping[i].start)
			k++;
		if (mapping[i].image && k < maps->count)
			listen_to(rec, p, msp_images_get(rec->images, mapping[i].image),
				  &maps->map[k]);
	}
}

/* ---- What is told ---- */

static bool was_proved(const struct rec_probes *probes, pid_t pid, uint64_t g)
{
	for (size_t i = 0; i < probes->proved_count; i++)
		if (probes->proved[i].g == g && probes->proved[i].pid == (uint32_t)pid)
			return true;
	return false;
}

static void note_proved(struct rec_probes *probes, pid_t pid, uint64_t g)
{
	struct msp_vm_key *bigger;

	if (was_proved(probes, pid, g))
		return;
	bigger = more_room(probes->proved, probes->proved_count, &probes->proved_room,
			   sizeof(*bigger));
	if (!bigger)
		return;
	probes->proved = bigger;
	probes->proved[probes->proved_count++] = (struct msp_vm_key){.pid = (uint32_t)pid, .g = g};
}

/* NULL: it is none, or one too many that is none. */
static const struct msp_vm *vm_of(struct msp_recorder *rec, struct rec_process *p, uint64_t g)
{
	const struct msp_vm *vm = msp_space_vm_known(p->space, g);
	uint64_t now = rec_now_ns();

	if (vm) {
		note_proved(rec->probes, p->pid, g);
		return vm;
	}
	if (now - p->lies_ns > LIES_NS) {
		p->lies_ns = now;
		p->lies = 0;
	}
	if (p->lies >= MOST_LIES)
		return NULL;
	vm = msp_space_vm_told(p->space, g);
	if (vm)
		note_proved(rec->probes, p->pid, g);
	else
		p->lies++;
	return vm;
}

static void defer_close(struct rec_probes *probes, const struct msp_vm_event *event)
{
	if (probes->closed_count < MOST_CLOSED)
		probes->closed[probes->closed_count++] =
			(struct msp_vm_key){.pid = event->pid, .g = event->g};
}

/* A new VM has the place of one that was closed. */
static void undo_close(struct rec_probes *probes, const struct msp_vm_event *event)
{
	for (size_t i = probes->closed_count; i-- > 0;)
		if (probes->closed[i].g == event->g && probes->closed[i].pid == event->pid)
			probes->closed[i] = probes->closed[--probes->closed_count];
}

/* Of which VM is not known where it was not proved. */
static void note_unread(struct msp_recorder *rec, const struct msp_vm_event *event)
{
	bool proved = was_proved(rec->probes, (pid_t)event->pid, event->g);
	int err =
		msp_profile_add_vm_events(rec->profile, (int32_t)event->pid, proved ? event->g : 0,
					  "made traces that were gone before they were read", 1);

	if (err)
		rec->failed = err;
}

static void keep_trace(struct msp_recorder *rec, struct rec_process *p, const struct msp_vm *vm,
		       const struct msp_vm_event *event)
{
	int err = rec_need_symbols(rec, p);

	if (!err)
		err = msp_symbolizer_keep_trace(p->symbols, vm, event->arg[0], event->arg[1],
						event->arg[2]);
	if (err == MSP_E_GONE)
		note_unread(rec, event);
	else if (err)
		rec->failed = err;
}

/* Not 0: time is up. */
static int on_event(void *ctx, const struct msp_vm_event *event)
{
	struct msp_recorder *rec = ctx;
	bool late = rec->probes->last && rec_now_ns() > rec->probes->until_ns;
	struct rec_process *p = rec_find(rec, (pid_t)event->pid);
	const struct msp_vm *vm = NULL;

	if (event->kind == MSP_VM_CLOSED) {
		defer_close(rec->probes, event);
	} else if (p && p->space && !late) {
		undo_close(rec->probes, event);
		vm = vm_of(rec, p, event->g);
		if (vm)
			rec_note_vms(p);
	}
	if (event->kind == MSP_VM_MADE && vm)
		keep_trace(rec, p, vm, event);
	else if (event->kind == MSP_VM_MADE)
		note_unread(rec, event);
	return rec->failed || (!rec->probes->last && rec_now_ns() > rec->probes->until_ns) ? -EAGAIN
											   : 0;
}

static void take(struct msp_recorder *rec, uint64_t for_ns)
{
	rec->probes->until_ns = rec_now_ns() + for_ns;
	msp_probes_consume(rec->probes->heard, on_event, rec);
}

void rec_probes_take(struct msp_recorder *rec)
{
	if (rec_probes_fd(rec) < 0)
		return;
	take(rec, AT_ONCE_NS);
	msp_probes_end_heartbeats(rec->probes->heard, rec_now_ns() - HEARTBEATS_NS);
}

void rec_probes_settle(struct msp_recorder *rec)
{
	struct rec_probes *probes = rec->probes;
	struct rec_process *p;

	for (size_t i = 0; probes && i < probes->closed_count; i++) {
		p = rec_find(rec, (pid_t)probes->closed[i].pid);
		if (!p || !p->space)
			continue;
		msp_space_vm_closed(p->space, probes->closed[i].g);
		rec_note_vms(p);
	}
	if (probes)
		probes->closed_count = 0;
}

/* ---- Counts ---- */

static void add(struct msp_recorder *rec, const struct msp_vm_key *vm, const char *event,
		uint64_t count)
{
	int err = msp_profile_add_vm_events(rec->profile, (int32_t)vm->pid, vm->g, event, count);

	if (err)
		rec->failed = err;
}

static uint64_t sum_of(const struct msp_vm_counts *counts)
{
	uint64_t sum = counts->created + counts->closed + counts->made + counts->flushed_all +
		       counts->flushed;

	for (int i = 0; i < MSP_VM_REASONS; i++)
		sum += counts->aborted[i];
	return sum;
}

static void on_counts(void *ctx, const struct msp_vm_key *vm, const struct msp_vm_counts *counts)
{
	struct msp_recorder *rec = ctx;
	const struct msp_vm_key unknown = {.pid = vm->pid};
	struct rec_process *p = rec_find(rec, (pid_t)vm->pid);
	const char *reason;
	char text[128];

	if (p && p->space)
		vm_of(rec, p, vm->g);
	if (!was_proved(rec->probes, (pid_t)vm->pid, vm->g)) {
		add(rec, &unknown, "events of what was not proved to be a VM", sum_of(counts));
		return;
	}
	add(rec, vm, "VMs created", counts->created);
	add(rec, vm, "VMs closed", counts->closed);
	add(rec, vm, "traces made", counts->made);
	add(rec, vm, "flushes of all traces", counts->flushed_all);
	add(rec, vm, "root traces flushed", counts->flushed);
	for (uint32_t i = 0; i < MSP_VM_REASONS; i++) {
		reason = msp_lj_reason_text(i);
		if (reason)
			snprintf(text, sizeof(text), "aborts: %s", reason);
		else
			snprintf(text, sizeof(text), "aborts: reason %u", i);
		add(rec, vm, text, counts->aborted[i]);
	}
}

void rec_probes_image_gone(struct msp_recorder *rec, uint32_t image)
{
	struct rec_process *p;

	if (rec_probes_fd(rec) < 0)
		return;
	msp_probes_detach(rec->probes->heard, 0, image);
	for (size_t i = 0; i < rec->process_count; i++) {
		p = rec->process[i];
		for (size_t k = p->listened_count; k-- > 0;) /* another may get its number */
			if (p->listened[k].image == image)
				p->listened[k] = p->listened[--p->listened_count];
	}
}

void rec_probes_forget(struct msp_recorder *rec, struct rec_process *p)
{
	struct rec_probes *probes = rec->probes;

	if (rec_probes_fd(rec) < 0)
		return;
	msp_probes_take(probes->heard, p->pid, on_counts, rec);
	msp_probes_detach(probes->heard, p->pid, 0);
	free(p->listened);
	p->listened = NULL;
	p->listened_count = p->listened_room = 0;
	for (size_t i = probes->proved_count; i-- > 0;)
		if (probes->proved[i].pid == (uint32_t)p->pid)
			probes->proved[i] = probes->proved[--probes->proved_count];
}

void rec_probes_start(struct msp_recorder *rec)
{
	if (rec_probes_fd(rec) >= 0)
		msp_probes_start(rec->probes->heard);
}

void rec_probes_hush(struct msp_recorder *rec)
{
	if (rec_probes_fd(rec) >= 0)
		msp_probes_hush(rec->probes->heard);
}

void rec_probes_stop(struct msp_recorder *rec)
{
	const struct msp_vm_key none = {0};

	if (rec_probes_fd(rec) < 0)
		return;
	msp_probes_stop(rec->probes->heard);
	rec->probes->last = true;
	take(rec, AT_LAST_NS);
	msp_probes_take(rec->probes->heard, 0, on_counts, rec);
	add(rec, &none, "probe events lost", msp_probes_lost(rec->probes->heard));
}

size_t rec_probes_left(struct msp_recorder *rec, uint64_t until_ns, size_t *processes)
{
	*processes = 0;
	return rec_probes_fd(rec) < 0 ? 0
				      : msp_probes_left(rec->probes->heard, until_ns, processes);
}

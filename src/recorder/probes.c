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
#define MOST_CLOSED 256

/* A file that is listened to: of a process by its image, of all processes by its inode. */
struct listened {
	pid_t pid;
	uint32_t image;
	dev_t dev;
	ino_t ino;
};

struct rec_probes {
	struct msp_probes *heard; /* NULL: the kernel cannot do it */
	char why[200];		  /* nothing is heard, or not all */
	struct listened *listened;
	size_t count, room;
	size_t places;
	struct msp_vm_key *proved; /* at some time */
	size_t proved_count, proved_room;
	struct msp_vm_key closed[MOST_CLOSED]; /* to be applied when the samples before are named */
	size_t closed_count;
	uint64_t until_ns; /* events are handled */
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
	free(rec->probes->listened);
	free(rec->probes->proved);
	free(rec->probes);
	rec->probes = NULL;
}

int rec_probes_fd(const struct msp_recorder *rec)
{
	return rec->probes && rec->probes->heard ? msp_probes_fd(rec->probes->heard) : -1;
}

const char *rec_probes_why(const struct msp_recorder *rec)
{
	const struct rec_probes *probes = rec->probes;

	if (!probes)
		return "that needs BPF";
	if (probes->why[0])
		return probes->why;
	return probes->places ? NULL : "no LuaJIT there has any";
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

/* True: from now on it is; false: it was already, or there is no memory. */
static bool is_news(struct rec_probes *probes, const struct listened *file)
{
	struct listened *bigger;

	for (size_t i = 0; i < probes->count; i++)
		if (!memcmp(&probes->listened[i], file, sizeof(*file)))
			return false;
	bigger = more_room(probes->listened, probes->count, &probes->room, sizeof(*bigger));
	if (!bigger)
		return false;
	probes->listened = bigger;
	probes->listened[probes->count++] = *file;
	return true;
}

/* Listens at the places of a file, which is open. */
static void listen_at(struct msp_recorder *rec, pid_t pid, int fd,
		      const struct msp_image_entry *entry, const struct msp_probe *probe, int count)
{
	struct rec_probes *probes = rec->probes;
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (int i = 0; i < count; i++) {
		r = msp_probes_attach(probes->heard, pid, entry->index, path,
				      msp_image_arch(entry->image), &probe[i]);
		probes->places += r > 0;
		if (r < 0 && !probes->why[0])
			snprintf(probes->why, sizeof(probes->why), "%s of %s: %s", probe[i].name,
				 msp_image_name(entry->image), msp_strerror(r));
	}
}

/* The file itself, in whatever place it is; -1: it cannot be opened. map NULL: by its name, of a program that is not yet there. */
static int open_file(const struct rec_process *p, const struct msp_image_entry *entry,
		     const struct msp_map *map)
{
	int fd = map ? msp_process_open_map(p->process, map)
		     : open(msp_image_name(entry->image), O_PATH | O_CLOEXEC);

	return fd < 0 ? -1 : fd;
}

static void listen_to(struct msp_recorder *rec, const struct rec_process *p,
		      const struct msp_image_entry *entry, const struct msp_map *map)
{
	struct listened file;
	struct msp_probe *probe;
	struct stat st;
	int count = msp_image_probes(entry->image, MSP_PROBE_PROVIDER, &probe);
	int fd = count > 0 ? open_file(p, entry, map) : -1;

	memset(&file, 0, sizeof(file)); /* it is compared byte by byte */
	file.pid = rec->opts.all ? MSP_PROBES_ALL : p->pid;
	file.image = rec->opts.all ? 0 : entry->index;
	if (fd >= 0 && rec->opts.all && !fstat(fd, &st)) {
		file.dev = st.st_dev;
		file.ino = st.st_ino;
	}
	if (fd >= 0 && is_news(rec->probes, &file))
		listen_at(rec, file.pid, fd, entry, probe, count);
	if (fd >= 0)
		close(fd);
	free(probe);
}

void rec_probes_launch(struct msp_recorder *rec, const struct rec_process *p)
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

void rec_probes_listen(struct msp_recorder *rec, const struct rec_process *p)
{
	const struct msp_maps *maps = msp_space_maps(p->space);
	const struct msp_mapping *mapping;
	uint32_t last = 0;
	size_t n, k = 0;

	if (rec_probes_fd(rec) < 0)
		return;
	mapping = msp_space_mappings(p->space, &n);
	for (size_t i = 0; i < n; i++) { /* both are sorted */
		while (k < maps->count && maps->map[k].start < mapping[i].start)
			k++;
		if (!mapping[i].image || mapping[i].image == last || k == maps->count)
			continue;
		last = mapping[i].image;
		listen_to(rec, p, msp_images_get(rec->images, last), &maps->map[k]);
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
	const struct msp_vm *vm;
	uint64_t now = rec_now_ns();

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

static void keep_trace(struct msp_recorder *rec, struct rec_process *p, const struct msp_vm *vm,
		       const struct msp_vm_event *event)
{
	int err = rec_need_symbols(rec, p);

	if (!err)
		err = msp_symbolizer_keep_trace(p->symbols, vm, event->arg[0], event->arg[1],
						event->arg[2]);
	if (err == MSP_E_GONE)
		err = msp_profile_add_vm_events(rec->profile, p->pid, event->g,
						"made traces that were gone before they were read",
						1);
	if (err)
		rec->failed = err;
}

/* Not 0: time is up. */
static int on_event(void *ctx, const struct msp_vm_event *event)
{
	struct msp_recorder *rec = ctx;
	struct rec_process *p = rec_find(rec, (pid_t)event->pid);
	const struct msp_vm *vm;

	if (event->kind == MSP_VM_CLOSED) {
		defer_close(rec->probes, event);
	} else if (p && p->space) {
		undo_close(rec->probes, event);
		vm = vm_of(rec, p, event->g);
		if (vm)
			rec_note_vms(p);
		if (vm && event->kind == MSP_VM_MADE)
			keep_trace(rec, p, vm, event);
	}
	return rec->failed || rec_now_ns() > rec->probes->until_ns ? -EAGAIN : 0;
}

void rec_probes_take(struct msp_recorder *rec)
{
	uint64_t now = rec_now_ns();

	if (rec_probes_fd(rec) < 0)
		return;
	rec->probes->until_ns = now + AT_ONCE_NS;
	msp_probes_consume(rec->probes->heard, on_event, rec);
	msp_probes_end_heartbeats(rec->probes->heard, now - HEARTBEATS_NS);
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
	add(rec, vm, "root traces flushed alone", counts->flushed);
	for (uint32_t i = 0; i < MSP_VM_REASONS; i++) {
		reason = msp_lj_reason_text(i);
		if (reason)
			snprintf(text, sizeof(text), "aborts: %s", reason);
		else
			snprintf(text, sizeof(text), "aborts: reason %u", i);
		add(rec, vm, text, counts->aborted[i]);
	}
}

/* Of a process, or (0: whichever) of a file; another file may get its number. */
static void listen_no_more(struct rec_probes *probes, pid_t pid, uint32_t image)
{
	msp_probes_detach(probes->heard, pid, image);
	for (size_t i = probes->count; i-- > 0;)
		if ((!pid || probes->listened[i].pid == pid) &&
		    (!image || probes->listened[i].image == image))
			probes->listened[i] = probes->listened[--probes->count];
}

void rec_probes_image_gone(struct msp_recorder *rec, uint32_t image)
{
	if (rec_probes_fd(rec) >= 0 && !rec->opts.all)
		listen_no_more(rec->probes, 0, image);
}

void rec_probes_forget(struct msp_recorder *rec, const struct rec_process *p)
{
	struct rec_probes *probes = rec->probes;

	if (rec_probes_fd(rec) < 0)
		return;
	msp_probes_take(probes->heard, p->pid, on_counts, rec);
	listen_no_more(probes, p->pid, 0);
	for (size_t i = probes->proved_count; i-- > 0;)
		if (probes->proved[i].pid == (uint32_t)p->pid)
			probes->proved[i] = probes->proved[--probes->proved_count];
}

void rec_probes_stop(struct msp_recorder *rec)
{
	const struct msp_vm_key none = {0};

	if (rec_probes_fd(rec) < 0)
		return;
	msp_probes_stop(rec->probes->heard);
	rec_probes_take(rec);
	msp_probes_take(rec->probes->heard, MSP_PROBES_ALL, on_counts, rec);
	add(rec, &none, "probe events lost", msp_probes_lost(rec->probes->heard));
}

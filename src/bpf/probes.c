/* SPDX-License-Identifier: MIT */
#include "bpf/probes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/internal.h"
#include "moonspy/moonspy.h"
#include "probes.skel.h"

#define RING_SIZE (256u << 10)
#define MOST_VMS 1024
/* How many there are is the target's choice: in a file, and in all processes; each takes time and two files. */
#define MOST_OF_KIND 8
#define MOST_PLACES 4096

/* A file in a process; open until the kernel has all of its places. */
struct file {
	pid_t pid;
	uint32_t image;
	int fd;
	size_t places, untried;
	char name[];
};

/* Where is listened, or is to be. */
struct place {
	struct file *file;
	enum msp_vm_event_kind kind;
	uint64_t offset, cookie;
	uint64_t since_ns; /* 0: not tried yet */
	bool ending;
	struct bpf_link *link; /* NULL: not yet, or the kernel refused it */
};

/*
 * The kernel takes long to begin and to end, so a thread does both; it alone takes places out of the array. The lock is
 * for what follows it, and is never held meanwhile.
 */
struct msp_probes {
	struct probes_bpf *skel;
	struct ring_buffer *ring;
	msp_vm_event_fn fn;
	void *ctx;

	pthread_t thread;
	bool threaded;
	pthread_mutex_t lock;
	pthread_cond_t asked, done;
	bool closing;
	struct place *place;
	size_t count, room;
	size_t heard;  /* places that were listened to at some time */
	char why[200]; /* the first that was refused */
};

static const struct {
	const char *name;
	int arg[MSP_VM_EVENT_ARGS];
} kinds[] = {
#define _(id, name, a, b, c) {name, {0, a, b, c}},
	MSP_VM_EVENTS(_)
#undef _
};

static int on_event(void *ctx, void *data, size_t size)
{
	struct msp_probes *p = ctx;

	return size < sizeof(struct msp_vm_event) ? 0 : p->fn(p->ctx, data);
}

static int load(struct msp_probes *p, int namespace_fd)
{
	int err;

	p->skel = probes_bpf__open();
	if (!p->skel)
		return -errno;
	err = bpf_map__set_max_entries(p->skel->maps.vms, MOST_VMS);
	if (!err)
		err = bpf_map__set_max_entries(p->skel->maps.events, RING_SIZE);
	if (!err)
		err = bpf_map__reuse_fd(p->skel->maps.pid_namespace, namespace_fd);
	if (!err)
		err = probes_bpf__load(p->skel);
	if (err)
		return err;
	p->ring = ring_buffer__new(bpf_map__fd(p->skel->maps.events), on_event, p, NULL);
	return p->ring ? 0 : -errno;
}

/* In our words, where libbpf has none. */
static void explain(int err, char *error, size_t size)
{
	if (sampler_error(err) != MSP_E_PERMISSION &&
	    !libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_get_attach_cookie, NULL))
		snprintf(error, size, "that needs Linux 5.15");
	else
		sampler_explain(err, error, size);
}

static void *serve(void *arg);

/* Signals are for others: the thread has none. */
static int start_thread(struct msp_probes *p)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&p->thread, NULL, serve, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	p->threaded = !err;
	return -err;
}

static void init_locks(struct msp_probes *p)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->asked, &attr);
	pthread_cond_init(&p->done, &attr);
	pthread_condattr_destroy(&attr);
}

int msp_probes_open(int namespace_fd, struct msp_probes **out, char *error, size_t error_size)
{
	struct msp_probes *p = calloc(1, sizeof(*p));
	int err;

	*out = NULL;
	if (!p) {
		snprintf(error, error_size, "%s", msp_strerror(MSP_E_NOMEM));
		return MSP_E_NOMEM;
	}
	init_locks(p);
	sampler_listen(error, error_size);
	err = load(p, namespace_fd);
	sampler_listen(NULL, 0);
	if (!err)
		err = start_thread(p);
	if (err) {
		explain(err, error, error_size);
		msp_probes_close(p);
		return sampler_error(err);
	}
	*out = p;
	return 0;
}

void msp_probes_close(struct msp_probes *p)
{
	if (!p)
		return;
	msp_probes_stop(p);
	pthread_mutex_lock(&p->lock);
	p->closing = true;
	pthread_cond_signal(&p->asked);
	pthread_mutex_unlock(&p->lock);
	if (p->threaded)
		pthread_join(p->thread, NULL);
	pthread_cond_destroy(&p->asked);
	pthread_cond_destroy(&p->done);
	pthread_mutex_destroy(&p->lock);
	ring_buffer__free(p->ring);
	probes_bpf__destroy(p->skel);
	free(p->place);
	free(p);
}

/* ---- Places ---- */

/* Where the kernel keeps a register among those that a context is, in words. */
static uint64_t word_of(int arch, uint8_t reg)
{
	/* struct pt_regs of x86-64, by the numbers of DWARF */
	static const uint8_t x64[] = {10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0};

	if (arch == MSP_ARCH_X86_64)
		return reg < sizeof(x64) ? x64[reg] : MSP_COOKIE_NO_WORD;
	return reg < 31 ? reg : MSP_COOKIE_NO_WORD;
}

/* False: an argument that is needed is not known. */
static bool make_cookie(int arch, enum msp_vm_event_kind kind, const struct msp_probe *probe,
			uint64_t *out)
{
	uint64_t word;

	*out = kind;
	for (int i = 0; i < MSP_VM_EVENT_ARGS; i++) {
		int arg = kinds[kind].arg[i];

		word = arg < 0 ? MSP_COOKIE_NO_WORD : word_of(arch, probe->arg[arg]);
		if (arg >= 0 && word == MSP_COOKIE_NO_WORD)
			return false;
		*out |= word << (8 + 8 * i);
	}
	return true;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* ---- The thread ---- */

static void release(struct file *file)
{
	if (!file->untried && file->fd >= 0) {
		close(file->fd);
		file->fd = -1;
	}
	if (!file->places)
		free(file);
}

static struct bpf_link *attach(struct msp_probes *p, const struct place *place)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = place->cookie);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", place->file->fd);
	return bpf_program__attach_uprobe_opts(p->skel->progs.msp_on_vm_event, place->file->pid,
					       path, place->offset, &opts);
}

static void begin(struct msp_probes *p, size_t i)
{
	const struct place now = p->place[i];
	struct place *place;
	struct bpf_link *link;
	char error[128];
	int err;

	pthread_mutex_unlock(&p->lock);
	sampler_listen(error, sizeof(error));
	link = attach(p, &now);
	err = link ? 0 : -errno;
	sampler_listen(NULL, 0);
	if (err)
		sampler_explain(err, error, sizeof(error));
	pthread_mutex_lock(&p->lock);
	place = &p->place[i]; /* there may be more by now */
	place->link = link;
	place->since_ns = now_ns();
	place->ending |= !link;
	p->heard += link != NULL;
	/* A process that has ended meanwhile is nothing to complain about. */
	if (err && err != -ESRCH && !p->why[0])
		snprintf(p->why, sizeof(p->why), "%s of %s: %s", kinds[now.kind].name,
			 now.file->name, error);
	now.file->untried--;
	release(now.file);
}

static void end(struct msp_probes *p, size_t i)
{
	const struct place now = p->place[i];

	pthread_mutex_unlock(&p->lock);
	bpf_link__destroy(now.link);
	pthread_mutex_lock(&p->lock);
	p->place[i] = p->place[--p->count];
	now.file->untried -= !now.since_ns;
	now.file->places--;
	release(now.file);
}

/* False: there is nothing to do. Beginning goes first. */
static bool step(struct msp_probes *p)
{
	size_t ending = SIZE_MAX;

	for (size_t i = 0; i < p->count; i++) {
		if (p->place[i].ending) {
			ending = i;
		} else if (!p->place[i].since_ns) {
			begin(p, i);
			return true;
		}
	}
	if (ending == SIZE_MAX)
		return false;
	end(p, ending);
	return true;
}

static void *serve(void *arg)
{
	struct msp_probes *p = arg;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		if (step(p))
			pthread_cond_broadcast(&p->done);
		else if (p->closing)
			break;
		else
			pthread_cond_wait(&p->asked, &p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ---- What it is asked for ---- */

static bool make_room(struct msp_probes *p)
{
	size_t room = p->room ? 2 * p->room : 32;
	struct place *bigger;

	if (p->count < p->room)
		return true;
	bigger = realloc(p->place, room * sizeof(*bigger));
	if (!bigger)
		return false;
	p->place = bigger;
	p->room = room;
	return true;
}

/* 1: a place more is asked for; 0: it is none of those listened to. */
static int ask(struct msp_probes *p, struct file *file, int arch, const struct msp_probe *probe,
	       unsigned *of_kind)
{
	struct place place = {.file = file, .offset = probe->offset};

	while (place.kind < MSP_VM_EVENT_COUNT && strcmp(kinds[place.kind].name, probe->name) != 0)
		place.kind++;
	if (place.kind == MSP_VM_EVENT_COUNT ||
	    !make_cookie(arch, place.kind, probe, &place.cookie))
		return 0;
	if (of_kind[place.kind]++ == MOST_OF_KIND || p->count >= MOST_PLACES)
		return MSP_E_LIMIT;
	if (!make_room(p))
		return MSP_E_NOMEM;
	p->place[p->count++] = place;
	file->places++;
	file->untried++;
	return 1;
}

static struct file *new_file(pid_t pid, uint32_t image, int fd, const char *name)
{
	struct file *file = calloc(1, sizeof(*file) + strlen(name) + 1);

	if (!file)
		return NULL;
	file->pid = pid;
	file->image = image;
	strcpy(file->name, name);
	file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (file->fd >= 0)
		return file;
	free(file);
	return NULL;
}

void msp_probes_attach(struct msp_probes *p, pid_t pid, uint32_t image, int fd, const char *name,
		       int arch, const struct msp_probe *probe, int count)
{
	unsigned of_kind[MSP_VM_EVENT_COUNT] = {0};
	struct file *file = new_file(pid, image, fd, name);
	int r = file ? 0 : MSP_E_NOMEM;

	pthread_mutex_lock(&p->lock);
	for (int i = 0; r >= 0 && i < count; i++)
		r = ask(p, file, arch, &probe[i], of_kind);
	if (r < 0 && !p->why[0])
		snprintf(p->why, sizeof(p->why),
			 r == MSP_E_LIMIT ? "too many probes in %s"
					  : "no memory for the probes of %s",
			 name);
	if (file)
		release(file);
	pthread_cond_signal(&p->asked);
	pthread_mutex_unlock(&p->lock);
}

static bool all_tried(const struct msp_probes *p)
{
	for (size_t i = 0; i < p->count; i++)
		if (!p->place[i].since_ns && !p->place[i].ending)
			return false;
	return true;
}

void msp_probes_start(struct msp_probes *p)
{
	pthread_mutex_lock(&p->lock);
	while (!all_tried(p))
		pthread_cond_wait(&p->done, &p->lock);
	/* The first ones may have been there for long, but unheard. */
	for (size_t i = 0; !p->skel->bss->listening && i < p->count; i++)
		if (p->place[i].since_ns)
			p->place[i].since_ns = now_ns();
	p->skel->bss->listening = 1;
	pthread_mutex_unlock(&p->lock);
}

void msp_probes_hush(struct msp_probes *p)
{
	p->skel->bss->listening = 0;
}

/* Those of a process (0: of any), of a file (0: any), of a kind (MSP_VM_EVENT_COUNT: any) since then. */
static void end_those(struct msp_probes *p, pid_t pid, uint32_t image, enum msp_vm_event_kind kind,
		      uint64_t since_ns)
{
	bool news = false;

	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->count; i++) {
		struct place *place = &p->place[i];

		if (!place->ending && (!pid || place->file->pid == pid) &&
		    (!image || place->file->image == image) &&
		    (kind == MSP_VM_EVENT_COUNT ||
		     (place->kind == kind && place->since_ns && place->since_ns <= since_ns)))
			place->ending = news = true;
	}
	if (news)
		pthread_cond_signal(&p->asked);
	pthread_mutex_unlock(&p->lock);
}

void msp_probes_detach(struct msp_probes *p, pid_t pid, uint32_t image)
{
	end_those(p, pid, image, MSP_VM_EVENT_COUNT, 0);
}

void msp_probes_end_heartbeats(struct msp_probes *p, uint64_t since_ns)
{
	end_those(p, 0, 0, MSP_VM_SEEN, since_ns);
}

void msp_probes_stop(struct msp_probes *p)
{
	if (p->skel && p->skel->bss)
		msp_probes_hush(p);
	end_those(p, 0, 0, MSP_VM_EVENT_COUNT, 0);
}

static size_t processes_of(const struct msp_probes *p)
{
	size_t n = 0, k;

	for (size_t i = 0; i < p->count; i++) {
		for (k = 0; k < i && p->place[k].file->pid != p->place[i].file->pid; k++)
			;
		n += k == i;
	}
	return n;
}

size_t msp_probes_left(struct msp_probes *p, uint64_t until_ns, size_t *processes)
{
	const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
				       .tv_nsec = (long)(until_ns % 1000000000)};
	size_t left;

	pthread_mutex_lock(&p->lock);
	while (p->count && !pthread_cond_timedwait(&p->done, &p->lock, &until))
		;
	left = p->count;
	*processes = processes_of(p);
	pthread_mutex_unlock(&p->lock);
	return left;
}

size_t msp_probes_heard(struct msp_probes *p, char *why, size_t size)
{
	size_t heard;

	pthread_mutex_lock(&p->lock);
	heard = p->heard;
	snprintf(why, size, "%s", p->why);
	pthread_mutex_unlock(&p->lock);
	return heard;
}

/* ---- What was heard ---- */

int msp_probes_fd(const struct msp_probes *p)
{
	return ring_buffer__epoll_fd(p->ring);
}

void msp_probes_consume(struct msp_probes *p, msp_vm_event_fn fn, void *ctx)
{
	p->fn = fn;
	p->ctx = ctx;
	ring_buffer__consume(p->ring);
}

void msp_probes_take(struct msp_probes *p, pid_t pid, msp_vm_counts_fn fn, void *ctx)
{
	int fd = bpf_map__fd(p->skel->maps.vms);
	struct msp_vm_key key, next, *before = NULL;
	struct msp_vm_counts counts;
	bool more = !bpf_map_get_next_key(fd, NULL, &next);

	for (uint32_t i = 0; more && i < MOST_VMS; i++) {
		key = next;
		before = &key;
		more = !bpf_map_get_next_key(fd, before, &next);
		if ((!pid || key.pid == (uint32_t)pid) &&
		    !bpf_map_lookup_and_delete_elem(fd, &key, &counts))
			fn(ctx, &key, &counts);
	}
}

uint64_t msp_probes_lost(const struct msp_probes *p)
{
	return p->skel->bss->lost + p->skel->bss->no_place;
}

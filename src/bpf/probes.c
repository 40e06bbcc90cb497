/* SPDX-License-Identifier: MIT */
#include "bpf/probes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/internal.h"
#include "moonspy/moonspy.h"
#include "probes.skel.h"

#define RING_SIZE (256u << 10)
#define MOST_VMS 1024

struct listener {
	pid_t pid;
	uint32_t image;
	enum msp_vm_event_kind kind;
	uint64_t since_ns;
	struct bpf_link *link;
};

struct msp_probes {
	struct probes_bpf *skel;
	struct ring_buffer *ring;
	struct listener *listener;
	size_t listeners, room;
	msp_vm_event_fn fn;
	void *ctx;
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

int msp_probes_open(int namespace_fd, struct msp_probes **out, char *error, size_t error_size)
{
	struct msp_probes *p = calloc(1, sizeof(*p));
	int err;

	*out = NULL;
	if (!p)
		return MSP_E_NOMEM;
	sampler_listen(error, error_size);
	err = load(p, namespace_fd);
	sampler_listen(NULL, 0);
	if (err) {
		sampler_explain(err, error, error_size);
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
	ring_buffer__free(p->ring);
	probes_bpf__destroy(p->skel);
	free(p->listener);
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

static bool make_room(struct msp_probes *p)
{
	size_t room = p->room ? 2 * p->room : 32;
	struct listener *bigger;

	if (p->listeners < p->room)
		return true;
	bigger = realloc(p->listener, room * sizeof(*bigger));
	if (!bigger)
		return false;
	p->listener = bigger;
	p->room = room;
	return true;
}

int msp_probes_attach(struct msp_probes *p, pid_t pid, uint32_t image, const char *path, int arch,
		      const struct msp_probe *probe)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts);
	enum msp_vm_event_kind kind = 0;
	struct bpf_link *link;
	uint64_t cookie;
	char error[128];

	while (kind < MSP_VM_EVENT_COUNT && strcmp(kinds[kind].name, probe->name) != 0)
		kind++;
	if (kind == MSP_VM_EVENT_COUNT || !make_cookie(arch, kind, probe, &cookie))
		return 0;
	if (!make_room(p))
		return MSP_E_NOMEM;
	opts.bpf_cookie = cookie;
	sampler_listen(error, sizeof(error));
	link = bpf_program__attach_uprobe_opts(p->skel->progs.msp_on_vm_event, pid, path,
					       probe->offset, &opts);
	sampler_listen(NULL, 0);
	if (!link)
		return sampler_error(-errno);
	p->listener[p->listeners++] = (struct listener){pid, image, kind, now_ns(), link};
	return 1;
}

static void end(struct msp_probes *p, size_t i)
{
	bpf_link__destroy(p->listener[i].link);
	p->listener[i] = p->listener[--p->listeners];
}

void msp_probes_detach(struct msp_probes *p, pid_t pid, uint32_t image)
{
	for (size_t i = p->listeners; i-- > 0;)
		if ((!pid || p->listener[i].pid == pid) &&
		    (!image || p->listener[i].image == image))
			end(p, i);
}

void msp_probes_end_heartbeats(struct msp_probes *p, uint64_t since_ns)
{
	for (size_t i = p->listeners; i-- > 0;)
		if (p->listener[i].kind == MSP_VM_SEEN && p->listener[i].since_ns <= since_ns)
			end(p, i);
}

void msp_probes_stop(struct msp_probes *p)
{
	while (p->listeners)
		end(p, p->listeners - 1);
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
		if ((pid == MSP_PROBES_ALL || key.pid == (uint32_t)pid) &&
		    !bpf_map_lookup_and_delete_elem(fd, &key, &counts))
			fn(ctx, &key, &counts);
	}
}

uint64_t msp_probes_lost(const struct msp_probes *p)
{
	return p->skel->bss->lost + p->skel->bss->no_place;
}

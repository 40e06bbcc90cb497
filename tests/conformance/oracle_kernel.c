/* SPDX-License-Identifier: MIT */
/* BPF at one instruction: the sampler's program on a breakpoint event. */
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "bpf/internal.h"
#include "moonspy/moonspy.h"
#include "oracle.h"

struct oracle_kernel {
	struct msp_sampler *sampler;
	struct msp_images *images;
	uint32_t images_sent;
	pid_t pid; /* whose tables it has */
	pid_t tid; /* whose event it is */
	struct bpf_link *link;
	int fd;
	struct msp_raw_frame frames[MSP_MAX_FRAMES];
	uint32_t count;
	uint32_t samples;
};

struct oracle_kernel *oracle_kernel_new(char *why, size_t size)
{
	struct msp_sampler_options opts = {.rate = 1, .rows = 1 << 20};
	struct oracle_kernel *k = calloc(1, sizeof(*k));

	if (!k || msp_sampler_open(&opts, &k->sampler, why, size) != 0) {
		free(k);
		return NULL;
	}
	k->fd = -1;
	return k;
}

static void detach(struct oracle_kernel *k)
{
	if (k->link)
		bpf_link__destroy(k->link);
	k->link = NULL;
	k->fd = -1;
}

void oracle_kernel_free(struct oracle_kernel *k)
{
	if (!k)
		return;
	detach(k);
	msp_sampler_close(k->sampler);
	free(k);
}

static int send_images(struct oracle_kernel *k, struct msp_images *images)
{
	const struct msp_image_entry *e;
	int rc = 0;

	for (; rc == 0 && k->images_sent < msp_images_count(images); k->images_sent++) {
		e = msp_images_get(images, k->images_sent + 1);
		if (e->layout != MSP_LAYOUT_NONE)
			rc = msp_sampler_set_layout(k->sampler, e->layout,
						    msp_lj_build_layout(e->build));
		if (rc == 0)
			rc = msp_sampler_add_image(k->sampler, e->index, e->table, e->layout);
	}
	return rc;
}

static void add_builds(struct msp_space *space, struct msp_bpf_process *out)
{
	struct msp_host_vm vm[MSP_MAX_HOST_VMS];

	out->build_count = (uint32_t)msp_space_host_vms(space, vm);
	for (uint32_t i = 0; i < out->build_count; i++) {
		out->build[i].layout = vm[i].layout;
		out->build[i].vm_base = vm[i].base;
		out->build[i].g = vm[i].g;
	}
}

int oracle_kernel_set(struct oracle_kernel *k, struct oracle_process *p)
{
	struct msp_bpf_process process = {0};
	struct msp_mapping *file;
	size_t count, n = 0;
	const struct msp_mapping *map = msp_space_mappings(p->space, &count);
	int rc = send_images(k, p->images);

	if (k->pid && k->pid != p->pid)
		msp_sampler_remove_process(k->sampler, k->pid);
	k->pid = p->pid;
	file = calloc(count + 1, sizeof(*file));
	if (!file)
		return MSP_E_NOMEM;
	for (size_t i = 0; i < count; i++) {
		if (!(map[i].flags & MSP_MAP_FILE))
			continue;
		file[n++] = map[i];
	}
	add_builds(p->space, &process);
	if (rc == 0)
		rc = msp_sampler_set_process(k->sampler, p->pid, file, (uint32_t)n, &process);
	free(file);
	return rc;
}

/* The event, first made for this process, then moved from place to place. */
static bool aim(struct oracle_kernel *k, struct oracle_process *p)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_BREAKPOINT,
				       .size = sizeof(attr),
				       .bp_type = HW_BREAKPOINT_X,
				       .bp_addr = p->regs.rip,
				       .bp_len = sizeof(long),
				       .sample_period = 1,
				       .exclude_kernel = 1,
				       .exclude_hv = 1};

	if (k->tid != p->tid)
		detach(k);
	k->tid = p->tid;
	if (k->fd >= 0)
		return ioctl(k->fd, PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr) == 0 &&
		       ioctl(k->fd, PERF_EVENT_IOC_ENABLE, 0) == 0;
	k->fd = (int)syscall(SYS_perf_event_open, &attr, p->tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (k->fd < 0)
		return false;
	k->link = bpf_program__attach_perf_event(k->sampler->skel->progs.msp_on_event, k->fd);
	if (!k->link)
		close(k->fd);
	k->fd = k->link ? k->fd : -1;
	return k->link != NULL;
}

static int on_sample(void *ctx, const struct msp_sample *sample, const struct msp_raw_frame *frames)
{
	struct oracle_kernel *k = ctx;

	if (sample->frame_count > MSP_MAX_FRAMES)
		return 0;
	memcpy(k->frames, frames, sample->frame_count * sizeof(*frames));
	k->count = sample->frame_count;
	k->samples++;
	return 0;
}

static int on_event(void *ctx, const struct msp_event *event)
{
	(void)ctx;
	(void)event;
	return 0;
}

bool oracle_kernel_step(struct oracle_kernel *k, struct oracle_process *p,
			const struct msp_raw_frame **frames, uint32_t *count)
{
	struct msp_sampler_handlers handlers = {on_sample, on_event, k};
	bool aimed = aim(k, p);

	*frames = NULL;
	k->samples = 0;
	if (!oracle_process_step(p))
		return false;
	if (!aimed)
		return true;
	ioctl(k->fd, PERF_EVENT_IOC_DISABLE, 0);
	msp_sampler_consume(k->sampler, &handlers);
	*count = k->count;
	*frames = k->samples ? k->frames : NULL;
	return true;
}

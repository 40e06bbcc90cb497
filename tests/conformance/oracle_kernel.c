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

int oracle_kernel_set(struct oracle_kernel *k, struct oracle_process *p)
{
	struct msp_tables *tables = msp_sampler_tables(k->sampler);

	if (k->pid && k->pid != p->pid)
		msp_tables_remove_process(tables, k->pid);
	k->pid = p->pid;
	return msp_tables_send(tables, p->space, p->pid);
}

/* The event, first made for this process, then moved from place to place. */
static bool aim(struct oracle_kernel *k, struct oracle_process *p)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_BREAKPOINT,
				       .size = sizeof(attr),
				       .bp_type = HW_BREAKPOINT_X,
				       .bp_addr = p->regs.pc,
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

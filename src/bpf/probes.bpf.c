/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Hears the probes of LuaJITs (moonspy/vm_descriptor.h): counts what their VMs do, and sends what the recorder is to act
 * on. What a program says there is not believed here: an address that is no VM's is counted like any other.
 */
#include "bpf/kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/numbers.h"
#include "bpf/records.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct msp_vm_key);
	__type(value, struct msp_vm_counts);
} vms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

__u32 listening; /* breakpoints come and go one by one: what is hit before all are there, or when the recording is over, does not count */
__u64 lost;	 /* events that found no room in the ring */
__u64 no_place;	 /* hits of VMs that found none among those counted */

struct msp_vm_counts no_counts;

/* An argument, from the registers that the context is. */
static MSP_INLINE __u64 argument(void *ctx, __u64 cookie, __u32 i)
{
	__u64 word = MSP_COOKIE_WORD(cookie, i), value = 0;

	if (word != MSP_COOKIE_NO_WORD)
		bpf_probe_read_kernel(&value, sizeof(value), ctx + word * 8);
	return value;
}

static MSP_INLINE void count_event(struct msp_vm_counts *counts, __u32 kind, __u64 arg)
{
	if (kind == MSP_VM_CREATED)
		__sync_fetch_and_add(&counts->created, 1);
	else if (kind == MSP_VM_CLOSED)
		__sync_fetch_and_add(&counts->closed, 1);
	else if (kind == MSP_VM_MADE)
		__sync_fetch_and_add(&counts->made, 1);
	else if (kind == MSP_VM_FLUSHED && !arg)
		__sync_fetch_and_add(&counts->flushed_all, 1);
	else if (kind == MSP_VM_FLUSHED)
		__sync_fetch_and_add(&counts->flushed, 1);
	else if (kind == MSP_VM_ABORTED)
		__sync_fetch_and_add(
			&counts->aborted[arg < MSP_VM_REASONS ? arg : MSP_VM_REASONS - 1], 1);
}

static MSP_INLINE void send(const struct msp_vm_event *event)
{
	if (bpf_ringbuf_output(&events, (void *)event, sizeof(*event), 0))
		__sync_fetch_and_add(&lost, 1);
}

SEC("uprobe")
int msp_on_vm_event(void *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct msp_vm_event event = {.kind = MSP_COOKIE_KIND(cookie), .pid = number_of(task)};
	struct msp_vm_key key = {.pid = event.pid};
	struct msp_vm_counts *counts;
	int news = event.kind <= MSP_VM_CLOSED || event.kind == MSP_VM_MADE;

	if (!listening || !event.pid)
		return 0;
	key.g = event.g = argument(ctx, cookie, 0);
#pragma unroll
	for (int i = 0; i < MSP_VM_EVENT_ARGS - 1; i++)
		event.arg[i] = argument(ctx, cookie, i + 1);
	counts = bpf_map_lookup_elem(&vms, &key);
	if (!counts) {
		news |= !bpf_map_update_elem(&vms, &key, &no_counts, BPF_NOEXIST);
		counts = bpf_map_lookup_elem(&vms, &key);
	}
	if (counts)
		count_event(counts, event.kind, event.arg[0]);
	else
		__sync_fetch_and_add(&no_place, 1);
	if (news)
		send(&event);
	return 0;
}

/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Sends each hit of a probe, in order. The cookie says which it is. */
#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/ptrace.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/usdt.bpf.h>

#include "usdt.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} hits SEC(".maps");

unsigned long long lost;

SEC("usdt")
int on_hit(struct pt_regs *ctx)
{
	struct usdt_hit *hit = bpf_ringbuf_reserve(&hits, sizeof(*hit), 0);
	long value;

	if (!hit) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	hit->probe = bpf_usdt_cookie(ctx);
	for (int i = 0; i < USDT_MOST_ARGS; i++) {
		value = 0;
		bpf_usdt_arg(ctx, i, &value);
		hit->arg[i] = value;
	}
	bpf_ringbuf_submit(hit, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

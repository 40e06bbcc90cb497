/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * moonspy.bpf.o: the sampler for loaders of others (docs/plugin.md). Samples every process with
 * kernel frames unless its loader says otherwise, and can be called from probes too.
 */
/* clang-format off */
#define MSP_CONFIG {.all = 1, .kernel = 1}
/* clang-format on */
#define MSP_SLOTS_A_CPU 2
#include "bpf/sampler.bpf.c"

/*
 * From a uprobe, a USDT probe, a kprobe. An event may come while it runs: it has a slot of its own.
 * Another probe on this CPU, if this one is preempted, is counted as having none.
 */
SEC("kprobe")
int msp_on_probe(struct pt_regs *ctx)
{
	__u32 slot = bpf_get_smp_processor_id() * MSP_SLOTS_A_CPU + 1;
	struct walk_slot *s = slot_get(slot);

	if (!s || __sync_lock_test_and_set(&s->busy, 1)) {
		count(MSP_COUNT_NO_SLOT);
		return 0;
	}
	sample(ctx, slot, s);
	__sync_lock_test_and_set(&s->busy, 0);
	return 0;
}

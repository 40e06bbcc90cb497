/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Numbers of processes and threads, as whoever loaded the program sees them. */
#ifndef MSP_BPF_NUMBERS_H
#define MSP_BPF_NUMBERS_H

#include "bpf/kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define MSP_INLINE inline __attribute__((always_inline))
#define MAX_PID_NS_LEVEL 32 /* linux/pid_namespace.h */

/* The inode of the pid namespace whose numbers are meant; 0: the initial one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} pid_namespace SEC(".maps");

/* A thread's number in a pid namespace, which may be an outer one of the thread's own; 0: it is not in it. */
static MSP_INLINE __u32 number_in(struct task_struct *task, __u32 namespace)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);
	__u32 level = BPF_CORE_READ(pid, level), inode;

	for (int i = 0; i <= MAX_PID_NS_LEVEL && level <= MAX_PID_NS_LEVEL; i++, level--) {
		struct upid *number = numbers + level * bpf_core_type_size(struct upid);
		void *its = BPF_CORE_READ(number, ns);

		its += bpf_core_field_offset(struct pid_namespace, ns) +
		       bpf_core_field_offset(struct ns_common, inum);
		if (bpf_probe_read_kernel(&inode, sizeof(inode), its))
			return 0;
		if (inode == namespace)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
}

static MSP_INLINE __u32 our_namespace(void)
{
	__u32 zero = 0;
	__u64 *inode = bpf_map_lookup_elem(&pid_namespace, &zero);

	return inode ? *inode : 0;
}

/* The number of a thread's process for the recorder; 0: it has none. */
static MSP_INLINE __u32 number_of(struct task_struct *task)
{
	__u32 namespace = our_namespace();

	return namespace ? number_in(BPF_CORE_READ(task, group_leader), namespace)
			 : BPF_CORE_READ(task, tgid);
}

#endif

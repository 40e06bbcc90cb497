/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel's types, as far as the BPF programs use them. Fields of kernel
 * structures are found by CO-RE at load time; the user ABI (registers, events)
 * is fixed. So the build needs neither kernel headers nor the kernel's BTF.
 */
#ifndef MSP_BPF_KERNEL_H
#define MSP_BPF_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_MMAPABLE = 1 << 10, BPF_F_INNER_MAP = 1 << 12 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

#if defined(__TARGET_ARCH_x86)

struct pt_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	__u64 orig_ax, ip, cs, flags, sp, ss;
};
typedef struct pt_regs bpf_user_pt_regs_t;

#elif defined(__TARGET_ARCH_arm64)

struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};
typedef struct user_pt_regs bpf_user_pt_regs_t;

#endif

/* uapi/linux/bpf_perf_event.h */
struct bpf_perf_event_data {
	bpf_user_pt_regs_t regs;
	__u64 sample_period;
	__u64 addr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct file;

struct mm_struct {
	struct file *exe_file;
};

struct task_struct {
	void *stack;
	struct mm_struct *mm;
	struct task_struct *real_parent, *group_leader;
	struct pid *thread_pid;
	int tgid;
	unsigned int flags;
};

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

/* A number for each pid namespace that the thread is in, from the initial one (level 0) to its own. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

#if defined(__TARGET_ARCH_arm64)
/* What the kernel saves; a struct user_pt_regs is its beginning. */
struct pt_regs {
	__s32 syscallno;
};
#endif

#pragma clang attribute pop

#define PF_KTHREAD 0x00200000 /* linux/sched.h */

/* Which helpers this kernel has: asked by CO-RE, the numbers are of no meaning here. */
enum bpf_func_id___msp { BPF_FUNC_task_pt_regs___msp = 175 };

#endif

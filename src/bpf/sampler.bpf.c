/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel host: a perf event's user registers go into the walker, the raw
 * frames into a ring buffer. Triggers and memory access only; how a stack is
 * walked stands in unwind/.
 */
#include "bpf/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "bpf/numbers.h"
#include "bpf/records.h"
#include "unwind/walk.h"

/* BPF reads words from anywhere; told that they may be, the compiler would take them byte by byte. */
typedef __u32 msp_word_anywhere;
#define NULL ((void *)0)

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* plugin.bpf.c sets these otherwise. */
#ifndef MSP_CONFIG
#define MSP_CONFIG \
	{ \
		0 \
	}
#define MSP_SLOTS_A_CPU 1
#endif

const volatile struct msp_bpf_config config = MSP_CONFIG;

/* One walk a CPU at a time; the loader sets the number of CPUs. */
struct walk_slot {
	struct msp_walk walk;
	uint64_t first_mapping, mapping_count; /* of the process being walked */
	struct msp_bpf_process process;
	uint32_t parent; /* whose tables these are; 0: its own */
	uint32_t busy;	 /* of a probe: it may be preempted */
	uint64_t kstack[MSP_MAX_KERNEL_FRAMES + 1];
	__u64 began; /* ns */
	bpf_user_pt_regs_t
		regs; /* here, not on the stack: that has 512 bytes for all subprograms */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_slot);
} walks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MSP_MAX_PROCESSES);
	__type(key, __u32);
	__type(value, struct msp_bpf_process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct msp_mapping);
} mappings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MSP_IMAGE_SLOTS);
	__type(key, __u32);
	__type(value, struct msp_bpf_image);
} images SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct msp_rule);
} rules SEC(".maps");

struct row_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size,
	       sizeof(__u32)); /* clang leaves a type that only an inner map names incomplete */
	__uint(value_size, sizeof(struct msp_row));
};

/* Unwind rows of all images, in a few big pieces: an update of the outer map costs 8 ms. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MSP_MAX_SEGMENTS);
	__type(key, __u32);
	__array(values, struct row_segment);
} segments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MSP_LAYOUT_SLOTS);
	__type(key, __u32);
	__type(value, struct msp_lj_layout);
} layouts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MSP_COUNTER_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct msp_run_times);
} run_times SEC(".maps");

static MSP_INLINE void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &which);

	if (n)
		*n += 1;
}

/* ---- The walker's host functions ---- */

static MSP_INLINE struct walk_slot *slot_get(__u32 slot)
{
	return bpf_map_lookup_elem(&walks, &slot);
}

/* A subprogram is verified once, by itself: its arguments are the slot's number, and a number. */
#define MSP_SUB(name) \
	static MSP_INLINE int name##_body(struct msp_walk *w); \
	__attribute__((noinline)) int msp_##name(__u32 slot) \
	{ \
		struct walk_slot *s = slot_get(slot); \
		return s ? name##_body(&s->walk) : MSP_ERR_INTERNAL; \
	} \
	static MSP_INLINE int name##_body(struct msp_walk *w)
#define MSP_CALL(w, name) msp_##name((w)->slot)

#define MSP_SUB_N(name) \
	static MSP_INLINE int name##_body(struct msp_walk *w, __u64 n); \
	__attribute__((noinline)) int msp_##name(__u32 slot, __u64 n) \
	{ \
		struct walk_slot *s = slot_get(slot); \
		return s ? name##_body(&s->walk, n) : MSP_ERR_INTERNAL; \
	} \
	static MSP_INLINE int name##_body(struct msp_walk *w, __u64 n)
#define MSP_CALL_N(w, name, n) msp_##name((w)->slot, n)

#if defined(__TARGET_ARCH_x86)
#define host_arch(w) MSP_ARCH_X86_64
#elif defined(__TARGET_ARCH_arm64)
#define host_arch(w) MSP_ARCH_ARM64
#endif

#define host_read(w, dst, size, addr) bpf_probe_read_user(dst, size, (const void *)(addr))

static MSP_INLINE const struct msp_lj_layout *host_layout(struct msp_walk *w, __u32 index)
{
	return bpf_map_lookup_elem(&layouts, &index);
}

static MSP_INLINE const struct msp_lj_layout *host_vm(struct msp_walk *w, __u32 i)
{
	struct walk_slot *s = (struct walk_slot *)w;

	if (i >= s->process.build_count || i >= MSP_MAX_HOST_VMS)
		return NULL;
	w->layout = s->process.build[i].layout;
	w->vm_base = s->process.build[i].vm_base;
	w->vm_g = s->process.build[i].g;
	return host_layout(w, w->layout);
}

/* Binary search over at most 8192 mappings of a process. */
MSP_SUB(find_mapping)
{
	struct walk_slot *s = (struct walk_slot *)w;
	__u32 lo = s->first_mapping, hi = lo + s->mapping_count, mid;
	struct msp_mapping *m;

	if (w->look - w->map.start < w->map.end - w->map.start)
		return 0;
	for (int i = 0; i < 14 && lo < hi; i++) {
		mid = lo + (hi - lo) / 2;
		m = bpf_map_lookup_elem(&mappings, &mid);
		if (!m)
			break;
		if (w->look < m->start) {
			hi = mid;
		} else if (w->look >= m->end) {
			lo = mid + 1;
		} else {
			w->map = *m;
			return 0;
		}
	}
	w->map.start = w->map.end = 0;
	return 1;
}

/* The rule of the last row at or before w->look in an image. Negative: there is none. */
__attribute__((noinline)) int msp_find_row(__u32 slot, __u32 id)
{
	struct walk_slot *s = slot_get(slot);
	struct msp_bpf_image *image = bpf_map_lookup_elem(&images, &id);
	__u32 lo, hi, mid, rel, at;
	struct msp_row *row;
	void *rows;

	if (!s || !image)
		return -2;
	rows = bpf_map_lookup_elem(&segments, &image->segment);
	if (!rows)
		return -2;
	rel = s->walk.look - s->walk.map.base;
	at = rel >> (image->bucket_shift & 31);
	if (at >= image->bucket_count)
		at = image->bucket_count - 1;
	at += image->first_bucket;
	row = bpf_map_lookup_elem(rows, &at);
	if (!row)
		return -2;
	lo = row->addr;
	hi = row->rule + 1;
	for (int i = 0; i < 25 && lo < hi; i++) { /* to the first row behind rel */
		mid = lo + (hi - lo) / 2;
		at = image->first_row + mid;
		row = bpf_map_lookup_elem(rows, &at);
		if (!row)
			return -2;
		if (row->addr <= rel)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return -1;
	at = image->first_row + lo - 1;
	row = bpf_map_lookup_elem(rows, &at);
	return row ? (int)(row->rule & 0x7fffffff) : -2;
}

MSP_SUB(find_rule)
{
	__u32 id = w->map.image, rule;
	struct msp_bpf_image *image = bpf_map_lookup_elem(&images, &id);
	struct msp_rule *r;
	int found;

	w->image_layout = 0;
	__builtin_memset(&w->rule, 0, sizeof(w->rule));
	if (!id)
		return MSP_ERR_NO_FILE;
	if (!image)
		return MSP_ERR_NO_TABLE;
	w->image_layout = image->layout;
	if (!image->row_count)
		return MSP_ERR_NO_RULE;
	found = msp_find_row(w->slot, id);
	if (found < 0)
		return found == -1 ? MSP_ERR_NO_RULE : MSP_ERR_NO_TABLE;
	rule = found;
	r = bpf_map_lookup_elem(&rules, &rule);
	if (!r)
		return MSP_ERR_NO_TABLE;
	w->rule = *r;
	return r->cfa_kind == MSP_CFA_NONE ? MSP_ERR_NO_RULE : MSP_ERR_NONE;
}

int msp_lua_find_moved(__u32 slot);
int msp_lua_landing(__u32 slot);
int msp_lua_try_base(__u32 slot);
int msp_lua_known_base(__u32 slot);
int msp_lua_has_unwound(__u32 slot);
int msp_lua_read_function(__u32 slot);
int msp_lua_check_link(__u32 slot);
int msp_lua_leaf_base(__u32 slot);
int msp_lua_leaf_by_rule(__u32 slot);
int msp_lua_prove_g(__u32 slot, __u64 n);
int msp_lua_load_l(__u32 slot, __u64 n);
int msp_lua_find_base(__u32 slot, __u64 n);
int msp_lua_note_state(__u32 slot);
int msp_lua_mix_ir(__u32 slot);
int msp_lua_mix_snaps(__u32 slot);
int msp_lua_enter_trace(__u32 slot);
int msp_lua_enter_vm(__u32 slot);
int msp_lua_step(__u32 slot);
int msp_native_unwind(__u32 slot);

#include "unwind/walker.h"

/* ---- Samples ---- */

#if defined(__TARGET_ARCH_x86)

static MSP_INLINE int regs_are_user(const bpf_user_pt_regs_t *r)
{
	return (r->cs & 3) == 3;
}

/* entry_64.S: the number of the call, -1 after an exception or an interrupt. */
static MSP_INLINE int regs_in_syscall(const bpf_user_pt_regs_t *r, struct pt_regs *saved)
{
	return (__s64)r->orig_ax >= 0;
}

static MSP_INLINE void regs_set(struct msp_walk *w, const bpf_user_pt_regs_t *r)
{
	w->reg[MSP_X64_RAX] = r->ax;
	w->reg[MSP_X64_RDX] = r->dx;
	w->reg[MSP_X64_RCX] = r->cx;
	w->reg[MSP_X64_RBX] = r->bx;
	w->reg[MSP_X64_RSI] = r->si;
	w->reg[MSP_X64_RDI] = r->di;
	w->reg[MSP_X64_RBP] = r->bp;
	w->reg[MSP_X64_RSP] = r->sp;
	w->reg[MSP_X64_R8] = r->r8;
	w->reg[MSP_X64_R9] = r->r9;
	w->reg[MSP_X64_R10] = r->r10;
	w->reg[MSP_X64_R11] = r->r11;
	w->reg[MSP_X64_R12] = r->r12;
	w->reg[MSP_X64_R13] = r->r13;
	w->reg[MSP_X64_R14] = r->r14;
	w->reg[MSP_X64_R15] = r->r15;
	w->pc = r->ip;
	w->known = 0xffff;
	w->arch = MSP_ARCH_X86_64;
}

#elif defined(__TARGET_ARCH_arm64)

static MSP_INLINE int regs_are_user(const bpf_user_pt_regs_t *r)
{
	return (r->pstate & 0xf) == 0;
}

/* entry.S: the number of the call, -1 after an exception or an interrupt. */
static MSP_INLINE int regs_in_syscall(const bpf_user_pt_regs_t *r, struct pt_regs *saved)
{
	return BPF_CORE_READ(saved, syscallno) >= 0;
}

static MSP_INLINE void regs_set(struct msp_walk *w, const bpf_user_pt_regs_t *r)
{
	for (int i = 0; i < 31; i++)
		w->reg[i] = r->regs[i];
	w->reg[31] = r->sp;
	w->pc = r->pc;
	w->known = 0xffffffff;
	w->arch = MSP_ARCH_ARM64;
}

#endif

/*
 * The registers that a context begins with. The verifier takes a context only with constant
 * offsets and full words; the compiler would fold them into a base.
 */
static MSP_INLINE void regs_from_context(void *ctx, bpf_user_pt_regs_t *out)
{
	__u64 *to = (__u64 *)out;

#pragma unroll
	for (__u32 i = 0; i < sizeof(*out) / 8; i++)
		asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(to[i]) : "r"(ctx), "i"(i * 8));
}

/* Where the kernel has the user registers that it saved when this task entered it. */
static MSP_INLINE struct pt_regs *saved_regs(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id___msp, BPF_FUNC_task_pt_regs___msp))
		return (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	return BPF_CORE_READ(task, stack) + config.kernel_stack -
	       bpf_core_type_size(struct pt_regs);
}

/* The i-th kernel frame from kstack. Not 0: no room. */
__attribute__((noinline)) int msp_add_kernel_frame(__u32 slot, __u32 i)
{
	struct walk_slot *s = slot_get(slot);
	struct msp_raw_frame *f;

	if (!s || i >= MSP_MAX_KERNEL_FRAMES)
		return 1;
	f = emit_frame(&s->walk, MSP_RAW_KERNEL);
	if (!f)
		return 1;
	f->addr = s->kstack[i];
	if (i)
		f->flags |= MSP_RAWF_RETURN;
	return 0;
}

/* Kernel frames come first, leaf first. */
static MSP_INLINE void add_kernel_frames(void *ctx, struct walk_slot *s)
{
	long size = bpf_get_stack(ctx, s->kstack, MSP_MAX_KERNEL_FRAMES * 8, 0);

	for (int i = 0; i < MSP_MAX_KERNEL_FRAMES && i * 8 < size; i++)
		if (msp_add_kernel_frame(s->walk.slot, i))
			break;
}

static MSP_INLINE void send_event(__u32 kind, __u32 pid, __u64 addr)
{
	struct msp_event event = {.kind = kind, .pid = pid, .addr = addr};

	bpf_ringbuf_output(&ring, &event, sizeof(event), BPF_RB_FORCE_WAKEUP);
}

__u64 reported_ns; /* when a pc without a mapping was last reported */

/* A wake-up costs more than a sample: at most one in 10 ms. */
static MSP_INLINE void report_mapping(__u32 pid, __u64 addr)
{
	__u64 now = bpf_ktime_get_ns();

	if (now - reported_ns < 10000000)
		return;
	reported_ns = now;
	send_event(MSP_RECORD_MAPPING, pid, addr);
}

/* The record is built in place: its header overwrites what precedes the frames in the walk. */
_Static_assert(__builtin_offsetof(struct msp_walk, frame) >= sizeof(struct msp_sample),
	       "room for the header");

static MSP_INLINE void send_sample(struct walk_slot *s, __u64 pid_tgid, __u32 kernel_frames)
{
	struct msp_walk *w = &s->walk;
	struct msp_sample *h = (void *)((char *)w->frame - sizeof(*h));
	__u32 size = w->frame_count, error = w->error, has_vm = w->has_vm, ways = w->ways;
	__s32 vmstate = w->vmstate;

	if (size > MSP_MAX_FRAMES)
		size = MSP_MAX_FRAMES;
	h->kind = MSP_RECORD_SAMPLE;
	h->pid = pid_tgid >> 32;
	h->tid = pid_tgid;
	h->frame_count = size;
	h->error = error;
	h->vmstate = vmstate;
	h->has_vm = has_vm;
	h->kernel_frames = kernel_frames;
	h->parent = s->parent;
	h->ways = ways;
	h->time = s->began;
	bpf_get_current_comm(h->comm, sizeof(h->comm));
	size = sizeof(*h) + size * sizeof(struct msp_raw_frame);
	if (bpf_ringbuf_output(&ring, h, size, BPF_RB_NO_WAKEUP))
		count(MSP_COUNT_LOST);
	else
		count(MSP_COUNT_SAMPLES);
}

/* A subprogram of its own is verified once, not on every way that leads to it. */
__attribute__((noinline)) int msp_count_run_time(__u64 ns)
{
	__u32 key = 0, shift = 0, bucket;
	struct msp_run_times *times = bpf_map_lookup_elem(&run_times, &key);

	for (; ns >= 32 && shift < 32; shift++)
		ns >>= 1;
	bucket = shift * 16 + ns;
	if (bucket >= MSP_RUN_BUCKETS)
		bucket = MSP_RUN_BUCKETS - 1;
	if (times)
		times->count[bucket]++;
	return 0;
}

/* Some steps, not all at once: the verifier goes through every turn of a loop. Not 0: the walk is over. */
#define STEPS_AT_ONCE 32
MSP_SUB(walk_steps)
{
	for (int i = 0; i < STEPS_AT_ONCE; i++)
		if (walk_step(w))
			return MSP_STEP_DONE;
	return MSP_STEP_MORE;
}

/* Walks the user stack from the registers set. */
static MSP_INLINE void walk(struct msp_walk *w, const bpf_user_pt_regs_t *regs)
{
	regs_set(w, regs);
	/* A frame takes one step, the lower half of a vararg frame another. */
	for (int i = 0; i < (2 * MSP_MAX_FRAMES + 64) / STEPS_AT_ONCE; i++)
		if (MSP_CALL(w, walk_steps))
			return;
	walk_error(w, MSP_ERR_TRUNCATED);
}

/* Until it runs another program, a child that was forked has the mappings of its parent. */
static MSP_INLINE struct msp_bpf_process *find_parent(struct walk_slot *s, struct task_struct *task)
{
	struct task_struct *parent = BPF_CORE_READ(task, real_parent);
	struct file *exe = BPF_CORE_READ(task, mm, exe_file);
	__u32 pid = number_of(parent);
	struct msp_bpf_process *p;

	if (!pid || !exe || exe != BPF_CORE_READ(parent, mm, exe_file))
		return NULL;
	p = bpf_map_lookup_elem(&processes, &pid);
	if (!p || p->pending)
		return NULL;
	s->parent = pid;
	return p;
}

/* Looks the process up; 0: it is to be sampled. */
static MSP_INLINE int find_process(struct walk_slot *s, __u32 pid, struct task_struct *task)
{
	struct msp_bpf_process *p = bpf_map_lookup_elem(&processes, &pid), *parent = NULL;

	/* Not on the stack: Linux before 6.12 gives all subprograms 512 bytes together. */
	__builtin_memset(&s->process, 0, sizeof(s->process));
	s->process.pending = 1;
	s->first_mapping = s->mapping_count = 0;
	s->parent = 0;
	if (!p && !config.all)
		return -1;
	if (!p && !bpf_map_update_elem(&processes, &pid, &s->process, BPF_NOEXIST))
		send_event(MSP_RECORD_PROCESS, pid, 0);
	if (!p || p->pending)
		parent = find_parent(s, task);
	if (parent)
		p = parent;
	if (!p)
		return 0;
	s->process = *p;
	s->first_mapping = p->first_mapping;
	s->mapping_count = p->mapping_count;
	return 0;
}

/* 0: not of our pid namespace, or no process. */
static MSP_INLINE __u64 current_ids(struct task_struct *task)
{
	__u32 namespace = our_namespace(), tid;

	if (!namespace)
		return bpf_get_current_pid_tgid();
	tid = number_in(task, namespace);
	return tid ? (__u64)number_of(task) << 32 | tid : 0;
}

/* The stack that the registers at ctx are of, with the slot to itself. */
static MSP_INLINE int sample(void *ctx, __u32 slot, struct walk_slot *s)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 pid_tgid = current_ids(task);
	__u32 kernel_frames = 0;
	struct pt_regs *saved;
	int user;

	if (!pid_tgid || find_process(s, pid_tgid >> 32, task)) {
		count(MSP_COUNT_IGNORED);
		return 0;
	}
	s->began = bpf_ktime_get_ns();
	regs_from_context(ctx, &s->regs);
	user = regs_are_user(&s->regs);
	saved = user ? NULL : saved_regs(task);
	s->walk.slot = slot;
	walk_begin(&s->walk);
	if (!user && config.kernel) {
		add_kernel_frames(ctx, s);
		kernel_frames = s->walk.first_frame = s->walk.frame_count;
	}
	s->walk.exact = 1;
	if ((BPF_CORE_READ(task, flags) & PF_KTHREAD) || !BPF_CORE_READ(task, mm))
		; /* no user part */
	else if (s->process.pending)
		walk_error(&s->walk, MSP_ERR_NO_PROCESS);
	else if (!user && (bpf_probe_read_kernel(&s->regs, sizeof(s->regs), saved) ||
			   !regs_are_user(&s->regs)))
		walk_error(&s->walk, MSP_ERR_NO_USER_REGS);
	else {
		/* behind the call's instruction, which may be the function's last: as a return address */
		s->walk.exact = user || !regs_in_syscall(&s->regs, saved);
		walk(&s->walk, &s->regs);
	}
	if (s->walk.error == MSP_ERR_NO_MAPPING)
		report_mapping(pid_tgid >> 32, s->walk.look);
	send_sample(s, pid_tgid, kernel_frames);
	msp_count_run_time(bpf_ktime_get_ns() - s->began);
	return 0;
}

SEC("perf_event")
int msp_on_event(struct bpf_perf_event_data *ctx)
{
	__u32 slot = bpf_get_smp_processor_id() * MSP_SLOTS_A_CPU;
	struct walk_slot *s = slot_get(slot);

	if (!s) {
		count(MSP_COUNT_NO_SLOT);
		return 0;
	}
	return sample(ctx, slot, s);
}

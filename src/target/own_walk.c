/* SPDX-License-Identifier: MIT */
/*
 * The walker's host in a signal handler. Everything here is async-signal-safe: no lock, no
 * allocation, nothing of libc but memcpy(), memset() and system calls.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "target/own.h"

/* A frame takes one step, the lower half of a vararg frame another. */
#define STEPS (2 * MSP_MAX_FRAMES + 64)
#define STACK_REACH (1u << 20)

#if defined(__aarch64__)
#define ARCH MSP_ARCH_ARM64
#define STACK_POINTER 31
#else
#define ARCH MSP_ARCH_X86_64
#define STACK_POINTER 7
#endif

static struct own_slot *slot_of(const struct msp_walk *w)
{
	return (struct own_slot *)(uintptr_t)w->host;
}

/* ---- Memory ---- */

/* The kernel copies, and says so where it cannot: no fault, no signal. */
bool own_read(uint32_t pid, void *to, uint64_t addr, size_t size)
{
	struct iovec local = {.iov_base = to, .iov_len = size};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)addr, .iov_len = size};

	return syscall(SYS_process_vm_readv, pid, &local, 1ul, &remote, 1ul, 0ul) == (long)size;
}

/* The line at an address, read at its first use in a walk; NULL: not readable, or read enough. */
static const uint8_t *line_at(struct own_slot *slot, uint64_t addr)
{
	uint32_t i = addr / OWN_LINE % OWN_LINES;

	if (slot->line[i] != addr) {
		if (slot->reads >= slot->most_reads)
			return NULL;
		slot->reads++;
		slot->line[i] = 1;
		slot->used[i] = false;
		if (!own_read(slot->pid, slot->bytes[i], addr, OWN_LINE))
			return NULL;
		slot->line[i] = addr;
	}
	slot->used[i] = true;
	return slot->bytes[i];
}

/* The lines that the last walk used, neighbours as one piece. Returns the number of pieces. */
static unsigned long last_lines(struct own_slot *slot)
{
	unsigned long n = 0;

	for (uint32_t i = 0; i < OWN_LINES; i++) {
		bool next = n && i && slot->used[i - 1] &&
			    slot->line[i] == slot->line[i - 1] + OWN_LINE;

		if (!slot->used[i])
			continue;
		if (!next) {
			slot->local[n] = (struct iovec){.iov_base = slot->bytes[i]};
			slot->remote[n++].iov_base = (void *)(uintptr_t)slot->line[i];
		}
		slot->local[n - 1].iov_len += OWN_LINE;
		slot->remote[n - 1].iov_len = slot->local[n - 1].iov_len;
	}
	return n;
}

/*
 * A stack is much like the one before: its lines are read by one system call, which takes half as long
 * as one for each. It goes as far as they can be read, in their order.
 */
static void read_again(struct own_slot *slot)
{
	unsigned long n = last_lines(slot);
	long got =
		n ? syscall(SYS_process_vm_readv, slot->pid, slot->local, n, slot->remote, n, 0ul)
		  : 0;

	slot->reads += n != 0;
	for (uint32_t i = 0; i < OWN_LINES; i++) {
		if (!slot->used[i] || (got -= OWN_LINE) < 0)
			slot->line[i] = 1;
		slot->used[i] = false;
	}
}

static int read_lines(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct own_slot *slot = ctx;
	uint8_t *to = buf;

	while (size) {
		uint64_t in = addr % OWN_LINE;
		size_t part = OWN_LINE - in < size ? OWN_LINE - in : size;
		const uint8_t *line = line_at(slot, addr - in);

		if (!line)
			return MSP_E_FAULT;
		memcpy(to, line + in, part);
		to += part;
		addr += part;
		size -= part;
	}
	return 0;
}

static int host_read(struct msp_walk *w, void *dst, size_t size, uint64_t addr)
{
	return read_lines(slot_of(w), addr, dst, size);
}

/* ---- Tables ---- */

static const struct own_tables *tables_of(const struct msp_walk *w)
{
	return atomic_load_explicit(&slot_of(w)->tables, memory_order_relaxed);
}

static const struct msp_lj_layout *host_layout(struct msp_walk *w, uint32_t index)
{
	return index < MSP_LAYOUT_SLOTS ? tables_of(w)->layout[index] : NULL;
}

static const struct msp_host_vm *host_vms(const struct msp_walk *w, uint32_t *count)
{
	*count = tables_of(w)->vms;
	return tables_of(w)->vm;
}

static const struct msp_mapping *host_find(const struct msp_walk *w, uint64_t pc)
{
	const struct own_tables *t = tables_of(w);

	return msp_mapping_find(t->mapping, t->mappings, pc);
}

static const struct msp_unwind_table *host_table(const struct msp_walk *w, uint32_t image,
						 uint32_t *layout)
{
	const struct own_tables *t = tables_of(w);

	if (image >= t->images || !t->image[image].table)
		return NULL;
	*layout = t->image[image].layout;
	return t->image[image].table;
}

#include "target/lookup.h"
#include "unwind/walker.h"

#define host_memory(w) (&slot_of(w)->memory)
#include "target/leave.h"

/* ---- A handler's walk ---- */

/* A slot nobody has, or that a process had which this one was forked from. */
static struct own_slot *take_slot(struct msp_own *own, uint32_t pid)
{
	for (uint32_t i = 0; i < own->slots; i++) {
		struct own_slot *slot = &own->slot[i];
		uint32_t user = atomic_load(&slot->user);

		if (user != pid && atomic_compare_exchange_strong(&slot->user, &user, pid))
			return slot;
	}
	return NULL;
}

/* Says which tables it uses, and looks whether they were still those in use then. */
static void take_tables(struct msp_own *own, struct own_slot *slot)
{
	struct own_tables *tables;

	do {
		tables = atomic_load(&own->tables);
		atomic_store(&slot->tables, tables);
	} while (tables != atomic_load(&own->tables));
}

static void walk(struct own_slot *slot, const struct msp_registers *registers)
{
	struct msp_walk *w = &slot->walk;
	int done = MSP_STEP_MORE;

	walk_set_registers(w, registers);
	walk_begin(w);
	leave_nowhere(w, registers);
	for (int i = 0; i < STEPS && done == MSP_STEP_MORE && slot->reads < slot->most_reads; i++)
		done = walk_step(w);
	if (done == MSP_STEP_MORE)
		walk_error(w, MSP_ERR_TRUNCATED);
	else if (w->error && slot->reads >= slot->most_reads) {
		w->error = MSP_ERR_TRUNCATED;
		w->frame[w->frame_count - 1].pos = MSP_ERR_TRUNCATED;
	}
}

/* What there is room for, with the mark if it is not whole. */
static size_t give(struct msp_walk *w, struct msp_raw_frame *frames, size_t room)
{
	size_t count = w->frame_count;

	if (count > room) {
		w->frame_count = (uint32_t)(room ? room - 1 : 0);
		walk_error(w, MSP_ERR_TRUNCATED);
		count = room;
	}
	memcpy(frames, w->frame, count * sizeof(*frames));
	return count;
}

/* Of the thread that the slot had last? Stacks are not that close to each other. */
static bool is_near(const struct own_slot *slot, uint64_t sp)
{
	return sp - slot->sp < STACK_REACH || slot->sp - sp < STACK_REACH;
}

static void prepare(struct own_slot *slot, uint32_t pid, uint32_t most_reads, uint64_t sp)
{
	slot->pid = pid;
	slot->reads = 0;
	slot->most_reads = most_reads;
	if (!is_near(slot, sp))
		memset(slot->used, 0, sizeof(slot->used));
	slot->sp = sp;
	read_again(slot);
	slot->memory = (struct msp_memory){.read = read_lines, .ctx = slot, .running = true};
	slot->walk.arch = ARCH;
	slot->walk.host = (uintptr_t)slot;
}

/* Its state: while the VM is busy with itself in LuaJIT's own numbers, whatever a fork has. */
static int32_t vmstate_of(struct msp_walk *w)
{
	for (uint32_t i = 0; i < w->frame_count; i++) {
		const struct msp_raw_frame *f = &w->frame[i];
		const struct msp_lj_layout *y =
			f->kind == MSP_RAW_STATE ? host_layout(w, f->image) : NULL;

		if (y)
			return lua_own_vmstate(w, y);
	}
	return w->vmstate;
}

int msp_own_unwind(struct msp_own *own, const struct msp_registers *registers,
		   struct msp_raw_frame *frames, size_t room, struct msp_self_result *result)
{
	uint32_t pid = (uint32_t)getpid();
	struct own_slot *slot = take_slot(own, pid);
	size_t count;

	if (!slot)
		return MSP_E_BUSY;
	take_tables(own, slot);
	prepare(slot, pid, own->most_reads, registers->reg[STACK_POINTER]);
	walk(slot, registers);
	count = give(&slot->walk, frames, room);
	if (result)
		*result = (struct msp_self_result){.reason = slot->walk.error,
						   .has_vm = slot->walk.has_vm,
						   .vmstate = vmstate_of(&slot->walk),
						   .reads = slot->reads};
	atomic_store(&slot->tables, NULL);
	atomic_store(&slot->user, 0);
	return (int)count;
}

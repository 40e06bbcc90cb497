/* SPDX-License-Identifier: MIT */
/*
 * Notes of a core file (elf(5); linux/elfcore.h): registers, names, the signal.
 * Each note is looked at alone: thousands of threads have megabytes of other
 * registers, which are passed over.
 */
#include "target/core_internal.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "elf/bytes.h"
#include "moonspy/moonspy.h"
#include "unwind/tables.h"

/* struct elf_prstatus, elf_prpsinfo and siginfo of 64-bit Linux: where things are. */
#define PRSTATUS_SIGNAL 12
#define PRSTATUS_PID 32
#define PRSTATUS_REGS 112
#define PRSTATUS_TAIL 8 /* pr_fpvalid and padding */
#define PRPSINFO_PID 24
#define PRPSINFO_COMM 40
#define PRPSINFO_ARGS 56
#define PRPSINFO_SIZE 136
#define SIGINFO_CODE 8
#define SIGINFO_ADDRESS 16
#define SIGINFO_SIZE 128
#define X64_ORIG_RAX 15 /* a word of the register set: the system call's number, -1: none */

#define NOTE_MAX 2048 /* of those that are read whole */
#define AUXV_MAX (64 << 10)
#define FILES_BACK 64

struct note {
	uint32_t type;
	uint64_t offset; /* of the content */
	uint32_t size;
};

/* A word of memory in the registers of a thread in a system call; arm64 does not tell. */
static bool in_call(const struct msp_core *core, const uint8_t *regs)
{
	return core->arch == MSP_ARCH_X86_64 && (int64_t)msp_get64(regs + 8 * X64_ORIG_RAX) >= 0;
}

static int add_thread(struct msp_core *core, const uint8_t *status, uint32_t size)
{
	struct msp_core_thread *thread, *bigger;
	size_t room;

	if (size < PRSTATUS_REGS + PRSTATUS_TAIL || core->threads == MSP_CORE_THREADS_MAX)
		return 0;
	if (core->threads == core->thread_room) {
		room = core->thread_room ? core->thread_room * 2 : 16;
		bigger = reallocarray(core->thread, room, sizeof(*bigger));
		if (!bigger)
			return MSP_E_NOMEM;
		core->thread = bigger;
		core->thread_room = room;
	}
	thread = &core->thread[core->threads++];
	memset(thread, 0, sizeof(*thread));
	thread->tid = (int32_t)msp_get32(status + PRSTATUS_PID);
	thread->result =
		msp_registers_from_regset(core->arch, status + PRSTATUS_REGS,
					  size - PRSTATUS_REGS - PRSTATUS_TAIL, &thread->regs);
	thread->in_call = thread->result == 0 && in_call(core, status + PRSTATUS_REGS);
	if (core->threads > 1)
		return 0;
	/* Of the first thread: the kernel writes the one first that the signal hit. */
	core->signal.number = (int16_t)(status[PRSTATUS_SIGNAL] | status[PRSTATUS_SIGNAL + 1] << 8);
	core->signal.tid = thread->tid;
	if (!core->prpsinfo_seen)
		core->pid = thread->tid;
	return 0;
}

static void take_process(struct msp_core *core, const uint8_t *info, uint32_t size)
{
	if (size < PRPSINFO_SIZE || core->prpsinfo_seen)
		return;
	core->prpsinfo_seen = true;
	core->pid = (int32_t)msp_get32(info + PRPSINFO_PID);
	memcpy(core->comm, info + PRPSINFO_COMM, sizeof(core->comm) - 1);
	memcpy(core->command, info + PRPSINFO_ARGS, sizeof(core->command) - 1);
	for (size_t i = strlen(core->command); i && core->command[i - 1] == ' '; i--)
		core->command[i - 1] = 0;
}

/* si_code above 0: from the kernel; for these signals it tells which access it was. */
static bool has_address(int number, int code)
{
	return code > 0 && code < 128 &&
	       (number == 4 || number == 5 || number == 7 || number == 8 || number == 11);
}

static void take_signal(struct msp_core *core, const uint8_t *info, uint32_t size)
{
	struct msp_core_signal *signal = &core->signal;
	int number;

	if (size < SIGINFO_SIZE || core->siginfo_seen)
		return;
	core->siginfo_seen = true;
	number = (int32_t)msp_get32(info);
	if (number != signal->number || !number)
		return;
	signal->code = (int32_t)msp_get32(info + SIGINFO_CODE);
	signal->has_address = has_address(number, signal->code);
	if (signal->has_address)
		signal->address = msp_get64(info + SIGINFO_ADDRESS);
	else if (signal->code <= 0)
		signal->sender = (int32_t)msp_get32(info + SIGINFO_ADDRESS);
}

static int take_auxv(struct msp_core *core, const struct note *note)
{
	uint8_t *bytes;
	int r = 0;

	if (note->size > AUXV_MAX)
		return 0;
	bytes = malloc(note->size + 1);
	if (!bytes)
		return MSP_E_NOMEM;
	if (core_read_file(core, note->offset, bytes, note->size))
		goto out;
	for (uint32_t i = 0; i + 16 <= note->size; i += 16) {
		uint64_t value = msp_get64(bytes + i + 8);

		switch (msp_get64(bytes + i)) {
		case AT_SYSINFO_EHDR:
			core->vdso = value;
			break;
		case AT_ENTRY:
			core->entry = value;
			break;
		case AT_PHDR:
			core->phdr = value;
			break;
		case AT_PHNUM:
			core->phnum = value;
			break;
		case AT_EXECFN:
			core->execfn = value;
			break;
		case AT_RANDOM: /* 16 bytes that the kernel put onto the main thread's stack */
			core->stack = value;
			break;
		}
	}
out:
	free(bytes);
	return r;
}

static int compare_lines(const void *a, const void *b)
{
	const struct core_line *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

void core_sort_lines(struct msp_core *core)
{
	if (core->lines)
		qsort(core->line, core->lines, sizeof(*core->line), compare_lines);
}

/*
 * Files are told apart by name. The lines of one follow each other, or nearly so;
 * one that is taken for two is only looked for twice.
 */
static uint32_t file_of(struct msp_core *core, char *name)
{
	size_t last = core->files > FILES_BACK ? core->files - FILES_BACK : 0;

	for (size_t i = core->files; i-- > last;)
		if (!strcmp(core->file[i].name, name))
			return i;
	core->file[core->files] = (struct core_file){.name = name, .fd = -1};
	return core->files++;
}

/* count, page size, then count times start, end, offset in pages; then the names. */
static int take_lines(struct msp_core *core, uint8_t *bytes, uint32_t size)
{
	uint64_t count = msp_get64(bytes), page = msp_get64(bytes + 8);
	char *name, *end = (char *)bytes + size, *zero;

	if (count > (size - 16) / 25 || !page || page > 1 << 30)
		return MSP_E_FORMAT;
	core->line = calloc(count + 1, sizeof(*core->line));
	core->file = calloc(count + 1, sizeof(*core->file));
	if (!core->line || !core->file)
		return MSP_E_NOMEM;
	name = (char *)bytes + 16 + count * 24;
	for (uint64_t i = 0; i < count; i++, name = zero + 1) {
		const uint8_t *at = bytes + 16 + i * 24;
		struct core_line line = {.start = msp_get64(at), .end = msp_get64(at + 8)};

		zero = memchr(name, 0, end - name);
		if (!zero)
			break;
		if (line.start >= line.end || msp_get64(at + 16) > (UINT64_MAX >> 1) / page)
			continue;
		line.offset = msp_get64(at + 16) * page;
		line.file = file_of(core, name);
		core->line[core->lines++] = line;
	}
	core_sort_lines(core);
	return 0;
}

static int take_files(struct msp_core *core, const struct note *note)
{
	uint8_t *bytes;
	int r;

	if (core->file_note_seen || note->size < 16 || note->size > MSP_CORE_FILE_NOTE_MAX)
		return 0;
	bytes = malloc(note->size);
	if (!bytes)
		return MSP_E_NOMEM;
	r = core_read_file(core, note->offset, bytes, note->size);
	if (r) {
		free(bytes);
		return 0;
	}
	core->file_note_seen = true;
	core->file_note = (char *)bytes;
	return take_lines(core, bytes, note->size);
}

static int take_note(struct msp_core *core, const struct note *note)
{
	uint8_t bytes[NOTE_MAX];

	if (note->type == NT_AUXV)
		return take_auxv(core, note);
	if (note->type == NT_FILE)
		return take_files(core, note);
	if (note->type != NT_PRSTATUS && note->type != NT_PRPSINFO && note->type != NT_SIGINFO)
		return 0;
	if (note->size > sizeof(bytes) || core_read_file(core, note->offset, bytes, note->size))
		return 0;
	if (note->type == NT_PRSTATUS)
		return add_thread(core, bytes, note->size);
	if (note->type == NT_PRPSINFO)
		take_process(core, bytes, note->size);
	else
		take_signal(core, bytes, note->size);
	return 0;
}

int core_read_notes(struct msp_core *core, uint64_t offset, uint64_t size)
{
	struct {
		uint32_t name_size, size, type;
		char name[8];
	} head;
	uint64_t end = offset + size, next;
	struct note note;
	int r;

	if (end < offset)
		return MSP_E_FORMAT;
	while (end - offset >= sizeof(head)) {
		r = core_read_file(core, offset, &head, sizeof(head));
		if (r)
			return r;
		note = (struct note){.type = head.type, .size = head.size};
		note.offset = offset + 12 + ((head.name_size + 3ull) & ~3ull);
		next = note.offset + ((head.size + 3ull) & ~3ull);
		if (note.offset + note.size > end)
			return MSP_E_FORMAT;
		if (head.name_size == 5 && !memcmp(head.name, "CORE", 5)) {
			r = take_note(core, &note);
			if (r)
				return r;
		}
		if (next >= end)
			return 0;
		offset = next;
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* A dump as text. */
#include <stdio.h>
#include <string.h>

#include "cli/dump.h"
#include "output/output.h"

static void print_frame(struct dump_writer *writer, const struct dump_frame *frame)
{
	char text[1024];

	(void)writer;
	msp_frame_text(frame->frame, true, text, sizeof(text));
	fputs("    ", stdout);
	cli_put_text(text);
	putchar('\n');
	if (frame->variables)
		dump_variables_text(frame);
}

static void print_thread(struct dump_writer *writer, const struct msp_thread *thread)
{
	uint32_t trace;
	enum dump_state state = dump_state_of(thread, &trace);

	printf("Thread %d", (int)thread->tid);
	if (thread->name[0]) {
		printf(" (");
		cli_put_text(thread->name);
		putchar(')');
	}
	printf(": %s", dump_state_text(state));
	if (trace)
		printf(" %u", trace);
	if (thread->result < 0)
		printf(" (%s)", thread->result == MSP_E_BUSY ? "in uninterruptible sleep"
							     : msp_strerror(thread->result));
	putchar('\n');
	dump_frames(writer, thread->backtrace, print_frame);
}

static void print_coroutine(struct dump_writer *writer, const struct msp_coroutine *coroutine)
{
	printf("%s 0x%llx: %s", coroutine->main ? "Main coroutine" : "Coroutine",
	       (unsigned long long)coroutine->l, dump_coroutine_status(coroutine->status));
	if (coroutine->tid)
		printf(", on thread %d", (int)coroutine->tid);
	if (coroutine->stale)
		printf(", perhaps on a stack that cannot be read: as it was at its last call");
	putchar('\n');
	dump_frames(writer, coroutine->backtrace, print_frame);
}

static void print_coroutines(struct dump_writer *writer)
{
	const struct msp_dump_info *info = writer->info;
	uint64_t g = 0;

	for (size_t i = 0; i < info->coroutines; i++) {
		const struct msp_coroutine *coroutine = msp_dump_coroutine(writer->dump, i);

		if (writer->vms > 1 && (!i || coroutine->g != g))
			printf("VM 0x%llx\n", (unsigned long long)coroutine->g);
		g = coroutine->g;
		print_coroutine(writer, coroutine);
	}
	if (info->left_out)
		printf("%llu more coroutines\n", (unsigned long long)info->left_out);
	if (info->broken_heaps)
		printf("[error: the list of objects is broken: there may be more coroutines]\n");
}

static bool same_line(const struct msp_vm_info *a, const struct msp_vm_info *b)
{
	return a->build == b->build && a->proved && b->proved;
}

/* A line a VM; those that would read the same share one. */
static void print_vms(const struct dump_writer *writer)
{
	const struct msp_vm_info *vm = writer->vm;
	char build[256], proof[256];

	for (size_t i = 0; i < writer->vms; i++) {
		size_t alike = 1, first = 0;

		while (first < i && !same_line(&vm[i], &vm[first]))
			first++;
		if (first < i)
			continue;
		for (size_t j = i + 1; j < writer->vms; j++)
			alike += same_line(&vm[i], &vm[j]);
		printf("%s, %s",
		       cli_build_text(msp_target_build(writer->live->target, vm[i].build), build,
				      sizeof(build)),
		       cli_proof_text(writer->live, i, proof, sizeof(proof)));
		if (alike > 1)
			printf(", %zu VMs", alike);
		putchar('\n');
	}
}

static void print_signal(const struct msp_target_info *info)
{
	char name[DUMP_SIGNAL_SIZE];
	const char *text = dump_signal_name(info->signal, name);
	const char *reason = dump_signal_reason(info->signal, info->code);

	if (!info->signal)
		return;
	printf("Signal %d", info->signal);
	if (text)
		printf(" (%s)", text);
	printf(" in thread %d", (int)info->signal_tid);
	if (info->has_address)
		printf(" at address 0x%llx", (unsigned long long)info->address);
	if (reason)
		printf(": %s", reason);
	else if (info->signal_sender)
		printf(": sent by process %d", (int)info->signal_sender);
	putchar('\n');
}

void dump_text(struct dump_writer *writer)
{
	const struct msp_target_info *info = msp_target_info(writer->live->target);

	if (writer->written)
		putchar('\n');
	printf("%s %d: ", writer->live->core ? "Core of process" : "Process",
	       (int)writer->live->pid);
	cli_put_text(*info->command ? info->command : info->name);
	putchar('\n');
	if (writer->live->core)
		print_signal(info);
	print_vms(writer);
	for (size_t i = 0; i < writer->info->threads; i++)
		print_thread(writer, msp_dump_thread(writer->dump, i));
	print_coroutines(writer);
	if (!writer->live->core)
		printf("Stopped for %.2f ms\n", writer->info->stopped_ns / 1e6);
}

/* SPDX-License-Identifier: MIT */
/* A dump as text. */
#include <stdio.h>
#include <string.h>

#include "cli/dump.h"
#include "moonspy/moonspy.h"
#include "output/output.h"

static void print_frame(struct dump_writer *writer, struct cli_live *live,
			const struct dump_frame *frame)
{
	char text[1024];

	(void)writer;
	msp_frame_text(frame->frame, true, text, sizeof(text));
	fputs("    ", stdout);
	cli_put_text(text);
	putchar('\n');
	if (frame->variables)
		dump_variables_text(live, frame);
}

static void print_thread(struct dump_writer *writer, struct cli_live *live,
			 const struct msp_thread_stack *thread)
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
	dump_frames(writer, live,
		    &(struct dump_stack){thread->frames, thread->variables, thread->count},
		    print_frame);
}

static void print_coroutine(struct dump_writer *writer, struct cli_live *live,
			    const struct msp_coroutine_stack *coroutine)
{
	printf("%s 0x%llx: %s", coroutine->main ? "Main coroutine" : "Coroutine",
	       (unsigned long long)coroutine->l, dump_coroutine_status(coroutine->status));
	if (coroutine->tid)
		printf(", on thread %d", (int)coroutine->tid);
	if (coroutine->stale)
		printf(", perhaps on a stack that cannot be read: as it was at its last call");
	putchar('\n');
	dump_frames(writer, live,
		    &(struct dump_stack){coroutine->frames, coroutine->variables, coroutine->count},
		    print_frame);
}

static void print_coroutines(struct dump_writer *writer, struct cli_live *live,
			     const struct msp_snapshot *snapshot)
{
	size_t vms;

	msp_space_vms(live->space, &vms);
	for (size_t i = 0; i < snapshot->coroutines; i++) {
		uint64_t g = snapshot->coroutine[i].g;

		if (vms > 1 && (!i || snapshot->coroutine[i - 1].g != g))
			printf("VM 0x%llx\n", (unsigned long long)g);
		print_coroutine(writer, live, &snapshot->coroutine[i]);
	}
	if (snapshot->left_out)
		printf("%llu more coroutines\n", (unsigned long long)snapshot->left_out);
	if (snapshot->broken_heaps)
		printf("[error: the list of objects is broken: there may be more coroutines]\n");
}

static bool same_line(const struct msp_vm *a, const struct msp_vm *b)
{
	return !a->gone && !b->gone && a->image == b->image && a->proof.proved && b->proof.proved;
}

/* A line a VM; those that would read the same share one. */
static void print_vms(const struct cli_live *live)
{
	char build[256], proof[256];
	size_t count, alike;
	const struct msp_vm *vms = msp_space_vms(live->space, &count);

	for (size_t i = 0; i < count; i++) {
		bool shown = vms[i].gone;

		for (size_t j = 0; j < i; j++)
			shown |= same_line(&vms[i], &vms[j]);
		if (shown)
			continue;
		alike = 1;
		for (size_t j = i + 1; j < count; j++)
			alike += same_line(&vms[i], &vms[j]);
		printf("%s, %s",
		       cli_build_text(msp_images_get(live->images, vms[i].image), build,
				      sizeof(build)),
		       cli_proof_text(&vms[i].proof, proof, sizeof(proof)));
		if (alike > 1)
			printf(", %zu VMs", alike);
		putchar('\n');
	}
}

static void print_signal(const struct msp_core_signal *signal)
{
	char name[DUMP_SIGNAL_SIZE];
	const char *text = dump_signal_name(signal->number, name);
	const char *reason = dump_signal_reason(signal);

	if (!signal->number)
		return;
	printf("Signal %d", signal->number);
	if (text)
		printf(" (%s)", text);
	printf(" in thread %d", (int)signal->tid);
	if (signal->has_address)
		printf(" at address 0x%llx", (unsigned long long)signal->address);
	if (reason)
		printf(": %s", reason);
	else if (signal->sender)
		printf(": sent by process %d", (int)signal->sender);
	putchar('\n');
}

void dump_text(struct dump_writer *writer, struct cli_live *live,
	       const struct msp_snapshot *snapshot)
{
	const char *command = cli_live_command(live);

	if (writer->written)
		putchar('\n');
	printf("%s %d: ", live->core ? "Core of process" : "Process", (int)live->pid);
	cli_put_text(*command ? command : cli_live_name(live));
	putchar('\n');
	if (live->core)
		print_signal(msp_core_signal(live->core));
	print_vms(live);
	for (size_t i = 0; i < snapshot->count; i++)
		print_thread(writer, live, &snapshot->thread[i]);
	print_coroutines(writer, live, snapshot);
	if (!live->core)
		printf("Stopped for %.2f ms\n", snapshot->stopped_ns / 1e6);
}

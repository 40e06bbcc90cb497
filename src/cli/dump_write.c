/* SPDX-License-Identifier: MIT */
/* Dumps as text and as JSON (docs/formats.md, "Dump"). */
#include "cli/dump.h"

#include <stdio.h>

#include "moonspy/moonspy.h"
#include "output/output.h"

const char *dump_state_name(enum dump_state state)
{
	static const char *const names[] = {
#define _(id, name, text) name,
		DUMP_STATES(_)
#undef _
	};

	return names[state];
}

const char *dump_state_text(enum dump_state state)
{
	static const char *const texts[] = {
#define _(id, name, text) text,
		DUMP_STATES(_)
#undef _
	};

	return texts[state];
}

static enum dump_state vm_state(const struct msp_raw_frame *leaf, uint32_t *trace)
{
	switch (leaf->kind) {
	case MSP_RAW_STATE:
		return leaf->pos == MSP_STATE_GC    ? DUMP_STATE_GC
		       : leaf->pos == MSP_STATE_JIT ? DUMP_STATE_COMPILER
						    : DUMP_STATE_EXIT;
	case MSP_RAW_VM:
		*trace = leaf->trace;
		return leaf->flags & MSP_RAWF_JIT ? DUMP_STATE_TRACE : DUMP_STATE_LUA;
	default:
		return DUMP_STATE_C;
	}
}

enum dump_state dump_state_of(const struct msp_thread_stack *thread, uint32_t *trace)
{
	bool waits = thread->state == 'S' || thread->state == 'D';

	*trace = 0;
	if (thread->result < 0)
		return DUMP_STATE_UNREADABLE;
	if (thread->state == 'T')
		return DUMP_STATE_STOPPED;
	for (size_t i = 0; i < thread->count; i++) {
		const struct msp_raw_frame *f = &thread->frames[i];

		/* The VM's busy state stands below the C frames that work for it. */
		if (f->kind != MSP_RAW_VM && f->kind != MSP_RAW_STATE)
			continue;
		if (f->kind == MSP_RAW_VM && i > 0)
			return waits ? DUMP_STATE_LUA_WAITING : DUMP_STATE_C;
		return vm_state(f, trace);
	}
	return waits ? DUMP_STATE_WAITING : DUMP_STATE_RUNNING;
}

void dump_frames(const struct msp_options *options, struct cli_live *live,
		 const struct msp_thread_stack *thread,
		 void (*each)(void *ctx, const struct msp_frame *frame), void *ctx)
{
	struct msp_frame frame;

	for (size_t i = 0; i < thread->count; i++) {
		if (msp_symbolizer_frame(live->symbols, thread->frames, thread->count, i, &frame) >
		    0)
			continue;
		if (frame.vm && !options->view.vm_frames)
			continue;
		if (!frame.certain && options->view.certain)
			continue;
		each(ctx, &frame);
	}
}

/* ---- Text ---- */

static void print_frame(void *ctx, const struct msp_frame *frame)
{
	char text[1024];

	msp_frame_text(frame, true, text, sizeof(text));
	fputs("    ", stdout);
	cli_put_text(text);
	putchar('\n');
}

static void print_thread(struct dump_writer *writer, struct cli_live *live,
			 const struct msp_thread_stack *thread)
{
	uint32_t trace;
	enum dump_state state = dump_state_of(thread, &trace);

	printf("Thread %d (", (int)thread->tid);
	cli_put_text(thread->name);
	printf("): %s", dump_state_text(state));
	if (trace)
		printf(" %u", trace);
	if (thread->result < 0)
		printf(" (%s)", thread->result == MSP_E_BUSY ? "in uninterruptible sleep"
							     : msp_strerror(thread->result));
	putchar('\n');
	dump_frames(writer->options, live, thread, print_frame, NULL);
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

static void print_process(struct dump_writer *writer, struct cli_live *live,
			  const struct msp_snapshot *snapshot)
{
	const char *command = msp_process_cmdline(live->process);

	if (writer->written)
		putchar('\n');
	printf("Process %d: ", (int)live->pid);
	cli_put_text(*command ? command : msp_process_comm(live->process));
	putchar('\n');
	print_vms(live);
	for (size_t i = 0; i < snapshot->count; i++)
		print_thread(writer, live, &snapshot->thread[i]);
	printf("Stopped for %.2f ms\n", snapshot->stopped_ns / 1e6);
}

/* ---- JSON ---- */

static void put_frame(void *ctx, const struct msp_frame *frame)
{
	msp_json_frame(ctx, frame);
}

static void put_text_member(struct msp_json *json, const char *key, const char *text)
{
	msp_json_key(json, key);
	msp_json_string(json, text);
}

static const char *reason_text(int reason)
{
	static const char *const texts[] = {
#define _(id, text) text,
		MSP_ERROR_REASONS(_)
#undef _
	};

	return reason > 0 && reason < MSP_ERROR_REASON_COUNT ? texts[reason] : NULL;
}

static void put_thread(struct dump_writer *writer, struct cli_live *live,
		       const struct msp_thread_stack *thread)
{
	struct msp_json *json = &writer->json;
	uint32_t trace;
	enum dump_state state = dump_state_of(thread, &trace);

	msp_json_object(json);
	msp_json_key(json, "tid");
	msp_json_int(json, thread->tid);
	put_text_member(json, "name", thread->name);
	put_text_member(json, "state", dump_state_name(state));
	msp_json_key(json, "trace");
	if (trace)
		msp_json_uint(json, trace);
	else
		msp_json_null(json);
	msp_json_key(json, "whole");
	msp_json_bool(json, !thread->error && thread->result == 0);
	put_text_member(json, "error",
			thread->result < 0 ? msp_strerror(thread->result)
					   : reason_text(thread->error));
	msp_json_key(json, "stack");
	msp_json_array(json);
	dump_frames(writer->options, live, thread, put_frame, json);
	msp_json_end(json);
	msp_json_end(json);
}

static void put_vm(struct msp_json *json, struct cli_live *live, const struct msp_vm *vm)
{
	const struct msp_image_entry *entry = msp_images_get(live->images, vm->image);
	const struct msp_lj_layout *layout = msp_lj_build_layout(entry->build);

	msp_json_object(json);
	msp_json_key(json, "g");
	msp_json_hex(json, vm->g);
	put_text_member(json, "version", msp_lj_build_version(entry->build));
	put_text_member(json, "object", cli_base_name(msp_image_name(entry->image)));
	put_text_member(json, "arch", cli_arch_name(msp_image_arch(entry->image)));
	msp_json_key(json, "gc64");
	msp_json_bool(json, layout->gc64);
	msp_json_key(json, "jit");
	msp_json_bool(json, layout->jit);
	msp_json_key(json, "proved");
	msp_json_bool(json, vm->proof.proved);
	msp_json_end(json);
}

static void put_process(struct dump_writer *writer, struct cli_live *live,
			const struct msp_snapshot *snapshot)
{
	struct msp_json *json = &writer->json;
	const struct msp_vm *vms;
	size_t count;

	msp_json_key(json, "process");
	msp_json_object(json);
	msp_json_key(json, "pid");
	msp_json_int(json, live->pid);
	put_text_member(json, "name", msp_process_comm(live->process));
	put_text_member(json, "command", msp_process_cmdline(live->process));
	msp_json_end(json);
	msp_json_key(json, "vms");
	msp_json_array(json);
	vms = msp_space_vms(live->space, &count);
	for (size_t i = 0; i < count; i++)
		if (!vms[i].gone)
			put_vm(json, live, &vms[i]);
	msp_json_end(json);
	msp_json_key(json, "threads");
	msp_json_array(json);
	for (size_t i = 0; i < snapshot->count; i++)
		put_thread(writer, live, &snapshot->thread[i]);
	msp_json_end(json);
	msp_json_key(json, "coroutines");
	msp_json_array(json);
	msp_json_end(json);
	msp_json_key(json, "stopped_us");
	msp_json_uint(json, (snapshot->stopped_ns + 999) / 1000);
}

/* ---- Both ---- */

void dump_begin(struct dump_writer *writer, bool many)
{
	struct msp_json *json = &writer->json;

	writer->many = many;
	json->buffer.out = stdout;
	if (!writer->options->json || !many)
		return;
	msp_json_object(json);
	msp_json_key(json, "schema");
	msp_json_uint(json, 1);
	put_text_member(json, "type", "dumps");
	msp_json_key(json, "processes");
	msp_json_array(json);
}

int dump_process(struct dump_writer *writer, struct cli_live *live,
		 const struct msp_snapshot *snapshot)
{
	int broken = 0;

	for (size_t i = 0; i < snapshot->count; i++)
		broken += snapshot->thread[i].error || snapshot->thread[i].result < 0;
	if (!writer->options->json) {
		print_process(writer, live, snapshot);
	} else {
		msp_json_object(&writer->json);
		if (!writer->many) {
			msp_json_key(&writer->json, "schema");
			msp_json_uint(&writer->json, 1);
			put_text_member(&writer->json, "type", "dump");
		}
		put_process(writer, live, snapshot);
		msp_json_end(&writer->json);
	}
	writer->written++;
	return broken;
}

int dump_end(struct dump_writer *writer)
{
	if (!writer->options->json)
		return 0;
	if (writer->many) {
		msp_json_end(&writer->json);
		msp_json_end(&writer->json);
	} else if (!writer->written) {
		return 0;
	}
	return msp_json_finish(&writer->json);
}

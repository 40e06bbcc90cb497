/* SPDX-License-Identifier: MIT */
/* A dump as JSON (docs/formats.md, "Dump"). */
#include <string.h>

#include "cli/dump.h"
#include "moonspy/moonspy.h"

static void put_frame(struct dump_writer *writer, struct cli_live *live,
		      const struct dump_frame *frame)
{
	msp_json_frame_open(&writer->json, frame->frame);
	if (frame->variables)
		dump_variables_json(&writer->json, live, frame);
	msp_json_end(&writer->json);
}

static void put_text_member(struct msp_json *json, const char *key, const char *text)
{
	msp_json_key(json, key);
	msp_json_string(json, text);
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
	put_text_member(json, "name", *thread->name ? thread->name : NULL);
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
					   : dump_error_text(thread->error));
	msp_json_key(json, "stack");
	msp_json_array(json);
	dump_frames(writer, live,
		    &(struct dump_stack){thread->frames, thread->variables, thread->count},
		    put_frame);
	msp_json_end(json);
	msp_json_end(json);
}

static void put_coroutine(struct dump_writer *writer, struct cli_live *live,
			  const struct msp_coroutine_stack *coroutine)
{
	struct msp_json *json = &writer->json;

	msp_json_object(json);
	msp_json_key(json, "g");
	msp_json_hex(json, coroutine->g);
	msp_json_key(json, "address");
	msp_json_hex(json, coroutine->l);
	msp_json_key(json, "main");
	msp_json_bool(json, coroutine->main);
	put_text_member(json, "status", dump_coroutine_status(coroutine->status));
	msp_json_key(json, "tid");
	if (coroutine->tid)
		msp_json_int(json, coroutine->tid);
	else
		msp_json_null(json);
	msp_json_key(json, "stale");
	msp_json_bool(json, coroutine->stale);
	put_text_member(json, "error", dump_error_text(coroutine->error));
	msp_json_key(json, "stack");
	msp_json_array(json);
	dump_frames(writer, live,
		    &(struct dump_stack){coroutine->frames, coroutine->variables, coroutine->count},
		    put_frame);
	msp_json_end(json);
	msp_json_end(json);
}

static void put_coroutines(struct dump_writer *writer, struct cli_live *live,
			   const struct msp_snapshot *snapshot)
{
	struct msp_json *json = &writer->json;

	msp_json_key(json, "coroutines");
	msp_json_array(json);
	for (size_t i = 0; i < snapshot->coroutines; i++)
		put_coroutine(writer, live, &snapshot->coroutine[i]);
	msp_json_end(json);
	msp_json_key(json, "coroutines_left_out");
	msp_json_uint(json, snapshot->left_out);
	msp_json_key(json, "coroutines_complete");
	msp_json_bool(json, !snapshot->left_out && !snapshot->broken_heaps);
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

static void put_signal(struct msp_json *json, const struct msp_core_signal *signal)
{
	char name[DUMP_SIGNAL_SIZE];

	msp_json_key(json, "signal");
	if (!signal->number) {
		msp_json_null(json);
		return;
	}
	msp_json_object(json);
	msp_json_key(json, "number");
	msp_json_int(json, signal->number);
	put_text_member(json, "name", dump_signal_name(signal->number, name));
	msp_json_key(json, "code");
	msp_json_int(json, signal->code);
	put_text_member(json, "reason", dump_signal_reason(signal));
	msp_json_key(json, "tid");
	msp_json_int(json, signal->tid);
	msp_json_key(json, "address");
	if (signal->has_address)
		msp_json_hex(json, signal->address);
	else
		msp_json_null(json);
	msp_json_key(json, "sender");
	if (signal->sender)
		msp_json_int(json, signal->sender);
	else
		msp_json_null(json);
	msp_json_end(json);
}

static void put_gaps(struct msp_json *json, struct msp_core *core)
{
	static const char *const kinds[] = {[MSP_CORE_GAP_FILE] = "file",
					    [MSP_CORE_GAP_MEMORY] = "memory",
					    [MSP_CORE_GAP_NOTES] = "notes"};
	const struct msp_core_gap *gaps;
	size_t count;

	gaps = msp_core_gaps(core, &count);
	msp_json_key(json, "gaps");
	msp_json_array(json);
	for (size_t i = 0; i < count; i++) {
		msp_json_object(json);
		put_text_member(json, "kind", kinds[gaps[i].kind]);
		put_text_member(json, "name", *gaps[i].name ? gaps[i].name : NULL);
		put_text_member(json, "build_id", *gaps[i].build_id ? gaps[i].build_id : NULL);
		put_text_member(json, "why", gaps[i].why);
		msp_json_key(json, "bytes");
		msp_json_uint(json, gaps[i].bytes);
		msp_json_end(json);
	}
	msp_json_end(json);
}

void dump_json(struct dump_writer *writer, struct cli_live *live,
	       const struct msp_snapshot *snapshot)
{
	struct msp_json *json = &writer->json;
	const struct msp_vm *vms;
	size_t count;

	msp_json_key(json, "process");
	msp_json_object(json);
	msp_json_key(json, "pid");
	msp_json_int(json, live->pid);
	put_text_member(json, "name", cli_live_name(live));
	put_text_member(json, "command", cli_live_command(live));
	msp_json_end(json);
	if (live->core)
		put_signal(json, msp_core_signal(live->core));
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
	put_coroutines(writer, live, snapshot);
	if (live->core) {
		put_gaps(json, live->core);
		return;
	}
	msp_json_key(json, "stopped_us");
	msp_json_uint(json, (snapshot->stopped_ns + 999) / 1000);
}

/* SPDX-License-Identifier: MIT */
/* A dump as JSON (docs/formats.md, "Dump"). */
#include <string.h>

#include "cli/dump.h"

static void put_frame(struct dump_writer *writer, const struct dump_frame *frame)
{
	msp_json_frame_open(&writer->json, frame->frame);
	if (frame->variables)
		dump_variables_json(&writer->json, frame);
	msp_json_end(&writer->json);
}

static void put_text_member(struct msp_json *json, const char *key, const char *text)
{
	msp_json_key(json, key);
	msp_json_string(json, text);
}

static void put_stack(struct dump_writer *writer, struct msp_backtrace *backtrace)
{
	msp_json_key(&writer->json, "stack");
	msp_json_array(&writer->json);
	dump_frames(writer, backtrace, put_frame);
	msp_json_end(&writer->json);
}

static void put_thread(struct dump_writer *writer, const struct msp_thread *thread)
{
	struct msp_json *json = &writer->json;
	uint32_t trace;
	enum dump_state state = dump_state_of(thread, &trace);
	const char *reason = msp_backtrace_reason(thread->backtrace);

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
	msp_json_bool(json, !reason && thread->result == 0);
	put_text_member(json, "error", thread->result < 0 ? msp_strerror(thread->result) : reason);
	put_stack(writer, thread->backtrace);
	msp_json_end(json);
}

static void put_coroutine(struct dump_writer *writer, const struct msp_coroutine *coroutine)
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
	put_text_member(json, "error", msp_backtrace_reason(coroutine->backtrace));
	put_stack(writer, coroutine->backtrace);
	msp_json_end(json);
}

static void put_coroutines(struct dump_writer *writer)
{
	const struct msp_dump_info *info = writer->info;
	struct msp_json *json = &writer->json;

	msp_json_key(json, "coroutines");
	msp_json_array(json);
	for (size_t i = 0; i < info->coroutines; i++)
		put_coroutine(writer, msp_dump_coroutine(writer->dump, i));
	msp_json_end(json);
	msp_json_key(json, "coroutines_left_out");
	msp_json_uint(json, info->left_out);
	msp_json_key(json, "coroutines_complete");
	msp_json_bool(json, !info->left_out && !info->broken_heaps);
}

static void put_vm(struct dump_writer *writer, const struct msp_vm_info *vm)
{
	const struct msp_build *build = msp_target_build(writer->live->target, vm->build);
	struct msp_json *json = &writer->json;

	msp_json_object(json);
	msp_json_key(json, "g");
	msp_json_hex(json, vm->g);
	put_text_member(json, "version", build ? build->version : NULL);
	put_text_member(json, "object", build ? cli_base_name(build->object) : NULL);
	put_text_member(json, "arch", build ? cli_machine_name(build->machine) : NULL);
	msp_json_key(json, "gc64");
	msp_json_bool(json, build && build->gc64);
	msp_json_key(json, "jit");
	msp_json_bool(json, build && build->jit);
	msp_json_key(json, "proved");
	msp_json_bool(json, vm->proved);
	msp_json_end(json);
}

static void put_signal(struct msp_json *json, const struct msp_target_info *info)
{
	char name[DUMP_SIGNAL_SIZE];

	msp_json_key(json, "signal");
	if (!info->signal) {
		msp_json_null(json);
		return;
	}
	msp_json_object(json);
	msp_json_key(json, "number");
	msp_json_int(json, info->signal);
	put_text_member(json, "name", dump_signal_name(info->signal, name));
	msp_json_key(json, "code");
	msp_json_int(json, info->code);
	put_text_member(json, "reason", dump_signal_reason(info->signal, info->code));
	msp_json_key(json, "tid");
	msp_json_int(json, info->signal_tid);
	msp_json_key(json, "address");
	if (info->has_address)
		msp_json_hex(json, info->address);
	else
		msp_json_null(json);
	msp_json_key(json, "sender");
	if (info->signal_sender)
		msp_json_int(json, info->signal_sender);
	else
		msp_json_null(json);
	msp_json_end(json);
}

static void put_gaps(struct msp_json *json, struct msp_target *target)
{
	static const char *const kinds[] = {
		[MSP_GAP_FILE] = "file", [MSP_GAP_MEMORY] = "memory", [MSP_GAP_NOTES] = "notes"};
	const struct msp_gap *gap;

	msp_json_key(json, "gaps");
	msp_json_array(json);
	for (size_t i = 0; (gap = msp_target_gap(target, i)); i++) {
		msp_json_object(json);
		put_text_member(json, "kind", kinds[gap->kind]);
		put_text_member(json, "name", gap->name);
		put_text_member(json, "build_id", gap->build_id);
		put_text_member(json, "why", gap->why);
		msp_json_key(json, "bytes");
		msp_json_uint(json, gap->bytes);
		msp_json_end(json);
	}
	msp_json_end(json);
}

static void put_process(struct dump_writer *writer)
{
	const struct msp_target_info *info = msp_target_info(writer->live->target);
	struct msp_json *json = &writer->json;

	msp_json_key(json, "process");
	msp_json_object(json);
	msp_json_key(json, "pid");
	msp_json_int(json, writer->live->pid);
	put_text_member(json, "name", info->name);
	put_text_member(json, "command", info->command);
	msp_json_end(json);
	if (writer->live->core)
		put_signal(json, info);
}

void dump_json(struct dump_writer *writer)
{
	struct msp_json *json = &writer->json;

	put_process(writer);
	msp_json_key(json, "vms");
	msp_json_array(json);
	for (size_t i = 0; i < writer->vms; i++)
		put_vm(writer, &writer->vm[i]);
	msp_json_end(json);
	msp_json_key(json, "threads");
	msp_json_array(json);
	for (size_t i = 0; i < writer->info->threads; i++)
		put_thread(writer, msp_dump_thread(writer->dump, i));
	msp_json_end(json);
	put_coroutines(writer);
	if (writer->live->core) {
		put_gaps(json, writer->live->target);
		return;
	}
	msp_json_key(json, "stopped_us");
	msp_json_uint(json, (writer->info->stopped_ns + 999) / 1000);
}

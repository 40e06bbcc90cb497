/* SPDX-License-Identifier: MIT */
/* What text and JSON of a dump have in common. */
#include "cli/dump.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"

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

void dump_frames(struct dump_writer *writer, struct cli_live *live, const struct dump_stack *stack,
		 void (*each)(struct dump_writer *writer, struct cli_live *live,
			      const struct dump_frame *frame))
{
	size_t room = stack->count + MSP_MAX_FRAMES, n = stack->count;
	struct msp_raw_frame *inlined = malloc(room * sizeof(*inlined));
	const struct msp_raw_frame *raw = stack->frames;
	const struct msp_view *view = &writer->options->view;
	uint32_t *from = malloc(room * sizeof(*from)), own;
	struct dump_frame shown;
	struct msp_inlined info;
	struct msp_frame frame;

	if (inlined && from) {
		n = msp_symbolizer_inline(live->symbols, raw, n, inlined, from, room, &info);
		raw = inlined;
	}
	for (size_t i = 0; i < n; i++) {
		if (msp_symbolizer_frame(live->symbols, raw, n, i, &frame) > 0)
			continue;
		if (frame.vm && !view->vm_frames)
			continue;
		if (!frame.certain && view->certain)
			continue;
		shown = (struct dump_frame){.frame = &frame};
		own = raw == inlined ? from[i] : i;
		if (stack->variables && own != MSP_NOT_ON_STACK && raw[i].kind == MSP_RAW_LUA) {
			shown.variables = &stack->variables[own];
			shown.vm = msp_raw_vm_of(stack->frames, own);
		}
		each(writer, live, &shown);
	}
	free(inlined);
	free(from);
}

const char *dump_coroutine_status(int status)
{
	static const char *const texts[] = {
#define _(id, text) text,
		MSP_COROUTINES(_)
#undef _
	};

	return texts[status];
}

const char *dump_error_text(int reason)
{
	static const char *const texts[] = {
#define _(id, text) text,
		MSP_ERROR_REASONS(_)
#undef _
	};

	return reason > 0 && reason < MSP_ERROR_REASON_COUNT ? texts[reason] : NULL;
}

/* si_code of a signal that the kernel sent for an access (sigaction(2)). */
static const struct {
	int number, code;
	const char *text;
} signal_codes[] = {
	{SIGSEGV, SEGV_MAPERR, "address not mapped"},
	{SIGSEGV, SEGV_ACCERR, "access not permitted"},
	{SIGBUS, BUS_ADRALN, "address not aligned"},
	{SIGBUS, BUS_ADRERR, "no such address"},
	{SIGBUS, BUS_OBJERR, "hardware error"},
	{SIGILL, ILL_ILLOPC, "illegal opcode"},
	{SIGILL, ILL_ILLOPN, "illegal operand"},
	{SIGILL, ILL_PRVOPC, "privileged opcode"},
	{SIGFPE, FPE_INTDIV, "integer division by zero"},
	{SIGFPE, FPE_INTOVF, "integer overflow"},
	{SIGFPE, FPE_FLTDIV, "division by zero"},
};

const char *dump_signal_reason(const struct msp_core_signal *signal)
{
	for (size_t i = 0; i < sizeof(signal_codes) / sizeof(signal_codes[0]); i++)
		if (signal_codes[i].number == signal->number &&
		    signal_codes[i].code == signal->code)
			return signal_codes[i].text;
	return NULL;
}

/* "SIGSEGV"; NULL: it has no name. */
const char *dump_signal_name(int number, char buf[DUMP_SIGNAL_SIZE])
{
	const char *name = number > 0 ? sigabbrev_np(number) : NULL;

	if (name)
		snprintf(buf, DUMP_SIGNAL_SIZE, "SIG%s", name);
	return name ? buf : NULL;
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
	msp_json_key(json, "type");
	msp_json_string(json, "dumps");
	msp_json_key(json, "processes");
	msp_json_array(json);
}

int dump_process(struct dump_writer *writer, struct cli_live *live,
		 const struct msp_snapshot *snapshot)
{
	int broken = 0;

	for (size_t i = 0; i < snapshot->count; i++)
		broken += snapshot->thread[i].error || snapshot->thread[i].result < 0;
	for (size_t i = 0; i < snapshot->coroutines; i++)
		broken += snapshot->coroutine[i].error != 0;
	broken += snapshot->broken_heaps + (snapshot->left_out != 0);
	if (!writer->options->json) {
		dump_text(writer, live, snapshot);
	} else {
		msp_json_object(&writer->json);
		if (!writer->many) {
			msp_json_key(&writer->json, "schema");
			msp_json_uint(&writer->json, 1);
			msp_json_key(&writer->json, "type");
			msp_json_string(&writer->json, live->core ? "core" : "dump");
		}
		dump_json(writer, live, snapshot);
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

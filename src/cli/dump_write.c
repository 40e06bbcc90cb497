/* SPDX-License-Identifier: MIT */
/* What text and JSON of a dump have in common. */
#include "cli/dump.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/messages.h"

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

enum dump_state dump_state_of(const struct msp_thread *thread, uint32_t *trace)
{
	bool waits = thread->state == 'S' || thread->state == 'D';
	const struct msp_raw_frame *frames;
	size_t count;

	*trace = 0;
	if (thread->result < 0)
		return DUMP_STATE_UNREADABLE;
	if (thread->state == 'T')
		return DUMP_STATE_STOPPED;
	frames = msp_backtrace_raw(thread->backtrace, &count);
	for (size_t i = 0; i < count; i++) {
		const struct msp_raw_frame *f = &frames[i];

		/* The VM's busy state stands below the C frames that work for it. */
		if (f->kind != MSP_RAW_VM && f->kind != MSP_RAW_STATE)
			continue;
		if (f->kind == MSP_RAW_VM && i > 0)
			return waits ? DUMP_STATE_LUA_WAITING : DUMP_STATE_C;
		return vm_state(f, trace);
	}
	return waits ? DUMP_STATE_WAITING : DUMP_STATE_RUNNING;
}

void dump_frames(struct dump_writer *writer, struct msp_backtrace *backtrace,
		 void (*each)(struct dump_writer *writer, const struct dump_frame *frame))
{
	const struct msp_view *view = &writer->options->view;
	struct dump_frame shown = {.backtrace = backtrace};
	int n = msp_backtrace_name(backtrace);

	if (n < 0)
		writer->error = n;
	for (; (shown.frame = msp_backtrace_frame(backtrace, shown.i)); shown.i++) {
		if (shown.frame->vm && !view->vm_frames)
			continue;
		if (!shown.frame->certain && view->certain)
			continue;
		msp_backtrace_variables(backtrace, shown.i, &shown.variables);
		each(writer, &shown);
	}
	msp_backtrace_forget(backtrace); /* there may be many coroutines */
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

const char *dump_signal_reason(int number, int code)
{
	for (size_t i = 0; i < sizeof(signal_codes) / sizeof(signal_codes[0]); i++)
		if (signal_codes[i].number == number && signal_codes[i].code == code)
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

/* How much of it is broken: stacks, lists of objects. */
static size_t count_broken(const struct msp_dump *dump)
{
	const struct msp_dump_info *info = msp_dump_info(dump);
	size_t broken = (size_t)info->broken_heaps + (info->left_out != 0);

	for (size_t i = 0; i < info->threads; i++) {
		const struct msp_thread *thread = msp_dump_thread(dump, i);

		broken += thread->result < 0 || msp_backtrace_reason(thread->backtrace);
	}
	for (size_t i = 0; i < info->coroutines; i++)
		broken += msp_backtrace_reason(msp_dump_coroutine(dump, i)->backtrace) != NULL;
	return broken;
}

/* Those of the target; false: out of memory. */
static bool take_vms(struct dump_writer *writer)
{
	struct msp_target *target = writer->live->target;

	writer->vms = msp_target_info(target)->vms;
	writer->vm = calloc(writer->vms + 1, sizeof(*writer->vm));
	for (size_t i = 0; writer->vm && i < writer->vms; i++)
		writer->vm[i] = *msp_target_vm(target, i);
	return writer->vm != NULL;
}

static void write_dump(struct dump_writer *writer)
{
	struct msp_json *json = &writer->json;

	if (!writer->options->json) {
		dump_text(writer);
	} else {
		msp_json_object(json);
		if (!writer->many) {
			msp_json_key(json, "schema");
			msp_json_uint(json, 1);
			msp_json_key(json, "type");
			msp_json_string(json, writer->live->core ? "core" : "dump");
		}
		dump_json(writer);
		msp_json_end(json);
	}
	writer->written++;
}

int dump_target(struct dump_writer *writer, struct cli_live *live)
{
	struct msp_dump_options wanted = {
		.size = sizeof(wanted),
		.coroutines = writer->options->coroutines,
		.values = writer->options->locals > 2 ? 2 : writer->options->locals,
	};
	struct msp_dump *dump;
	size_t broken;
	int err;

	writer->live = live;
	writer->error = 0;
	err = msp_dump_take(live->target, &wanted, &dump);
	if (err < 0)
		return err;
	writer->dump = dump;
	writer->info = msp_dump_info(dump);
	broken = count_broken(dump);
	if (take_vms(writer))
		write_dump(writer);
	else
		writer->error = MSP_E_NOMEM;
	free(writer->vm);
	msp_dump_free(dump);
	if (writer->error) {
		cli_error("the dump is not complete", msp_strerror(writer->error),
			  "ulimit -v unlimited");
		return CLI_FAILED;
	}
	return broken ? CLI_PARTIAL : CLI_OK;
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

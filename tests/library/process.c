/* SPDX-License-Identifier: MIT */
/* A live process through the public header: what is known of it, dumps, frames, values, traces. */
#include "help.h"

#include <sys/ptrace.h>

static struct program interpreted, compiled;

static void describes(void **state)
{
	struct msp_target *target = open_target(interpreted.pid);
	const struct msp_target_info *info = msp_target_info(target);
	const struct msp_build *build;
	const struct msp_vm_info *vm;
	const struct msp_check *check;

	assert_int_equal(info->pid, interpreted.pid);
	assert_string_equal(info->name, "luajit");
	assert_non_null(strstr(info->command, "luajit -joff"));
	assert_int_equal(info->builds, 1);
	assert_int_equal(info->vms, 1);
	assert_null(msp_target_gap(target, 0));

	build = msp_target_build(target, 0);
	assert_non_null(strstr(build->version, "LuaJIT 2."));
	assert_true(build->complete && build->jit && build->ffi);
	assert_true(build->vm_end > build->vm_start &&
		    build->analysed > build->instructions * 9 / 10);
	assert_true(build->evidence > 20);
	assert_non_null(msp_target_evidence(target, 0, build->evidence - 1)->field);
	assert_null(msp_target_evidence(target, 0, msp_target_build(target, 0)->evidence));
	assert_null(msp_target_build(target, 1));
	assert_null(msp_target_probe(target, 0, 0));
	assert_null(msp_target_probe(target, 1, 0));

	vm = msp_target_vm(target, 0);
	assert_true(vm->proved && vm->readable && vm->g && vm->build == 0);
	for (size_t n = 0; n < vm->checks; n++) {
		check = msp_target_check(target, 0, n);
		assert_int_not_equal(check->result, MSP_CHECK_FAILED);
		assert_true(*check->name && *check->text);
	}
	assert_null(msp_target_vm(target, 1));
	assert_int_equal(msp_target_refresh(target), 0);
	msp_target_free(target);
}

/* Reserves as much as the shadow of a sanitizer (where the system lets it), then is as the others are. */
#define SPARSE \
	"local ffi = require 'ffi'\n" \
	"ffi.cdef 'void *mmap(void *, size_t, int, int, int, long);'\n" \
	"SPARSE = ffi.C.mmap(nil, 2^44, 3, 0x4022, -1, 0)\n"

static bool has_sparse(pid_t pid)
{
	unsigned long start, end;
	char path[32], line[4400];
	bool found = false;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "r");
	while (maps && fgets(line, sizeof(line), maps))
		found |= sscanf(line, "%lx-%lx", &start, &end) == 2 && end - start >= 1ul << 44;
	if (maps)
		fclose(maps);
	return found;
}

/* What takes pages to look at would take hours here. */
static void opens_sparse(void **state)
{
	struct program program;
	struct msp_target *target;

	start_script(&program, "-joff", SPARSE PROGRAM);
	if (!has_sparse(program.pid)) {
		print_message("not tested: the system gives no mapping of 16 TB\n");
		stop_program(&program);
		skip();
	}
	target = open_target(program.pid);
	assert_int_equal(msp_target_info(target)->vms, 1);
	assert_true(msp_target_vm(target, 0)->proved);
	msp_target_free(target);
	stop_program(&program);
}

/* Threads, and the frames of the one that runs. */
static void dumps(void **state)
{
	struct msp_target *target = open_target(interpreted.pid);
	const struct msp_thread *thread;
	struct msp_dump *dump;

	assert_int_equal(msp_dump_take(target, NULL, &dump), 0);
	assert_int_equal(msp_dump_info(dump)->threads, 1);
	assert_true(msp_dump_info(dump)->stopped_ns > 0);
	thread = msp_dump_thread(dump, 0);
	assert_int_equal(thread->tid, interpreted.pid);
	assert_true(thread->has_vm && thread->result == 0 && thread->registers.pc);
	check_stack(thread->backtrace);
	msp_backtrace_forget(thread->backtrace);
	assert_null(msp_backtrace_frame(thread->backtrace, 0));
	check_stack(thread->backtrace);
	assert_null(msp_dump_thread(dump, 1));
	assert_null(msp_dump_coroutine(dump, 0));
	msp_dump_free(dump);
	msp_target_free(target);
}

static void check_list(struct msp_backtrace *backtrace, size_t frame, const struct msp_value *list)
{
	const struct msp_value *key, *content;
	const struct msp_frame *function;
	int found = 0;

	assert_int_equal(list->type, MSP_TYPE_TABLE);
	assert_int_equal(list->entries, 4);
	for (size_t i = 0; msp_value_entry(list, i, &key, &content); i++) {
		if (key->type == MSP_TYPE_NUMBER) {
			assert_true(content->number == 10 * key->number);
			found++;
		} else if (!strcmp(key->text, "key")) {
			assert_string_equal(content->text, "value");
			found++;
		} else {
			assert_string_equal(key->text, "f");
			assert_int_equal(
				msp_backtrace_function(backtrace, frame, content, &function), 0);
			assert_string_equal(function->name, "string.rep");
			found++;
		}
	}
	assert_int_equal(found, 4);
}

static void reads_values(void **state)
{
	struct msp_dump_options options = {
		.size = sizeof(options), .values = 1, .coroutines = true};
	struct msp_target *target = open_target(interpreted.pid);
	const struct msp_variables *variables;
	const struct msp_coroutine *coroutine;
	struct msp_backtrace *backtrace;
	struct msp_dump *dump;
	int frame, seen = 0;

	assert_int_equal(msp_dump_take(target, &options, &dump), 0);
	backtrace = msp_dump_thread(dump, 0)->backtrace;
	assert_true(msp_backtrace_name(backtrace) > 0);
	frame = frame_called(backtrace, "inner");
	assert_int_equal(msp_backtrace_variables(backtrace, (size_t)frame, &variables), 0);
	for (size_t i = 0; i < variables->count; i++) {
		const struct msp_variable *v = &variables->variable[i];

		if (!strcmp(v->name, "name")) {
			assert_string_equal(v->value.text, "moon");
			seen++;
		} else if (!strcmp(v->name, "list")) {
			check_list(backtrace, (size_t)frame, &v->value);
			seen++;
		}
	}
	assert_int_equal(seen, 2);
	assert_int_equal(msp_backtrace_variables(backtrace, 100000, &variables), MSP_E_NOT_FOUND);

	for (size_t i = 0; (coroutine = msp_dump_coroutine(dump, i)); i++) {
		if (coroutine->main || coroutine->status != MSP_COROUTINE_SUSPENDED)
			continue;
		msp_backtrace_name(coroutine->backtrace);
		if (frame_called(coroutine->backtrace, "waits") >= 0)
			seen++;
	}
	assert_int_equal(seen, 3);
	msp_dump_free(dump);
	msp_target_free(target);
}

/* From registers that were given: the raw frames, and them taken again. */
static void unwinds(void **state)
{
	struct msp_target *target = open_target(interpreted.pid);
	const struct msp_raw_frame *raw, *again;
	struct msp_backtrace *backtrace, *copy;
	struct msp_registers registers;
	struct msp_dump *dump;
	size_t count, more;

	kill(interpreted.pid, SIGSTOP); /* for longer than the dump takes */
	waitpid(interpreted.pid, NULL, WUNTRACED);
	assert_int_equal(msp_dump_take(target, NULL, &dump), 0);
	registers = msp_dump_thread(dump, 0)->registers;
	assert_int_equal(msp_backtrace_new(target, &backtrace), 0);
	assert_true(msp_backtrace_unwind(backtrace, &registers) > 0);
	raw = msp_backtrace_raw(backtrace, &count);
	assert_true(count > 5);
	check_stack(backtrace);

	assert_int_equal(msp_backtrace_new(target, &copy), 0);
	assert_int_equal(msp_backtrace_set(copy, raw, count), count);
	again = msp_backtrace_raw(copy, &more);
	assert_int_equal(more, count);
	assert_memory_equal(again, raw, count * sizeof(*raw));
	check_stack(copy);
	assert_int_equal(msp_backtrace_set(copy, raw, MSP_MAX_FRAMES + 1), MSP_E_INVALID);
	assert_non_null(strstr(msp_target_error(target), "frames"));

	memset(&registers, 0, sizeof(registers)); /* nowhere */
	assert_true(msp_backtrace_unwind(backtrace, &registers) > 0);
	assert_string_equal(msp_backtrace_reason(backtrace), "pc in no known mapping");
	msp_backtrace_free(copy);
	msp_backtrace_free(backtrace);
	msp_dump_free(dump);
	kill(interpreted.pid, SIGCONT);
	msp_target_free(target);
}

/* Of the trace that starts in inner(), at its loop. */
static void check_lines(struct msp_jit *jit, size_t i)
{
	const struct msp_jit_line *line;
	bool loop = false;
	size_t count = 0;

	assert_true(msp_jit_lines(jit, i) > 0);
	for (; (line = msp_jit_line(jit, count)); count++) {
		assert_string_equal(line->place.name, "inner");
		assert_string_equal(line->chunk, "=(command line)");
		loop |= line->place.line == 3;
	}
	assert_true(loop);
	assert_int_equal(msp_jit_lines(jit, i), count);
}

static void reads_traces(void **state)
{
	struct msp_target *target = open_target(compiled.pid);
	const struct msp_jit_trace *trace;
	const struct msp_jit_info *info;
	struct msp_jit *jit;
	bool inner = false;

	assert_int_equal(msp_jit_read(target, 0, &jit), 0);
	info = msp_jit_info(jit);
	assert_true(info->traces > 0 && info->mcode > 0 && info->all_functions);
	for (size_t i = 0; (trace = msp_jit_trace(jit, i)); i++) {
		if (!trace->start.name || strcmp(trace->start.name, "inner") ||
		    strcmp(trace->linktype, "loop"))
			continue;
		assert_int_equal(trace->start.line, 3);
		assert_int_not_equal(trace->linkcode, 0);
		inner = true;
		check_lines(jit, i);
	}
	assert_true(inner);
	assert_int_equal(msp_jit_lines(jit, info->traces), MSP_E_NOT_FOUND);
	assert_null(msp_jit_line(jit, 0));
	assert_null(msp_jit_trace(jit, info->traces));
	assert_null(msp_jit_refusal(jit, info->refusals));
	msp_jit_free(jit);
	assert_int_equal(msp_jit_read(target, 7, &jit), MSP_E_NOT_FOUND);
	msp_target_free(target);
}

/* In compiled code, inner() is a frame all the same. */
static void dumps_compiled(void **state)
{
	struct msp_target *target = open_target(compiled.pid);
	struct msp_dump *dump;

	for (int i = 0; i < 20; i++) {
		assert_int_equal(msp_dump_take(target, NULL, &dump), 0);
		check_stack(msp_dump_thread(dump, 0)->backtrace);
		msp_dump_free(dump);
	}
	msp_target_free(target);
}

static void finds(void **state)
{
	const struct msp_found *found;
	struct msp_finder *finder;
	bool seen = false;
	pid_t *pids;
	int count;

	assert_int_equal(msp_finder_new(&finder), 0);
	assert_int_equal(msp_finder_look(finder, interpreted.pid, &found), 1);
	assert_int_equal(found->pid, interpreted.pid);
	assert_int_equal(found->uid, getuid());
	assert_string_equal(found->name, "luajit");
	assert_non_null(strstr(found->version, "LuaJIT"));
	assert_true(found->complete);
	assert_int_equal(msp_finder_look(finder, getpid(), &found), 0);
	assert_int_equal(msp_finder_look(finder, 0x7ffffff0, &found), MSP_E_GONE);
	msp_finder_free(finder);

	count = msp_process_find("luajit", &pids);
	assert_true(count >= 2);
	for (int i = 0; i < count; i++)
		seen |= pids[i] == compiled.pid;
	assert_true(seen);
	free(pids);
	seen = false;
	count = msp_process_children(getpid(), &pids);
	for (int i = 0; i < count; i++)
		seen |= pids[i] == compiled.pid;
	assert_true(seen);
	free(pids);
}

/* What is known without opening: of one that runs, is stopped, is traced, is gone. */
static void looks_at_processes(void **state)
{
	struct msp_process_info info = {.size = sizeof(info)};
	struct {
		struct msp_process_info known;
		uint64_t unknown;
	} newer = {.known.size = sizeof(newer), .unknown = 1};

	assert_int_equal(msp_process_look(interpreted.pid, &info), 0);
	assert_int_equal(info.pid, interpreted.pid);
	assert_string_equal(info.name, "luajit");
	assert_int_equal(info.bits, 64);
	assert_int_not_equal(info.state, 0);
	assert_int_equal(info.tracer, 0);

	kill(interpreted.pid, SIGSTOP);
	waitpid(interpreted.pid, NULL, WUNTRACED);
	assert_int_equal(msp_process_look(interpreted.pid, &info), 0);
	assert_int_equal(info.state, 'T');
	kill(interpreted.pid, SIGCONT);

	assert_int_equal(ptrace(PTRACE_SEIZE, compiled.pid, NULL, NULL), 0);
	assert_int_equal(msp_process_look(compiled.pid, &newer.known), 0);
	assert_int_equal(newer.known.tracer, getpid());
	assert_int_equal(newer.unknown, 0);
	ptrace(PTRACE_INTERRUPT, compiled.pid, NULL, NULL);
	waitpid(compiled.pid, NULL, __WALL);
	assert_int_equal(msp_process_look(compiled.pid, &newer.known), 0);
	assert_int_equal(newer.known.state, 't');
	assert_int_equal(ptrace(PTRACE_DETACH, compiled.pid, NULL, NULL), 0);

	info.size = offsetof(struct msp_process_info, tracer); /* an older caller's */
	info.tracer = 4711;
	assert_int_equal(msp_process_look(getpid(), &info), 0);
	assert_int_equal(info.pid, getpid());
	assert_int_equal(info.tracer, 4711);
	assert_int_equal(msp_process_look(0x7ffffff0, &info), MSP_E_GONE);
	assert_int_equal(info.pid, 0);
	info.size = 1;
	assert_int_equal(msp_process_look(getpid(), &info), MSP_E_INVALID);
}

static void looks_into_files(void **state)
{
	struct msp_target *target = open_target(interpreted.pid);
	const struct msp_build *build = msp_target_build(target, 0);
	char path[4096];
	int fd = -1;

	snprintf(path, sizeof(path), "%s", build->object);
	msp_target_free(target);
	assert_int_equal(msp_target_new(NULL, &target), 0);
	assert_null(msp_target_info(target));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(msp_target_add_file(target, fd, path), 1);
	build = msp_target_build(target, 0);
	assert_string_equal(build->object, path);
	assert_true(build->complete);
	assert_int_equal(msp_target_check(target, 0, 0)->result, MSP_CHECK_NOT_RUN);
	assert_int_equal(msp_target_add_file(target, open("/bin/true", O_RDONLY), "true"), 0);
	assert_int_equal(msp_target_add_file(target, open("/etc/passwd", O_RDONLY), "passwd"),
			 MSP_E_FORMAT);
	msp_target_free(target);

	/* by its name, with the libraries that it needs */
	assert_int_equal(msp_target_new(NULL, &target), 0);
	assert_true(msp_target_add_program(target, "luajit") > 0);
	assert_non_null(strstr(msp_target_build(target, 0)->object, "luajit"));
	assert_int_equal(msp_target_add_program(target, "true"), 0);
	assert_int_equal(msp_target_add_program(target, "no-such-program"), MSP_E_NOT_FOUND);
	assert_non_null(strstr(msp_target_error(target), "no-such-program"));
	msp_target_free(target);
}

static void refuses(void **state)
{
	struct msp_target_options options = {.size = sizeof(options), .no_luajit = true};
	struct msp_target *target, *sharing;
	struct msp_backtrace *backtrace;
	struct msp_dump *dump;
	struct {
		struct msp_target_options known;
		uint64_t unknown;
	} newer = {.known.size = sizeof(newer)};

	assert_string_equal(msp_strerror(MSP_E_GONE), "the process is gone");
	assert_string_equal(msp_strerror(0), "success");
	assert_true(msp_version()[0] == '0');

	assert_int_equal(msp_target_new(&newer.known, &target), 0);
	assert_string_equal(msp_target_error(target), "");
	assert_int_equal(msp_target_open_pid(target, 0x7ffffff0), MSP_E_GONE);
	assert_non_null(strstr(msp_target_error(target), "there is no process"));
	assert_int_equal(msp_dump_take(target, NULL, &dump), MSP_E_INVALID);
	assert_int_equal(msp_target_refresh(target), MSP_E_INVALID);
	assert_int_equal(msp_target_open_pid(target, interpreted.pid), 0);
	assert_int_equal(msp_target_open_pid(target, interpreted.pid), MSP_E_INVALID);
	assert_int_equal(msp_target_open_core(target, open("/bin/true", O_RDONLY)), MSP_E_INVALID);
	msp_target_free(target);
	newer.unknown = 1;
	assert_int_equal(msp_target_new(&newer.known, &target), MSP_E_INVALID);

	/* natively, and the first of two that share goes first */
	assert_int_equal(msp_target_new(&options, &target), 0);
	options.share = target;
	assert_int_equal(msp_target_new(&options, &sharing), 0);
	assert_int_equal(msp_target_open_pid(target, interpreted.pid), 0);
	msp_target_free(target);
	assert_int_equal(msp_target_open_pid(sharing, compiled.pid), 0);
	assert_int_equal(msp_target_info(sharing)->vms, 0);
	assert_int_equal(msp_backtrace_new(sharing, &backtrace), 0);
	msp_backtrace_free(backtrace);
	msp_target_free(sharing);
	msp_target_free(NULL);
}

static int start(void **state)
{
	start_program(&interpreted, "-joff");
	start_program(&compiled, "-jon");
	return 0;
}

static int end(void **state)
{
	stop_program(&interpreted);
	stop_program(&compiled);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(describes),	    cmocka_unit_test(dumps),
		cmocka_unit_test(opens_sparse),	    cmocka_unit_test(reads_values),
		cmocka_unit_test(unwinds),	    cmocka_unit_test(reads_traces),
		cmocka_unit_test(dumps_compiled),   cmocka_unit_test(finds),
		cmocka_unit_test(looks_into_files), cmocka_unit_test(looks_at_processes),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, start, end);
}

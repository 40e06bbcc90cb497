/* SPDX-License-Identifier: MIT */
#include "cli/table.h"

#include <string.h>

/* Two tables, in columns of their own. */
/* clang-format off */
const struct cli_verb_info cli_verbs[CLI_VERB_COUNT] = {
	[CLI_VERB_RECORD] = {
		.name = "record",
		.synopsis = "TARGET [OPTIONS]",
		.summary = "sample a program and write a profile",
		.text = "Samples every running thread of the target and writes where its CPU time "
			"went. Stacks are whole: kernel, C, Lua and compiled Lua in one line of "
			"callers; one that is not says so. The target is neither stopped nor changed, but for breakpoints with --probes. Recording ends after "
			"the duration, at Ctrl-C or SIGTERM, or with the target; then the profile "
			"is written. A command that was started goes on after the duration, and "
			"moonspy waits for it.",
		.needs_target = true,
		.takes = CLI_TAKES_COMMAND,
		.examples = {
			{"moonspy record -p 4711 -d 30s", "30 seconds of process 4711, as a page"},
			{"moonspy record -N nginx -o nginx.folded", "every nginx, until Ctrl-C"},
			{"moonspy record -o run.msp -- luajit app.lua", "start a program, keep everything"},
			{"moonspy record -a -r 49 -d 1m", "the whole machine for a minute"},
		},
	},
	[CLI_VERB_DUMP] = {
		.name = "dump",
		.synopsis = "TARGET [OPTIONS]",
		.summary = "print the stack of every thread, now",
		.text = "Stops the target for as long as a whole picture takes, lets it go on, says "
			"for how long it stood, and prints the stack of each thread.",
		.needs_target = true,
		.examples = {
			{"moonspy dump -p 4711", "what process 4711 does now"},
			{"moonspy dump -p 4711 -lc", "with values, and all coroutines"},
			{"moonspy dump -p 4711 -j", "the same for a program to read"},
		},
	},
	[CLI_VERB_CORE] = {
		.name = "core",
		.synopsis = "CORE [OPTIONS]",
		.summary = "print the stacks of a crashed program, from its core file",
		.text = "Prints what dump prints, from a core file of the kernel, of gcore or of "
			"systemd-coredump (zstd, lz4, xz), and for a crash the signal and the "
			"faulting address first. The programs and libraries that were mapped are "
			"looked up by their paths and taken if they are the same builds. What is "
			"missing is named, and the exit status is then 4.",
		.takes = CLI_TAKES_CORE,
		.examples = {
			{"moonspy core core.4711", "why it crashed"},
			{"moonspy core -ll core.4711", "with values, two levels of tables"},
			{"moonspy core --sysroot image/ core.zst", "of another machine or a container"},
		},
	},
	[CLI_VERB_REPORT] = {
		.name = "report",
		.synopsis = "FILE... [OPTIONS]",
		.summary = "convert, merge and filter profiles",
		.text = "Reads profiles that record wrote as msp, and those of Tarantool's sysprof, adds them "
			"up, leaves out what is not wanted, and writes the rest in any format.",
		.takes = CLI_TAKES_FILES,
		.examples = {
			{"moonspy report run.msp", "run.msp as a page, run.html"},
			{"moonspy report a.msp b.msp -o both.html", "two profiles as one"},
			{"moonspy report run.msp --lua -f folded -o -", "only Lua frames, as text"},
			{"moonspy report sysprof.bin", "what Tarantool's profiler wrote"},
		},
	},
	[CLI_VERB_TRACES] = {
		.name = "traces",
		.synopsis = "-p PID | CORE [OPTIONS]",
		.summary = "list what the JIT compiler made, and what it gave up on",
		.text = "Lists the loops and functions that are not compiled, with the reason where "
			"the compiler remembers it, and then all traces: where each comes from, "
			"how it ends, its size and where it starts. What is to be looked at comes "
			"first. With a profile of the process, written by record as msp, each has its "
			"share of the samples. A process is neither stopped nor changed.",
		.takes = CLI_TAKES_FILE,
		.examples = {
			{"moonspy traces -p 4711", "the traces of process 4711"},
			{"moonspy traces -p 4711 --samples run.msp", "with their share of a profile"},
			{"moonspy traces -p 4711 --annotate 12", "the source lines of trace 12"},
			{"moonspy traces core.4711", "of a core file"},
		},
	},
	[CLI_VERB_INSPECT] = {
		.name = "inspect",
		.synopsis = "-p PID | FILE [OPTIONS]",
		.summary = "tell whether a LuaJIT is in it, which, and how that is known",
		.text = "Prints the LuaJIT that was found in a process or in a program or library "
			"file, the evidence for each field of its layout, and, for a process, which "
			"checks of the proof passed.",
		.takes = CLI_TAKES_FILE,
		.examples = {
			{"moonspy inspect -p 4711", "the LuaJIT in process 4711"},
			{"moonspy inspect /usr/bin/luajit", "the LuaJIT in a file"},
		},
	},
	[CLI_VERB_LIST] = {
		.name = "list",
		.synopsis = "[OPTIONS]",
		.summary = "list the LuaJIT processes on this machine",
		.text = "Looks into every process it may read and lists those with a LuaJIT in them.",
		.examples = {
			{"moonspy list", "who runs LuaJIT here"},
			{"sudo moonspy list", "other users' processes too"},
		},
	},
	[CLI_VERB_DOCTOR] = {
		.name = "doctor",
		.synopsis = "[OPTIONS]",
		.summary = "tell what works here, what is missing and how to mend it",
		.text = "Checks the kernel, its settings and the rights of the user: one line a "
			"check, OK, WARN or FAIL, with the command that mends it.",
		.examples = {
			{"moonspy doctor", "as the user who will record"},
			{"moonspy doctor -p 4711", "and whether this process can be recorded"},
		},
	},
};

#define MEMBER(m) offsetof(struct msp_options, m)
#define RECORD CLI_BIT(RECORD)
#define DUMP CLI_BIT(DUMP)
#define CORE CLI_BIT(CORE)
#define REPORT CLI_BIT(REPORT)
#define TRACES CLI_BIT(TRACES)
#define INSPECT CLI_BIT(INSPECT)
#define LIST CLI_BIT(LIST)
#define DOCTOR CLI_BIT(DOCTOR)
#define EVERY (RECORD | DUMP | CORE | REPORT | TRACES | INSPECT | LIST | DOCTOR)

const struct cli_option cli_options[] = {
	{CLI_TARGET, 'p', "pid", "PID[,PID...]", NULL, NULL, CLI_PIDS, false, MEMBER(pids),
		RECORD | DUMP, "these processes"},
	{CLI_TARGET, 'p', "pid", "PID[,PID...]", NULL, NULL, CLI_PIDS, false, MEMBER(pids),
		REPORT, "only samples of these processes"},
	{CLI_TARGET, 'p', "pid", "PID", NULL, NULL, CLI_PIDS, false, MEMBER(pids),
		TRACES | INSPECT | DOCTOR, "this process"},
	{CLI_TARGET, 'N', "name", "NAME", NULL, NULL, CLI_STRING, false, MEMBER(name),
		RECORD | DUMP, "every process of that name"},
	{CLI_TARGET, 'a', "all", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(all),
		RECORD, "the whole machine"},
	{CLI_TARGET, 'a', "all", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(all),
		DUMP, "every process with a LuaJIT"},
	{CLI_TARGET, 's', "subprocesses", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(subprocesses),
		RECORD | DUMP, "their child processes too"},

	{CLI_TARGET, 0, "exe", "FILE", NULL, "by its path in the core", CLI_STRING, false,
		MEMBER(exe), CORE | TRACES, "the program that the core is of"},
	{CLI_TARGET, 0, "sysroot", "DIR", NULL, "/", CLI_STRING, false, MEMBER(sysroot),
		CORE | TRACES, "where the files lie that the core names"},

	{CLI_SAMPLING, 'd', "duration", "TIME", NULL, "until stopped", CLI_DURATION, false,
		MEMBER(duration_ns), RECORD, "how long: 30s, 2m, 500ms"},
	{CLI_SAMPLING, 'r', "rate", "HZ", NULL, "99", CLI_RATE, false, MEMBER(rate),
		RECORD, "samples a second for each running thread"},
	{CLI_SAMPLING, 'e', "event", "EVENT", "cpu", "cpu", CLI_CHOICE, false, MEMBER(event),
		RECORD, "what is sampled"},
	{CLI_SAMPLING, 0, "engine", "bpf|ptrace", "bpf|ptrace", "bpf, else ptrace", CLI_CHOICE, true,
		MEMBER(engine), RECORD, "in the kernel, or stop and read"},
	{CLI_SAMPLING, 0, "probes", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(probes),
		RECORD, "hear the VM's probes: writes breakpoints into it"},

	{CLI_SHOWN, 't', "threads", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(view.threads),
		RECORD | REPORT, "keep threads apart"},
	{CLI_SHOWN, 0, "lines", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(view.lines),
		RECORD | REPORT, "a frame a line, not a function"},
	{CLI_SHOWN, 0, "lua", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(view.lua_only),
		RECORD | REPORT, "only Lua frames"},
	{CLI_SHOWN, 0, "native", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(view.native_only),
		RECORD | REPORT, "only native frames"},
	{CLI_SHOWN, 0, "no-kernel", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(view.no_kernel),
		RECORD | REPORT, "without kernel frames"},
	{CLI_SHOWN, 0, "vm-frames", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(view.vm_frames),
		RECORD | DUMP | CORE | REPORT, "with the frames of the interpreter itself"},
	{CLI_SHOWN, 0, "certain", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(view.certain),
		RECORD | DUMP | CORE | REPORT, "without frames that are only estimates"},
	{CLI_SHOWN, 'l', "locals", NULL, NULL, NULL, CLI_COUNTER, false, MEMBER(locals),
		DUMP | CORE, "values of variables; -ll: tables in tables too"},
	{CLI_SHOWN, 'c', "coroutines", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(coroutines),
		DUMP | CORE, "every coroutine of every VM"},

	{CLI_SHOWN, 0, "samples", "FILE.msp", NULL, NULL, CLI_STRING, false, MEMBER(samples),
		TRACES, "count the samples of this profile; -: standard input"},
	{CLI_SHOWN, 0, "annotate", "NUMBER", NULL, NULL, CLI_TRACE, false, MEMBER(annotate),
		TRACES, "the lines of this trace, with their source"},

	{CLI_WRITTEN, 'o', "output", "FILE", NULL, "NAME-PID-TIME.html", CLI_STRING, false,
		MEMBER(output), RECORD, "file; -: standard output"},
	{CLI_WRITTEN, 'o', "output", "FILE", NULL, "FILE.html", CLI_STRING, false, MEMBER(output),
		REPORT, "file; -: standard output"},
	{CLI_WRITTEN, 'f', "format", "FORMAT", "html|folded|pprof|speedscope|json|msp",
		"by the ending of -o", CLI_STRING, false, MEMBER(format),
		RECORD | REPORT, "html, folded, pprof, speedscope, json, msp"},
	{CLI_WRITTEN, 0, "force", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(force),
		RECORD | REPORT, "write over an existing file"},
	{CLI_WRITTEN, 'j', "json", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(json),
		DUMP | CORE | TRACES | INSPECT | LIST | DOCTOR, "as JSON"},

	{CLI_TALK, 0, "stats", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(stats),
		RECORD | REPORT, "counters and reasons at the end"},
	{CLI_TALK, 'q', "quiet", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(quiet),
		EVERY, "only errors"},
	{CLI_TALK, 'v', "verbose", NULL, NULL, NULL, CLI_COUNTER, false, MEMBER(verbose),
		EVERY, "say more"},
	{CLI_TALK, 'h', "help", NULL, NULL, NULL, CLI_FLAG, false, MEMBER(help),
		EVERY, "this help"},
};
/* clang-format on */

const size_t cli_option_count = sizeof(cli_options) / sizeof(cli_options[0]);

const char *const cli_exit_texts[] = {
	"done",
	"failed",
	"wrong usage",
	"nothing was collected, and no file was written",
	"partial: some stacks are broken, or something of a core is missing",
	"not permitted",
	"no LuaJIT there, or one that could not be proved",
};
const size_t cli_exit_count = sizeof(cli_exit_texts) / sizeof(cli_exit_texts[0]);

const struct cli_option *cli_option_by_letter(enum cli_verb verb, char letter)
{
	for (size_t i = 0; i < cli_option_count; i++)
		if (letter && cli_options[i].letter == letter && cli_options[i].verbs & 1u << verb)
			return &cli_options[i];
	return NULL;
}

const struct cli_option *cli_option_by_name(enum cli_verb verb, const char *name, size_t length)
{
	for (size_t i = 0; i < cli_option_count; i++) {
		const struct cli_option *option = &cli_options[i];

		if (option->verbs & 1u << verb && strlen(option->name) == length &&
		    !memcmp(option->name, name, length))
			return option;
	}
	return NULL;
}

enum cli_verb cli_verb_by_name(const char *name)
{
	int verb = 0;

	while (verb < CLI_VERB_COUNT && strcmp(cli_verbs[verb].name, name))
		verb++;
	return verb;
}

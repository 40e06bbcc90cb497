/* SPDX-License-Identifier: MIT */
/* The calls around the BPF object, where the agent of examples/ does not go: what they refuse, and probes. */
#include "help.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <link.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <moonspy/plugin.h>

static struct bpf_object *object;
static struct msp_plugin *plugin;

static int map_fd(void *ctx, const char *name)
{
	return bpf_object__find_map_fd_by_name(ctx, name);
}

static int no_map(void *ctx, const char *name)
{
	return -1;
}

static void refuses(void **state)
{
	struct msp_event unknown = {.kind = MSP_RECORD_PROCESS, .pid = 0x7ffffff0};
	struct msp_sample cut = {.kind = MSP_RECORD_SAMPLE, .frame_count = 5};
	const struct msp_sample *sample;
	struct msp_backtrace *stack;

	assert_int_equal(msp_plugin_add(plugin, 0x7ffffff0), MSP_E_GONE);
	assert_non_null(strstr(msp_plugin_error(plugin), "there is no process"));
	assert_int_equal(msp_plugin_record(plugin, &cut, 3, &sample, &stack), MSP_E_FORMAT);
	assert_int_equal(msp_plugin_record(plugin, &cut, sizeof(cut), &sample, &stack),
			 MSP_E_FORMAT);
	assert_int_equal(msp_plugin_record(plugin, &unknown, sizeof(unknown), &sample, &stack), 0);
}

/* A sample of ours, as the program would send it. */
static void names(void **state)
{
	struct {
		struct msp_sample sample;
		struct msp_raw_frame frame[2];
	} record = {
		.sample = {.kind = MSP_RECORD_SAMPLE, .pid = (uint32_t)getpid(), .frame_count = 2}};
	const struct msp_sample *sample;
	struct msp_backtrace *stack;

	assert_int_equal(msp_plugin_add(plugin, getpid()), 0);
	assert_int_equal(msp_plugin_add(plugin, getpid()), 0);
	record.frame[0] = (struct msp_raw_frame){.kind = MSP_RAW_STATE, .pos = MSP_STATE_GC};
	record.frame[1] = (struct msp_raw_frame){.kind = MSP_RAW_ERROR, .pos = MSP_ERR_NO_RULE};
	assert_int_equal(msp_plugin_record(plugin, &record, sizeof(record), &sample, &stack), 1);
	assert_int_equal(sample->pid, getpid());
	assert_int_equal(msp_backtrace_name(stack), 2);
	assert_string_equal(msp_backtrace_frame(stack, 0)->name, "[gc]");
	assert_string_equal(msp_backtrace_frame(stack, 1)->name, "[error: no unwind rule]");
	assert_string_equal(msp_backtrace_reason(stack), "no unwind rule");
	assert_int_equal(msp_plugin_tick(plugin), 0);
	msp_plugin_remove(plugin, getpid());
	msp_plugin_remove(plugin, getpid());
}

/* ---- Probes ---- */

#define HITS 5

static int hits;

/* What is probed, and who calls it: the library names them. */
__attribute__((noipa)) void probed(int n)
{
	__asm__ volatile("" : : "r"(n) : "memory");
}

__attribute__((noipa)) void calls_probed(void)
{
	for (int i = 0; i < HITS; i++)
		probed(i);
	__asm__ volatile("" : : : "memory");
}

/* Where the code at an address is in this program's file. */
static int find_offset(struct dl_phdr_info *info, size_t size, void *arg)
{
	uint64_t *at = arg, address = *at - info->dlpi_addr;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && address - p->p_vaddr < p->p_filesz)
			*at = address - p->p_vaddr + p->p_offset;
	}
	return 1; /* the program is the first */
}

/* An event for each call of probed() by this thread. Negative: not here. */
static int open_uprobe(void)
{
	struct perf_event_attr attr = {.size = sizeof(attr), .sample_period = 1, .disabled = 1};
	FILE *type = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	uint64_t offset = (uint64_t)(uintptr_t)probed;

	if (!type)
		return -1;
	assert_int_equal(fscanf(type, "%u", &attr.type), 1);
	fclose(type);
	dl_iterate_phdr(find_offset, &offset);
	attr.uprobe_path = (uint64_t)(uintptr_t) "/proc/self/exe";
	attr.probe_offset = offset;
	return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static int on_record(void *ctx, void *data, size_t size)
{
	const struct msp_sample *sample;
	struct msp_backtrace *stack;
	int n;

	if (msp_plugin_record(plugin, data, size, &sample, &stack) != 1)
		return 0;
	n = msp_backtrace_name(stack);
	assert_int_equal(sample->pid, getpid());
	assert_null(msp_backtrace_reason(stack));
	assert_true(n >= 5);
	assert_string_equal(msp_backtrace_frame(stack, 0)->name, "probed");
	assert_string_equal(msp_backtrace_frame(stack, 1)->name, "calls_probed");
	assert_string_equal(msp_backtrace_frame(stack, (size_t)n - 1)->name, "_start");
	hits++;
	return 0;
}

/* Each call gives the stack at its first instruction, until the event, which is closed, is no more. */
static void hit(int event, int program)
{
	struct ring_buffer *ring = ring_buffer__new(map_fd(object, "ring"), on_record, NULL, NULL);

	assert_non_null(ring);
	assert_int_equal(ioctl(event, PERF_EVENT_IOC_SET_BPF, program), 0);
	assert_int_equal(ioctl(event, PERF_EVENT_IOC_ENABLE, 0), 0);
	hits = 0;
	calls_probed();
	close(event);
	calls_probed();
	assert_true(ring_buffer__consume(ring) >= HITS);
	assert_int_equal(hits, HITS);
	ring_buffer__free(ring);
}

/* A program of somebody else, which ends in a tail call of that one. */
static int tail_caller(int program)
{
	int programs = bpf_map_create(BPF_MAP_TYPE_PROG_ARRAY, NULL, 4, 4, 1, NULL), zero = 0;
	struct bpf_insn code[] = {
		{.code = BPF_LD | BPF_DW | BPF_IMM,
		 .dst_reg = BPF_REG_2,
		 .src_reg = BPF_PSEUDO_MAP_FD,
		 .imm = programs},
		{0},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_tail_call},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};

	assert_true(programs >= 0);
	assert_int_equal(bpf_map_update_elem(programs, &zero, &program, BPF_ANY), 0);
	return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "caller", "GPL", code,
			     sizeof(code) / sizeof(code[0]), NULL);
}

static void probes(void **state)
{
	int program = bpf_program__fd(bpf_object__find_program_by_name(object, "msp_on_probe"));
	int caller = tail_caller(program), event = open_uprobe();

	if (event < 0) {
		printf("not tested: no uprobes here\n");
		skip();
	}
	assert_int_equal(msp_plugin_add(plugin, getpid()), 0);
	hit(event, program);
	assert_true(caller >= 0);
	event = open_uprobe();
	hit(event, caller);
	close(caller);
}

static void opens(void **state)
{
	struct msp_plugin_options options = {
		.size = sizeof(options), .map_fd = no_map, .ctx = object};

	assert_int_equal(msp_plugin_map_size(NULL, "processes"), 0);
	assert_int_equal(msp_plugin_map_size(NULL, "mappings"), 262144);
	assert_int_equal(msp_plugin_new(NULL, &plugin), MSP_E_INVALID);
	assert_int_equal(msp_plugin_new(&options, &plugin), MSP_E_INVALID);
	options.map_fd = map_fd;
	assert_int_equal(msp_plugin_new(&options, &plugin), 0);
}

static int load(void)
{
	struct msp_plugin_options options = {.size = sizeof(options)};
	struct bpf_map *map;
	uint32_t size;

	bpf_object__for_each_map(
		map, object) if ((size = msp_plugin_map_size(&options, bpf_map__name(map))))
		bpf_map__set_max_entries(map, size);
	return bpf_object__load(object);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens),
		cmocka_unit_test(refuses),
		cmocka_unit_test(names),
		cmocka_unit_test(probes),
	};
	int rc;

	object = argc == 2 ? bpf_object__open_file(argv[1], NULL) : NULL;
	if (!object)
		return 2;
	if (load()) {
		printf("SKIP: BPF is not allowed here\n");
		return 77;
	}
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	msp_plugin_free(plugin);
	msp_plugin_free(NULL);
	bpf_object__close(object);
	return rc;
}

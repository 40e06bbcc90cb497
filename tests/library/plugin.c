/* SPDX-License-Identifier: MIT */
/* The calls around the BPF object, where the agent of examples/ does not go: what they refuse. */
#include "help.h"

#include <bpf/libbpf.h>

#include <moonspy/plugin.h>

static int map_fd(void *object, const char *name)
{
	return bpf_object__find_map_fd_by_name(object, name);
}

static int no_map(void *object, const char *name)
{
	return -1;
}

static void refuses(struct msp_plugin *plugin)
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
static void names(struct msp_plugin *plugin)
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

int main(int argc, char **argv)
{
	struct bpf_object *object = argc == 2 ? bpf_object__open_file(argv[1], NULL) : NULL;
	struct msp_plugin_options options = {
		.size = sizeof(options), .map_fd = map_fd, .ctx = object};
	struct msp_plugin *plugin = NULL;
	struct bpf_map *map;
	uint32_t size;

	if (!object)
		return 2;
	assert_int_equal(msp_plugin_map_size(NULL, "processes"), 0);
	assert_int_equal(msp_plugin_map_size(NULL, "mappings"), 262144);
	bpf_object__for_each_map(
		map, object) if ((size = msp_plugin_map_size(&options, bpf_map__name(map))))
		bpf_map__set_max_entries(map, size);
	if (bpf_object__load(object)) {
		printf("SKIP: BPF is not allowed here\n");
		return 77;
	}
	assert_int_equal(msp_plugin_new(NULL, &plugin), MSP_E_INVALID);
	options.map_fd = no_map;
	assert_int_equal(msp_plugin_new(&options, &plugin), MSP_E_INVALID);
	options.map_fd = map_fd;
	assert_int_equal(msp_plugin_new(&options, &plugin), 0);
	refuses(plugin);
	names(plugin);
	msp_plugin_free(plugin);
	msp_plugin_free(NULL);
	bpf_object__close(object);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * A profiler of the whole machine on moonspy's BPF plug-in (docs/plugin.md): 99 times a second it
 * takes a stack on every CPU, and prints them folded after so many seconds.
 *
 *	cc -o agent agent.c $(pkg-config --cflags --libs moonspy libbpf)
 *	sudo ./agent $(pkg-config --variable=bpf_object moonspy) 10 >stacks.folded
 */
#include <bpf/libbpf.h>
#include <err.h>
#include <linux/perf_event.h>
#include <moonspy/plugin.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct line {
	char *text;
	unsigned long count;
};

static struct msp_plugin *plugin;
static void *lines; /* a tree of struct line */

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct line *)a)->text, ((const struct line *)b)->text);
}

static void count(char *text)
{
	struct line *line = calloc(1, sizeof(*line)), **found;

	line->text = text;
	found = tsearch(line, &lines, compare);
	if (*found != line) {
		free(line->text);
		free(line);
	}
	(*found)->count++;
}

static void print(const void *node, VISIT visit, int depth)
{
	const struct line *line = *(const struct line *const *)node;

	if (visit == postorder || visit == leaf)
		printf("%s %lu\n", line->text, line->count);
}

static void put_frame(FILE *out, const struct msp_frame *frame)
{
	if (frame->vm)
		return; /* the interpreter itself */
	fputc(';', out);
	if (frame->file)
		fprintf(out, "%s (%s:%u)", frame->name, frame->file, frame->defined);
	else if (frame->name)
		fputs(frame->name, out);
	else
		fprintf(out, "%s+0x%llx", frame->object ? frame->object : "?",
			(unsigned long long)frame->address);
}

static int on_record(void *ctx, void *data, size_t size)
{
	const struct msp_sample *sample;
	struct msp_backtrace *stack;
	char *text;
	FILE *out;
	int n;

	if (msp_plugin_record(plugin, data, size, &sample, &stack) != 1)
		return 0;
	n = msp_backtrace_name(stack);
	out = open_memstream(&text, &(size_t){0});
	fprintf(out, "%.*s", (int)sizeof(sample->comm), sample->comm);
	while (n-- > 0) /* root first */
		put_frame(out, msp_backtrace_frame(stack, (size_t)n));
	fclose(out);
	count(text);
	return 0;
}

static int map_fd(void *object, const char *name)
{
	return bpf_object__find_map_fd_by_name(object, name);
}

static void attach(struct bpf_program *program)
{
	struct perf_event_attr attr = {.size = sizeof(attr),
				       .type = PERF_TYPE_SOFTWARE,
				       .config = PERF_COUNT_SW_CPU_CLOCK,
				       .sample_period = 1000000000 / 99};

	for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++) {
		int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0);

		if (fd >= 0 && !bpf_program__attach_perf_event(program, fd))
			errx(1, "cannot attach to CPU %d", cpu);
	}
}

/* What runs already is known before the first sample; what starts later, after its first. */
static void add_running(void)
{
	pid_t *pids;
	int n = msp_process_find(NULL, &pids);

	for (int i = 0; i < n; i++)
		msp_plugin_add(plugin, pids[i]);
	free(pids);
}

int main(int argc, char **argv)
{
	struct bpf_object *object = argc == 3 ? bpf_object__open_file(argv[1], NULL) : NULL;
	struct msp_plugin_options options = {
		.size = sizeof(options), .map_fd = map_fd, .ctx = object};
	struct ring_buffer *ring;
	struct bpf_map *map;
	time_t end;

	if (!object)
		errx(2, "usage: agent moonspy.bpf.o SECONDS");
	bpf_object__for_each_map(map, object) if (msp_plugin_map_size(&options, bpf_map__name(map)))
		bpf_map__set_max_entries(map, msp_plugin_map_size(&options, bpf_map__name(map)));
	bpf_program__set_autoload(bpf_object__find_program_by_name(object, "msp_on_probe"), false);
	if (bpf_object__load(object) || msp_plugin_new(&options, &plugin))
		errx(1, "cannot load %s", argv[1]);
	add_running();
	ring = ring_buffer__new(map_fd(object, "ring"), on_record, NULL, NULL);
	attach(bpf_object__find_program_by_name(object, "msp_on_event"));
	for (end = time(NULL) + atoi(argv[2]); time(NULL) < end; msp_plugin_tick(plugin))
		for (int i = 0; i < 20; i++) {
			ring_buffer__poll(ring, 50); /* wakes up for events only: */
			ring_buffer__consume(ring);  /* samples are fetched 20 times a second */
		}
	twalk(lines, print);
	return 0;
}

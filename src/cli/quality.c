/* SPDX-License-Identifier: MIT */
#include "cli/quality.h"

#include <stdio.h>
#include <string.h>

#include "cli/messages.h"
#include "output/buffer.h"
#include "output/output.h"

void cli_quality_line(const struct msp_quality *quality)
{
	char text[400];

	msp_quality_text(quality, text, sizeof(text));
	cli_note("%s", text);
}

/* What it is of may be a file's: a stranger's words. */
static void put_counter(uint64_t count, const char *kind, const char *what)
{
	struct msp_buffer text = {0};
	char digits[CLI_COUNT_SIZE];

	msp_buffer_escaped(&text, what, "");
	fprintf(stderr, "%12s  %s%.*s\n", cli_count(count, digits), kind, (int)text.size,
		text.data);
	msp_buffer_free(&text);
}

static void quality_stats(const struct msp_quality *quality)
{
	const struct {
		const char *name;
		uint64_t value;
	} counters[] = {
		{"samples", quality->samples},
		{"lost", quality->lost},
		{"whole stacks", quality->whole},
		{"truncated", quality->truncated},
		{"estimated", quality->estimated},
		{"ns a sample in BPF, mean", quality->bpf_ns_per_sample},
		{"ns a sample in BPF, median", quality->bpf_ns_median},
		{"ns a sample in BPF, 99th percentile", quality->bpf_ns_p99},
	};
	char text[CLI_COUNT_SIZE];

	cli_progress_clear();
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		fprintf(stderr, "%12s  %s\n", cli_count(counters[i].value, text), counters[i].name);
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS && quality->errors[i].reason[0]; i++)
		put_counter(quality->errors[i].count, "incomplete: ", quality->errors[i].reason);
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS && quality->ways[i].reason[0]; i++)
		put_counter(quality->ways[i].count, "second way: ", quality->ways[i].reason);
}

/* Of all VMs together. */
static void event_stats(const struct msp_profile *profile)
{
	struct msp_vm_events sum[96] = {{.event = NULL}};
	const size_t most = sizeof(sum) / sizeof(sum[0]);
	const struct msp_vm_events *events;
	size_t n = 0, k;

	for (size_t i = 0; (events = msp_profile_vm_events(profile, i)); i++) {
		for (k = 0; k < n && strcmp(sum[k].event, events->event) != 0;)
			k++;
		if (k == most) /* more than any VM has: a file that was made to harm */
			continue;
		sum[k].event = events->event;
		sum[k].count += events->count;
		n += k == n;
	}
	for (k = 0; k < n; k++)
		put_counter(sum[k].count, "", sum[k].event);
}

void cli_profile_stats(const struct msp_profile *profile)
{
	char text[CLI_COUNT_SIZE];

	quality_stats(msp_profile_quality_of(profile));
	event_stats(profile);
	fprintf(stderr, "%12s  different stacks\n",
		cli_count(msp_profile_stack_count(profile), text));
	fprintf(stderr, "%12.1f  MiB that the profile takes\n",
		(double)msp_profile_memory(profile) / (1 << 20));
}

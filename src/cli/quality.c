/* SPDX-License-Identifier: MIT */
#include "cli/quality.h"

#include <stdio.h>

#include "cli/messages.h"
#include "output/output.h"

void cli_quality_line(const struct msp_quality *quality)
{
	char text[400];

	msp_quality_text(quality, text, sizeof(text));
	cli_note("%s", text);
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
		fprintf(stderr, "%12s  incomplete: %s\n", cli_count(quality->errors[i].count, text),
			quality->errors[i].reason);
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS && quality->ways[i].reason[0]; i++)
		fprintf(stderr, "%12s  second way: %s\n", cli_count(quality->ways[i].count, text),
			quality->ways[i].reason);
}

void cli_profile_stats(const struct msp_profile *profile)
{
	char text[CLI_COUNT_SIZE];

	quality_stats(msp_profile_quality_of(profile));
	fprintf(stderr, "%12s  different stacks\n",
		cli_count(msp_profile_stack_count(profile), text));
	fprintf(stderr, "%12.1f  MiB that the profile takes\n",
		(double)msp_profile_memory(profile) / (1 << 20));
}

/* SPDX-License-Identifier: MIT */
#include "cli/quality.h"

#include <stdio.h>

#include "cli/messages.h"

/* Rounded down to a tenth: "100.0 %" is said only if it is all of them. */
static double percent(uint64_t part, uint64_t all)
{
	if (!all)
		return 0;
	return (double)(uint64_t)((double)part * 1000 / (double)all) / 10;
}

void cli_quality_line(const struct msp_quality *quality)
{
	char samples[CLI_COUNT_SIZE], lost[CLI_COUNT_SIZE], truncated[CLI_COUNT_SIZE];
	char cost[48] = "", estimated[64] = "";

	if (quality->estimated)
		snprintf(estimated, sizeof(estimated), ", %.1f %% with estimates",
			 percent(quality->estimated, quality->samples));
	if (quality->bpf_ns_per_sample)
		snprintf(cost, sizeof(cost), ", %.0f us a sample",
			 (double)quality->bpf_ns_per_sample / 1000);
	cli_note("%s samples in %.1f s (%u Hz), %s lost, %s truncated, %.1f %% whole stacks%s%s",
		 cli_count(quality->samples, samples), quality->seconds, quality->rate,
		 cli_count(quality->lost, lost), cli_count(quality->truncated, truncated),
		 percent(quality->whole, quality->samples), estimated, cost);
}

void cli_quality_stats(const struct msp_quality *quality)
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
		{"ns a sample in BPF", quality->bpf_ns_per_sample},
	};
	char text[CLI_COUNT_SIZE];

	cli_progress_clear();
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		fprintf(stderr, "%12s  %s\n", cli_count(counters[i].value, text), counters[i].name);
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS && quality->errors[i].reason[0]; i++)
		fprintf(stderr, "%12s  not whole: %s\n", cli_count(quality->errors[i].count, text),
			quality->errors[i].reason);
}

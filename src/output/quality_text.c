/* SPDX-License-Identifier: MIT */
/* The quality of a recording in one line, as people read it. */
#include "output/output.h"

/* Rounded down to a tenth: "100.0 %" is said only if it is all of them. */
static double percent(uint64_t part, uint64_t all)
{
	if (!all)
		return 0;
	return (double)(uint64_t)((double)part * 1000 / (double)all) / 10;
}

/* "2,970": thousands apart. */
static const char *count(uint64_t n, char buf[32])
{
	char *at = buf + 31;

	*at = 0;
	for (unsigned digits = 0; n || !digits; n /= 10, digits++) {
		if (digits && digits % 3 == 0)
			*--at = ',';
		*--at = (char)('0' + n % 10);
	}
	return at;
}

void msp_quality_text(const struct msp_quality *quality, char *buf, size_t size)
{
	char samples[32], lost[32], truncated[32], cost[48] = "", estimated[64] = "";

	if (quality->estimated)
		snprintf(estimated, sizeof(estimated), ", %.1f %% with estimates",
			 percent(quality->estimated, quality->samples));
	if (quality->bpf_ns_per_sample)
		snprintf(cost, sizeof(cost), ", %.0f us a sample",
			 (double)quality->bpf_ns_per_sample / 1000);
	snprintf(buf, size,
		 "%s samples in %.1f s (%u Hz), %s lost, %s truncated, %.1f %% whole stacks%s%s",
		 count(quality->samples, samples), quality->seconds, quality->rate,
		 count(quality->lost, lost), count(quality->truncated, truncated),
		 percent(quality->whole, quality->samples), estimated, cost);
}

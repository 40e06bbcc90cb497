/* SPDX-License-Identifier: MIT */
/*
 * The reader of sysprof files with any bytes. A byte of 60 says where the file is cut; what is kept of
 * it then is never more than there is of the whole.
 */
#include <stdio.h>
#include <stdlib.h>

#include "output/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct msp_profile *read_bytes(const uint8_t *data, size_t size)
{
	struct msp_profile *profile;
	char error[100];
	FILE *in = fmemopen((void *)data, size, "r");
	int err = in ? msp_read_sysprof(in, &profile, error, sizeof(error)) : -1;

	if (!in)
		return NULL;
	fclose(in);
	/* A reason is never missing, nor a profile. */
	if ((err && !error[0]) || (!err && !profile))
		abort();
	return profile;
}

static uint64_t samples(const struct msp_profile *profile)
{
	const struct msp_quality *quality = msp_profile_quality_of(profile);

	if (quality->whole + quality->truncated > quality->samples)
		abort();
	return quality->samples;
}

static void write_text(const struct msp_profile *profile)
{
	FILE *out = fopen("/dev/null", "w");

	if (out && (msp_write_folded(profile, out) || msp_write_json(profile, out)))
		abort();
	if (out)
		fclose(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct msp_profile *whole, *part;
	size_t cut = size > 60 ? size - data[60] % (size - 60) : size;

	if (!size)
		return 0;
	whole = read_bytes(data, size);
	part = read_bytes(data, cut);
	if (part && samples(part) > (whole ? samples(whole) : 0))
		abort();
	if (whole)
		write_text(whole);
	msp_profile_free(whole);
	msp_profile_free(part);
	return 0;
}

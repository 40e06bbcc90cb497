/* SPDX-License-Identifier: MIT */
/* Writes a.msp and b.msp: two small profiles for the tests of report. */
#include <stdio.h>
#include <string.h>

#include "output/output.h"
#include "profile/profile.h"

static const struct msp_frame frames[] = {
	{.kind = MSP_FRAME_NATIVE, .certain = true, .name = "main", .object = "app", .address = 16},
	{.kind = MSP_FRAME_LUA,
	 .certain = true,
	 .name = "main chunk",
	 .file = "app.lua",
	 .line = 9},
	{.kind = MSP_FRAME_JIT,
	 .certain = true,
	 .name = "handler",
	 .file = "app.lua",
	 .defined = 3,
	 .line = 4,
	 .trace = 1},
	{.kind = MSP_FRAME_FAST, .certain = true, .name = "string.gsub"},
	{.kind = MSP_FRAME_KERNEL, .certain = true, .name = "page_fault", .object = "[kernel]"},
};

/* The first n frames as one stack. */
static int add(struct msp_profile *profile, int pid, size_t n, uint64_t count)
{
	uint32_t ids[5];

	for (size_t i = 0; i < n; i++) {
		int64_t id = msp_profile_frame(profile, &frames[i]);

		if (id < 0)
			return -1;
		ids[i] = (uint32_t)id;
	}
	return msp_profile_add(profile, pid, pid, ids, n, count);
}

static int write_profile(const char *path, int pid, uint64_t count)
{
	const struct msp_format *format = msp_format_by_name("msp");
	struct msp_profile *profile = msp_profile_new();
	struct msp_quality *quality;
	FILE *out = fopen(path, "w");
	int rc = -1;

	if (!profile || !out || !format)
		goto out;
	quality = msp_profile_quality(profile);
	quality->samples = quality->whole = 3 * count;
	quality->rate = 99;
	quality->seconds = 2;
	if (add(profile, pid, 3, count) || add(profile, pid, 4, count) ||
	    add(profile, pid, 5, count) || msp_profile_set_name(profile, pid, 0, "app") ||
	    msp_profile_set_meta(profile, "command", "app") ||
	    msp_profile_set_object(profile, "app", "c0ffee", "/usr/bin/app"))
		goto out;
	rc = format->write(profile, out);
out:
	if (out && fclose(out))
		rc = -1;
	msp_profile_free(profile);
	return rc;
}

int main(void)
{
	return write_profile("a.msp", 100, 10) || write_profile("b.msp", 200, 5);
}

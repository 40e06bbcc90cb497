/* SPDX-License-Identifier: MIT */
/* A million samples with 50,000 distinct stacks: time and memory to gather them, and to each output. */
#include <malloc.h>
#include <stdlib.h>
#include <time.h>

#include "moonspy/moonspy.h"
#include "output/output.h"
#include "output_synthetic.h"

#define SAMPLES 1000000
#define STACKS 50000
#define BUDGET 2.0 /* seconds, any output */

struct times {
	double wall, cpu;
};

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct times now(void)
{
	return (struct times){seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

/* The budget is held against CPU time: what else the machine does is not the output's fault. */
static int report(const char *what, struct times start, long size)
{
	struct times end = now();
	double cpu = end.cpu - start.cpu;

	printf("%-28s %7.3f s CPU %7.3f s wall %8.1f MB%s\n", what, cpu, end.wall - start.wall,
	       (double)size / 1e6, cpu > BUDGET ? "  OVER BUDGET" : "");
	return cpu > BUDGET;
}

static int write_format(const struct msp_format *format, const struct msp_profile *profile)
{
	struct msp_view view = {0};
	FILE *out = tmpfile();
	struct times start = now();
	int err = out ? msp_format_write(format, profile, &view, out) : MSP_E_IO;

	if (err)
		fprintf(stderr, "%s: %s\n", format->name, msp_strerror(err));
	else
		err = report(format->name, start, ftell(out));
	if (out)
		fclose(out);
	return err;
}

static int read_msp(const struct msp_profile *profile)
{
	FILE *file = tmpfile();
	struct msp_profile *back = NULL;
	char error[200] = "";
	struct times start;
	int err = file ? msp_format_by_name("msp")->write(profile, file) : MSP_E_IO;

	if (!err) {
		rewind(file);
		start = now();
		err = msp_read_msp(file, &back, error, sizeof(error));
	}
	if (err)
		fprintf(stderr, "msp: %s\n", error);
	else
		err = report("msp, read", start, ftell(file));
	msp_profile_free(back);
	if (file)
		fclose(file);
	return err;
}

/* A minute at 999 Hz, with stacks as deep as programs have them. */
static void measure_memory(void)
{
	size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
	struct msp_profile *profile = synthetic_large(60000, 6000);
	size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;

	printf("%-28s %36.1f MB\n", "a minute at 999 Hz, memory", (double)(after - before) / 1e6);
	msp_profile_free(profile);
}

int main(void)
{
	struct synthetic_samples *samples = synthetic_samples(SAMPLES, STACKS);
	struct msp_profile *profile;
	const struct msp_format *format;
	int failed = 0;
	struct times start;

	if (!samples)
		return 1;
	start = now();
	profile = synthetic_gather(samples);
	failed |= report("gather, sample by sample", start, 0);
	for (size_t i = 0; (format = msp_format_at(i)); i++)
		failed |= write_format(format, profile) != 0;
	failed |= read_msp(profile) != 0;
	msp_profile_free(profile);
	synthetic_samples_free(samples);
	measure_memory();
	return failed;
}

/* SPDX-License-Identifier: MIT */
/*
 * The msp reader with any bytes. Checksums would stop nearly all of them, so they are mended first,
 * but for a third of the sizes. What is accepted is written again: the same must come back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "output/formats.h"
#include "output/msp_format.h"
#include "profile/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mend(char *file, size_t size)
{
	struct msp_section_header header;
	size_t at = sizeof(struct msp_file_header);

	if (size >= at)
		memcpy(file, MSP_FILE_MAGIC "\1", sizeof(MSP_FILE_MAGIC));
	while (at + sizeof(header) <= size) {
		char *body = file + at + sizeof(header);

		memcpy(&header, file + at, sizeof(header));
		if (header.length > size - at - sizeof(header))
			header.length = size - at - sizeof(header);
		header.body_crc = (uint32_t)crc32_z(0, (const Bytef *)body, header.length);
		header.header_crc = (uint32_t)crc32_z(0, (const Bytef *)&header, 20);
		memcpy(file + at, &header, sizeof(header));
		at += sizeof(header) + ((header.length + 7) & ~(size_t)7);
	}
}

static struct msp_profile *read_bytes(char *data, size_t size)
{
	struct msp_profile *profile;
	char error[100];
	FILE *in = fmemopen(data, size, "r");
	int err = in ? msp_read_msp(in, &profile, error, sizeof(error)) : -1;

	if (in)
		fclose(in);
	/* A reason is never missing. */
	if (in && err && !error[0])
		abort();
	return err ? NULL : profile;
}

static char *write_bytes(const struct msp_profile *profile, size_t *size)
{
	char *data = NULL;
	FILE *out = open_memstream(&data, size);

	if (msp_write_msp(profile, out))
		abort();
	fclose(out);
	return data;
}

/* A small file may stand for very long text; that is no fault of the writers. */
static void write_text(const struct msp_profile *profile)
{
	struct msp_tree tree;
	size_t frames = 0;
	FILE *out;

	if (msp_profile_tree(profile, &tree))
		abort();
	for (uint32_t i = 0; i < tree.n_counts; i++)
		for (uint32_t node = tree.counts[i].node; node; node = tree.parent[node])
			frames++;
	msp_tree_free(&tree);
	if (frames > 2000)
		return;
	out = fopen("/dev/null", "w");
	if (msp_write_folded(profile, out) || msp_write_json(profile, out) ||
	    msp_write_pprof(profile, out) || msp_write_speedscope(profile, out))
		abort();
	fclose(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct msp_profile *profile, *again;
	char *file = malloc(size + 1), *first, *second;
	size_t first_size, second_size;

	if (!size || !file) {
		free(file);
		return 0;
	}
	memcpy(file, data, size);
	if (size % 3)
		mend(file, size);
	profile = read_bytes(file, size);
	free(file);
	if (!profile)
		return 0;
	write_text(profile);
	first = write_bytes(profile, &first_size);
	again = read_bytes(first, first_size);
	if (!again)
		abort();
	second = write_bytes(again, &second_size);
	if (first_size != second_size || memcmp(first, second, first_size))
		abort();
	free(first);
	free(second);
	if (msp_profile_merge(again, profile) ||
	    msp_profile_object_count(again) != msp_profile_object_count(profile))
		abort();
	msp_profile_free(profile);
	msp_profile_free(again);
	return 0;
}

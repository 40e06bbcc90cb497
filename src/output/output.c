/* SPDX-License-Identifier: MIT */
#include "output/output.h"

#include <string.h>

#include "output/formats.h"
#include "output/sysprof_format.h"

static const struct msp_format formats[] = {
	{"html", {".html", ".htm"}, .write = msp_write_html},
	{"folded", {".folded", ".collapsed"}, .write = msp_write_folded},
	{"pprof", {".pb.gz"}, .exact = true, .write = msp_write_pprof},
	{"speedscope", {".speedscope.json"}, .write = msp_write_speedscope},
	{"json", {".json"}, .exact = true, .write = msp_write_json},
	{"msp", {".msp"}, .raw = true, .write = msp_write_msp},
};

const struct msp_format *msp_format_at(size_t i)
{
	return i < sizeof(formats) / sizeof(*formats) ? &formats[i] : NULL;
}

const struct msp_format *msp_format_by_name(const char *name)
{
	const struct msp_format *format;

	for (size_t i = 0; (format = msp_format_at(i)); i++)
		if (!strcmp(format->name, name))
			return format;
	return NULL;
}

/* The longest ending wins: "x.speedscope.json" is not json. */
const struct msp_format *msp_format_by_file(const char *path)
{
	const struct msp_format *format, *best = NULL;
	size_t size = strlen(path), longest = 0;

	for (size_t i = 0; (format = msp_format_at(i)); i++) {
		for (size_t j = 0; j < 4 && format->endings[j]; j++) {
			size_t n = strlen(format->endings[j]);

			if (n > longest && n <= size &&
			    !strcasecmp(path + size - n, format->endings[j])) {
				best = format;
				longest = n;
			}
		}
	}
	return best;
}

int msp_format_write(const struct msp_format *format, const struct msp_profile *profile,
		     const struct msp_view *asked, FILE *out)
{
	struct msp_view view = *asked;
	struct msp_profile *seen;
	int err;

	if (format->raw)
		return format->write(profile, out);
	if (format->exact)
		view.lines = view.threads = view.exact = true;
	err = msp_profile_view(profile, &view, &seen);
	if (!err)
		err = format->write(seen, out);
	msp_profile_free(seen);
	return err;
}

int msp_read_profile(FILE *in, struct msp_profile **out, char *error, size_t error_size)
{
	int first = getc(in);

	if (first != EOF)
		ungetc(first, in);
	return first == SYSPROF_SYMBOLS_MAGIC[0] ? msp_read_sysprof(in, out, error, error_size)
						 : msp_read_msp(in, out, error, error_size);
}

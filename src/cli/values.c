/* SPDX-License-Identifier: MIT */
/* Numbers and durations from text. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

bool cli_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	unsigned long long value;

	if (!isdigit((unsigned char)*text)) /* strtoull takes signs and blanks */
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || value < min || value > max)
		return false;
	*out = value;
	return true;
}

/* Nanoseconds of a unit; 0: no such unit. */
static double unit_ns(const char *unit)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"", 1e9}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(unit, units[i].name))
			return units[i].ns;
	return 0;
}

bool cli_parse_duration(const char *text, uint64_t *ns)
{
	const double longest = 10 * 365.25 * 24 * 3600e9; /* ten years: nobody means more */
	size_t digits = strspn(text, "0123456789.");
	char *end;
	double value;

	if (!isdigit((unsigned char)*text) || digits > 20)
		return false;
	value = strtod(text, &end);
	if (end != text + digits)
		return false;
	value *= unit_ns(end);
	if (!(value >= 1e6 && value <= longest)) /* below a millisecond nothing can be sampled */
		return false;
	*ns = (uint64_t)llround(value);
	return true;
}

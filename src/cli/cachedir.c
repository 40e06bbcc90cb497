/* SPDX-License-Identifier: MIT */
#include "cli/cachedir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int path_in(char *buf, size_t size, const char *base, const char *rest)
{
	return snprintf(buf, size, "%s%s", base, rest) < (int)size ? 0 : -1;
}

const char *cli_cache_dir(char *buf, size_t size)
{
	const char *dir = getenv("MOONSPY_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"),
		   *home = getenv("HOME");
	int err;

	if (dir)
		err = dir[0] ? path_in(buf, size, dir, "") : -1;
	else if (!geteuid())
		err = path_in(buf, size, "/var/cache", "/moonspy");
	else if (xdg && xdg[0] == '/')
		err = path_in(buf, size, xdg, "/moonspy");
	else if (home && home[0] == '/')
		err = path_in(buf, size, home, "/.cache/moonspy");
	else
		err = -1;
	if (err)
		return NULL;
	mkdir(buf, 0700); /* if it is there already: the cache itself checks whose it is */
	return buf;
}

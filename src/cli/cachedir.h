/* SPDX-License-Identifier: MIT */
#ifndef CLI_CACHEDIR_H
#define CLI_CACHEDIR_H

#include <stddef.h>

/*
 * Where compiled unwind tables are kept: $MOONSPY_CACHE_DIR (empty: nowhere),
 * else /var/cache/moonspy for root, else $XDG_CACHE_HOME/moonspy or
 * ~/.cache/moonspy. Makes the directory; NULL if there is none.
 */
const char *cli_cache_dir(char *buf, size_t size);

#endif

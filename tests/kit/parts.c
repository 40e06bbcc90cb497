/* SPDX-License-Identifier: MIT */
/* usage: parts LIBRARY. Which of the parts that a build can leave out are there, in one line. */
#include <stdio.h>

#include "kit.h"

int main(int argc, char **argv)
{
	struct kit kit;

	if (argc != 2)
		kit_die("usage: parts LIBRARY");
	kit_open(&kit, argv[1]);
	printf("%s%s%s%s%s\n", kit.constants->jit ? "jit " : "", kit.constants->ffi ? "ffi " : "",
	       kit.addresses->live ? "live " : "", kit.helpers->context ? "helpers " : "",
	       kit.helpers->trace_places ? "tables" : "");
	return 0;
}

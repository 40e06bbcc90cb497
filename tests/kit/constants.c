/* SPDX-License-Identifier: MIT */
/* usage: constants LIBRARY. A line for each constant of the descriptor: name and value. */
#include <stdio.h>

#include "kit.h"

int main(int argc, char **argv)
{
	struct kit kit;

	if (argc != 2)
		kit_die("usage: constants LIBRARY");
	kit_open(&kit, argv[1]);
	if (kit.head->constants.size < sizeof(struct ljvm_constants))
		kit_die("it has fewer constants than the header");
#define PRINT(name, text) printf("%s %d\n", #name, (int)kit.constants->name);
	LJVM_CONSTANTS(PRINT)
#undef PRINT
	return 0;
}

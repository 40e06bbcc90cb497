/* SPDX-License-Identifier: MIT */
/* usage: table-cost LIBRARY SCRIPT ROUNDS 0|1: runs a script with tables of traces off or on; prints the bytes of all tables. */
#include <stdio.h>
#include <stdlib.h>

#include "kit.h"

int main(int argc, char **argv)
{
	struct kit kit;
	void *L;

	if (argc != 5)
		kit_die("usage: table-cost LIBRARY SCRIPT ROUNDS 0|1");
	setenv("LUAJIT_TRACE_TABLES", argv[4], 1);
	kit_open(&kit, argv[1]);
	L = kit.newstate();
	kit.openlibs(L);
	kit_run(&kit, L, argv[2], strtol(argv[3], NULL, 10));
	if (kit.addresses->live->tables_missed)
		kit_die("%u traces got no table", kit.addresses->live->tables_missed);
	printf("%llu bytes of tables\n", (unsigned long long)kit.addresses->live->table_bytes);
	kit.close(L);
	return 0;
}

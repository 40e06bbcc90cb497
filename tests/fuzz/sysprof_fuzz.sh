#!/bin/sh
# SPDX-License-Identifier: MIT
# sysprof_fuzz.sh FUZZER RUNS: a short run that is the same each time, from a file with all kinds of events.
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/corpus"
printf 'ljs\3\0\0\0\0\1\7@fib.lu\0\0\2\7@fib.lu\3\1\20\4main\1\40\11lua_pcall\1\60\12lj_BC_CALL\1\100\4gsub\2\5\2\4\200' >"$dir/table"
{
	cat "$dir/table"
	printf 'ljp\2\0\0\0\1\1\2\3\2\101\1\1\0\200\61\101\41\21\0\11\5\2\3\4\21\0\2\3\14\200\21\0'
	printf '\12\2\6=other\4\13\160\4more\14\6\1\1'
	printf '\13\200\200\200\200\200\200\200\200\100\30mspf\1\1\4fib\0\7fib.lu\0\3\4\0\0\5'
	printf '\13\200\200\200\200\200\200\200\200\100\10msps\7\7\1\0\11\5\2\3'
	printf '\13\200\200\200\200\200\200\200\200\100\11mspe\2\350\7\350\7\200'
} >"$dir/corpus/2"
{
	cat "$dir/table"
	printf 'ljp\1\0\0\0\12\160\4more\0\161\21\0\200'
} >"$dir/corpus/1"
"$1" -seed=1 -runs="$2" -max_len=2000 -timeout=20 -rss_limit_mb=1024 -print_final_stats=1 \
	-artifact_prefix="$dir/" "$dir/corpus" 2>"$dir/log" || {
	tail -50 "$dir/log"
	for file in "$dir"/crash-* "$dir"/timeout-* "$dir"/oom-* "$dir"/leak-*; do
		[ -f "$file" ] && cp "$file" . && echo "kept: $(pwd)/$(basename "$file")"
	done
	exit 1
}
grep -E 'DONE|number_of_executed|average_exec|peak_rss' "$dir/log"

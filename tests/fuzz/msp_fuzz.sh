#!/bin/sh
# SPDX-License-Identifier: MIT
# msp_fuzz.sh FUZZER OUTPUT_FILES RUNS: a short run that is the same each time, from a real file.
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/corpus"
"$2" server msp "$dir/corpus/server"
"$1" -seed=1 -runs="$3" -max_len=4000 -timeout=20 -rss_limit_mb=1024 -print_final_stats=1 \
	-artifact_prefix="$dir/" "$dir/corpus" 2>"$dir/log" || {
	tail -50 "$dir/log"
	for file in "$dir"/crash-* "$dir"/timeout-* "$dir"/oom-* "$dir"/leak-*; do
		[ -f "$file" ] && cp "$file" . && echo "kept: $(pwd)/$(basename "$file")"
	done
	exit 1
}
grep -E 'DONE|number_of_executed|average_exec|peak_rss' "$dir/log"

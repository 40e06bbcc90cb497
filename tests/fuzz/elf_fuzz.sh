#!/bin/sh
# SPDX-License-Identifier: MIT
# A short run of the ELF fuzzer: seeds of this machine's smaller files, fixed random numbers.
# usage: elf_fuzz.sh FUZZER RUNS
set -eu
fuzzer=$1 runs=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
count=0
for file in /lib/*/libdl.so.2 /lib/*/libutil.so.1 /lib/*/libanl.so.1 /usr/bin/true /usr/bin/env \
	/usr/lib/debug/.build-id/*/*.debug; do
	[ -f "$file" ] || continue
	[ "$(wc -c <"$file")" -le 100000 ] || continue
	count=$((count + 1))
	[ $count -le 24 ] || break
	cp "$file" "$dir/seed$count"
done
# Probes: few files have any.
printf '#include "ljvm_probes.h"\nvoid f(long a, long b) { LJVM_PROBE2("vm_created", a, b); }\n' |
	cc -shared -nostdlib -fPIC -I "$(dirname "$0")/../../instrument/vm" -o "$dir/probes" -xc -
cp "$(dirname "$0")"/inputs/elf/* "$dir" # once a fault each
"$fuzzer" -seed=1 -runs="$runs" -max_len=100000 -timeout=10 -rss_limit_mb=1500 \
	-malloc_limit_mb=1100 -print_final_stats=1 -verbosity=0 -artifact_prefix="$dir/" "$dir" || {
	status=$?
	for file in "$dir"/crash-* "$dir"/timeout-* "$dir"/oom-* "$dir"/leak-*; do
		[ -f "$file" ] && cp "$file" . && echo "kept: $(pwd)/$(basename "$file")"
	done
	exit $status
}
